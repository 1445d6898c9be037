package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pushlease/pushlease/queue"
)

const (
	// trickle is how many messages measure the latency of an idle server, and
	// tricklePause how far they are apart at least.
	trickle      = 100
	tricklePause = 20 * time.Millisecond
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
	d, err := b.drain(ctx, b.binary, 1)
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
	floor, err := b.latencyFloor(ctx)
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
	idle, err := b.trickle(ctx, v, s.queue())
	if err != nil {
		return fmt.Errorf("idle: %w", err)
	}
	b.addLatency("latency.idle", idle)
	b.relate("latency.idle.p50", "round trip + commit", idle.P50, floor)
	for _, share := range loads {
		q, err := b.load(ctx, v, s.queue(), full*float64(share)/100, b.LoadTime)
		if err != nil {
			return fmt.Errorf("load of %d %%: %w", share, err)
		}
		name := fmt.Sprintf("latency.load%d", share)
		b.addLatency(name, q)
		b.relate(name+".p99", "its p50", q.P99, q.P50)
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
	err := s.with(ctx, func(st store) error {
		if err := st.register(ctx, s.queue(), b.receiver.URL, 1, b.Concurrency); err != nil {
			return err
		}
		return st.fill(ctx, s.queue(), 1, b.Size)
	})
	if err != nil {
		return nil, err
	}
	if err := b.receiver.reset(ctx); err != nil {
		return nil, err
	}
	v, err := startServer(ctx, b.binary, b.work, s, b.serverSettings(settings...))
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

// latencyFloor is a bare round trip and one durable commit, in milliseconds: nobody who
// stores a message before it is sent on can be faster.
func (b *bench) latencyFloor(ctx context.Context) (float64, error) {
	j := job{url: b.receiver.URL, count: 3 * trickle, workers: 1, size: b.Size}
	var bare jobDone
	c, err := startRole(ctx, nil, &bare, j.args("post")...)
	if err != nil {
		return 0, err
	}
	if err := c.close(); err != nil {
		return 0, err
	}
	s := b.fresh()
	var commits quantiles
	err = s.with(ctx, func(st store) (err error) {
		commits, err = timeSends(ctx, st, s.queue(), b.Size)
		return err
	})
	if err = errors.Join(err, s.remove()); err != nil {
		return 0, err
	}
	b.add("latency.round_trip.p50", "ms", bare.RoundTrip.P50)
	b.add("latency.commit.p50", "ms", commits.P50)
	return bare.RoundTrip.P50 + commits.P50, nil
}

// timeSends sends one message after the other.
func timeSends(ctx context.Context, st store, name string, size int) (quantiles, error) {
	q, err := st.queues.Queue(name)
	if err != nil {
		return quantiles{}, err
	}
	var took []int64
	for range trickle {
		start := time.Now()
		if _, err := q.Send(ctx, newBody(size, start), queue.SendOptions{}); err != nil {
			return quantiles{}, fmt.Errorf("time a commit: %w", err)
		}
		took = append(took, int64(time.Since(start)))
	}
	return quantilesOf(took), nil
}

// trickle publishes one message at a time and counts what each costs.
func (b *bench) trickle(ctx context.Context, v *server, queueName string) (quantiles, error) {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if err := b.resetCounts(ctx); err != nil {
		return quantiles{}, err
	}
	before, err := v.metrics(ctx)
	if err != nil {
		return quantiles{}, err
	}
	n := min(trickle, b.Count)
	for i := range n {
		if err := v.publish(ctx, queueName, newBody(b.Size, time.Now())); err != nil {
			return quantiles{}, err
		}
		if _, err := b.receiver.stats(ctx, i+1); err != nil {
			return quantiles{}, err
		}
		if err := sleep(ctx, tricklePause+rand.N(tricklePause)); err != nil {
			return quantiles{}, err
		}
	}
	came, err := b.receiver.stats(ctx, n)
	if err != nil {
		return quantiles{}, err
	}
	after, err := v.settled(ctx, int(before.transactions["queue complete"])+n)
	if err != nil {
		return quantiles{}, err
	}
	b.addTrickleCost(before, after, n)
	return came.Latency, nil
}

// addTrickleCost adds the transactions of one message that comes alone: without those of
// the publish, which is the publisher's, and without what looks for messages in vain.
func (b *bench) addTrickleCost(before, after metrics, n int) {
	if b.Storage == sqliteStorage {
		return
	}
	each := map[string]float64{}
	for name, count := range after.transactions {
		count -= before.transactions[name]
		switch name {
		case "queue send", "table query", "table list-tables", "queue peek", "queue depth":
			continue
		case "queue receive":
			count = min(count, float64(n))
		}
		if count > 0 {
			each[name] = count / float64(n)
		}
	}
	b.addEach("latency.idle.wire", "/message", each)
}

// load publishes at a steady rate, whatever the answers take, and returns the latencies
// counted from the time at which each message was due to be published.
func (b *bench) load(ctx context.Context, v *server, queueName string, rate float64, lasts time.Duration) (quantiles, error) {
	n := max(int(rate*lasts.Seconds()), 10)
	ctx, cancel := context.WithTimeout(ctx, lasts+catchUp)
	defer cancel()
	if err := b.receiver.reset(ctx); err != nil {
		return quantiles{}, err
	}
	due := make(chan time.Time, n)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for range publishers {
		wg.Go(func() {
			for at := range due {
				if err := v.publish(ctx, queueName, newBody(b.Size, at)); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	start := time.Now()
	paceErr := pace(ctx, start, n, rate, due)
	close(due)
	wg.Wait()
	took := time.Since(start)
	if err := errors.Join(paceErr, failed); err != nil {
		return quantiles{}, err
	}
	if took > lasts*21/20 {
		b.note("%.0f messages/s were asked for and %.0f published: publishing takes the same CPU and storage, and latencies count from when a message was due", rate, float64(n)/took.Seconds())
	}
	came, err := b.receiver.stats(ctx, n)
	return came.Latency, err
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
