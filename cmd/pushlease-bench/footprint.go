package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// starts measures how soon a server answers.
func (b *bench) starts(ctx context.Context) error {
	file, err := os.Stat(b.binary)
	if err != nil {
		return fmt.Errorf("look at the server's binary: %w", err)
	}
	b.add("start.binary", "MB", float64(file.Size())/(1<<20))
	for range b.Rounds {
		s := b.fresh()
		v, err := startServer(ctx, b.binary, b.work, s, b.Settings)
		if err != nil {
			return err
		}
		b.add("start.answer", "ms", float64(v.answered)/float64(time.Millisecond))
		now, _ := memory(v.pid())
		b.add("start.rss", "MB", now)
		if err := errors.Join(v.kill(), s.remove()); err != nil {
			return err
		}
	}
	return nil
}

const (
	// manyInFlight is how many POSTs are held open to see what they take.
	manyInFlight = 1000
	// holdFor is how long the receiver holds them.
	holdFor = 3 * time.Second
	// inFlightBound is how long the server may take until all are in flight.
	inFlightBound = 20 * time.Second
)

// memories measures a server that has 1,000 messages in flight to a slow receiver.
func (b *bench) memories(ctx context.Context) error {
	b.say("memory")
	slow, err := startReceiver(ctx, holdFor, "")
	if err != nil {
		return err
	}
	return errors.Join(b.memoryRound(ctx, slow), slow.close())
}

func (b *bench) memoryRound(ctx context.Context, slow *receiverProcess) (err error) {
	ctx, cancel := context.WithTimeout(ctx, inFlightBound)
	defer cancel()
	s := b.fresh()
	defer func() { err = errors.Join(err, s.remove()) }()
	err = s.with(ctx, func(st store) error {
		r, err := registration("wh_bench_slow", s.queue(), slow.URL, manyInFlight)
		if err != nil {
			return err
		}
		r.Flow.Adaptive = false // its slow start would take several of these long POSTs
		if _, err := st.tables.PutWebhook(ctx, r); err != nil {
			return fmt.Errorf("register a webhook: %w", err)
		}
		return b.fill(ctx, st, s.queue(), 2*manyInFlight)
	})
	if err != nil {
		return err
	}
	v, err := startServer(ctx, b.binary, b.work, s, append([]string{fmt.Sprintf("concurrency=%d", manyInFlight)}, b.Settings...))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.kill()) }()
	for {
		came, err := slow.stats(ctx, 0)
		if err != nil {
			return fmt.Errorf("%d POSTs were in flight at most: %w", came.MaxInFlight, err)
		}
		if came.InFlight >= manyInFlight*95/100 {
			break
		}
		if err := sleep(ctx, waitPause); err != nil {
			return fmt.Errorf("%d POSTs were in flight at most: %w", came.MaxInFlight, err)
		}
	}
	m, err := v.metrics(ctx)
	if err != nil {
		return err
	}
	now, peak := memory(v.pid())
	b.add("memory.rss", "MB", now)
	b.add("memory.peak_rss", "MB", peak)
	b.add("memory.goroutines", "", m.goroutines)
	return nil
}

// recoveries measures what a kill -9 in the middle of a drain costs.
func (b *bench) recoveries(ctx context.Context) (err error) {
	if b.Answers != "" {
		b.note("the scenario recovery needs a receiver that takes everything, and was left out")
		return nil
	}
	b.say("recovery")
	ctx, cancel := context.WithTimeout(ctx, drainBound)
	defer cancel()
	n := min(b.Count, 2000)
	s := b.fresh()
	defer func() { err = errors.Join(err, s.remove()) }()
	err = s.with(ctx, func(st store) error {
		if err := st.register(ctx, s.queue(), b.receiver.URL, 1, b.Concurrency); err != nil {
			return err
		}
		return b.fill(ctx, st, s.queue(), n)
	})
	if err != nil {
		return err
	}
	if err := b.receiver.reset(ctx); err != nil {
		return err
	}
	settings := b.serverSettings("lease=" + b.Lease.String())
	v, err := startServer(ctx, b.binary, b.work, s, settings)
	if err != nil {
		return err
	}
	if _, err := b.receiver.stats(ctx, n/4); err != nil {
		return errors.Join(err, v.kill())
	}
	killed := time.Now()
	if err := v.kill(); err != nil {
		return err
	}
	// What was on its way still comes.
	if err := sleep(ctx, 50*time.Millisecond+b.Delay); err != nil {
		return err
	}
	before, err := b.receiver.stats(ctx, 0)
	if err != nil {
		return err
	}
	if v, err = startServer(ctx, b.binary, b.work, s, settings); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.kill()) }()
	return b.recovered(ctx, v, s, n, before.Count, killed)
}

// recovered watches a server that was started again until its queue is empty.
func (b *bench) recovered(ctx context.Context, v *server, s storage, n, before int, killed time.Time) error {
	first, err := b.receiver.stats(ctx, before+1)
	if err != nil {
		return err
	}
	for {
		var q struct {
			Depth *struct {
				Total int64 `json:"total"`
			} `json:"depth"`
		}
		if err := v.call(ctx, "GET", "/api/v1/queues/"+s.queue(), nil, &q); err != nil {
			return err
		}
		if q.Depth != nil && q.Depth.Total == 0 {
			break
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("the queue is not empty: %w", err)
		}
	}
	drained := time.Since(killed).Seconds()
	end, err := b.receiver.stats(ctx, 0)
	if err != nil {
		return err
	}
	b.add("recovery.first_post", "s", float64(first.At-killed.UnixNano())/1e9)
	b.add("recovery.drained", "s", drained)
	b.relate("recovery.drained", "lease", drained, b.Lease.Seconds())
	b.add("recovery.duplicates", "", float64(end.Count-n))
	b.note("recovery ran with a lease of %v; by default a lease is 30 s or longer", b.Lease)
	return nil
}

// longIdle is how long idle is watched at least for the poller to be at its longest
// interval; it then first gets idleSettles to come there.
const (
	longIdle    = time.Minute
	idleSettles = 90 * time.Second
)

// idles measures a server with one queue and nothing to do.
func (b *bench) idles(ctx context.Context) (err error) {
	b.say("idle for %v", b.Idle)
	s := b.fresh()
	defer func() { err = errors.Join(err, s.remove()) }()
	v, err := b.ready(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.kill()) }()
	if b.Idle >= longIdle {
		if err := sleep(ctx, idleSettles); err != nil {
			return err
		}
	} else {
		b.note("idle was watched for %v right after a message: the poller was not at its longest interval yet (--idle 3m)", b.Idle)
	}
	before, err := v.metrics(ctx)
	if err != nil {
		return err
	}
	cpu := cpuSeconds(v.pid())
	if err := sleep(ctx, b.Idle); err != nil {
		return err
	}
	used := cpuSeconds(v.pid()) - cpu
	after, err := v.metrics(ctx)
	if err != nil {
		return err
	}
	for name, n := range before.transactions {
		after.transactions[name] -= n
		if after.transactions[name] == 0 {
			delete(after.transactions, name)
		}
	}
	for name := range after.transactions {
		after.transactions[name] /= b.Idle.Minutes()
	}
	b.addEach("idle", "/minute", after.transactions)
	b.add("idle.cpu", "% of a core", used/b.Idle.Seconds()*100)
	now, _ := memory(v.pid())
	b.add("idle.rss", "MB", now)
	b.add("idle.goroutines", "", after.goroutines)
	return nil
}
