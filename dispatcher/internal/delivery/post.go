package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

const (
	// postsAtOnce is how many POSTs of one message are under way at most. A message with more
	// webhooks goes to the next ones as these answer: each POST is a socket and its buffers.
	postsAtOnce = 64
	// postsOfOwn is how many each message may always make at once; those beyond are taken from the
	// places that all messages share, of which there are Options.MorePosts.
	postsOfOwn = 8
)

// posts make all POSTs of a message.
type posts struct {
	*Options
	tickets  tickets
	attempts attempts
	places   places
}

// post makes all due POSTs, so that one webhook does not wait for another: of many, as many at once as
// the message has places. What waits for one is data: it has no goroutine and no ticket.
func (x posts) post(ctx context.Context, p *parcel, targets []target) {
	more := x.places.take(dueNow(targets) - postsOfOwn)
	defer x.places.give(more)
	x.tickets.enter(p, targets, postsOfOwn+more)
	p.underWay = underWay(targets)
	p.grant.Posting(p.underWay, someEnded(targets))
	if p.underWay > 0 {
		x.Leases.Tell(p.key.Queue, p.m, func(ctx context.Context) time.Time { return x.tellOthers(ctx, p, targets) })
	}
	switch posting := p.underWay; {
	case posting > 1:
		x.postAll(ctx, p, targets, min(posting, postsOfOwn+more))
	case posting == 1:
		x.postTo(ctx, p, &targets[slices.IndexFunc(targets, func(t target) bool { return t.flow != nil })])
	case p.m.DequeueCount > 1 && allDelivered(targets):
		x.reappeared(p)
	}
}

// reappeared tells of a message that came back although all was delivered.
func (o *Options) reappeared(p *parcel) {
	o.Log.Warn("a message that was delivered came back; it is deleted without a POST",
		"queue", p.key.Queue, "message", p.key.MessageID, "delivery_count", p.m.DequeueCount)
	o.Meter.Duplicates.Add(meter.Labels{Queue: p.key.Queue, Kind: "redelivery"})
	o.Meter.Reappeared(p.key.Queue, p.key.MessageID)
}

// postAll makes the POSTs, so many at once. One of those who make them is the handler's own goroutine.
func (x posts) postAll(ctx context.Context, p *parcel, targets []target, atOnce int) {
	var next atomic.Int64
	some := func() {
		for n := int(next.Add(1)); n <= len(targets); n = int(next.Add(1)) {
			if t := &targets[n-1]; t.flow != nil {
				x.postTo(ctx, p, t)
			}
		}
	}
	var others sync.WaitGroup
	for range atOnce - 1 {
		others.Go(some)
	}
	some()
	others.Wait()
}

// postTo makes one POST, if its webhook has room for it in time.
func (x posts) postTo(ctx context.Context, p *parcel, t *target) {
	defer func() { t.ticket.Unused() }()
	defer t.noteAnswered(p.grant)
	if survives(x.Log, p, func() { x.attempts.timed(ctx, p, t) }) {
		return
	}
	p.over(t)
	t.delivery.State, t.delivery.Reason = tables.Pending, policy.InternalFault
	t.afterNote(t.delivery.UpdatedAt)
	t.delivery.NextAt = time.Now().Add(settle.OwnFaultDelay(p.m))
	t.delivery.MissingRecords++
	// Recorded, so that the message stays due to this webhook, and so that a
	// message that always ends so does not go on for ever.
	survives(x.Log, p, func() {
		x.Journal.Record(x.writing(ctx), p.named([]tables.Record{{Deliveries: []tables.Delivery{t.delivery}}})[0])
	})
}

// survives runs f and reports whether it ended without a panic.
func survives(log *slog.Logger, p *parcel, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			log.Error("panic while delivering; the message is given back", "queue", p.key.Queue,
				"message", p.key.MessageID, "panic", fmt.Sprintf("%T", r), "stack", string(debug.Stack()))
		}
	}()
	f()
	return true
}

// places are shared by all messages, for POSTs beyond those that each may make at once.
type places chan struct{}

// take takes up to n of those that are free now, and no more than a message may have. Nobody waits for
// one: a message goes on with what it has.
func (p places) take(n int) (taken int) {
	for n = min(n, postsAtOnce-postsOfOwn); taken < n; taken++ {
		select {
		case p <- struct{}{}:
		default:
			return taken
		}
	}
	return taken
}

func (p places) give(n int) {
	for range n {
		<-p
	}
}

// PlacesTaken is how many POSTs may be under way now beyond those that each message may make at once.
func (d *Deliverer) PlacesTaken() int { return len(d.posts.places) }

// dueNow counts the webhooks that may be POSTed to now.
func dueNow(targets []target) (n int) {
	if len(targets) <= postsOfOwn {
		return len(targets)
	}
	now := time.Now()
	for i := range targets {
		if targets[i].due(now) {
			n++
		}
	}
	return n
}
