package dispatcher

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

const polledQueue = "polled" // beside testQueue, from which the host receives

// hostCalls are the calls of a host, which are cut short with the work.
type hostCalls struct {
	under  sync.WaitGroup
	cut    context.CancelCauseFunc
	all    context.Context
	called chan invoked
}

func newHostCalls(b *bench) *hostCalls {
	c := &hostCalls{called: make(chan invoked, 1)}
	c.all, c.cut = context.WithCancelCause(b.t.Context())
	return c
}

func (c *hostCalls) finish(work context.Context) {
	defer context.AfterFunc(work, func() { c.cut(context.Cause(work)) })()
	c.under.Wait()
}

// handle is one call.
func (c *hostCalls) handle(b *bench, d *Dispatcher, m *queue.Message) {
	q, err := b.queues.Queue(testQueue)
	if err != nil {
		b.t.Error(err)
	}
	c.under.Go(func() {
		result, err := d.HandleHosted(c.all, q, m, func() {})
		c.called <- invoked{result, err}
	})
}

func (b *bench) startBeside(calls *hostCalls) (d *Dispatcher, stop func()) {
	b.register("wh_polled", func(r *tables.Registration) { r.Queue = polledQueue })
	return b.run(b.options(func(o *Options) { o.Hosted = func(name string) bool { return name == testQueue } }),
		func(d *Dispatcher, ctx context.Context) { d.RunBeside(ctx, calls.finish) })
}

// What is polled beside a host is not received any more once a stop has begun, however long the
// host's calls in flight take.
func TestAStopBesideAHostReceivesNothingMore(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.takes = 30 * time.Second
		calls := newHostCalls(b)
		d, stop := b.startBeside(calls)
		long := b.send("long")
		calls.handle(b, d, b.receiveOne())
		time.Sleep(time.Second)
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		time.Sleep(time.Second)
		q := b.queue(polledQueue)
		if _, err := q.Send(b.t.Context(), []byte("later"), queue.SendOptions{}); err != nil {
			b.t.Fatal(err)
		}
		<-stopped
		want(t, "the call", <-calls.called, invoked{"deleted", nil})
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "state", b.delivery(long, "wh_a").State, tables.Delivered)
		want(t, "messages left", b.total(polledQueue), 1)
	})
}

// One drain is for the host's calls and for what is polled beside: both are cut short when it ends.
func TestOneDrainIsForTheHostAndThePollers(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.takes = 10 * time.Minute
		calls := newHostCalls(b)
		d, stop := b.startBeside(calls)
		hosted := b.send("hosted")
		calls.handle(b, d, b.receiveOne())
		if _, err := b.queue(polledQueue).Send(b.t.Context(), []byte("polled"), queue.SendOptions{}); err != nil {
			b.t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want(t, "POSTs", b.sender.count(), 2)
		start := time.Now()
		stop()
		want(t, "the stop took", time.Since(start), 35*time.Second)
		want(t, "the call", <-calls.called, invoked{"abandoned", nil})
		want(t, "reason", b.delivery(hosted, "wh_a").Reason, policy.Stopping)
	})
}

// What ends after the last bound of a stop can't be recorded: that is told, and counted.
func TestWhatEndsAfterTheLastBoundOfAStopIsToldAsLost(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			time.Sleep(2 * time.Minute) // and nothing cuts it short
			return webhook.Result{Status: 200}
		}
		calls := newHostCalls(b)
		d, stop := b.startBeside(calls)
		b.send("late")
		calls.handle(b, d, b.receiveOne())
		time.Sleep(time.Second)
		stop()
		<-calls.called
		if n := strings.Count(b.log.String(), "records are lost: the store did not take them before the end"); n != 1 {
			t.Errorf("%d lines tell of lost records, want 1:\n%s", n, b.log)
		}
	})
}

// listTenSecondsLate answers after 10 s, whatever its caller's bound is.
type listTenSecondsLate struct{ Store }

func (listTenSecondsLate) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	time.Sleep(10 * time.Second)
	return nil, nil, ctx.Err()
}

// An error says what is wrong also where the first reading is merely slow.
func TestAnInvocationBeforeTheFirstReadingSaysWhatItWaitedFor(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.run(b.options(func(o *Options) { o.Store = listTenSecondsLate{b.store} }), hostedAlone)
		defer stop()
		b.send("x")
		time.Sleep(time.Second) // the reading is under way, and ends after the wait for it
		got := b.hand(d, b.receiveOne())
		if got.err == nil || strings.Contains(got.err.Error(), "%!") || !strings.Contains(got.err.Error(), "not read within 5s") {
			t.Errorf("the invocation ended with %v", got.err)
		}
		want(t, "POSTs", b.sender.count(), 0)
	})
}

// What is polled beside a host is tried until near its end, as under serve: nobody has to come
// by first.
func TestWhatIsPolledBesideAHostIsTriedUntilItsEnd(t *testing.T) {
	inBubble(t, func(b *bench) {
		up := time.Now().Add(50 * time.Minute)
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			if time.Now().Before(up) {
				return webhook.Result{Status: 500}
			}
			return webhook.Result{Status: 200}
		}
		b.register("wh_polled", func(r *tables.Registration) {
			r.Queue, r.Policy.MaxAttempts, r.Policy.Backoff.Max = polledQueue, 100, policy.Duration(time.Minute)
		})
		_, stop := b.run(b.options(func(o *Options) {
			o.Hosted = func(name string) bool { return name == testQueue }
			o.LookGap = func(name string) time.Duration {
				if o.Hosted(name) {
					return 40 * time.Minute
				}
				return 0
			}
		}), func(d *Dispatcher, ctx context.Context) { d.RunBeside(ctx, func(context.Context) {}) })
		defer stop()
		if _, err := b.queue(polledQueue).Send(b.t.Context(), []byte("x"), queue.SendOptions{TTL: time.Hour}); err != nil {
			b.t.Fatal(err)
		}
		time.Sleep(55 * time.Minute)
		want(t, "dead letters", len(b.deadLetters()), 0)
		want(t, "messages left", b.total(polledQueue), 0)
	})
}
