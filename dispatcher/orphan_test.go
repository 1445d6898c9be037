package dispatcher

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

func TestDeletedWebhookIsWithdrawnAndTheOthersSettleTheMessage(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", nil)
		s := &perWebhook{scripted: b.sender, statuses: map[string][]int{"wh_a": {200}, "wh_b": {500}}}
		d, stop := b.start(func(o *Options) { o.Sender = s })
		sent := b.send("x")
		time.Sleep(2 * time.Second)
		if err := b.db.DeleteWebhook(b.t.Context(), "wh_b", ""); err != nil {
			t.Fatal(err)
		}
		d.RegistryChanged()
		time.Sleep(time.Minute)
		stop()
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "a", b.delivery(sent, "wh_a").State, tables.Delivered)
		del := b.delivery(sent, "wh_b")
		want(t, "b", del.State, tables.Withdrawn)
		want(t, "reason", del.Reason, policy.WebhookDeleted)
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "dead letters", len(b.deadLetters()), 0)
	})
}

// shortList leaves a webhook out of what it lists: because its row can't be read, or
// because the whole list can't be asked any more after a first time without it.
type shortList struct {
	*faultyStore
	hidden     string
	unreadable bool
	healed     atomic.Bool
	readings   atomic.Int64
}

func (s *shortList) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	all, bad, err := s.faultyStore.ListWebhooks(ctx)
	if s.healed.Load() {
		return all, bad, err
	}
	if s.readings.Add(1) > 1 && !s.unreadable {
		return nil, nil, errLost
	}
	all = slices.DeleteFunc(all, func(r tables.Registration) bool { return r.ID == s.hidden })
	if s.unreadable {
		bad = append(bad, tables.RowError{ID: s.hidden, Err: errors.New("injected")})
	}
	return all, bad, err
}

func TestMessageIsNotCompletedWithoutAWebhookThatThisProcessCannotSee(t *testing.T) {
	for _, unreadable := range []bool{true, false} {
		inBubble(t, func(b *bench) {
			b.register("wh_b", nil)
			s := &perWebhook{scripted: b.sender, statuses: map[string][]int{"wh_a": {200}, "wh_b": {500, 200}}}
			_, stop := b.start(func(o *Options) { o.Sender = s })
			sent := b.send("x")
			time.Sleep(2 * time.Second)
			stop()

			blind := &shortList{faultyStore: b.store, hidden: "wh_b", unreadable: unreadable}
			_, stop = b.start(func(o *Options) { o.Sender, o.Store = s, blind })
			time.Sleep(5 * time.Minute)
			want(t, "messages left", b.total(testQueue), 1)
			want(t, "b is not given up", b.delivery(sent, "wh_b").State, tables.Pending)
			blind.healed.Store(true)
			time.Sleep(10 * time.Minute)
			stop()
			want(t, "messages left", b.total(testQueue), 0)
			want(t, "b", b.delivery(sent, "wh_b").State, tables.Delivered)
			want(t, "charged", b.delivery(sent, "wh_b").Charged, 2)
			want(t, "POSTs", b.sender.count(), 3)
			want(t, "dead letters", len(b.deadLetters()), 0)
		})
	}
}

// A delivery whose webhook this process cannot see says nothing about a POST to another
// one that kills.
func TestMessageThatKillsItsProcessIsPoisonAlsoWhileAnotherWebhookIsNotSeen(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", nil)
		b.sender.answer = statuses(500)
		_, stop := b.start(nil)
		sent := b.send("x")
		time.Sleep(2 * time.Second)
		stop()
		want(t, "b is under way", b.delivery(sent, "wh_b").State, tables.Pending)
		kills := 0
		for ; len(b.deadLetters()) == 0 && kills < 60; kills++ {
			b.killedBeside(func(o *Options) {
				o.Store = &shortList{faultyStore: b.store, hidden: "wh_b", unreadable: true}
			})
		}
		if most := 8 + poisonMargin + poisonProofs + 4; kills > most {
			t.Errorf("given up after %d starts, want at most %d", kills, most)
		}
	})
}
