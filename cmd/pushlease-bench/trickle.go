package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pushlease/pushlease/queue"
)

const (
	// trickle is how many messages measure an idle server, and tricklePause how far they
	// are apart at least.
	trickle      = 100
	tricklePause = 20 * time.Millisecond
	// askPause is when the receiver is asked whether a message has come, which says itself when.
	askPause = 5 * time.Millisecond
	// stored is how many messages are put into storage behind the server's back.
	stored = 40
)

// idleLatency measures one message at a time, and in turn with it what it is compared with:
// a bare round trip and a durable commit, and the same message with the baseline. What comes
// after a pause takes several times as long as what is repeated at once, since caches are cold
// and processors asleep, so all of them come after the same pauses.
func (b *bench) idleLatency(ctx context.Context, v *server, s storage) (err error) {
	if err := b.resetCounts(ctx); err != nil {
		return err
	}
	floor, err := b.newFloor(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, floor.close()) }()
	arrivals := 0
	steps := []step{b.published(v, s, &arrivals), func(ctx context.Context) (time.Duration, error) {
		arrivals++
		return 0, floor.measure(ctx, b.Size)
	}}
	if b.baseline != "" {
		old := b.fresh()
		defer func() { err = errors.Join(err, old.remove()) }()
		w, err := b.readyWith(ctx, b.baseline, old)
		if err != nil {
			return fmt.Errorf("baseline: %w", err)
		}
		defer func() { err = errors.Join(err, w.kill()) }()
		if err := b.resetCounts(ctx); err != nil {
			return err
		}
		steps = append(steps, b.published(w, old, &arrivals))
	}
	took, err := b.inTurn(ctx, min(trickle, b.Count), steps)
	if err != nil {
		return err
	}
	idle := quantilesOf(took[0])
	b.addLatency("latency.idle", idle)
	b.addFloor(floor, idle)
	if b.baseline != "" {
		old := quantilesOf(took[2])
		b.addLatency("latency.baseline", old)
		b.relate("latency.idle.p50", "baseline", idle.P50, old.P50)
	}
	if err := b.floorAtOnce(ctx, idle); err != nil || b.Storage == sqliteStorage {
		return err
	}
	return b.trickleCosts(ctx, v, s)
}

// step does one thing and returns how long it took, in time that the measuring process is
// not part of.
type step func(ctx context.Context) (time.Duration, error)

// published is a step: a message goes to a server through the API, and is there when its
// POST has come. arrivals counts the POSTs.
func (b *bench) published(v *server, s storage, arrivals *int) step {
	return b.arrived(arrivals, func(ctx context.Context, body []byte) error { return v.publish(ctx, s.queue(), body) })
}

// arrived is a step that ends with the arrival of a POST.
func (b *bench) arrived(arrivals *int, put func(ctx context.Context, body []byte) error) step {
	return func(ctx context.Context) (time.Duration, error) {
		made := time.Now()
		if err := put(ctx, newBody(b.Size, made)); err != nil {
			return 0, err
		}
		*arrivals++
		if err := sleep(ctx, askPause); err != nil { // asking takes the cores that the POST needs
			return 0, err
		}
		came, err := b.receiver.stats(ctx, *arrivals)
		return time.Duration(came.At - made.UnixNano()), err
	}
}

// inTurn does each step n times, one after the other, with pauses in between. It returns the
// times of each step, in nanoseconds.
func (b *bench) inTurn(ctx context.Context, n int, steps []step) ([][]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	took := make([][]int64, len(steps))
	for range n {
		for i, do := range steps {
			d, err := do(ctx)
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], int64(d))
			if err := sleep(ctx, tricklePause+rand.N(tricklePause)); err != nil {
				return nil, err
			}
		}
	}
	return took, nil
}

// floor is what nobody who stores a message before it is sent on can do without: a bare round
// trip to the receiver, and one durable commit.
type floor struct {
	poster  *poster
	storage storage
	store   store
	queue   queue.Queue
	commits []int64
}

func (b *bench) newFloor(ctx context.Context) (*floor, error) {
	f := &floor{poster: newPoster(job{url: b.receiver.URL}), storage: b.fresh()}
	var err error
	if f.store, err = f.storage.open(ctx); err != nil {
		return nil, err
	}
	if f.queue, err = f.store.queues.Queue(f.storage.queue()); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *floor) close() error {
	f.poster.client.CloseIdleConnections()
	return errors.Join(f.store.close(), f.storage.remove())
}

func (f *floor) measure(ctx context.Context, size int) error {
	if err := f.poster.post(ctx, newBody(size, time.Now())); err != nil {
		return err
	}
	start := time.Now()
	if _, err := f.queue.Send(ctx, newBody(size, start), queue.SendOptions{}); err != nil {
		return fmt.Errorf("time a commit: %w", err)
	}
	f.commits = append(f.commits, int64(time.Since(start)))
	return nil
}

func (b *bench) addFloor(f *floor, idle quantiles) {
	trip, commit := f.poster.done().RoundTrip.P50, quantilesOf(f.commits).P50
	b.add("latency.round_trip.p50", "ms", trip)
	b.add("latency.commit.p50", "ms", commit)
	b.relate("latency.idle.p50", "round trip + commit", idle.P50, trip+commit)
}

// floorAtOnce is the floor without pauses.
func (b *bench) floorAtOnce(ctx context.Context, idle quantiles) (err error) {
	f, err := b.newFloor(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	for range trickle {
		if err := f.measure(ctx, b.Size); err != nil {
			return err
		}
	}
	b.relate("latency.idle.p50", "both without pauses", idle.P50, f.poster.done().RoundTrip.P50+quantilesOf(f.commits).P50)
	return nil
}

// trickleCosts counts what a message costs that comes alone: one that is published through the
// API, of which the record of that is a part, and one that its producer puts into storage.
func (b *bench) trickleCosts(ctx context.Context, v *server, s storage) error {
	arrivals := 0
	err := b.trickleCost(ctx, "trickle.published", v, min(trickle, b.Count), b.published(v, s, &arrivals))
	if err != nil {
		return err
	}
	return s.with(ctx, func(st store) error {
		q, err := st.queues.Queue(s.queue())
		if err != nil {
			return err
		}
		arrivals = 0
		return b.trickleCost(ctx, "trickle.stored", v, min(stored, b.Count), b.arrived(&arrivals, func(ctx context.Context, body []byte) error {
			_, err := q.Send(ctx, body, queue.SendOptions{})
			return err
		}))
	})
}

// trickleCost counts the transactions of one message: without the send, which is its
// producer's, and without what looks for messages in vain.
func (b *bench) trickleCost(ctx context.Context, name string, v *server, n int, put step) error {
	if err := b.resetCounts(ctx); err != nil {
		return err
	}
	before, err := v.metrics(ctx)
	if err != nil {
		return err
	}
	if _, err := b.inTurn(ctx, n, []step{put}); err != nil {
		return err
	}
	after, err := v.settled(ctx, int(before.transactions["queue complete"])+n)
	if err != nil {
		return err
	}
	each := map[string]float64{}
	for operation, count := range after.transactions {
		count -= before.transactions[operation]
		switch operation {
		case "queue send", "table query", "table list-tables", "queue peek", "queue depth":
			continue
		case "queue receive":
			count = min(count, float64(n))
		}
		if count > 0 {
			each[operation] = count / float64(n)
		}
	}
	b.addEach(name, "/message", each)
	return nil
}
