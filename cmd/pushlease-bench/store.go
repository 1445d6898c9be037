package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/queue/azurequeue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable"
	"github.com/pushlease/pushlease/webhook"
)

// storage is what the server's setting of that name says, and the prefix of its tables.
// It reaches child processes through their environment.
type storage struct {
	setting string
	prefix  string
}

const (
	storageEnv = "PUSHLEASE_STORAGE"
	prefixEnv  = "PUSHLEASE_TABLE_PREFIX"
)

func (s storage) env() []string {
	return []string{storageEnv + "=" + s.setting, prefixEnv + "=" + s.prefix}
}

// store is an open storage, with the same adapters as the server's.
type store struct {
	queues queue.Service
	tables tables.Store
	close  func() error
}

// connections is how many idle ones the queue adapter keeps.
const connections = 256

func (s storage) open(ctx context.Context) (store, error) {
	if path, ok := strings.CutPrefix(s.setting, "sqlite:"); ok {
		db, err := sqlite.Open(ctx, path, sqlite.Options{})
		if err != nil {
			return store{}, err
		}
		return store{queues: db.Queues(), tables: db, close: db.Close}, nil
	}
	conn, err := azureconn.Parse(s.setting)
	if err != nil {
		return store{}, fmt.Errorf("storage: %w", err)
	}
	queues, err := azurequeue.Open(conn, azurequeue.Options{Connections: connections})
	if err != nil {
		return store{}, err
	}
	rows, err := azuretable.Open(conn, azuretable.Options{Prefix: s.prefix})
	if err != nil {
		return store{}, err
	}
	return store{queues: queues, tables: rows, close: func() error {
		queues.Close()
		return rows.Close(context.WithoutCancel(ctx))
	}}, nil
}

// with opens the storage for the time of one call.
func (s storage) with(ctx context.Context, do func(store) error) error {
	st, err := s.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(st), st.close())
}

// inParallel calls do n times, from that many goroutines, until one fails.
func inParallel(ctx context.Context, n, goroutines int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// fillers is how many sends fill a queue at the same time: SQLite commits what waits.
const fillers = 128

// fill puts n messages of size bytes on a queue.
func (st store) fill(ctx context.Context, name string, n, size int) error {
	q, err := st.queues.Queue(name)
	if err != nil {
		return err
	}
	// The first one creates the queue, which many at once would all try.
	send := func(ctx context.Context, _ int) error {
		_, err := q.Send(ctx, newBody(size, time.Now()), queue.SendOptions{})
		return err
	}
	if n == 0 {
		return nil
	}
	if err := send(ctx, 0); err != nil {
		return fmt.Errorf("fill queue %s: %w", name, err)
	}
	if err := inParallel(ctx, n-1, fillers, send); err != nil {
		return fmt.Errorf("fill queue %s: %w", name, err)
	}
	return nil
}

// register writes registrations as the API would: n webhooks on one queue, with room for
// as many POSTs as the queue has slots.
func (st store) register(ctx context.Context, queueName, url string, n, concurrency int) error {
	for i := range n {
		r, err := registration(fmt.Sprintf("wh_bench_%s_%d", strings.ReplaceAll(queueName, "-", "_"), i), queueName, url, concurrency)
		if err != nil {
			return err
		}
		if _, err := st.tables.PutWebhook(ctx, r); err != nil {
			return fmt.Errorf("register a webhook: %w", err)
		}
	}
	return nil
}

func registration(id, queueName, url string, concurrency int) (tables.Registration, error) {
	standard, err := policy.Preset(policy.DefaultPreset)
	if err != nil {
		return tables.Registration{}, err
	}
	now := time.Now()
	flow := policy.DefaultFlow()
	flow.Concurrency = concurrency
	return tables.Registration{
		Webhook: webhook.Webhook{
			ID: id, Queue: queueName, URL: url, Secrets: []webhook.Secret{webhook.NewSecret(now)}, Timeout: 30 * time.Second,
		},
		Policy: standard, Flow: flow, Enabled: true, CreatedAt: now, UpdatedAt: now,
	}, nil
}
