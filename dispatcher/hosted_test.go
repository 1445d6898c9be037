package dispatcher

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// receiveOne leases the only message of the bench's queue, as a host does, which does not say for how
// long.
func (b *bench) receiveOne() *queue.Message {
	b.t.Helper()
	messages, err := b.queue(testQueue).Receive(b.t.Context(), 1, 10*time.Minute)
	if err != nil || len(messages) != 1 {
		b.t.Fatalf("receive = %d messages, %v", len(messages), err)
	}
	m := messages[0]
	m.Lease = queue.NewLease(m.Lease.Receipt(), time.Now(), 0)
	return m
}

// invoked is what came of one invocation.
type invoked struct {
	result Result
	err    error
}

// hand hands a message over as a host does.
func (b *bench) hand(d *Dispatcher, m *queue.Message) invoked {
	q, err := b.queues.Queue(testQueue)
	if err != nil {
		b.t.Error(err)
	}
	result, err := d.HandleHosted(b.t.Context(), q, m, func() {})
	return invoked{result, err}
}

// From the take-over on the lease is ours: as long as the host's is, and half as long again.
func TestAPostUnderAHostTakesAsLongAsItsWebhookAllows(t *testing.T) {
	inBubble(t, func(b *bench) {
		const takes = 15 * time.Minute
		b.webhook.Timeout = time.Hour
		b.webhook = b.update(b.webhook)
		b.sender.takes = takes
		d, stop := b.startHosted()
		defer stop()
		sent := b.send("slow")
		m := b.receiveOne()
		hosts := m.Lease.Receipt()
		start := time.Now()
		want(t, "the invocation", b.hand(d, m), invoked{"deleted", nil})
		want(t, "it took", time.Since(start), takes)
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "the host's receipt is stale", m.Lease.Receipt() != hosts, true)
	})
}

// C66: what counts as deleted is what storage has deleted, and not what a host is to delete.
func TestADeletionUnderAHostIsCountedWhenItIsMade(t *testing.T) {
	inBubble(t, func(b *bench) {
		down := &outage{}
		b.queues.on("complete", down.rule(failBefore))
		b.together.on("complete-recorded", down.rule(failBefore))
		d, stop := b.startHosted()
		defer stop()
		b.send("x")
		m := b.receiveOne()
		ended := make(chan invoked)
		go func() { ended <- b.hand(d, m) }()
		time.Sleep(time.Minute)
		want(t, "deleted while storage refuses", statusOf(d, testQueue).Deletions.Successful, 0)
		down.end()
		want(t, "the invocation", <-ended, invoked{"deleted", nil})
		want(t, "deleted", statusOf(d, testQueue).Deletions.Successful, 1)
		want(t, "POSTs", b.sender.count(), 1)
	})
}

func TestNothingIsPostedThatWasNotTakenOver(t *testing.T) {
	t.Run("the host was slower than its lease", func(t *testing.T) {
		inBubble(t, func(b *bench) {
			d, stop := b.startHosted()
			defer stop()
			b.send("x")
			late := b.receiveOne()
			time.Sleep(11 * time.Minute)
			again := b.receiveOne()
			if got := b.hand(d, late); !errors.Is(got.err, queue.ErrLeaseLost) {
				t.Errorf("the late invocation: %+v", got)
			}
			want(t, "POSTs", b.sender.count(), 0)
			want(t, "the other receiver's", b.hand(d, again), invoked{"deleted", nil})
			want(t, "POSTs", b.sender.count(), 1)
		})
	})
	t.Run("storage is away", func(t *testing.T) {
		inBubble(t, func(b *bench) {
			b.queues.on("renew", firstCalls(3, failBefore))
			d, stop := b.startHosted()
			defer stop()
			b.send("x")
			m := b.receiveOne()
			if got := b.hand(d, m); !errors.Is(got.err, queue.ErrBusy) {
				t.Errorf("the invocation: %+v", got)
			}
			want(t, "POSTs", b.sender.count(), 0)
			want(t, "the host's lease holds", b.hand(d, m), invoked{"deleted", nil})
		})
	})
	t.Run("the webhooks can't be read", func(t *testing.T) {
		inBubble(t, func(b *bench) {
			b.store.on("list-webhooks", always(failBefore))
			d, stop := b.startHosted()
			defer stop()
			b.send("x")
			if got := b.hand(d, b.receiveOne()); got.err == nil {
				t.Errorf("the invocation: %+v", got)
			}
			want(t, "POSTs", b.sender.count(), 0)
			b.store.on("list-webhooks", nil)
			time.Sleep(30 * time.Second) // and not the host's 10 minutes
			want(t, "the next invocation", b.hand(d, b.receiveOne()), invoked{"deleted", nil})
		})
	})
}

// A take-over whose answer is lost may have been made. It is asked for again: where it was not
// the message is delivered, and where it was nobody has the receipt, and the lease ends.
func TestATakeOverWithoutAnAnswerIsAskedForAgain(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.queues.on("renew", firstCalls(1, failBefore))
		d, stop := b.startHosted()
		defer stop()
		b.send("x")
		want(t, "the invocation", b.hand(d, b.receiveOne()), invoked{"deleted", nil})
		want(t, "POSTs", b.sender.count(), 1)
	})
	inBubble(t, func(b *bench) {
		b.queues.on("renew", firstCalls(1, answerLost))
		d, stop := b.startHosted()
		defer stop()
		b.send("x")
		if got := b.hand(d, b.receiveOne()); !errors.Is(got.err, queue.ErrLeaseLost) {
			t.Errorf("the invocation: %+v", got)
		}
		want(t, "POSTs", b.sender.count(), 0)
		time.Sleep(90 * time.Second)
		want(t, "within 90 s", b.hand(d, b.receiveOne()), invoked{"deleted", nil})
		want(t, "POSTs", b.sender.count(), 1)
	})
}

// A process that is lost with messages in hand keeps them away for one short lease of ours, and not for
// the host's ten minutes, nor for as long as POSTs were seen to take.
func TestWhatALostInstanceHadComesBackWithOurLease(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.run(b.options(func(o *Options) {
			o.Lease, o.Hosted = 0, func(string) bool { return true }
		}), hostedAlone)
		time.Sleep(time.Second)
		b.webhook.Timeout = 2 * time.Hour
		b.webhook = b.update(b.webhook)
		d.RegistryChanged()
		b.sender.takes = 400 * time.Second
		b.send("measured")
		want(t, "the first one", b.hand(d, b.receiveOne()), invoked{"deleted", nil})
		b.sender.takes = time.Hour
		const inHand = 24
		ended := make(chan invoked)
		for range inHand {
			b.send("x")
			m := b.receiveOne()
			go func() { ended <- b.hand(d, m) }()
			time.Sleep(time.Second)
		}
		time.Sleep(40 * time.Minute) // they were renewed all the time
		want(t, "visible", len(b.visible()), 0)
		b.queues.on("renew", always(failBefore))
		b.queues.on("abandon", always(failBefore))
		time.Sleep(90 * time.Second)
		want(t, "visible again within 90 s", len(b.visible()), inHand)
		go stop()
		for range inHand {
			<-ended
		}
	})
}

// What is held keeps its receipt, and is shown when its webhook can be sent to again.
func TestMessagesHeldUnderAHostGoOnWithTheirWebhook(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Enabled = false
		b.webhook = b.update(b.webhook)
		d, stop := b.startHosted()
		defer stop()
		b.send("x")
		want(t, "the invocation", b.hand(d, b.receiveOne()), invoked{"abandoned", nil})
		time.Sleep(30 * time.Second)
		want(t, "visible while it is disabled", len(b.visible()), 0)
		b.setEnabled(d, true)
		time.Sleep(2 * time.Second)
		want(t, "the invocation", b.hand(d, b.receiveOne()), invoked{"deleted", nil})
	})
}

func TestInFlightIsWhateverIsAtWorkWhoeverReceivedIt(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.takes = 10 * time.Second
		d, stop := b.startHosted()
		defer stop()
		b.send("from the host")
		m := b.receiveOne()
		go b.hand(d, m)
		time.Sleep(time.Second)
		want(t, "in flight for the host", statusOf(d, testQueue).InFlight, 1)
		time.Sleep(10 * time.Second)
		want(t, "in flight afterwards", statusOf(d, testQueue).InFlight, 0)
	})
	inBubble(t, func(b *bench) {
		b.sender.takes = 10 * time.Second
		d, stop := b.start(nil)
		defer stop()
		b.send("when the poller is stopped")
		time.Sleep(3 * time.Second)
		b.setEnabled(d, false)
		want(t, "polling", statusOf(d, testQueue).Polling, false)
		want(t, "in flight of a stopped poller", statusOf(d, testQueue).InFlight, 1)
		time.Sleep(20 * time.Second)
		want(t, "in flight afterwards", statusOf(d, testQueue).InFlight, 0)
	})
}

// asHost receives for d as a host does, every second, until stopped; it returns the number
// of invocations.
func (b *bench) asHost(d *Dispatcher) (stop func() (invocations int)) {
	end, ended := make(chan struct{}), make(chan int)
	go func() {
		n, q := 0, b.queue(testQueue)
		var running sync.WaitGroup
		for t := time.NewTicker(time.Second); ; {
			select {
			case <-end:
				t.Stop()
				running.Wait()
				ended <- n
				return
			case <-t.C:
			}
			messages, err := q.Receive(b.t.Context(), 16, 10*time.Minute)
			if err != nil {
				b.t.Error(err)
			}
			for _, m := range messages {
				n++
				running.Go(func() {
					if _, err := d.HandleHosted(b.t.Context(), q, m, func() {}); err != nil {
						b.t.Errorf("HandleHosted: %v", err)
					}
				})
			}
		}
	}()
	return func() int { close(end); return <-ended }
}

// Under a host each look at a message that waits is an invocation: while nothing gets
// through to the webhook there are the fewer the longer that lasts.
func TestWhileAWebhookIsDownWaitingMessagesAreSeldomLookedAt(t *testing.T) {
	const down = 12 * time.Hour
	for name, answer := range map[string]webhook.Result{
		"paused":  webhook.Result{Status: 429, RetryAfter: "43200"},
		"failing": webhook.Result{Status: 503},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.Flow = policy.DefaultFlow()
				b.webhook.Policy.MaxAge = policy.Duration(7 * day)
				b.webhook.Policy.MaxAttempts = 100
				b.webhook.Policy.PauseCap = policy.Duration(policy.MaxPause) // of half a day as well
				b.webhook = b.update(b.webhook)
				up := time.Now().Add(down)
				b.sender.answer = func(webhook.Request, int) webhook.Result {
					if time.Now().Before(up) {
						return answer
					}
					return webhook.Result{Status: 200}
				}
				d, stop := b.run(b.options(func(o *Options) {
					readRarely(o)
					o.Hosted = func(string) bool { return true }
				}), hostedAlone)
				defer stop()
				time.Sleep(time.Second)
				sent := b.sendMany(20, queue.SendOptions{})
				end := b.asHost(d)
				time.Sleep(down + 3*hostLookMax) // the one that is the probe, then the others, and their turn
				invocations := end()
				for _, s := range sent {
					want(t, "state", b.delivery(s, "wh_a").State, tables.Delivered)
				}
				if most := 45 * len(sent); invocations > most {
					t.Errorf("%d invocations for %d messages, want %d at most", invocations, len(sent), most)
				}
			})
		})
	}
}

// A receiver that now and then asks for a moment delays nothing for long.
func TestShortPausesUnderAHostDelayNothingForLong(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Flow = policy.DefaultFlow()
		b.webhook = b.update(b.webhook)
		posts := 0
		var mu sync.Mutex
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			mu.Lock()
			defer mu.Unlock()
			if posts++; posts%20 == 0 {
				return webhook.Result{Status: 503, RetryAfter: "2"}
			}
			return webhook.Result{Status: 200}
		}
		d, stop := b.run(b.options(func(o *Options) { o.Hosted = func(string) bool { return true } }), hostedAlone)
		defer stop()
		time.Sleep(time.Second)
		sent := b.sendMany(200, queue.SendOptions{})
		end := b.asHost(d)
		time.Sleep(time.Minute)
		if n := end(); n > 4*len(sent) {
			t.Errorf("%d invocations for %d messages", n, len(sent))
		}
		want(t, "messages left", b.total(testQueue), 0)
	})
}
