package receive

import (
	"context"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// Place is a slot of a queue, kept free for one message that is about to be sent: that is
// leased by the commit that stores it, and needs no receive. Call Start at most once, and
// Leave at the end, not before Start has returned.
type Place struct {
	p     *poller
	ctx   context.Context
	taken bool
}

// Lease is how long a message must be leased for.
func (r *Place) Lease() time.Duration {
	name := r.p.q.Name()
	lease := r.p.Measure.Length(name)
	r.p.Meter.LeaseAsked(name, lease)
	return lease
}

// Start begins to handle a message whose lease is durable. It does not wait.
func (r *Place) Start(m *queue.Message) {
	r.taken = true
	r.p.start(r.ctx, m)
	select { // as after a receive, the pauses begin anew
	case r.p.handed <- struct{}{}:
	default:
	}
}

// Taken reports whether a message has the place.
func (r *Place) Taken() bool { return r.taken }

// Leave gives the place back, unless a message has it.
func (r *Place) Leave() {
	if !r.taken {
		r.p.seats.Grant().Close()
	}
	r.p.reserved.Done()
}

// openTo lets places be reserved until ctx ends. What it returns ends that, and waits
// for those that are: it must be called before run returns.
func (p *poller) openTo(ctx context.Context) (shut func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = ctx
	return func() {
		p.mu.Lock()
		p.open = nil
		p.mu.Unlock()
		p.reserved.Wait()
	}
}

func (p *poller) reserve() *Place {
	p.mu.Lock()
	ctx := p.open
	if ctx == nil || p.backlog != nil { // what is there comes first, in full receives
		p.mu.Unlock()
		return nil
	}
	p.reserved.Add(1)
	p.mu.Unlock()
	if !p.seats.TryAcquire() {
		p.reserved.Done()
		return nil
	}
	return &Place{p: p, ctx: ctx}
}
