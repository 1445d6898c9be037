package dispatcher

import (
	"container/list"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	// maxParked bounds the messages that are kept to be shown before their time. What is
	// beyond comes back at its time.
	maxParked = 50_000
	// sweepEvery is how often, at most, those are looked for among these that others have.
	sweepEvery = time.Minute
	// parkMin is the shortest delay that is worth keeping a message for.
	parkMin = 2 * time.Second
	// releaseEvery is how often some are shown, while a webhook is released, and
	// releaseCalls how many calls to storage do it side by side.
	releaseEvery = 500 * time.Millisecond
	releaseCalls = 16
)

// parked keeps the receipts of messages that were given back for long because a webhook
// could not be sent to, so that they can be shown before their time when it can. A receipt
// that is out of date is harmless: storage refuses it, and the message comes back at its
// time. Safe for concurrent use.
type parked struct {
	mu       sync.Mutex
	messages map[inWork]*parkedMessage
	n        atomic.Int64 // len(messages)
	// lines are the keys of the messages by webhook, those that wait longest first.
	lines    map[string]*list.List
	sweptAt  time.Time
	released map[string]struct{} // webhooks whose messages are being shown
	some     chan struct{}       // holds one when released has grown
}

type parkedMessage struct {
	q        queue.Queue
	m        *queue.Message // without its text
	webhooks []string
	places   []*list.Element // in the lines of these webhooks
}

func newParked() *parked {
	return &parked{
		messages: map[inWork]*parkedMessage{}, lines: map[string]*list.List{},
		released: map[string]struct{}{}, some: make(chan struct{}, 1),
	}
}

// park keeps a message that was given back for these webhooks.
func (p *parked) park(q queue.Queue, m *queue.Message, webhooks []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := inWork{q.Name(), m.ID}
	p.remove(key)
	if len(p.messages) >= maxParked {
		p.sweep(time.Now())
	}
	if len(p.messages) >= maxParked {
		return
	}
	one := &parkedMessage{q: q, m: m, webhooks: webhooks}
	for _, id := range webhooks {
		line := p.lines[id]
		if line == nil {
			line = list.New()
			p.lines[id] = line
		}
		one.places = append(one.places, line.PushBack(key))
	}
	p.messages[key] = one
	p.n.Store(int64(len(p.messages)))
}

// sweep forgets, once in a while, the messages whose time has come by itself: another
// process may have received them. p.mu is held.
func (p *parked) sweep(now time.Time) {
	if now.Sub(p.sweptAt) < sweepEvery {
		return
	}
	p.sweptAt = now
	for key, one := range p.messages {
		if !one.m.Lease.Until().After(now) {
			p.remove(key)
		}
	}
}

// remove forgets a message, if it is here. p.mu is held.
func (p *parked) remove(key inWork) {
	one := p.messages[key]
	if one == nil {
		return
	}
	for i, id := range one.webhooks {
		line := p.lines[id]
		line.Remove(one.places[i])
		if line.Len() == 0 {
			delete(p.lines, id)
		}
	}
	delete(p.messages, key)
	p.n.Store(int64(len(p.messages)))
}

// drop forgets a message: it was received again.
func (p *parked) drop(queueName, id string) {
	if p.n.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(inWork{queueName, id})
}

// release has a webhook's messages shown.
func (p *parked) release(webhookID string) {
	p.mu.Lock()
	p.released[webhookID] = struct{}{}
	p.mu.Unlock()
	select {
	case p.some <- struct{}{}:
	default:
	}
}

func (p *parked) releasing() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]string, 0, len(p.released))
	for id := range p.released {
		ids = append(ids, id)
	}
	return ids
}

// take takes up to n messages of a webhook, those that wait longest first. With none left
// the webhook is not released any more.
func (p *parked) take(webhookID string, n int) (taken []*parkedMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for line := p.lines[webhookID]; line != nil && line.Len() > 0 && len(taken) < n; {
		key, _ := line.Front().Value.(inWork)
		one := p.messages[key]
		p.remove(key)
		if one.m.Lease.Until().After(now) { // otherwise its time has come by itself
			taken = append(taken, one)
		}
	}
	if len(taken) == 0 {
		delete(p.released, webhookID)
	}
	return taken
}

// heldSince is a webhook that a message waits for, and since when.
type heldSince struct {
	webhookID string
	at        time.Time
}

// waitsForItsWebhook reports whether a delivery waits until its webhook can be sent to.
func waitsForItsWebhook(del *tables.Delivery) bool {
	return flowHeld(del) || del.State == tables.Held && del.Reason == policy.WebhookDisabled
}

// hideFor gives a message back for longer than parkMin, and keeps its receipt: a renewal
// is the one call that tells the new one.
func (d *Dispatcher) hideFor(ctx context.Context, k *keeper, decision Decision) error {
	m := &queue.Message{
		ID: k.m.ID, InsertedAt: k.m.InsertedAt, ExpiresAt: k.m.ExpiresAt,
		Lease: queue.NewLease(k.m.Lease.Receipt(), time.Now(), decision.Delay),
	}
	if err := k.q.Renew(ctx, m, decision.Delay); err != nil {
		return err // as it is: it stands for the error of Abandon
	}
	ids := make([]string, len(decision.heldFor))
	for i, h := range decision.heldFor {
		ids[i] = h.webhookID
	}
	d.parked.park(k.q, m, ids)
	for _, h := range decision.heldFor { // those that were released before the message was here
		if f := d.flows.get(h.webhookID); f != nil && f.wasReleasedAfter(h.at) {
			d.parked.release(h.webhookID)
		}
	}
	return nil
}

// releaseParked shows the messages of webhooks that can be sent to again, as fast as those
// take them, until ctx ends.
func (d *Dispatcher) releaseParked(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.parked.some:
		}
		for d.releaseSome(ctx) && sleepCtx(ctx, releaseEvery) {
		}
	}
}

// releaseSome reports whether there may be more.
func (d *Dispatcher) releaseSome(ctx context.Context) (more bool) {
	for _, id := range d.parked.releasing() {
		n := -1
		if f := d.flows.get(id); f != nil {
			n = f.releasable(time.Now())
		}
		switch {
		case n < 0: // not now: the next release shows what is left, or its time does
			d.parked.take(id, 0)
			continue
		case n == 0: // saturated
			more = true
			continue
		}
		taken := d.parked.take(id, n)
		more = more || len(taken) > 0
		d.show(ctx, taken)
	}
	return more
}

// show ends the delay of messages.
func (d *Dispatcher) show(ctx context.Context, messages []*parkedMessage) {
	var calls sync.WaitGroup
	places := make(chan struct{}, releaseCalls)
	for _, one := range messages {
		places <- struct{}{}
		calls.Go(func() {
			defer func() { <-places }()
			callCtx, cancel := context.WithTimeout(ctx, settleTimeout)
			defer cancel()
			if one.q.Abandon(callCtx, one.m, 0) == nil { // otherwise it comes back at its time
				d.Wake(one.q.Name())
			}
		})
	}
	calls.Wait()
}

// releasable is how many of its held messages are worth showing now: what the webhook takes
// until the next look. It is negative when it can't be sent to at all.
func (f *flow) releasable(now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.enabled || f.closed(now) != nil || f.breaker.State(now).Phase != policy.BreakerClosed {
		return -1
	}
	room := f.limit() - f.inFlight - f.waiting
	if room <= 0 {
		return 0
	}
	return max(room, int(math.Ceil(f.pace(now)*releaseEvery.Seconds())))
}
