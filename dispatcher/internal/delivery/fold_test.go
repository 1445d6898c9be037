package delivery

import (
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// folding is a message of a day whose deliveries are these.
func folding(deliveries ...tables.Delivery) (*parcel, []target) {
	p := &parcel{m: received("m"), text: []byte("text"), setting: queue.EncodingAuto}
	p.key = tables.MessageKey{Queue: testQueue, MessageID: "m", Day: p.m.InsertedAt}
	targets := make([]target, len(deliveries))
	for i, del := range deliveries {
		del.WebhookID, del.MessageKey = string(rune('a'+i)), p.key
		targets[i] = gone(del)
	}
	return p, targets
}

func in(state tables.State, reason policy.Reason, wait time.Duration) tables.Delivery {
	return tables.Delivery{State: state, Reason: reason, NextAt: time.Now().Add(wait)}
}

// The message goes by its deliveries: what is to happen to it, why, and when it is shown again.
func TestWhatAMessageComesToByItsDeliveries(t *testing.T) {
	type outcome struct {
		action           policy.Action
		reason           policy.Reason
		delay            time.Duration
		letters, heldFor int
	}
	bubble.Test(t, func(t *testing.T) {
		delivered := tables.Delivery{State: tables.Delivered}
		letter := tables.Delivery{State: tables.DeadLettering, Reason: policy.NonRetryableError, DeadLetterID: "d"}
		for name, tt := range map[string]struct {
			deliveries []tables.Delivery
			want       outcome
		}{
			"all have it":                           {[]tables.Delivery{delivered, delivered}, outcome{policy.Complete, policy.Delivered, 0, 0, 0}},
			"one is withdrawn":                      {[]tables.Delivery{delivered, {State: tables.Withdrawn}}, outcome{policy.Complete, policy.Delivered, 0, 0, 0}},
			"no filter took it":                     {[]tables.Delivery{{State: tables.Unmatched}}, outcome{policy.Complete, policy.Unmatched, 0, 0, 0}},
			"its event was delivered":               {[]tables.Delivery{{State: tables.Duplicate}}, outcome{policy.Complete, policy.Duplicate, 0, 0, 0}},
			"one is given up":                       {[]tables.Delivery{delivered, letter}, outcome{policy.Complete, policy.NonRetryableError, 0, 1, 0}},
			"the earliest next time counts":         {[]tables.Delivery{in(tables.Pending, policy.RetryableError, time.Hour), in(tables.Pending, policy.ReceiverBusy, time.Minute)}, outcome{policy.Abandon, policy.ReceiverBusy, time.Minute, 0, 0}},
			"a next time that has passed is now":    {[]tables.Delivery{in(tables.Pending, policy.RetryableError, -time.Hour)}, outcome{policy.Abandon, policy.RetryableError, 0, 0, 0}},
			"what is given up goes before it waits": {[]tables.Delivery{letter, in(tables.Pending, policy.RetryableError, time.Hour)}, outcome{policy.Abandon, policy.RetryableError, time.Hour, 1, 0}},
			"storage hides for 7 days at most":      {[]tables.Delivery{in(tables.Held, policy.NoWebhook, 10*24*time.Hour)}, outcome{policy.Hold, policy.NoWebhook, queue.MaxDelay, 0, 1}},
			"it waits for its webhook":              {[]tables.Delivery{in(tables.Held, policy.WebhookPaused, time.Minute), delivered}, outcome{policy.Hold, policy.WebhookPaused, time.Minute, 0, 1}},
			"it waits for another message":          {[]tables.Delivery{in(tables.Held, policy.EventInWork, time.Minute)}, outcome{policy.Hold, policy.EventInWork, time.Minute, 0, 0}},
			"another holder is at it":               {[]tables.Delivery{in(tables.Pending, policy.LeaseLost, time.Hour)}, outcome{policy.NoVerdict, policy.LeaseLost, doubtDelayMax, 0, 0}},
			"it was cut short":                      {[]tables.Delivery{in(tables.Pending, policy.Stopping, 0)}, outcome{policy.NoVerdict, policy.Stopping, 0, 0, 0}},
			"it was cut short for its last time":    {[]tables.Delivery{in(tables.Pending, policy.StorageFault, 24*time.Hour-policy.ExpiryMargin+time.Second)}, outcome{policy.Complete, policy.MessageExpiring, 0, 1, 0}},
			"a lost lease is its holder's to judge": {[]tables.Delivery{in(tables.Pending, policy.LeaseLost, 24*time.Hour)}, outcome{policy.NoVerdict, policy.LeaseLost, doubtDelayMax, 0, 0}},
		} {
			p, targets := folding(tt.deliveries...)
			o := fold(p, history{}, targets)
			got := outcome{o.Action, o.Reason, o.Delay, len(o.DeadLetters), len(o.HeldFor)}
			if got != tt.want {
				t.Errorf("%s: %+v, want %+v", name, got, tt.want)
			}
		}
	})
}

func TestADeliveryThatIsGivenUpInTheEndIsOnRecordBeforeItsDeadLetter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, targets := folding(in(tables.Pending, policy.InternalFault, 24*time.Hour))
		o := fold(p, history{}, targets)
		if len(o.Records) != 1 || len(o.DeadLetters) != 1 {
			t.Fatalf("%d records and %d dead letters, want one of each", len(o.Records), len(o.DeadLetters))
		}
		want(t, "state on record", o.Records[0].Deliveries[0].State, tables.DeadLettering)
		want(t, "its dead letter", o.DeadLetters[0].Row.ID, o.Records[0].Deliveries[0].DeadLetterID)
		want(t, "why", o.DeadLetters[0].Row.Reason, policy.MessageExpiring)
	})
}

// Another program has emptied or changed the id of a dead letter that is being made: it is made all the same, under an id
// of its own, the same with each try.
func TestADeadLetterIsMadeUnderAnIDOfItsOwn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, _ := folding()
		at := time.Now().Truncate(time.Millisecond)
		own := tables.DeadLetterID(p.key, "a", 0, at)
		neighbour := tables.MessageKey{Queue: testQueue, MessageID: "n"}
		for _, id := range []string{own, "", ".", "x", tables.DeadLetterID(neighbour, "a", 0, at), tables.DeadLetterID(tables.MessageKey{Queue: "other", MessageID: "m"}, "a", 0, at)} {
			for range 2 {
				p, targets := folding(tables.Delivery{State: tables.DeadLettering, Reason: policy.NonRetryableError, DeadLetterID: id, UpdatedAt: at})
				dl := fold(p, history{}, targets).DeadLetters[0]
				want(t, "its id where the record said "+id, dl.Row.ID, own)
				want(t, "that of its record", dl.Delivery.DeadLetterID, own)
				time.Sleep(time.Minute)
			}
		}
	})
}

// A message has one copy on its poison queue, however many webhooks give it up, and when.
func TestTheFirstDeadLetterOfAMessageIsCopied(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		letter := tables.Delivery{State: tables.DeadLettering, Reason: policy.NonRetryableError, DeadLetterID: "d"}
		copies := func(p *parcel, h history, targets []target) (n int) {
			for _, dl := range fold(p, h, targets).DeadLetters {
				if dl.Copy {
					n++
				}
			}
			return n
		}
		p, targets := folding(letter, letter, letter)
		want(t, "copies of three dead letters", copies(p, history{}, targets), 1)
		p, targets = folding(letter)
		before := history{deliveries: map[string]tables.Delivery{"z": {State: tables.DeadLettered}}}
		want(t, "copies where one was made before", copies(p, before, targets), 0)
		p, targets = folding(letter, tables.Delivery{State: tables.DeadLettered})
		want(t, "copies where another instance has made one just now", copies(p, history{}, targets), 0)
		p, targets = folding(letter)
		p.replay = &tables.DeadLetter{}
		want(t, "copies of a replay, whose first dead letter has one", copies(p, history{}, targets), 0)
	})
}

func TestAReplayEndsWithItsMessageAndACopyOnlyWhereItWasTaken(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		delivered, given := tables.Delivery{State: tables.Delivered}, tables.Delivery{State: tables.DeadLettered, Reason: policy.NonRetryableError}
		waits := in(tables.Pending, policy.RetryableError, time.Hour)
		for name, tt := range map[string]struct {
			copy       bool
			deliveries []tables.Delivery
			ends       bool
		}{
			"a replay that was delivered":     {false, []tables.Delivery{delivered}, true},
			"a replay that was given up":      {false, []tables.Delivery{given}, true},
			"a replay that goes on":           {false, []tables.Delivery{delivered, waits}, false},
			"a copy that was delivered":       {true, []tables.Delivery{delivered}, true},
			"a copy that one webhook refused": {true, []tables.Delivery{delivered, given}, false},
			"a copy that goes on":             {true, []tables.Delivery{delivered, waits}, false},
		} {
			p, targets := folding(tt.deliveries...)
			row := &tables.DeadLetter{ID: "d"}
			if p.replay = row; tt.copy {
				p.replay, p.copyOf = nil, row
			}
			p.claim = &claims.Claim{}
			o := fold(p, history{}, targets)
			want(t, name+": it ends", o.ReplayEnds == row, tt.ends)
			want(t, name+": its event was delivered", o.Claim.Delivered, targets[0].delivery.State == tables.Delivered)
		}
	})
}

// A process made the copy with the dead letter that it had, and died before it could say so: another one that is given up by then gets none.
func TestTheCopyGoesWithTheDeadLetterThatWasFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		now := time.Now()
		later := tables.Delivery{State: tables.DeadLettering, Reason: policy.NonRetryableError, UpdatedAt: now}
		first := later
		first.UpdatedAt = now.Add(-time.Minute)
		p, targets := folding(later, first, later)
		var copied []bool
		letters := fold(p, history{}, targets).DeadLetters
		for _, dl := range letters {
			copied = append(copied, dl.Copy)
		}
		if !slices.Equal(copied, []bool{true, false, false}) {
			t.Errorf("with a copy: %v, want the first that is made alone", copied)
		}
		want(t, "it is that of", letters[0].Row.WebhookID, "b")
	})
}
