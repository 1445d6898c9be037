// Package app is the composition root: it builds, starts and stops everything
// that one pushlease process is made of.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/dispatcher"
	"github.com/pushlease/pushlease/internal/config"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/telemetry"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// closeBound bounds the closing of storage and telemetry at a stop.
const closeBound = 8 * time.Second

// Options are what the program, not its user, decides.
type Options struct {
	Version   string
	LogOutput io.Writer
	// Outside is what the process is put into; the zero value is the world.
	Outside Outside

	// hosted says which queues the Functions host receives from, which then also
	// brings the requests: there is no listener and no server. Nil without a host.
	hosted func(queue string) bool
	// lookGap is how long a queue may be without anybody who looks at it, under a host.
	lookGap func(queue string) time.Duration
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

// App is one pushlease process. Make one with New, then Run it once.
type App struct {
	cfg        config.Config
	log        *slog.Logger
	stores     stores
	dispatcher *dispatcher.Dispatcher
	api        *api.API
	expiry     *deadLetterExpiry
	replays    *lostReplays
	sas        *sasWatch
	shortage   func() webhook.Shortage // of the sender
	events     *events                 // nil where nobody is told
	lives      *lives                  // nil on a file, which ends what expires itself
	heartbeat  *heartbeat
	rollups    *rollups
	listener   net.Listener
	server     *http.Server
	asText     []string // the queues of which a host passes messages on as text
	takenAway  []string // why a host moves messages away unseen
	idle       []string // what is not done, or late, since a host does not call a function
	cleanups   cleanups
	draining   atomic.Bool
	pollers    atomic.Int64 // how many instances poll, as the heartbeat has last seen
}

// New builds everything and opens the listening socket, so that an address that is
// taken is an error at once; requests are served by Run.
func New(ctx context.Context, cfg config.Config, o Options) (_ *App, err error) {
	a := &App{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.cleanups.run(context.WithoutCancel(ctx)))
		}
	}()
	t, err := telemetry.Start(ctx, telemetry.Options{
		Version: o.Version, Instance: cfg.Instance, LogOutput: o.LogOutput,
		LogLevel: cfg.LogLevel, LogFormat: cfg.LogFormat, OTLPEndpoint: cfg.OTLPEndpoint,
	})
	if err != nil {
		return nil, err
	}
	a.log = t.Logger
	a.cleanups.add("telemetry", func(ctx context.Context) error {
		if err := t.Shutdown(ctx); err != nil { // it is about the process, and decides nothing about it
			a.log.Warn("the last telemetry could not be sent", "error", err)
		}
		return nil
	})
	if o.hosted == nil {
		if err := a.listen(ctx, o.Outside.Listen); err != nil {
			return nil, err
		}
	}
	meter := t.MeterProvider.Meter("pushlease")

	ends := &expiries{log: a.log}
	if a.stores, err = openStores(ctx, cfg, o.Outside, a.log, meter, ends.ended); err != nil {
		return nil, err
	}
	a.cleanups.add("storage", a.stores.close)
	a.sas = &sasWatch{end: a.stores.sasEnd, log: a.log}
	a.events = newEvents(cfg.EventsQueue, cfg.Instance, a.stores.queues, cfg.QueueEncoding, a.log)
	a.lives, a.stores.tables = newLives(a.stores, cfg.Instance, a.log, func(name string, n int) { a.dispatcher.ExpiredUnseen(name, n) })
	a.stores.tables = audited{a.told(a.stores.tables), cfg.Instance, a.log}

	sender, err := webhook.NewSender(webhook.Options{
		Version: o.Version, Guard: guard(cfg), TracerProvider: t.TracerProvider, Unrecorded: !t.Recording,
		Resolver: o.Outside.Resolver, DialContext: o.Outside.DialContext,
	})
	if err != nil {
		return nil, err
	}
	a.cleanups.add("sender", func(context.Context) error { sender.Close(); return nil })
	a.shortage = sender.Shortage

	a.dispatcher, err = dispatcher.New(dispatcher.Options{
		Queues: a.stores.queues, Store: a.stores.tables, RecordedCompletes: a.stores.recorded, Sender: sender, Encoding: cfg.QueueEncoding,
		ByEvent: cfg.DedupByEvent, KeepUnmatched: cfg.KeepUnmatched, Hosted: o.hosted, LookGap: o.lookGap,
		Lease: cfg.Lease, Estimate: estimates(cfg), Concurrency: cfg.Concurrency, MaxInFlight: cfg.MaxInFlight, PollMin: cfg.PollMin, PollMax: cfg.PollMax, Pollers: func() int { return int(a.pollers.Load()) },
		Drain: cfg.Drain, RegistryRefresh: cfg.RegistryRefresh, PoisonCopy: cfg.PoisonCopy, PoisonCopyTTL: cfg.PoisonCopyTTL,
		Attempted: func(t *tables.Attempt) { a.api.Attempted(t) },
		Instance:  cfg.Instance, Logger: a.log, Meter: meter, Tracer: t.TracerProvider.Tracer("pushlease"), Unrecorded: !t.Recording,
	})
	if err != nil {
		return nil, err
	}
	a.stores.lost.removed = a.dispatcher.Removed
	a.expiry = &deadLetterExpiry{store: a.stores.tables, replayed: cfg.Retention, others: cfg.DeadLetterRetention, log: a.log, expired: a.dispatcher.DeadLettersExpired}
	a.replays = &lostReplays{letters: a.stores.tables, records: a.stores.tables, queues: a.stores.queues, log: a.log}
	a.api, err = api.New(api.Options{
		Webhooks: a.stores.tables, LeftQueues: a.stores.tables, Deliveries: a.stores.tables, History: a.stores.tables,
		DeadLetters: a.stores.tables, Claims: a.stores.tables, Healths: a.stores.tables, Jobs: a.stores.tables, Instances: a.stores.tables, Rollups: a.stores.tables, Audits: a.stores.tables, ByEvent: cfg.DedupByEvent,
		Queues: a.stores.queues, RecordedSends: handOver(a.stores.recorded, a.dispatcher), RecordedReplays: a.stores.replays, EventsQueue: cfg.EventsQueue, Encoding: cfg.QueueEncoding, KeepUnmatched: cfg.KeepUnmatched, Dispatcher: a.dispatcher, Sender: sender,
		ValidateURL: func(raw string) error { return webhook.ValidateURL(raw, guard(cfg)) },
		Keys:        apiKeys(cfg), Hosted: o.hosted != nil, Metrics: t.Handler(), Ready: a.ready, Settings: settingsOf(cfg), Meter: meter, Logger: a.log, Version: o.Version,
		TracerProvider: recorded(t), Instance: cfg.Instance, Storage: StorageLocation(cfg), WebhookTimeout: cfg.WebhookTimeout, CountAlways: cfg.Storage.Kind() == config.StorageSQLite,
	})
	if err != nil {
		return nil, err
	}
	a.startExpiries(ends, a.api.DeadLettered)
	a.cleanups.add("records of publishes", func(context.Context) error { a.api.Flush(); return nil })
	a.heartbeat = a.newHeartbeat(o)
	a.rollups = a.newRollups()
	a.server = newServer(a.front(a.api), a.log)
	return a, a.measure(meter, o.Version)
}

// recorded is what makes spans where a collector takes them, and nil where nobody does.
func recorded(t *telemetry.Telemetry) trace.TracerProvider {
	if !t.Recording {
		return nil
	}
	return t.TracerProvider
}

// settingsOf are the settings as the API shows them.
func settingsOf(cfg config.Config) (list []api.Setting) {
	for _, e := range cfg.Effective() {
		list = append(list, api.Setting(e))
	}
	return list
}

// URL is the base URL of the API.
func (a *App) URL() string { return "http://" + a.listener.Addr().String() }

// Logger is the process's logger.
func (a *App) Logger() *slog.Logger { return a.log }

// Run serves and dispatches until ctx ends, then drains: no more messages are received,
// the dispatcher finishes what it has begun within the drain bound, the API says that it
// is not ready, serves for the shutdown delay and ends, and storage and telemetry are
// flushed and closed.
func (a *App) Run(ctx context.Context) error {
	a.log.Info("pushlease is up", "url", a.URL(), "page", a.URL()+"/ui/", "storage", a.cfg.Storage.String(), "instance", a.cfg.Instance,
		"api_keys", len(a.cfg.APIKeys), "dev", a.cfg.Dev)
	if len(a.cfg.APIKeys) == 0 {
		a.log.Info("no API keys are set: only requests from this machine are served")
	}
	runCtx, stop := context.WithCancel(ctx)
	defer stop()

	stopEvents := a.events.start(a.dispatcher.Wake)
	var parts sync.WaitGroup
	parts.Go(func() { a.dispatcher.Run(runCtx) })
	parts.Go(func() { a.housekeeping(runCtx) })
	parts.Go(func() { a.api.Run(runCtx) })
	parts.Go(func() { a.tellReadiness(runCtx) })
	parts.Go(func() { a.heartbeat.run(runCtx) })
	parts.Go(func() { a.rollups.run(runCtx) })
	parts.Go(func() { a.lives.run(runCtx) })
	served := make(chan error, 1)
	go func() { served <- a.serve() }()

	var failed error
	select {
	case <-ctx.Done():
	case err := <-served: // the socket died: nothing can be asked of this process any more
		failed = fmt.Errorf("serve: %w", err)
	}
	a.draining.Store(true)
	stop()
	a.log.Info("stopping: no more messages are received; those in flight are finished", "drain", a.cfg.Drain, "shutdown_delay", a.cfg.ShutdownDelay)
	a.stopServing(context.WithoutCancel(ctx))
	parts.Wait()
	stopEvents()

	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
	defer cancel()
	a.log.Info("stopped")
	return errors.Join(failed, a.cleanups.run(closeCtx))
}

func guard(cfg config.Config) webhook.GuardOptions {
	return webhook.GuardOptions{AllowPrivate: cfg.Dev, AllowHTTP: cfg.AllowHTTP, AllowCIDRs: cfg.AllowCIDRs, DenyCIDRs: cfg.DenyCIDRs}
}

func apiKeys(cfg config.Config) []api.Key {
	var keys []api.Key
	for _, k := range cfg.APIKeys {
		key := api.Key{Name: k.Name, Hash: k.Hash()}
		for _, s := range k.Scopes {
			key.Scopes = append(key.Scopes, api.Scope(s))
		}
		keys = append(keys, key)
	}
	return keys
}
