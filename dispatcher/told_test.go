package dispatcher

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// recordedWithin is how long others wait for an answer to be on record: 16 s to learn what others did, 25 s to write,
// and a minute for clocks that differ.
const recordedWithin = 101 * time.Second

// A lease can't be renewed while its POST is under way. Whoever receives the message then finds
// that on record, and waits for the outcome: there is one POST, and no attempt but its own (ADR 0058).
func TestAPostWhoseLeaseCouldNotBeRenewedIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		state  tables.State
		second int // POSTs of the other holder within two minutes
	}{"taken": {200, tables.Delivered, 0}, "refused": {500, tables.Delivered, 1}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.Timeout = 250 * time.Second
				b.webhook.Policy.MaxAttempts = 3
				b.update(b.webhook)
				silent, receiving := &faultyQueues{Service: b.db.Queues()}, &outage{}
				silent.on("renew", always(failBefore))
				first, second := &scripted{takes: 70 * time.Second, answer: statuses(c.status)}, &scripted{answer: statuses(200)}
				_, stop := b.start(func(o *Options) { o.Queues, o.Instance, o.Sender = silent, "first", first })
				sent := b.send("x")
				time.Sleep(5 * time.Second)
				silent.on("receive", receiving.rule(failBefore))
				_, stopOther := b.start(func(o *Options) { o.Instance, o.Sender = "second", second })
				time.Sleep(60 * time.Second)
				told := b.delivery(sent, "wh_a")
				want(t, "state meanwhile", told.State, tables.Pending)
				want(t, "reason meanwhile", told.Reason, policy.LeaseLost)
				want(t, "attempts meanwhile", told.Attempts, 0)
				time.Sleep(55 * time.Second)
				stop()
				stopOther()
				want(t, "POSTs of the first", first.count(), 1)
				want(t, "POSTs of the second", second.count(), c.second)
				del := b.delivery(sent, "wh_a")
				want(t, "state", del.State, c.state)
				want(t, "attempts", del.Attempts, 1+c.second)
				want(t, "attempts charged", del.Charged, 1+c.second)
				want(t, "messages left", b.total(testQueue), 0)
			})
		})
	}
}

// apart is the store of an instance whose clock is so far ahead of the others': what they say of times is earlier by it.
type apart struct {
	Store
	by time.Duration
}

func (s apart) Load(ctx context.Context, key tables.MessageKey) ([]tables.Delivery, error) {
	list, err := s.Store.Load(ctx, key)
	for i := range list {
		list[i] = shifted(list[i], -s.by)
	}
	return list, err
}

func (s apart) Record(ctx context.Context, r tables.Record) error {
	r.Deliveries = slices.Clone(r.Deliveries)
	for i := range r.Deliveries {
		r.Deliveries[i] = shifted(r.Deliveries[i], s.by)
	}
	return s.Store.Record(ctx, r)
}

// shifted is a delivery by another clock.
func shifted(d tables.Delivery, by time.Duration) tables.Delivery {
	for _, at := range []*time.Time{&d.NextAt, &d.UpdatedAt, &d.FirstAt, &d.LastAt} {
		if !at.IsZero() {
			*at = at.Add(by)
		}
	}
	return d
}

// C83, C63: who reads the note has a clock that is less than a minute off, which nobody is told of.
func TestAPostIsWaitedForByAnInstanceWhoseClockIsOff(t *testing.T) {
	for _, ahead := range []time.Duration{-50 * time.Second, 50 * time.Second} {
		t.Run(ahead.String(), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.Timeout = 35 * time.Second
				b.update(b.webhook)
				silent, receiving := &faultyQueues{Service: b.db.Queues()}, &outage{}
				silent.on("renew", always(failBefore))
				first := &scripted{takes: 69 * time.Second, answer: statuses(200)} // of two tries
				_, stop := b.start(func(o *Options) { o.Queues, o.Instance, o.Sender = silent, "first", first })
				sent := b.send("x")
				time.Sleep(5 * time.Second)
				silent.on("receive", receiving.rule(failBefore))
				second := &scripted{answer: statuses(200)}
				_, stopOther := b.start(func(o *Options) { o.Instance, o.Sender, o.Store = "second", second, apart{b.db, ahead} })
				time.Sleep(4 * time.Minute)
				stop()
				stopOther()
				want(t, "POSTs of the first", first.count(), 1)
				want(t, "POSTs of the second", second.count(), 0)
				want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
				want(t, "messages left", b.total(testQueue), 0)
			})
		})
	}
}

// Whoever told of its POST and died is waited for no longer than that POST could have lasted.
func TestAPostWhoseHolderDiedIsNotWaitedForForEver(t *testing.T) {
	inBubble(t, func(b *bench) {
		silent := &faultyQueues{Service: b.db.Queues()}
		silent.on("renew", always(failBefore))
		silent.on("abandon", always(failBefore))
		dead := &faultyStore{Store: b.db}
		dead.on("record", always(failBefore)) // it has told, and then nothing more comes of it
		_, stop := b.start(func(o *Options) {
			o.Queues, o.Store, o.Instance, o.Lease, o.Drain = silent, dead, "first", 30*time.Second, time.Second
			o.Sender = &scripted{takes: 50 * time.Second, answer: statuses(200)}
		})
		sent := b.send("x")
		sentAt := time.Now()
		time.Sleep(27 * time.Second)
		want(t, "told", b.delivery(sent, "wh_a").Reason, policy.LeaseLost)
		stop()
		second := &scripted{answer: statuses(200)}
		_, stopOther := b.start(func(o *Options) { o.Instance, o.Sender = "second", second })
		time.Sleep(3 * time.Minute)
		stopOther()
		want(t, "POSTs of the second", second.count(), 1)
		bound := b.webhook.Longest() + recordedWithin
		if late := second.posts[0].at.Sub(sentAt); late < bound-time.Second || late > bound+10*time.Second {
			t.Errorf("POSTed %s after the first POST began, which may last %s with its record", late, bound)
		}
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// What is well tells nobody: not one record more than without any fault, where renewals are
// refused and then answered.
func TestARenewalThatIsAnsweredLateTellsNobody(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Timeout = 2 * time.Minute
		b.update(b.webhook)
		b.queues.on("renew", firstCalls(2, failBefore))
		b.sender.takes = 70 * time.Second
		var records atomic.Int64
		for _, kind := range []string{"record", "note"} {
			b.store.on(kind, func(int) fault { records.Add(1); return 0 })
		}
		sent := b.send("x")
		_, stop := b.start(nil)
		time.Sleep(65 * time.Second)
		want(t, "records while the POST is under way", records.Load(), 0)
		time.Sleep(30 * time.Second)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
	})
}

// silenced runs a first dispatcher that can neither renew nor receive, and whose POST of sent takes so
// long, and beside it another one.
func (b *bench) silenced(takes time.Duration, status int) (sent queue.Sent, second *scripted, stop func()) {
	silent, receiving := &faultyQueues{Service: b.db.Queues()}, &outage{}
	silent.on("renew", always(failBefore))
	_, stopFirst := b.start(func(o *Options) {
		o.Queues, o.Instance, o.Sender = silent, "first", &scripted{takes: takes, answer: statuses(status)}
	})
	sent = b.send("x")
	time.Sleep(5 * time.Second)
	silent.on("receive", receiving.rule(failBefore))
	second = &scripted{answer: statuses(200)}
	_, stopSecond := b.start(func(o *Options) { o.Instance, o.Sender = "second", second })
	return sent, second, func() { stopFirst(); stopSecond() }
}

// Each look at a message of another holder's raises its count of receives. That proves nothing against
// it, neither while that one POSTs nor afterwards.
func TestLooksAtAPostOfAnotherHolderAreNoSuspicion(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Timeout = 5 * time.Minute // of each of two tries
		b.webhook.Policy.MaxAttempts = 2
		b.update(b.webhook)
		sent, second, stop := b.silenced(10*time.Minute, 500)
		time.Sleep(9 * time.Minute)
		want(t, "told", b.delivery(sent, "wh_a").Reason, policy.LeaseLost)
		want(t, "POSTs of the second meanwhile", second.count(), 0)
		time.Sleep(2 * time.Minute)
		stop()
		want(t, "POSTs of the second", second.count(), 1)
		want(t, "messages left", b.total(testQueue), 0)
		all := b.attempts(sent)
		if last := all[len(all)-1]; last.DequeueCount < 12 {
			t.Errorf("the message was received %d times, want so many that they would be suspect", last.DequeueCount)
		}
		want(t, "noted as suspected", strings.Contains(b.log.String(), "many times without an outcome"), false)
	})
}

// What an operator does with the webhook meanwhile is no reason to POST the message twice.
func TestAPostOfAnotherHolderIsWaitedForWhateverBecomesOfItsWebhook(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"disabled and enabled": func(b *bench) { // beside another one, for which the queue is looked at
			b.webhook.Enabled = false
			b.webhook = b.update(b.webhook)
			time.Sleep(70 * time.Second)
			b.webhook.Enabled = true
			b.webhook = b.update(b.webhook)
		},
		"deleted and registered anew": func(b *bench) {
			if err := b.db.DeleteWebhook(b.t.Context(), "wh_a", ""); err != nil {
				b.t.Fatal(err)
			}
			b.register("wh_b", nil)
		},
		"deleted, beside another one": func(b *bench) {
			b.register("wh_b", func(r *tables.Registration) { r.CreatedAt = r.CreatedAt.Add(-time.Hour) })
			if err := b.db.DeleteWebhook(b.t.Context(), "wh_a", ""); err != nil {
				b.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.Timeout = 250 * time.Second
				b.webhook = b.update(b.webhook)
				if name == "disabled and enabled" {
					b.register("wh_other", func(r *tables.Registration) { r.Timeout = b.webhook.Timeout })
				}
				sent, second, stop := b.silenced(200*time.Second, 200)
				time.Sleep(50 * time.Second)
				want(t, "told", b.delivery(sent, "wh_a").Reason, policy.LeaseLost)
				change(b)
				time.Sleep(4 * time.Minute)
				stop()
				want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
				posts := 0
				for _, post := range second.posts {
					if post.webhook == "wh_a" || name != "deleted, beside another one" {
						posts++
					}
				}
				want(t, "POSTs of the second", posts, 0)
				want(t, "messages left", b.total(testQueue), 0)
			})
		})
	}
}
