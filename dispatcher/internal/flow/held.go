package flow

import (
	"container/list"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	// maxHeld bounds the messages that are kept to be shown before their time. What is
	// beyond comes back at its time.
	maxHeld = 50_000
	// sweepEvery is how often, at most, those are looked for among these that others have.
	sweepEvery = time.Minute
	// HoldMin is the shortest delay that is worth keeping a message for.
	HoldMin = 2 * time.Second
	// releaseEvery is how often some are shown, while a webhook is released, and
	// releaseCalls how many calls to storage do it side by side.
	releaseEvery = 500 * time.Millisecond
	releaseCalls = 16
	// showTimeout bounds one of them.
	showTimeout = 5 * time.Second
	// stoppedDelay is how long a message stays hidden, at most, after the process that gave it
	// back has stopped.
	stoppedDelay = time.Minute
)

// held keeps the receipts of messages that were given back for long because a webhook
// could not be sent to, so that they can be shown before their time when it can. A receipt
// that is out of date is harmless: storage refuses it, and the message comes back at its
// time. Safe for concurrent use.
type held struct {
	mu       sync.Mutex
	messages map[heldKey]*heldMessage
	n        atomic.Int64 // len(messages)
	// lines are the keys of the messages by webhook, those that wait longest first.
	lines    map[string]*list.List
	sweptAt  time.Time
	released map[string]struct{} // webhooks whose messages are being shown
	some     chan struct{}       // holds one when released has grown
}

type heldMessage struct {
	q        queue.Queue
	m        *queue.Message // without its text
	webhooks []string
	places   []*list.Element // in the lines of these webhooks
}

func newHeld() *held {
	return &held{
		messages: map[heldKey]*heldMessage{}, lines: map[string]*list.List{},
		released: map[string]struct{}{}, some: make(chan struct{}, 1),
	}
}

// keep keeps a message that was given back for these webhooks.
func (h *held) keep(q queue.Queue, m *queue.Message, webhooks []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := heldKey{q.Name(), m.ID}
	h.remove(key)
	if len(h.messages) >= maxHeld {
		h.sweep(time.Now())
	}
	if len(h.messages) >= maxHeld {
		return
	}
	one := &heldMessage{q: q, m: m}
	for _, id := range webhooks {
		h.lineUp(key, one, id)
	}
	h.messages[key] = one
	h.n.Store(int64(len(h.messages)))
}

// lineUp puts a message at the end of a webhook's line. h.mu is held.
func (h *held) lineUp(key heldKey, one *heldMessage, webhookID string) {
	line := h.lines[webhookID]
	if line == nil {
		line = list.New()
		h.lines[webhookID] = line
	}
	one.webhooks = append(one.webhooks, webhookID)
	one.places = append(one.places, line.PushBack(key))
}

// inherit lets a new webhook of a queue have what waits there for webhooks that are gone, or for
// any (held under no id), and reports whether something does.
func (h *held) inherit(queueName, webhookID string, gone func(id string) bool) (some bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, one := range h.messages {
		if key.queue == queueName && !slices.ContainsFunc(one.webhooks, func(id string) bool { return !gone(id) }) {
			h.lineUp(key, one, webhookID)
			some = true
		}
	}
	return some
}

// sweep forgets, once in a while, the messages whose time has come by itself: another
// process may have received them. h.mu is held.
func (h *held) sweep(now time.Time) {
	if now.Sub(h.sweptAt) < sweepEvery {
		return
	}
	h.sweptAt = now
	for key, one := range h.messages {
		if !one.m.Lease.Until().After(now) {
			h.remove(key)
		}
	}
}

// remove forgets a message, if it is here. h.mu is held.
func (h *held) remove(key heldKey) {
	one := h.messages[key]
	if one == nil {
		return
	}
	for i, id := range one.webhooks {
		line := h.lines[id]
		line.Remove(one.places[i])
		if line.Len() == 0 {
			delete(h.lines, id)
		}
	}
	delete(h.messages, key)
	h.n.Store(int64(len(h.messages)))
}

// drop forgets a message: it was received again.
func (h *held) drop(queueName, id string) {
	if h.n.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(heldKey{queueName, id})
}

// release has a webhook's messages shown.
func (h *held) release(webhookID string) {
	h.mu.Lock()
	h.released[webhookID] = struct{}{}
	h.mu.Unlock()
	select {
	case h.some <- struct{}{}:
	default:
	}
}

func (h *held) releasing() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.released))
}

// take takes up to n messages of a webhook, those that wait longest first. With none left
// the webhook is not released any more.
func (h *held) take(webhookID string, n int) (taken []*heldMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for line := h.lines[webhookID]; line != nil && line.Len() > 0 && len(taken) < n; {
		key, _ := line.Front().Value.(heldKey)
		one := h.messages[key]
		h.remove(key)
		if one.m.Lease.Until().After(now) { // otherwise its time has come by itself
			taken = append(taken, one)
		}
	}
	if len(taken) == 0 {
		delete(h.released, webhookID)
	}
	return taken
}

// takeAll takes all messages, those first that are hidden for longest.
func (h *held) takeAll() []*heldMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*heldMessage, 0, len(h.messages))
	for key, one := range h.messages {
		all = append(all, one)
		h.remove(key)
	}
	slices.SortFunc(all, func(a, b *heldMessage) int { return b.m.Lease.Until().Compare(a.m.Lease.Until()) })
	return all
}

// heldKey names a message.
type heldKey struct{ queue, message string }

// Since is a webhook that a message waits for, and since when.
type Since struct {
	WebhookID string
	At        time.Time
}

// Hold keeps a message that was given back for HoldMin or longer because of these webhooks, to be
// shown as soon as one of them can be sent to again. m has the lease that hides it.
func (fs *Flows) Hold(q queue.Queue, m *queue.Message, waitsFor []Since) {
	ids := make([]string, len(waitsFor))
	for i, w := range waitsFor {
		ids[i] = w.WebhookID
	}
	fs.held.keep(q, m, ids)
	for _, w := range waitsFor { // those that were released before the message was here
		if f := fs.Get(w.WebhookID); f != nil && f.wasReleasedAfter(w.At) {
			fs.held.release(w.WebhookID)
		}
	}
}

// Held is how many messages are held, and can be shown before their time.
func (fs *Flows) Held() int { return int(fs.held.n.Load()) }

// Received forgets a held message: it was received again.
func (fs *Flows) Received(queueName, messageID string) { fs.held.drop(queueName, messageID) }

// CannotBeSentTo reports whether a delivery is held because its webhook could not be sent to
// at that time, so that there is nothing to try before its next time.
func CannotBeSentTo(del *tables.Delivery) bool {
	if del.State != tables.Held {
		return false
	}
	switch del.Reason {
	case policy.WebhookBusy, policy.WebhookPaused, policy.WebhookFailing, policy.NoToken:
		return true
	}
	return false
}

// MakeDue makes a delivery due that was held before its webhook was found to take messages again,
// or that waits for its turn although nobody has the place: it was shown to take that, or what
// held it was known to another process.
func (fs *Flows) MakeDue(del *tables.Delivery) {
	if !CannotBeSentTo(del) {
		return
	}
	f := fs.Get(del.WebhookID)
	if f == nil {
		return
	}
	if del.UpdatedAt.Before(del.NextAt) && (f.wasReleasedAfter(del.UpdatedAt) || f.hasRoom(time.Now())) {
		del.NextAt = del.UpdatedAt
	}
}

func (f *Flow) wasReleasedAfter(t time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.releasedAt.After(t)
}

// ShowHeld shows the messages of webhooks that can be sent to again, as fast as those
// take them, until ctx ends.
func (fs *Flows) ShowHeld(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-fs.held.some:
		}
		for fs.showSome(ctx) && retry.Sleep(ctx, releaseEvery) {
		}
	}
}

// showSome reports whether there may be more.
func (fs *Flows) showSome(ctx context.Context) (more bool) {
	for _, id := range fs.held.releasing() {
		n := -1
		if f := fs.Get(id); f != nil {
			n = f.releasable(time.Now(), releaseEvery)
		}
		switch {
		case n < 0: // not now: the next release shows what is left, or its time does
			fs.held.take(id, 0)
			continue
		case n == 0: // saturated
			more = true
			continue
		}
		taken := fs.held.take(id, n)
		more = more || len(taken) > 0
		fs.show(ctx, taken, fs.follows(id))
	}
	return more
}

// Leave shortens the delays of all held messages to stoppedDelay at most, as far as that is
// done before ctx ends: the process stops, and nobody else could show them when their webhooks
// can be sent to again.
func (fs *Flows) Leave(ctx context.Context) {
	fs.each(ctx, fs.held.takeAll(), func(ctx context.Context, one *heldMessage) {
		if time.Until(one.m.Lease.Until()) > stoppedDelay {
			_ = one.q.Abandon(ctx, one.m, rand.N(stoppedDelay)) // otherwise it comes back at its time
		}
	})
}

// show ends the delay of messages. Where another instance is to receive them this one is not told: it would be the first.
func (fs *Flows) show(ctx context.Context, messages []*heldMessage, led bool) {
	fs.each(ctx, messages, func(ctx context.Context, one *heldMessage) {
		if one.q.Abandon(ctx, one.m, 0) == nil && !led { // otherwise it comes back at its time
			fs.o.Shown(one.q.Name(), one.m.ID)
		}
	})
}

// each calls f for the messages, some side by side, until ctx ends.
func (fs *Flows) each(ctx context.Context, messages []*heldMessage, f func(context.Context, *heldMessage)) {
	var calls sync.WaitGroup
	places := make(chan struct{}, releaseCalls)
	for _, one := range messages {
		places <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		calls.Go(func() {
			defer func() { <-places }()
			callCtx, cancel := context.WithTimeout(ctx, showTimeout)
			defer cancel()
			f(callCtx, one)
		})
	}
	calls.Wait()
}

// Led tells whether a message is held for webhooks only of which another instance is sent most: that one is to receive it.
func (fs *Flows) Led(waitsFor []Since) bool {
	return len(waitsFor) > 0 && !slices.ContainsFunc(waitsFor, func(w Since) bool { return !fs.follows(w.WebhookID) })
}

func (fs *Flows) follows(webhookID string) bool {
	f := fs.Get(webhookID)
	return f != nil && f.follows()
}

func (f *Flow) follows() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pacer.Follows()
}
