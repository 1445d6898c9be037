package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// limited starts a hosted dispatcher whose process may have two messages in hand, and fills it
// with two whose deletes storage refuses until the outage ends.
func (b *bench) limited(changes ...func(*Options)) (d *Dispatcher, down *outage, ended chan invoked, stop func()) {
	b.t.Helper()
	down = &outage{}
	b.queues.on("complete", down.rule(failBefore))
	b.together.on("complete-recorded", down.rule(failBefore))
	d, stop = b.run(b.options(func(o *Options) {
		o.MaxInFlight = 2
		for _, change := range changes {
			change(o)
		}
	}), hostedAlone)
	time.Sleep(time.Second)
	ended = make(chan invoked, 100)
	for i := range 2 {
		b.send(fmt.Sprint("stuck ", i))
		m := b.receiveOne()
		go func() { ended <- b.hand(d, m) }()
		time.Sleep(time.Second)
	}
	return d, down, ended, stop
}

// What a host brings beyond max_in_flight is given back by our own update: nothing piles up while
// what came before waits for storage, the host's answer can't delete it, and all of it is
// delivered once afterwards.
func TestWhatAHostBringsOverTheLimitIsGivenBack(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, down, ended, stop := b.limited()
		defer stop()
		ids := []string{}
		for i := range 20 {
			ids = append(ids, b.send(fmt.Sprint("more ", i)).ID)
			m := b.receiveOne()
			hosts := m.Lease.Receipt()
			want(t, "over the limit", b.hand(d, m), invoked{"put_off", nil})
			err := b.queue(testQueue).Complete(b.t.Context(), &queue.Message{ID: m.ID, Lease: queue.NewLease(hosts, time.Now(), time.Minute)})
			want(t, "the host can delete it", err == nil, false)
			time.Sleep(time.Millisecond)
		}
		inHand, _ := d.admission.Counts()
		want(t, "in hand", inHand, 2)
		want(t, "POSTs", b.sender.count(), 2)
		time.Sleep(10 * time.Second)
		want(t, "shown again soon", len(b.visible()), 20)
		down.end()
		for range 2 {
			want(t, "what was stuck", <-ended, invoked{"deleted", nil})
		}
		for range ids {
			messages, err := b.queue(testQueue).Receive(b.t.Context(), 1, 10*time.Minute)
			if err != nil || len(messages) != 1 {
				t.Fatalf("receive: %d messages, %v", len(messages), err)
			}
			want(t, "afterwards", b.hand(d, messages[0]), invoked{"deleted", nil})
		}
		want(t, "POSTs", b.sender.count(), 22)
		want(t, "messages left", b.total(testQueue), 0)
		inHand, _ = d.admission.Counts()
		want(t, "in hand at rest", inHand, 0)
	})
}

// A message near its end is taken over however much is in hand, since nobody would see it again.
func TestTheLimitRefusesNoMessageNearItsEnd(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, down, ended, stop := b.limited()
		defer stop()
		sent, err := b.queue(testQueue).Send(b.t.Context(), []byte("short"), queue.SendOptions{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		m := b.receiveOne()
		want(t, "at first", b.hand(d, m), invoked{"put_off", nil})
		time.Sleep(35 * time.Second)
		m = b.receiveOne()
		go func() { ended <- b.hand(d, m) }()
		time.Sleep(time.Second)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		down.end()
		for range 3 {
			want(t, "in the end", <-ended, invoked{"deleted", nil})
		}
	})
}

// One that can't be given back is left to the host: an error, which makes it show the message again.
func TestWhatCanNotBeGivenBackOverTheLimitIsTheHosts(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, down, ended, stop := b.limited()
		defer stop()
		b.queues.on("abandon", firstCalls(3, failBefore))
		b.send("more")
		m := b.receiveOne()
		if got := b.hand(d, m); got.err == nil {
			t.Errorf("the invocation: %+v", got)
		}
		want(t, "the host's receipt holds", b.queue(testQueue).Abandon(b.t.Context(), m, 0), nil)
		down.end()
		<-ended
		<-ended
		want(t, "POSTs", b.sender.count(), 2)
	})
}
