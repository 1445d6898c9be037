package journal

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/tables"
)

// C113: an attempt says that it was written late when its lease had ended, however soon after the answer, and
// in any case when storage took long.
func TestAnAttemptSaysThatItIsWrittenLate(t *testing.T) {
	for name, tt := range map[string]struct {
		ago, leased time.Duration // since the answer, and until the lease ends
		stepped     time.Duration // how far the computer's clock was set forward since
		suspended   int           // for how many seconds the machine was
		late        bool
	}{
		"in time":                                {time.Second, 20 * time.Second, 0, 0, false},
		"in time, of a slow storage":             {8 * time.Second, 20 * time.Second, 0, 0, false},
		"after a short lease":                    {2 * time.Second, -time.Second, 0, 0, true},
		"long after, under a lease that goes on": {20 * time.Second, 20 * time.Second, 0, 0, true},
		"the clock was set forward":              {time.Second, 20 * time.Second, time.Hour, 0, false},
		"long after, and the clock was set back": {20 * time.Second, 20 * time.Second, -time.Hour, 0, true},
		"the machine was suspended since":        {time.Second, 20 * time.Second, 0, 600, true},
	} {
		answered := time.Now().Add(-tt.ago)
		a := tables.Attempt{StartedAt: answered.Add(-time.Second - tt.stepped), Duration: time.Second, AnsweredAt: answered, LeasedUntil: bubble.Suspended(time.Now().Add(tt.leased), tt.suspended), Explanation: "It was taken."}
		rec := tables.Record{Attempts: []tables.Attempt{a}}
		if got := Late(rec).Attempts[0].Explanation; strings.Contains(got, "Written late") != tt.late {
			t.Errorf("%s: %q", name, got)
		}
		if rec.Attempts[0].Explanation != a.Explanation {
			t.Errorf("%s: what is tried again has been changed: %q", name, rec.Attempts[0].Explanation)
		}
	}
}

// slowStore takes its time with each record.
type slowStore struct {
	tables.Deliveries
	takes   time.Duration
	written []tables.Attempt
	states  []tables.State // of the deliveries
}

func (s *slowStore) Record(_ context.Context, rec tables.Record) error {
	time.Sleep(s.takes)
	s.written = append(s.written, rec.Attempts...)
	for _, del := range rec.Deliveries {
		s.states = append(s.states, del.State)
	}
	return nil
}

// C113: a record that was under way when the lease ended says so as well.
func TestAnAttemptWhoseLeaseEndedWhileItWasWrittenSaysSo(t *testing.T) {
	for takes, written := range map[time.Duration]int{time.Second: 1, 4 * time.Second: 2} {
		bubble.Test(t, func(t *testing.T) {
			s, now := &slowStore{takes: takes}, time.Now()
			key := tables.MessageKey{Queue: "orders", MessageID: "m"}
			newJournal(t, s).Record(t.Context(), tables.Record{
				Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "wh_a", State: tables.Delivered, Attempts: 1, UpdatedAt: now}},
				Attempts:   []tables.Attempt{{MessageKey: key, WebhookID: "wh_a", Number: 1, AnsweredAt: now, LeasedUntil: now.Add(3 * time.Second)}},
			})
			if len(s.written) != written || strings.Contains(s.written[written-1].Explanation, "Written late") != (written > 1) {
				t.Errorf("a record of %s: %+v", takes, s.written)
			}
		})
	}
}

// Meanwhile another holder may have gone on with what is not over: it is not written twice.
func TestARecordThatIsWrittenAgainTakesNothingBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, now := &slowStore{takes: 4 * time.Second}, time.Now()
		key := tables.MessageKey{Queue: "orders", MessageID: "m"}
		newJournal(t, s).Record(t.Context(), tables.Record{
			Deliveries: []tables.Delivery{
				{MessageKey: key, WebhookID: "wh_a", State: tables.Pending, Attempts: 1, UpdatedAt: now},
				{MessageKey: key, WebhookID: "wh_b", State: tables.Delivered, Attempts: 1, UpdatedAt: now},
			},
			Attempts: []tables.Attempt{{MessageKey: key, WebhookID: "wh_a", Number: 1, AnsweredAt: now, LeasedUntil: now.Add(3 * time.Second)}},
		})
		if want := []tables.State{tables.Pending, tables.Delivered, tables.Delivered}; !slices.Equal(s.states, want) {
			t.Errorf("written were %v, want %v", s.states, want)
		}
	})
}

// otherStore has what another instance has recorded meanwhile.
type otherStore struct {
	slowStore
	stored tables.Delivery
}

func (s *otherStore) Load(context.Context, tables.MessageKey) ([]tables.Delivery, error) {
	return []tables.Delivery{s.stored}, nil
}

// A record that comes after the end of its lease takes nothing back that another holder has recorded, though it is the first try.
func TestALateRecordLeavesWhatAnotherHolderRecorded(t *testing.T) {
	for name, leased := range map[string]time.Duration{"in its lease": time.Minute, "after it": -time.Second} {
		bubble.Test(t, func(t *testing.T) {
			key, now := tables.MessageKey{Queue: "orders", MessageID: "m"}, time.Now()
			s := &otherStore{stored: tables.Delivery{MessageKey: key, WebhookID: "wh_a", State: tables.Pending, Attempts: 2, Charged: 2, Instance: "second", UpdatedAt: now}}
			newJournal(t, s).Record(t.Context(), tables.Record{
				Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "wh_a", State: tables.Pending, Attempts: 1, Charged: 1, Instance: "first", UpdatedAt: now.Add(-time.Minute)}},
				Attempts:   []tables.Attempt{{MessageKey: key, WebhookID: "wh_a", Number: 1, StartedAt: now.Add(-2 * time.Second), Duration: time.Second, AnsweredAt: now.Add(-time.Second), LeasedUntil: now.Add(leased)}},
			})
			if len(s.written) != 1 || len(s.states) > 0 != (leased > 0) {
				t.Errorf("%s: written were %v and %v", name, s.states, s.written)
			}
		})
	}
}
