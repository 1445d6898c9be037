package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/dispatcher"
	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/config"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/queue/azurequeue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable"
	"github.com/pushlease/pushlease/webhook"
)

// stores are the two halves of one storage: its queues and its tables.
type stores struct {
	queues queue.Service
	tables tables.Store
	// recorded sends, completes and records in one step; nil on Azure, where two services do it.
	recorded recordedSteps
	// replays marks and sends in one step; nil on Azure.
	replays api.RecordedReplays
	close   func(context.Context) error
	// sasEnd is when the signature that opens them ends; zero when there is none, or
	// it does not say.
	sasEnd time.Time
	// sasFaults says what their signature lacks; nil without one.
	sasFaults func(now time.Time) []azureconn.Right
	// lost is what another program has taken out of them.
	lost *lost
	// relist puts queues back on the list of those with dead letters, and names them; nil where there is no such list.
	relist func(context.Context) ([]string, error)
	// fault says what keeps storage as a whole from being used.
	fault func(context.Context) error
	// partly says which queue can't be written while storage as a whole can; nil where there is no such thing.
	partly func() string
	// lanes counts the transactions of records that are under way, and those that began beside late ones; nil where there are none.
	lanes func() (underWay int, stalls int64)
	// clockAhead compares the clock here with the storage's; nil where that is the same.
	clockAhead func() (ahead time.Duration, known bool)
}

// lookGap is the longest time between two looks at a queue. An account's clock may differ from this one as far as good clocks may: what is
// given back by one that is behind is shown later than it means to, and may meet one that is ahead (docs/operations.md). host is nil without one.
func (s *stores) lookGap(host func(queue string) time.Duration) func(queue string) time.Duration {
	switch {
	case s.clockAhead == nil:
		return host
	case host == nil:
		return func(string) time.Duration { return tables.ClocksApart }
	}
	return func(queue string) time.Duration { return host(queue) + tables.ClocksApart }
}

// recordedSteps are those that take a record along.
type recordedSteps interface {
	recordedSends
	dispatcher.RecordedCompletes
}

// Outside stands in for what a process finds outside of itself, one by one: what is nil is
// the real one. The simulation (internal/sim) gives its own.
type Outside struct {
	// Listen opens the socket of the API.
	Listen func(ctx context.Context, network, address string) (net.Listener, error)
	// Storage answers the requests to an Azure account.
	Storage http.RoundTripper
	// File runs each call to an embedded file, which is what run does, or fails it.
	File func(ctx context.Context, c *sqlite.Call, run func() error) error
	// Resolver and DialContext lead to the webhooks.
	Resolver    webhook.Resolver
	DialContext webhook.DialFunc
}

// openStores picks the adapters. On Azure nothing is asked yet, so that the process
// starts while storage is away and says so on /readyz.
func openStores(ctx context.Context, cfg config.Config, outside Outside, log *slog.Logger, meter metric.Meter, onExpired func(sqlite.Expired), onUnfinished func(queue string, messages int)) (stores, error) {
	count, err := newStorageCounter(meter)
	if err != nil {
		return stores{}, err
	}
	dropped, err := newDropCounter(meter)
	if err != nil {
		return stores{}, err
	}
	gone := &lost{}
	removed := func(id, queueName string) {
		gone.webhooks.note(strings.TrimSuffix(id+" of "+queueName, " of "), time.Now())
		if gone.removed != nil {
			gone.removed(id, queueName)
		}
		log.Error("the registration of a webhook is gone from storage, and nobody deleted it through pushlease: it is taken for deleted, and nothing more is sent there",
			"webhook", id, "queue", queueName)
	}
	if cfg.Storage.Kind() == config.StorageSQLite {
		db, err := sqlite.Open(ctx, cfg.Storage.Path(), sqlite.Options{
			Around: outside.File, OnFault: tellFaults(log), OnExpired: onExpired, OnRemoved: removed,
			Encoding: cfg.QueueEncoding, Instance: cfg.Instance, PoisonCopy: cfg.PoisonCopy, PoisonCopyTTL: cfg.PoisonCopyTTL,
			OnTransaction: func(service, operation string, _ error) { count(service, operation) },
		})
		if err != nil {
			return stores{}, fmt.Errorf("open storage: %w", err)
		}
		tellRescued(log, cfg.Storage.Path())
		return stores{queues: db.Queues(), tables: db, recorded: db.Queues(), replays: db.Queues(), lost: gone, fault: db.Fault, close: func(context.Context) error { return db.Close() }}, nil
	}
	conn, err := azureconn.Parse(storageSource(cfg))
	if err != nil {
		return stores{}, fmt.Errorf("setting storage: %w", err)
	}
	written := &writes{}
	throttled, err := newThrottleCounter(meter)
	if err != nil {
		return stores{}, err
	}
	onTransaction := func(service, queueName, operation string, status int, err error) {
		count(service, operation)
		throttled(service, status)
		written.note(service, queueName, operation, status, err)
	}
	queues, err := azurequeue.Open(conn, azurequeue.Options{
		Connections: max(64, 2*cfg.Concurrency), ManagedIdentityClientID: cfg.ManagedIdentityClientID,
		OnTransaction: func(queueName, operation string, status int, err error) {
			onTransaction("queue", queueName, operation, status, err)
		},
		Transport: outside.Storage,
	})
	if err != nil {
		return stores{}, fmt.Errorf("open queue service: %w", err)
	}
	rows, err := azuretable.Open(conn, azuretable.Options{
		Prefix: cfg.TablePrefix, Partitions: cfg.TablePartitions, ManagedIdentityClientID: cfg.ManagedIdentityClientID,
		OnTransaction: func(service, operation string, status int, err error) {
			onTransaction(service, "", operation, status, err)
		},
		Retention: cfg.Retention, OnDropped: dropped, OnRemoved: removed, OnUnfinished: tellUnfinished(log, onUnfinished), Transport: outside.Storage,
		OnLost: func(table string) {
			gone.tables.note(table, time.Now())
			log.Error("a table is gone that this process has used, before its time: another program has dropped it, or an instance with a shorter retention. What it held is lost; it is made anew when it is needed", "table", table)
		},
	})
	if err != nil {
		return stores{}, fmt.Errorf("open table service: %w", err)
	}
	sasEnd, _ := conn.SASExpiry()
	tellSASFaults(log, conn.SASFaults(time.Now()))
	return stores{queues: queues, tables: rows, fault: written.fault, partly: written.partly, sasEnd: sasEnd, sasFaults: conn.SASFaults, clockAhead: queues.ClockAhead, lanes: rows.Lanes, lost: gone, relist: rows.Relist, close: func(ctx context.Context) error {
		queues.Close()
		return rows.Close(ctx)
	}}, nil
}

// newDropCounter counts what is missing from the index of recent attempts; the
// records themselves are not affected.
func newDropCounter(m metric.Meter) (func(rows int), error) {
	c, err := m.Int64Counter("pushlease.attempt.index.dropped",
		metric.WithDescription("Rows missing from the index of recent attempts, because it could not be written or did not keep up."))
	if err != nil {
		return nil, fmt.Errorf("make counter: %w", err)
	}
	c.Add(context.Background(), 0) // a counter that is born with its first event never rises
	return func(rows int) { c.Add(context.Background(), int64(rows)) }, nil
}

// tellUnfinished tells, and has counted, what goes with the records of a day.
func tellUnfinished(log *slog.Logger, count func(queue string, messages int)) func(queue string, messages int, whole bool) {
	return func(queue string, messages int, whole bool) {
		log.Warn("the records of messages without an outcome are removed because of their age; the messages had expired before anybody ended them, or another program took them",
			"queue", queue, "messages", messages, "all_counted", whole)
		count(queue, messages)
	}
}

// newThrottleCounter counts what Azure Storage refuses because an account, a queue or a
// partition is over its limits: 503 ServerBusy, or 429.
func newThrottleCounter(m metric.Meter) (func(service string, status int), error) {
	c, err := m.Int64Counter("pushlease.storage.throttled",
		metric.WithDescription("Storage transactions that were refused because storage was over a limit of its own (429, 503), by service."))
	if err != nil {
		return nil, fmt.Errorf("make counter: %w", err)
	}
	services := map[string]metric.AddOption{}
	for _, service := range []string{"queue", "table"} {
		services[service] = metric.WithAttributeSet(attribute.NewSet(attribute.String("service", service)))
		c.Add(context.Background(), 0, services[service])
	}
	return func(service string, status int) {
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			c.Add(context.Background(), 1, services[service])
		}
	}, nil
}

// storageCounter counts one storage transaction.
type storageCounter func(service, operation string)

func newStorageCounter(m metric.Meter) (storageCounter, error) {
	c, err := m.Int64Counter("pushlease.storage.transactions",
		metric.WithDescription("Storage transactions, by service and operation, counted at the transport."))
	if err != nil {
		return nil, fmt.Errorf("make counter: %w", err)
	}
	type labels struct{ service, operation string }
	var mu sync.RWMutex
	series := map[labels][]metric.AddOption{} // hashing labels costs more than counting does
	return func(service, operation string) {
		l := labels{service, operation}
		mu.RLock()
		option := series[l]
		mu.RUnlock()
		if option == nil {
			option = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(
				attribute.String("service", service), attribute.String("operation", operation)))}
			mu.Lock()
			series[l] = option
			mu.Unlock()
		}
		c.Add(context.Background(), 1, option...)
	}, nil
}

// estimates are how long the operator expects messages to take, by queue.
func estimates(cfg config.Config) func(string) policy.Estimate {
	return func(queueName string) policy.Estimate {
		q := cfg.Queues[queueName]
		return policy.Estimate{Min: q.ProcessingMin, Average: q.Processing, Max: q.ProcessingMax, UseMax: q.LeaseFromMax}
	}
}
