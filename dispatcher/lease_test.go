package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

func TestReceiverThatTakesFourLeasesGetsOnePost(t *testing.T) {
	for _, instances := range []int{1, 2} {
		inBubble(t, func(b *bench) { // C01, R7
			b.sender.takes = 40 * time.Second
			var stops []func()
			for range instances {
				_, stop := b.start(func(o *Options) { o.Lease = 10 * time.Second; o.Drain = time.Minute })
				stops = append(stops, stop)
			}
			sent := b.send("x")
			time.Sleep(time.Minute)
			for _, stop := range stops {
				stop()
			}
			want(t, "POSTs", b.sender.count(), 1)
			want(t, "messages left", b.total(testQueue), 0)
			want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
			if n := b.queues.count("renew"); n < 7 || n > 9 {
				t.Errorf("%d renewals in 40 s of a 10 s lease, want about 8", n)
			}
		})
	}
}

func TestNoMessageIsReceivedTwiceWhileManyLeasesAreHeld(t *testing.T) {
	inBubble(t, func(b *bench) { // C03 (a)
		b.sender.takes = 20 * time.Second
		for range 200 {
			b.send("x")
		}
		_, stop1 := b.start(func(o *Options) { o.Lease = 6 * time.Second; o.Concurrency = 200 })
		time.Sleep(time.Second)
		_, stop2 := b.start(func(o *Options) { o.Lease = 6 * time.Second; o.Concurrency = 200 })
		time.Sleep(time.Minute)
		stop1()
		stop2()
		want(t, "POSTs", b.sender.count(), 200)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

func TestSilentStorageDoesNotEndAPostAndTheDeleteIsAcceptedLate(t *testing.T) {
	inBubble(t, func(b *bench) { // C02 (b): nobody else receives meanwhile
		b.queues.on("renew", always(failBefore))
		b.queues.on("receive", func(n int) fault {
			if n > 1 {
				return failBefore
			}
			return 0
		})
		b.sender.takes = 25 * time.Second
		sent := b.send("x")
		_, stop := b.start(func(o *Options) { o.Lease = 10 * time.Second })
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
	})
}

func TestLostLeaseCancelsThePostAndChargesNobody(t *testing.T) {
	inBubble(t, func(b *bench) { // C02 (a)
		b.sender.takes = time.Minute
		_, stop := b.start(func(o *Options) { o.Lease = 10 * time.Second })
		sent := b.send("x")
		time.Sleep(2 * time.Second)
		b.steal(sent)
		time.Sleep(5 * time.Second) // the renewal at half of the lease is told
		renewals := b.queues.count("renew")
		del := b.delivery(sent, "wh_a")
		want(t, "state", del.State, tables.Pending)
		want(t, "reason", del.Reason, policy.LeaseLost)
		want(t, "charged", del.Charged, 0)
		want(t, "attempts", del.Attempts, 1)
		time.Sleep(time.Minute)
		want(t, "renewals after the loss", b.queues.count("renew"), renewals)
		stop()
	})
}

func TestRenewalWhoseAnswerIsLostStillLetsTheWorkFinish(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.queues.on("renew", firstCalls(1, answerLost))
		b.sender.takes = 8 * time.Second
		_, stop := b.start(func(o *Options) { o.Lease = 10 * time.Second })
		sent := b.send("x")
		time.Sleep(10 * time.Second)
		// The receipt went with the answer, so the delete is refused; the record stands.
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

func TestDeleteIsTriedUntilItIsAnswered(t *testing.T) {
	tests := []struct {
		name string
		rule func(int) fault
	}{
		{"refused twice", firstCalls(2, failBefore)},
		{"took effect, answer lost", firstCalls(1, answerLost)},
		{"refused for two leases", firstCalls(6, failBefore)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bench) { // C04, R2
				b.queues.on("complete", tt.rule)
				_, stop := b.start(func(o *Options) { o.Lease = 5 * time.Second })
				b.send("x")
				time.Sleep(2 * time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), 1)
				want(t, "messages left", b.total(testQueue), 0)
			})
		})
	}
}

// steal makes the message someone else's, as after a lapsed lease: the receipt is
// used up behind the dispatcher's back, and a second reader receives the message.
func (b *bench) steal(sent queue.Sent) {
	b.t.Helper()
	q := b.queue(testQueue)
	if err := q.Abandon(b.t.Context(), b.queues.received(sent.ID), 0); err != nil {
		b.t.Fatal(err)
	}
	got, err := q.Receive(b.t.Context(), 1, 10*time.Minute)
	if err != nil || len(got) != 1 || got[0].ID != sent.ID {
		b.t.Fatalf("stealing: %d messages, %v", len(got), err)
	}
}

func TestFailureNeverOverwritesWhatAnEarlierHolderDelivered(t *testing.T) {
	inBubble(t, func(b *bench) { // I2: storage was silent for the first holder only
		b.sender.takes = 20 * time.Second
		b.sender.answer = statuses(200, 500, 200)
		silent := &faultyQueues{Service: b.db.Queues()}
		silent.on("renew", always(failBefore))
		silent.on("receive", func(n int) fault {
			if n > 1 {
				return failBefore
			}
			return 0
		})
		sent := b.send("x")
		untold := &faultyStore{Store: b.db} // else the second one waits for what comes of the first POST
		untold.on("note", firstCalls(retry.Call.Tries, failBefore))
		_, stop1 := b.start(func(o *Options) { o.Lease, o.Queues, o.Store = 10*time.Second, silent, untold })
		time.Sleep(time.Second)
		_, stop2 := b.start(func(o *Options) { o.Lease = 10 * time.Second })
		time.Sleep(3 * time.Minute)
		stop1()
		stop2()
		want(t, "POSTs", b.sender.count(), 2) // both were under way before either ended
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "messages left", b.total(testQueue), 0)
	})
}
