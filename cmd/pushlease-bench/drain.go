package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"
)

// drainBound is how long one drain may take.
const drainBound = 10 * time.Minute

// drained is what emptying a queue took.
type drained struct {
	// rate is in messages a second, from the first POST to the last.
	rate float64
	// cpu is in seconds for 1,000 messages, of the process that POSTs, without its start.
	cpu float64
	// transactions for 1,000 messages: as the server counts them, and on the wire.
	transactions, wire map[string]float64
	// rss and peak are MB; goroutines are those in the middle of the drain.
	rss, peak, goroutines float64
}

func rateOf(s arrivalStats, posts int) float64 {
	if s.At <= s.First {
		return 0
	}
	return float64(posts-1) / (float64(s.At-s.First) / 1e9)
}

// drain fills a queue and lets a server deliver it to fan webhooks. beside is what goes on meanwhile; nil for nothing.
func (b *bench) drain(ctx context.Context, binary string, fan int, beside func(context.Context, *server) error) (d drained, err error) {
	s := b.fresh()
	defer func() { err = errors.Join(err, s.remove()) }()
	err = s.with(ctx, func(st store) error {
		if err := st.register(ctx, s.queue(), b.receiver.URL, fan, b.Concurrency); err != nil {
			return err
		}
		return b.fill(ctx, st, s.queue(), b.Count)
	})
	if err != nil {
		return d, err
	}
	return b.deliver(ctx, binary, s, fan, b.Count, beside)
}

// fill puts n messages on a queue.
func (b *bench) fill(ctx context.Context, st store, name string, n int) error {
	return b.unlimited(ctx, func() error { return st.fill(ctx, name, n, b.Size) })
}

// unlimited prepares something on storage without its limits: that is not what is measured.
func (b *bench) unlimited(ctx context.Context, prepare func() error) error {
	if b.Limits != publishedLimits {
		return prepare()
	}
	if err := b.standin.limit(ctx, noLimits); err != nil {
		return err
	}
	return errors.Join(prepare(), b.standin.limit(ctx, publishedLimits))
}

// deliver starts a server on a full queue and watches it until it has delivered count
// messages and settled them.
func (b *bench) deliver(ctx context.Context, binary string, s storage, fan, count int, beside func(context.Context, *server) error) (d drained, err error) {
	ctx, cancel := context.WithTimeout(ctx, drainBound)
	defer cancel()
	if err := b.resetCounts(ctx); err != nil {
		return d, err
	}
	v, err := startServer(ctx, binary, b.work, s, b.serverSettings())
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, v.kill()) }()
	if beside != nil {
		if err := beside(ctx, v); err != nil {
			return d, err
		}
	}
	posts := count * fan
	used, err := b.begun(ctx, v.pid(), posts)
	if err != nil {
		return d, err
	}
	if _, err := b.receiver.stats(ctx, posts/2); err != nil {
		return d, err
	}
	middle, err := v.metrics(ctx)
	if err != nil {
		return d, err
	}
	d.goroutines = middle.goroutines
	d.rss, _ = memory(v.pid())
	came, err := b.receiver.stats(ctx, posts)
	if err != nil {
		return d, fmt.Errorf("%w\n%s", err, v.logTail())
	}
	d.rate = rateOf(came, posts) / float64(fan)
	settled := count
	if b.Answers != "" {
		settled = 0 // what is tried again may take hours
	}
	end, err := v.settled(ctx, settled)
	if err != nil {
		return d, err
	}
	d.cpu = used.each(posts) * float64(fan)
	_, d.peak = memory(v.pid())
	d.transactions = perThousand(end.transactions, count)
	if b.standin != nil {
		wire, err := b.standin.counts(ctx)
		if err != nil {
			return d, err
		}
		d.wire = perThousand(wire, count)
	}
	return d, nil
}

// serverSettings are the bench's, and those that the user set, which win.
func (b *bench) serverSettings(more ...string) []string {
	return append(append([]string{fmt.Sprintf("concurrency=%d", b.Concurrency)}, more...), b.Settings...)
}

func (b *bench) resetCounts(ctx context.Context) error {
	err := b.receiver.reset(ctx)
	if b.standin != nil {
		err = errors.Join(err, b.standin.reset(ctx))
	}
	return err
}

// follow has somebody follow the stream of the server until that ends.
func follow(ctx context.Context, v *server) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+"/api/v1/stream", http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req) //nolint:bodyclose // closed by who reads it
	if err != nil {
		return fmt.Errorf("follow the stream: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("follow the stream: status %d", res.StatusCode), res.Body.Close())
	}
	go func() {
		_, _ = io.Copy(io.Discard, res.Body) // it ends when the server is killed
		_ = res.Body.Close()
	}()
	return nil
}

// settled waits until count messages were deleted.
func (v *server) settled(ctx context.Context, count int) (metrics, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		m, err := v.metrics(ctx)
		if err != nil || m.transactions["queue complete"] >= float64(count) {
			return m, err
		}
		select {
		case <-ctx.Done():
			return m, fmt.Errorf("%v of %d messages were settled: %w", m.transactions["queue complete"], count, ctx.Err())
		case <-tick.C:
		}
	}
}

func perThousand(counts map[string]float64, messages int) map[string]float64 {
	scaled := map[string]float64{}
	for name, n := range counts {
		scaled[name] = n / float64(messages) * 1000
	}
	return scaled
}

// reference runs a role that POSTs count messages, and measures it as a server is.
func (b *bench) reference(ctx context.Context, role string, s storage, count int) (d drained, err error) {
	ctx, cancel := context.WithTimeout(ctx, drainBound)
	defer cancel()
	if err := b.resetCounts(ctx); err != nil {
		return d, err
	}
	j := job{url: b.receiver.URL, queue: s.queue(), count: count, workers: b.Concurrency, size: b.Size}
	c, err := beginRole(ctx, s.env(), j.args(role)...)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	going, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() {
		err := c.decode(&jobDone{})
		if err != nil {
			stop(err)
		}
		ended <- err
	}()
	used, err := b.begun(going, c.cmd.Process.Pid, count)
	if err = errors.Join(err, <-ended); err != nil {
		return d, err
	}
	d.cpu = used.each(count)
	came, err := b.receiver.stats(ctx, count)
	if err != nil {
		return d, err
	}
	d.rate = rateOf(came, count)
	if b.standin != nil {
		wire, err := b.standin.counts(ctx)
		if err != nil {
			return d, err
		}
		d.wire = perThousand(wire, count)
	}
	return d, nil
}

// rawTimes is how many more bare POSTs than messages there are: they are quick.
const rawTimes = 4

// drains runs the rounds of the scenario drain.
func (b *bench) drains(ctx context.Context) error {
	for round := range b.Rounds {
		b.say("drain, round %d of %d", round+1, b.Rounds)
		if err := b.drainRound(ctx); err != nil {
			return err
		}
	}
	return nil
}

// drainRound measures the references and the servers one after the other, so that what
// else the machine does meets all of them.
func (b *bench) drainRound(ctx context.Context) error {
	raw, err := b.reference(ctx, "post", b.fresh(), rawTimes*b.Count)
	if err != nil {
		return fmt.Errorf("raw: %w", err)
	}
	s := b.fresh()
	if err := s.with(ctx, func(st store) error { return b.fill(ctx, st, s.queue(), b.Count) }); err != nil {
		return err
	}
	ideal, err := b.reference(ctx, "consume", s, b.Count)
	if err = errors.Join(err, s.remove()); err != nil {
		return fmt.Errorf("ideal: %w", err)
	}
	one, err := b.drain(ctx, b.binary, 1, nil)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	three, err := b.drain(ctx, b.binary, 3, nil)
	if err != nil {
		return fmt.Errorf("fan-out: %w", err)
	}
	followed, err := b.drain(ctx, b.binary, 1, follow)
	if err != nil {
		return fmt.Errorf("followed: %w", err)
	}
	b.add("drain.raw", "POSTs/s", raw.rate)
	b.add("drain.ideal", "messages/s", ideal.rate)
	b.relate("drain.ideal", "raw", ideal.rate, raw.rate)
	b.add("drain.server", "messages/s", one.rate)
	b.relate("drain.server", "raw", one.rate, raw.rate)
	b.relate("drain.server", "ideal", one.rate, ideal.rate)
	if b.Delay > 0 {
		b.relate("drain.server", "its slots", one.rate, float64(b.Concurrency)/b.Delay.Seconds())
	}
	b.add("drain.fan3", "POSTs/s", 3*three.rate)
	b.relate("drain.fan3", "3 × server", three.rate, one.rate)
	b.relate("drain.fan3", "raw", 3*three.rate, raw.rate)
	b.add("drain.followed", "messages/s", followed.rate)
	b.relate("drain.followed", "server", followed.rate, one.rate)
	b.add("drain.cpu.followed", "s/1,000", followed.cpu)
	if b.baseline != "" {
		old, err := b.drain(ctx, b.baseline, 1, nil)
		if err != nil {
			return fmt.Errorf("baseline: %w", err)
		}
		b.add("drain.baseline", "messages/s", old.rate)
		b.relate("drain.server", "baseline", one.rate, old.rate)
		b.add("drain.cpu.baseline", "s/1,000", old.cpu)
	}
	b.addCosts(raw, ideal, one, three)
	for _, p := range b.peers {
		d, err := b.drainByPeer(ctx, p)
		if err != nil {
			return fmt.Errorf("peer %s: %w", p.name, err)
		}
		b.add("drain.peer."+p.name, "messages/s", d.rate)
		b.relate("drain.peer."+p.name, "ideal", d.rate, ideal.rate)
		b.relate("drain.server", p.name, one.rate, d.rate)
		b.add("drain.cpu.peer."+p.name, "s/1,000", d.cpu)
		b.addTransactions("drain.wire.peer."+p.name, d.wire)
	}
	return nil
}

func (b *bench) addCosts(raw, ideal, one, three drained) {
	b.add("drain.cpu.raw", "s/1,000", raw.cpu)
	b.add("drain.cpu.ideal", "s/1,000", ideal.cpu)
	b.add("drain.cpu.server", "s/1,000", one.cpu)
	b.relate("drain.cpu.server", "raw", one.cpu, raw.cpu)
	b.relate("drain.cpu.server", "ideal", one.cpu, ideal.cpu)
	b.add("drain.cpu.fan3", "s/1,000", three.cpu)
	b.add("drain.rss", "MB", one.rss)
	b.add("drain.peak_rss", "MB", one.peak)
	b.add("drain.goroutines", "", one.goroutines)
	b.addTransactions("drain.transactions", one.transactions)
	b.addTransactions("drain.wire", one.wire)
	b.addTransactions("drain.wire.ideal", ideal.wire)
}

// addTransactions adds one figure for each operation, and their sum.
func (b *bench) addTransactions(name string, counts map[string]float64) {
	if len(counts) > 0 {
		b.addEach(name, "/1,000", counts)
	}
}

func (b *bench) addEach(name, unit string, counts map[string]float64) {
	sum := 0.0
	for _, operation := range slices.Sorted(maps.Keys(counts)) {
		b.add(name+"."+operation, unit, counts[operation])
		sum += counts[operation]
	}
	b.add(name, unit, sum)
}
