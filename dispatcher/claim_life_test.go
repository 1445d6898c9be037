package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook/content"
)

// severed makes every call to storage of the dispatchers that run fail, as it is for who is
// killed; restored ends that for those that are started afterwards.
func (b *bench) severed() {
	for _, operation := range []string{"claim", "finish-claim", "release-claim", "record"} {
		b.store.on(operation, always(failBefore))
	}
	for _, operation := range []string{"receive", "renew", "complete", "abandon"} {
		b.queues.on(operation, always(failBefore))
	}
}

func (b *bench) restored() {
	for _, operation := range []string{"claim", "finish-claim", "release-claim", "record"} {
		b.store.on(operation, nil)
	}
	for _, operation := range []string{"receive", "renew", "complete", "abandon"} {
		b.queues.on(operation, nil)
	}
}

// takeOut removes a message as another program or an operator does.
func (b *bench) takeOut(sent queue.Sent) {
	b.t.Helper()
	q := b.queue(testQueue)
	ms, err := q.Receive(b.t.Context(), 1, time.Minute)
	if err != nil || len(ms) != 1 || ms[0].ID != sent.ID {
		b.t.Fatalf("received %d messages, %v", len(ms), err)
	}
	if err := q.Complete(b.t.Context(), ms[0]); err != nil {
		b.t.Fatal(err)
	}
}

// claimOn reads the claim on an event: who is not its owner and does not win it sees it.
func (b *bench) claimOn(id string) tables.Claim {
	b.t.Helper()
	key := tables.ClaimKey("event", testQueue, (&content.Event{Source: "/shop", ID: id}).Key())
	current, won, err := b.db.Claim(b.t.Context(), tables.Claim{Key: key, Owner: "a reader", At: time.Now()}, time.Now())
	if err != nil || won {
		b.t.Fatalf("nobody has the claim: %v, %v", won, err)
	}
	return current
}

// C76: a claim lasts for as long as the work that it is for, and its margin. So a copy of the
// event goes out within minutes after the process that had it was killed, and its message
// is gone.
func TestTheCopyOfAnEventIsDeliveredMinutesAfterItsHolderWasKilled(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.takes = 20 * time.Second
		_, stop := b.start(byEvent)
		first := b.send(event("1", "a"))
		time.Sleep(5 * time.Second)
		want(t, "POSTs of the first", b.sender.count(), 1)
		began := time.Now()
		// The POST, with a connection, the lease, and the margin; the claim was made within these 5 s.
		longest := b.webhook.Longest() + time.Minute + claims.Margin
		if until := b.claimOn("1").Until; until.After(began.Add(longest)) || until.Before(began.Add(longest-10*time.Second)) {
			t.Errorf("the claim lasts %s longer, want %s but for what is over", until.Sub(began), longest)
		}
		b.severed()
		stop()
		b.restored()
		time.Sleep(2 * time.Minute) // its lease, before the copy is there to be received
		b.takeOut(first)
		_, stop = b.start(byEvent)
		defer stop()
		second := b.send(event("1", "a"))
		time.Sleep(longest + otherCopyMax/2)
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "state of the copy", b.delivery(second, b.webhook.ID).State, tables.Delivered)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// The same while the message waits for its next attempt: the claim lasts over the delay.
func TestAClaimThatIsKeptForTheNextAttemptEndsSoonAfterIt(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(503)
		_, stop := b.start(byEvent)
		defer stop()
		b.send(event("1", "a"))
		time.Sleep(time.Second)
		const delay = 5 * time.Second // the first of the schedule
		kept := time.Until(b.claimOn("1").Until)
		if longest := delay + time.Minute + claims.Margin; kept > longest || kept < longest-5*time.Second {
			t.Errorf("the claim is kept for %s, want the delay, a lease and the margin: %s", kept, longest)
		}
	})
}

// C76: the message was delivered, and the claim on its event says so; the record of it was lost
// with the process, and so was the delete. The claim is by this very message.
func TestADoneClaimStandsForTheRecordThatWasLost(t *testing.T) {
	for name, restart := range map[string]bool{"after a kill": true, "in the same process": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.store.on("record", always(failBefore))
				b.queues.on("complete", always(failBefore))
				_, stop := b.start(byEvent)
				sent := b.send(event("1", "a"))
				time.Sleep(time.Minute) // which is more than a record is tried for
				want(t, "state of the claim", b.claimOn("1").State, tables.Done)
				want(t, "POSTs", b.sender.count(), 1)
				if restart {
					b.severed()
					stop()
					_, stop = b.start(byEvent)
				}
				b.restored()
				time.Sleep(10 * time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), 1)
				want(t, "messages left", b.total(testQueue), 0)
				if restart {
					want(t, "what is on record", b.delivery(sent, "").State, tables.Duplicate)
				}
			})
		})
	}
}

// C16: storage was away for longer than the claim lasted when the webhook had taken the event. A copy that comes afterwards, whoever receives it,
// is not POSTed.
func TestAnEventThatWasDeliveredInAnOutageIsKnownAfterIt(t *testing.T) {
	inBubble(t, func(b *bench) {
		out := &outage{}
		b.store.on("finish-claim", out.rule(failBefore))
		c, stop := b.byEventCounted()
		b.send(event("1", "a"))
		time.Sleep(15 * time.Minute)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "claims that could not be ended", c.sum(b.t, "pushlease.dedup.claims.unfinished"), 1)
		out.end()
		time.Sleep(10 * time.Second)
		b.severed()
		stop()
		b.restored()
		_, stop = b.start(byEvent)
		second := b.send(event("1", "a"))
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		b.wantDuplicate(second)
	})
}
