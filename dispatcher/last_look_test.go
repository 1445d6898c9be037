package dispatcher

import (
	"context"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// onAccount are the options of a process whose storage is an account, which removes what expires and tells nobody.
func onAccount(o *Options) { o.LookGap = func(string) time.Duration { return tables.ClocksApart } }

// rarest are the longest pauses that a process makes.
var rarest = map[string]func(o *Options){
	"poll_max is as long as it may be": func(o *Options) { onAccount(o); o.PollMax = 30 * time.Second },
	"six instances are counted":        func(o *Options) { onAccount(o); o.PollMax, o.Pollers = 5*time.Second, func() int { return 6 } },
}

// C54: who gave a message back until shortly before its end looks for it then, and a process that was started meanwhile knows
// nothing of that. Whatever its pauses are, it looks while the message is shown (ADR 0134).
func TestWhatAnotherProcessGaveBackUntilNearItsEndIsSeenInTime(t *testing.T) {
	const messages = 40
	for name, rare := range rarest {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.sender.answer = statuses(503)
				b.webhook.Policy.Backoff = policy.Backoff{Delays: []policy.Duration{policy.Duration(4 * time.Hour)}} // after their end
				b.webhook = b.update(b.webhook)
				_, stop := b.start(rare)
				for range messages { // so far apart that each finds the longest pauses
					b.sendText([]byte("x"), queue.SendOptions{TTL: 3 * time.Hour})
					time.Sleep(2 * time.Minute)
				}
				want(t, "POSTs", b.sender.count(), messages)
				stop()
				_, stop = b.start(rare)
				defer stop()
				time.Sleep(3 * time.Hour)
				b.wantDeadLetters(messages, policy.MessageExpiring)
			})
		})
	}
}

// What another program puts on an idle queue is delivered, however short its life of a minute and more is.
func TestAMessageOfAnotherProgramOnAnIdleQueueIsDelivered(t *testing.T) {
	const messages = 40
	for name, rare := range rarest {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				_, stop := b.start(rare)
				defer stop()
				time.Sleep(10 * time.Minute)
				for range messages {
					b.sendText([]byte("x"), queue.SendOptions{TTL: time.Minute})
					time.Sleep(3*time.Minute + 700*time.Millisecond)
				}
				want(t, "POSTs", b.sender.count(), messages)
				want(t, "dead letters", len(b.deadLetters()), 0)
			})
		})
	}
}

// laterEnds are queues as a machine sees them whose clock is behind storage's: storage's times are later by its clock.
type laterEnds struct {
	queue.Service
	by time.Duration
}

func (s laterEnds) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return laterEnd{q, s.by}, err
}

type laterEnd struct {
	queue.Queue
	by time.Duration
}

func (q laterEnd) Receive(ctx context.Context, n int, lease time.Duration) ([]*queue.Message, error) {
	messages, err := q.Queue.Receive(ctx, n, lease)
	for _, m := range messages {
		m.InsertedAt, m.ExpiresAt = m.InsertedAt.Add(q.by), m.ExpiresAt.Add(q.by)
	}
	return messages, err
}

func (q laterEnd) Peek(ctx context.Context, n int) ([]queue.Peeked, error) {
	peeked, err := q.Queue.Peek(ctx, n)
	for i := range peeked {
		peeked[i].InsertedAt, peeked[i].ExpiresAt = peeked[i].InsertedAt.Add(q.by), peeked[i].ExpiresAt.Add(q.by)
	}
	return peeked, err
}

// A clock that is half a minute behind storage's is a good one: each message has its dead letter all the same.
func TestAGoodClockThatIsBehindLosesNothingNearAnEnd(t *testing.T) {
	const messages = 20
	for name, c := range map[string]struct {
		answer  webhook.Result
		disable bool
	}{
		"tried again": {answer: webhook.Result{Status: 500}},
		"paused":      {answer: webhook.Result{Status: 429, RetryAfter: "40000"}},
		"disabled":    {disable: true},
	} {
		for _, ttl := range []time.Duration{time.Minute, 90 * time.Second, 3 * time.Minute} {
			t.Run(name+", "+ttl.String(), func(t *testing.T) {
				inBubble(t, func(b *bench) {
					b.sender.answer = func(webhook.Request, int) webhook.Result { return c.answer }
					d, stop := b.start(func(o *Options) { onAccount(o); o.Queues = laterEnds{b.db.Queues(), tables.ClocksApart / 2} })
					defer stop()
					b.setEnabled(d, !c.disable)
					for range messages {
						b.sendText([]byte("x"), queue.SendOptions{TTL: ttl})
						time.Sleep(time.Second)
					}
					time.Sleep(ttl + time.Minute)
					want(t, "dead letters", len(b.deadLetters()), messages)
					want(t, "messages that expired unseen", b.reasons()[policy.Expired], 0)
				})
			})
		}
	}
}

// A lease is no longer than half of what is left of a message's life: whoever dies with the message leaves it to others before its end.
func TestAMessageWhoseHolderDiesIsDeliveredByAnotherBeforeItsEnd(t *testing.T) {
	for _, lease := range []time.Duration{time.Minute, 10 * time.Minute, queue.MaxLease} {
		t.Run(lease.String(), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				killed, hangs := &faultyQueues{Service: b.db.Queues()}, &scripted{takes: time.Hour}
				_, stop := b.start(func(o *Options) {
					onAccount(o)
					o.Lease, o.Queues, o.Sender, o.Drain = lease, killed, hangs, time.Second
				})
				sent := b.sendText([]byte("x"), queue.SendOptions{TTL: 5 * time.Minute})
				time.Sleep(4 * time.Minute)
				want(t, "POSTs of the first", hangs.count(), 1)
				for _, op := range []string{"receive", "renew", "abandon", "complete"} {
					killed.on(op, always(failBefore))
				}
				_, stopOther := b.start(func(o *Options) { onAccount(o); o.Lease, o.Instance = lease, "other" })
				time.Sleep(2 * time.Minute)
				want(t, "POSTs of the other", b.sender.count(), 1)
				want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
				want(t, "dead letters", len(b.deadLetters()), 0)
				stopOther()
				stop()
			})
		})
	}
}

// What is dated days ahead was written by a clock that was wrong for a moment. The queue's own delay is over, so nobody waits for such a time.
func TestARecordOfAWrongClockKeepsNoMessage(t *testing.T) {
	const wrong = 9 * day
	for name, del := range map[string]tables.Delivery{
		"tried before":      {State: tables.Pending, Reason: policy.RetryableError, Attempts: 1, Charged: 1},
		"busy":              {State: tables.Held, Reason: policy.WebhookBusy, Excused: 1},
		"a POST under way":  {State: tables.Pending, Reason: policy.LeaseLost},
		"disabled meantime": {State: tables.Held, Reason: policy.WebhookDisabled, Excused: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				sent := b.sendText([]byte("x"), queue.SendOptions{})
				b.receivedInVain()
				ahead := time.Now().Add(wrong).UTC()
				del.MessageKey = tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt}
				del.WebhookID, del.UpdatedAt, del.NextAt, del.FirstAt = "wh_a", ahead, ahead.Add(5*time.Second), ahead
				if err := b.db.Record(b.t.Context(), tables.Record{Deliveries: []tables.Delivery{del}}); err != nil {
					t.Fatal(err)
				}
				b.sender.answer = statuses(500, 200)
				_, stop := b.start(nil)
				time.Sleep(2 * time.Second)
				want(t, "POSTs at once", b.sender.count(), 1)
				time.Sleep(time.Minute)
				stop()
				want(t, "POSTs by the schedule", b.sender.count(), 2)
				if len(b.sender.posts) < 2 {
					return
				}
				first := b.sender.posts[0].at
				want(t, "the second one keeps to it", b.sender.posts[1].at.Sub(first) >= 5*time.Second, true)
				want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
				want(t, "its age begins with the first POST by a right clock", b.delivery(sent, "wh_a").FirstAt.Sub(first).Abs() < 2*time.Second, true)
			})
		})
	}
}
