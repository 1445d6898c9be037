package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// The paths of the receiver at which it is no good; POSTs to them are not counted.
const (
	// hangPath answers nothing until the sender leaves.
	hangPath = "/hang"
	// busyPath answers 429 and asks for busyWait.
	busyPath = "/busy"
	busyWait = "20"
)

// neighbourDelay is how long the healthy webhook takes.
const neighbourDelay = "20ms"

// neighbourhood is the healthy webhooks that are measured, and what is beside them.
type neighbourhood struct {
	name string
	// queues have healthy webhooks each, and one at bad where that is set.
	queues, healthy int
	bad             string
	// apart puts the bad webhook on a queue of its own, with as many messages.
	apart bool
}

// neighbourhoods come in pairs: each with something bad is compared with the one before it
// that has nothing.
var neighbourhoods = []neighbourhood{
	{name: "alone", queues: 1, healthy: 1},
	{name: "hanging", queues: 1, healthy: 1, bad: hangPath},
	{name: "busy", queues: 1, healthy: 1, bad: busyPath},
	{name: "hanging_apart", queues: 1, healthy: 1, bad: hangPath, apart: true},
	{name: "450", queues: 50, healthy: 9},
	{name: "50_of_500", queues: 50, healthy: 9, bad: hangPath},
}

// neighbours runs the rounds of the scenario neighbours: what a webhook that takes nothing
// costs those that do.
func (b *bench) neighbours(ctx context.Context) error {
	for round := range b.Rounds {
		b.say("neighbours, round %d of %d", round+1, b.Rounds)
		var alone neighbourFigures
		var reference string
		for _, n := range neighbourhoods {
			got, err := b.beside(ctx, n)
			if err != nil {
				return fmt.Errorf("%s: %w", n.name, err)
			}
			name := "neighbours." + n.name
			b.add(name, "messages/s", got.rate)
			b.add(name+".cpu", "s/1,000", got.cpu)
			if got.p99 > 0 {
				b.add(name+".p99", "ms", got.p99)
			}
			if n.bad == "" {
				alone, reference = got, n.name
				continue
			}
			b.relate(name, reference, got.rate, alone.rate)
			b.relate(name+".cpu", reference, got.cpu, alone.cpu)
			b.relate(name+".p99", reference, got.p99, alone.p99)
		}
	}
	return nil
}

// neighbourFigures are of the healthy webhooks: their rate from full queues, the server's
// CPU for 1,000 messages meanwhile, and their latency at half of the drain rate, from full
// queues again.
type neighbourFigures struct{ rate, cpu, p99 float64 }

// beside fills the queues, and measures until every healthy webhook has got everything.
func (b *bench) beside(ctx context.Context, n neighbourhood) (f neighbourFigures, err error) {
	ctx, cancel := context.WithTimeout(ctx, drainBound)
	defer cancel()
	s := b.fresh()
	defer func() { err = errors.Join(err, s.remove()) }()
	each := max(b.Count/n.queues/n.healthy, 1)
	if err := s.with(ctx, func(st store) error { return b.settle(ctx, st, s, n, each) }); err != nil {
		return f, err
	}
	if err := b.resetCounts(ctx); err != nil {
		return f, err
	}
	v, err := startServer(ctx, b.binary, b.work, s, b.serverSettings())
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, v.kill()) }()
	start := cpuSeconds(v.pid())
	posts := each * n.queues * n.healthy
	came, err := b.receiver.stats(ctx, posts)
	if err != nil {
		return f, fmt.Errorf("%w\n%s", err, v.logTail())
	}
	f.rate, f.cpu = rateOf(came, posts), (cpuSeconds(v.pid())-start)/float64(posts)*1000
	if n.queues > 1 {
		return f, nil
	}
	q, _, err := b.load(ctx, v, s.queue(), f.rate/2, b.LoadTime)
	f.p99 = q.P99
	return f, err
}

// settle registers the webhooks of a neighbourhood, and puts each messages on each queue.
func (b *bench) settle(ctx context.Context, st store, s storage, n neighbourhood, each int) error {
	for i := range n.queues {
		name := s.queue()
		if n.queues > 1 {
			name = fmt.Sprintf("%s-%d", name, i)
		}
		if err := st.register(ctx, name, b.receiver.URL+"?delay="+neighbourDelay, n.healthy, b.Concurrency); err != nil {
			return err
		}
		names := []string{name}
		if n.bad != "" {
			with := name
			if n.apart {
				with += "-apart"
				names = append(names, with)
			}
			r, err := registration(fmt.Sprintf("wh_bad_%d", i), with, b.receiver.URL+n.bad, b.Concurrency)
			if err != nil {
				return err
			}
			if err := st.put(ctx, r); err != nil {
				return err
			}
		}
		for _, name := range names {
			if err := b.fill(ctx, st, name, each); err != nil {
				return err
			}
		}
	}
	return nil
}

func (st store) put(ctx context.Context, r tables.Registration) error {
	if _, err := st.tables.PutWebhook(ctx, r); err != nil {
		return fmt.Errorf("register a webhook: %w", err)
	}
	return nil
}

// serveBad answers where the receiver is no good; false elsewhere.
func serveBad(w http.ResponseWriter, req *http.Request) bool {
	switch req.URL.Path {
	case hangPath:
		<-req.Context().Done()
	case busyPath:
		w.Header().Set("Retry-After", busyWait)
		w.WriteHeader(http.StatusTooManyRequests)
	default:
		return false
	}
	return true
}

// delayOf is how long a POST asks to be answered after; otherwise is for one that does not.
func delayOf(asked string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(asked); err == nil {
		return d
	}
	return otherwise
}
