package settle

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// ofWebhook is a record about a webhook, with an attempt where it was posted to; with an empty id about the message.
func ofWebhook(id string, state tables.State, posted bool) tables.Record {
	r := tables.Record{Deliveries: []tables.Delivery{{MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m"}, WebhookID: id, State: state}}}
	if posted {
		r.Attempts = make([]tables.Attempt, 1)
	}
	return r
}

// What ends by no answer is decided once more where others may have gone on with a message of which too little is left for another receive.
// How much is left is asked once, when the records of its POSTs, which may take their time, are written.
func TestNearTheEndOfALifeWhatEndsIsDecidedOnceMore(t *testing.T) {
	const margin = policy.ExpiryMargin
	for name, tt := range map[string]struct {
		left, slow time.Duration
		over       bool // the lease
		cameBack   int64
		ends       bool
		lookGap    time.Duration
		renewing   error
		anew       bool
		last       string // what is asked of storage last
		result     Result
	}{
		"the message is ours":                     {margin - time.Second, 0, false, 0, true, 0, nil, false, "complete", Deleted},
		"its lease is over":                       {margin - time.Second, 0, true, 0, true, 0, queue.ErrLeaseLost, true, "complete", Deleted},
		"its lease is over before its last look":  {margin + 3*time.Second, 0, true, 0, true, 0, queue.ErrLeaseLost, false, "record pending", LeaseLost},
		"it came back":                            {margin - time.Second, 0, false, 2, true, 0, nil, true, "complete", Deleted},
		"it came back before its last look":       {margin + 3*time.Second, 0, false, 2, true, 0, nil, false, "abandon", Abandoned},
		"the record of its POST takes that long":  {margin + 3*time.Second, 5 * time.Second, true, 0, true, 0, queue.ErrBusy, true, "complete", Deleted},
		"it came back, and nobody looks for long": {margin + 3*time.Minute, 0, false, 2, true, 4 * time.Minute, nil, true, "complete", Deleted},
		"ours again, and nobody looks for long":   {margin + 3*time.Minute, 0, true, 0, true, 4 * time.Minute, nil, false, "complete", Deleted},
		"it was taken, and came back":             {margin - time.Second, 0, false, 2, false, 0, nil, false, "complete", Deleted},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := &stage{renewing: tt.renewing, cameBack: tt.cameBack, slow: tt.slow}
				m := &queue.Message{ID: "m", DequeueCount: 1, ExpiresAt: time.Now().Add(tt.left), Lease: queue.NewLease("r", time.Now(), time.Minute)}
				if tt.over {
					m.Lease = queue.NewLease("r", time.Now().Add(-time.Hour), time.Minute)
				}
				asked := false
				o := &Outcome{
					Action: policy.Complete, Records: []tables.Record{ofWebhook("wh_a", tables.Pending, true)},
					DecideAnew: func(_ context.Context, o *Outcome) bool {
						if time.Until(m.ExpiresAt) >= margin+tt.lookGap {
							return false
						}
						want(t, "asked before", asked, false)
						asked, o.Records = true, nil
						return true
					},
				}
				if tt.ends {
					o.Records = append(o.Records, ofWebhook("wh_b", tables.DeadLettering, false))
				}
				want(t, "result", settleSince(t, s, s, nil, o, m), tt.result)
				want(t, "decided anew", asked, tt.anew)
				want(t, "asked last", s.asked[len(s.asked)-1], tt.last)
				want(t, "given up on record", slices.Contains(s.asked, "record dead_lettering"), tt.ends && !tt.anew && tt.result == Deleted)
			})
		})
	}
}

// A message came back from somebody else while it was deleted together with its record: he may have found another webhook for it. What of
// it is on no record counts as a receive that proves nothing.
func TestAMessageThatComesBackWhileItIsDeletedIsReceivedAgain(t *testing.T) {
	for _, tt := range []struct {
		by     int64
		asked  []string
		result Result
	}{
		{1, []string{"complete with record", "complete"}, Deleted}, // nobody else had it
		{2, []string{"complete with record"}, LeaseLost},
	} {
		s := &stage{cameBack: tt.by, whenDeleted: func() {}}
		o := &Outcome{Action: policy.Complete, Records: []tables.Record{ofWebhook("", tables.Unmatched, false)}}
		if got := settleOn(t, s, s, o); got != tt.result || !slices.Equal(s.asked, tt.asked) {
			t.Errorf("back by %d receives: %s after %q, want %s after %q", tt.by, got, s.asked, tt.result, tt.asked)
		}
	}
}

// What is given back, since others may have gone on with it, was no duplicate so far, and no receive of which a record tells.
func TestWhatIsGivenBackUndecidedIsCountedAsNothing(t *testing.T) {
	for cameBack, putOff := range map[int64]int{0: 0, 2: 1} {
		s := &stage{cameBack: cameBack}
		o := &Outcome{Action: policy.Complete, Duplicate: "event", Records: []tables.Record{ofWebhook("", tables.Duplicate, false)}}
		settleOn(t, s, nil, o)
		want(t, "put off", s.putOff, putOff)
		want(t, "is a duplicate", o.Duplicate != "", cameBack == 0)
	}
}
