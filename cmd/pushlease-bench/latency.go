package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// publishers send a load: more than are needed, so that a slow answer delays no
	// other message.
	publishers = 64
	// catchUp is how long a server may take to deliver what a load left behind.
	catchUp = time.Minute
)

// loads are the shares of the drain rate that latency is measured at.
var loads = []int{20, 50, 80}

// latencies runs the rounds of the scenario latency.
func (b *bench) latencies(ctx context.Context) error {
	for round := range b.Rounds {
		b.say("latency, round %d of %d", round+1, b.Rounds)
		if err := b.latencyRound(ctx); err != nil {
			return err
		}
	}
	return nil
}

// drainRate is what loads are shares of; it is measured when no scenario did.
func (b *bench) drainRate(ctx context.Context) (float64, error) {
	if f := b.find("drain.server"); f != nil {
		return f.Median, nil
	}
	d, err := b.drain(ctx, b.binary, 1, nil)
	if err == nil {
		b.add("drain.server", "messages/s", d.rate)
	}
	return d.rate, err
}

func (b *bench) latencyRound(ctx context.Context) (err error) {
	full, err := b.drainRate(ctx)
	if err != nil {
		return err
	}
	s := b.fresh()
	defer func() { err = errors.Join(err, s.remove()) }()
	v, err := b.ready(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.kill()) }()
	if err := b.idleLatency(ctx, v, s); err != nil {
		return fmt.Errorf("idle: %w", err)
	}
	for _, share := range loads {
		q, publishes, err := b.load(ctx, v, s.queue(), full*float64(share)/100, b.LoadTime)
		if err != nil {
			return fmt.Errorf("load of %d %%: %w", share, err)
		}
		name := fmt.Sprintf("latency.load%d", share)
		b.addLatency(name, q)
		b.relate(name+".p99", "its p50", q.P99, q.P50)
		b.addLatency(fmt.Sprintf("publish.load%d", share), publishes)
	}
	return nil
}

func (b *bench) addLatency(name string, q quantiles) {
	b.add(name+".p50", "ms", q.P50)
	b.add(name+".p99", "ms", q.P99)
	b.add(name+".p999", "ms", q.P999)
}

// ready starts a server with one webhook and a queue, and returns when it has delivered a
// first message.
func (b *bench) ready(ctx context.Context, s storage, settings ...string) (*server, error) {
	return b.readyWith(ctx, b.binary, s, settings...)
}

func (b *bench) readyWith(ctx context.Context, binary string, s storage, settings ...string) (*server, error) {
	err := s.with(ctx, func(st store) error {
		if err := st.register(ctx, s.queue(), b.receiver.URL, 1, b.Concurrency); err != nil {
			return err
		}
		return b.fill(ctx, st, s.queue(), 1)
	})
	if err != nil {
		return nil, err
	}
	if err := b.receiver.reset(ctx); err != nil {
		return nil, err
	}
	v, err := startServer(ctx, binary, b.work, s, b.serverSettings(settings...))
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if _, err = v.settled(bounded, 1); err != nil {
		return nil, errors.Join(err, v.kill())
	}
	return v, nil
}

// load publishes at a steady rate, whatever the answers take, and returns the latencies
// counted from the time at which each message was due to be published, and how long the publishes took.
func (b *bench) load(ctx context.Context, v *server, queueName string, rate float64, lasts time.Duration) (arrived, published quantiles, err error) {
	n := max(int(rate*lasts.Seconds()), 10)
	ctx, cancel := context.WithTimeout(ctx, lasts+catchUp)
	defer cancel()
	if err := b.receiver.reset(ctx); err != nil {
		return arrived, published, err
	}
	due := make(chan time.Time, n)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	var publishes []int64
	for range publishers {
		wg.Go(func() {
			for at := range due {
				began := time.Now()
				err := v.publish(ctx, queueName, newBody(b.Size, at))
				mu.Lock()
				publishes = append(publishes, int64(time.Since(began)))
				if err != nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	start := time.Now()
	paceErr := pace(ctx, start, n, rate, due)
	close(due)
	wg.Wait()
	took := time.Since(start)
	if err := errors.Join(paceErr, failed); err != nil {
		return arrived, published, err
	}
	if took > lasts*21/20 {
		b.note("%.0f messages/s were asked for and %.0f published: publishing takes the same CPU and storage, and latencies count from when a message was due", rate, float64(n)/took.Seconds())
	}
	came, err := b.receiver.stats(ctx, n)
	return came.Latency, quantilesOf(publishes), err
}

// pace sends the times at which messages are due, each when it has come.
func pace(ctx context.Context, start time.Time, n int, rate float64, due chan<- time.Time) error {
	for i := 0; i < n; {
		now := time.Now()
		for ; i < n; i++ {
			at := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
			if at.After(now) {
				break
			}
			due <- at
		}
		if err := sleep(ctx, 500*time.Microsecond); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
