package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// front is how many messages are delivered from the front of a queue to see what one
// costs: fewer than the smallest depth, so that no queue runs empty meanwhile.
const front = 900

// smallest is the depth that others are compared with.
const smallest = 1000

// grown is one storage of a growth scenario: the same, but for one thing that grew.
type grown struct {
	name string
	storage
}

// compareGrown delivers from the front of each storage's queue in turn, round by round,
// and relates each to the first.
func (b *bench) compareGrown(ctx context.Context, scenario string, all []grown) error {
	for round := range b.Rounds {
		b.say("%s, round %d of %d", scenario, round+1, b.Rounds)
		rate := 0.0
		for i, g := range all {
			d, err := b.deliver(ctx, b.binary, g.storage, 1, front, nil)
			if err != nil {
				return fmt.Errorf("%s: %w", g.name, err)
			}
			// What was delivered is put back at the end.
			err = g.with(ctx, func(st store) error { return b.fill(ctx, st, g.queue(), front) })
			if err != nil {
				return err
			}
			name := scenario + "." + g.name
			b.add(name, "messages/s", d.rate)
			b.add(name+".cpu", "s/1,000", d.cpu)
			if i == 0 {
				rate = d.rate
				continue
			}
			b.relate(name, all[0].name, d.rate, rate)
			if i == len(all)-1 {
				b.add(scenario+".slowdown", "×", rate/d.rate)
			}
		}
	}
	return nil
}

// grow makes one storage for each size.
func (b *bench) grow(ctx context.Context, scenario string, sizes []int, fill func(ctx context.Context, st store, s storage, size int) error) (err error) {
	var all []grown
	defer func() {
		for _, g := range all {
			err = errors.Join(err, g.remove())
		}
	}()
	for _, size := range sizes {
		b.say("%s: preparing %d", scenario, size)
		g := grown{name: fmt.Sprint(size), storage: b.fresh()}
		all = append(all, g)
		err := g.with(ctx, func(st store) error {
			if err := st.register(ctx, g.queue(), b.receiver.URL, 1, b.Concurrency); err != nil {
				return err
			}
			return fill(ctx, st, g.storage, size)
		})
		if err != nil {
			return err
		}
	}
	return b.compareGrown(ctx, scenario, all)
}

// steps are 1,000 and its tenfolds up to most.
func steps(first, most int) []int {
	sizes := []int{first}
	for n := first * 10; n <= most; n *= 10 {
		sizes = append(sizes, n)
	}
	if last := sizes[len(sizes)-1]; last < most {
		sizes = append(sizes, most)
	}
	return sizes
}

// depths: does a message cost more in a deep queue?
func (b *bench) depths(ctx context.Context) error {
	return b.grow(ctx, depthScenario, steps(smallest, b.MaxDepth), func(ctx context.Context, st store, s storage, size int) error {
		return b.fill(ctx, st, s.queue(), size)
	})
}

const (
	mostWebhooks = 10_000
	// otherQueues share them: each queue with a webhook has a poller of its own.
	otherQueues = 10
)

// manyWebhooks: does a message cost more when other queues have many webhooks?
func (b *bench) manyWebhooks(ctx context.Context) error {
	return b.grow(ctx, webhooksScenario, []int{1, 100, mostWebhooks}, func(ctx context.Context, st store, s storage, size int) error {
		register := func(ctx context.Context, i int) error {
			r, err := registration(fmt.Sprintf("wh_other_%06d", i), fmt.Sprintf("%s-other-%d", s.queue(), i%otherQueues), b.receiver.URL, b.Concurrency)
			if err != nil {
				return err
			}
			_, err = st.tables.PutWebhook(ctx, r)
			return err
		}
		err := b.unlimited(ctx, func() error { return inParallel(ctx, size-1, fillers, register) })
		if err != nil {
			return fmt.Errorf("register webhooks: %w", err)
		}
		return b.fill(ctx, st, s.queue(), smallest)
	})
}

// attemptsPerMessage is how the stored history is made up: one delivery and its attempts.
const attemptsPerMessage = 5

// histories: does a message cost more when many attempts are stored?
func (b *bench) histories(ctx context.Context) error {
	sizes := append([]int{0}, steps(smallest, b.Attempts)...)
	return b.grow(ctx, historyScenario, []int{0, sizes[len(sizes)-2], sizes[len(sizes)-1]}, func(ctx context.Context, st store, s storage, size int) error {
		start := time.Now().Add(-time.Hour)
		record := func(ctx context.Context, i int) error {
			return st.tables.Record(ctx, oldRecord(s.queue(), i, start.Add(time.Duration(i)*time.Millisecond)))
		}
		err := b.unlimited(ctx, func() error { return inParallel(ctx, size/attemptsPerMessage, fillers, record) })
		if err != nil {
			return fmt.Errorf("store attempts: %w", err)
		}
		return b.fill(ctx, st, s.queue(), smallest)
	})
}

// oldRecord is a message that was delivered with its last attempt.
func oldRecord(queueName string, i int, at time.Time) tables.Record {
	key := tables.MessageKey{Queue: queueName, MessageID: fmt.Sprintf("%08x-0000-4000-8000-%012x", i*2654435761&0xffffffff, i), Day: at}
	r := tables.Record{Deliveries: []tables.Delivery{{
		MessageKey: key, WebhookID: "wh_bench_old", State: tables.Delivered, Reason: policy.Delivered,
		Attempts: attemptsPerMessage, Charged: attemptsPerMessage, LastStatus: 200, FirstAt: at, LastAt: at, UpdatedAt: at, Instance: "bench",
	}}}
	for n := range attemptsPerMessage {
		a := tables.Attempt{
			MessageKey: key, WebhookID: "wh_bench_old", Number: n + 1, StartedAt: at, Duration: time.Millisecond, Status: 503,
			Action: policy.Abandon, Reason: policy.RetryableError, Charged: true, Explanation: "The webhook answered 503.", Instance: "bench",
		}
		if n == attemptsPerMessage-1 {
			a.Status, a.Action, a.Reason, a.Explanation = 200, policy.Complete, policy.Delivered, "The webhook answered 200."
		}
		r.Attempts = append(r.Attempts, a)
	}
	return r
}

// checkpointLoads is how many times longer than others the load of checkpoints lasts.
const checkpointLoads = 5

// checkpoints: do SQLite's checkpoints, which write the log into the file, hold up
// deliveries?
func (b *bench) checkpoints(ctx context.Context) error {
	if b.Storage != sqliteStorage {
		b.note("the scenario checkpoints is about SQLite and was left out")
		return nil
	}
	full, err := b.drainRate(ctx)
	if err != nil {
		return err
	}
	for round := range b.Rounds {
		b.say("checkpoints, round %d of %d", round+1, b.Rounds)
		if err := b.checkpointRound(ctx, full/2); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) checkpointRound(ctx context.Context, rate float64) (err error) {
	s := b.fresh()
	defer func() { err = errors.Join(err, s.remove()) }()
	v, err := b.ready(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.kill()) }()
	watched, stop := context.WithCancel(ctx)
	defer stop()
	count := make(chan int, 1)
	go func() { count <- fileWrites(watched, strings.TrimPrefix(s.setting, "sqlite:")) }()
	q, _, err := b.load(ctx, v, s.queue(), rate, checkpointLoads*b.LoadTime)
	if err != nil {
		return err
	}
	stop()
	b.addLatency("checkpoints", q)
	b.add("checkpoints.max", "ms", q.Max)
	b.add("checkpoints.file_writes", "", float64(<-count))
	return nil
}

// fileWrites counts how often a database file was written to until ctx ends. With a
// write-ahead log only checkpoints do; a long one may be seen more than once.
func fileWrites(ctx context.Context, path string) int {
	n := 0
	var last time.Time
	for sleep(ctx, 2*time.Millisecond) == nil {
		file, err := os.Stat(path)
		if err != nil {
			return n
		}
		if now := file.ModTime(); now.After(last) {
			n, last = n+1, now
		}
	}
	return n
}
