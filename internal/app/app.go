// Package app is the composition root: it builds, starts and stops everything
// that one pushlease process is made of.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/dispatcher"
	"github.com/pushlease/pushlease/internal/config"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/internal/telemetry"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
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
	// lookGap is how long a queue may be without anybody who looks at it, under a host; nil where there is none.
	lookGap func(queue string) time.Duration
}

// App is one pushlease process. Make one with New, then Run it once.
type App struct {
	cfg        config.Config
	log        *slog.Logger
	stores     stores
	dispatcher *dispatcher.Dispatcher
	api        *api.API
	readiness  *readiness
	house      *housekeeping
	events     *events // nil where nobody is told
	lives      *lives  // nil on a file, which ends what expires itself
	heartbeat  *heartbeat
	rollups    *rollups
	door       *door // nil under a host, which brings the requests
	cleanups   cleanups
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
		if a.door, err = openDoor(ctx, cfg.Listen, o.Outside.Listen, a.log); err != nil {
			return nil, err
		}
		a.cleanups.add("listener", a.door.close)
	}
	meter, ends := t.MeterProvider.Meter("pushlease"), &expiries{log: a.log}
	if a.stores, err = openStores(ctx, cfg, o.Outside, a.log, meter, ends.ended,
		func(name string, n int) { a.dispatcher.RecordsUnfinished(name, n) }); err != nil {
		return nil, err
	}
	a.cleanups.add("storage", a.stores.close)
	a.events = newEvents(cfg.EventsQueue, cfg.Instance, a.stores.queues, cfg.QueueEncoding, a.log)
	a.lives, a.stores.tables = newLives(a.stores, cfg.Instance, a.log, func(name string, n int) { a.dispatcher.ExpiredUnseen(name, n) })
	told := newTold(a.stores.tables, a.events, func(id string) (status.Webhook, bool) { return a.dispatcher.Webhook(id) }, func(d tables.DeadLetter) { a.api.DeadLettered(d) })
	a.stores.tables = audited{told, cfg.Instance, a.log, func() { a.dispatcher.RegistryChanged() }}

	sender, err := webhook.NewSender(webhook.Options{
		Version: o.Version, Guard: guard(cfg), TracerProvider: t.TracerProvider, Unrecorded: !t.Recording,
		Resolver: o.Outside.Resolver, DialContext: o.Outside.DialContext,
	})
	if err != nil {
		return nil, err
	}
	a.cleanups.add("sender", func(context.Context) error { sender.Close(); return nil })

	a.dispatcher, err = dispatcher.New(dispatcher.Options{
		Queues: a.stores.queues, Store: a.stores.tables, RecordedCompletes: a.stores.recorded, Sender: sender, Encoding: cfg.QueueEncoding,
		ByEvent: cfg.DedupByEvent, KeepUnmatched: cfg.KeepUnmatched, Hosted: o.hosted, LookGap: a.stores.lookGap(o.lookGap),
		Lease: cfg.Lease, Estimate: estimates(cfg), Concurrency: cfg.Concurrency, MaxInFlight: cfg.MaxInFlight, PollMin: cfg.PollMin, PollMax: cfg.PollMax, Pollers: func() int { return int(a.heartbeat.pollers.Load()) },
		Drain: cfg.Drain, RegistryRefresh: cfg.RegistryRefresh, PoisonCopy: cfg.PoisonCopy, PoisonCopyTTL: cfg.PoisonCopyTTL,
		Attempted: func(t *tables.Attempt) { a.api.Attempted(t) },
		Instance:  cfg.Instance, Logger: a.log, Meter: meter, Tracer: t.TracerProvider.Tracer("pushlease"), Unrecorded: !t.Recording,
	})
	if err != nil {
		return nil, err
	}
	a.stores.lost.removed = a.dispatcher.Removed
	a.house = newHousekeeping(cfg, &a.stores, a.log, a.dispatcher.DeadLettersExpired)
	a.heartbeat = newHeartbeat(&a.stores, cfg.Instance, o.Version, o.hosted != nil, a.dispatcher.AtWork, t.LastError, a.log)
	a.readiness = &readiness{stores: &a.stores, name: a.heartbeat.nameCheck, shortage: sender.Shortage, health: a.dispatcher.Health, log: a.log}
	a.heartbeat.checks = a.readiness.checks
	a.api, err = api.New(api.Options{
		Webhooks: a.stores.tables, LeftQueues: a.stores.tables, Deliveries: a.stores.tables, History: a.stores.tables,
		DeadLetters: a.stores.tables, Claims: a.stores.tables, Healths: a.stores.tables, Jobs: a.stores.tables, Instances: a.stores.tables, Rollups: a.stores.tables, Audits: a.stores.tables, ByEvent: cfg.DedupByEvent,
		Queues: a.stores.queues, RecordedSends: handOver(a.stores.recorded, a.dispatcher), RecordedReplays: a.stores.replays, EventsQueue: cfg.EventsQueue, Encoding: cfg.QueueEncoding, KeepUnmatched: cfg.KeepUnmatched, Dispatcher: a.dispatcher, Sender: sender,
		ValidateURL: func(raw string) error { return webhook.ValidateURL(raw, guard(cfg)) },
		CheckAuth:   func(auth *webhook.Auth) []*content.FieldError { return auth.Problems(guard(cfg)) }, Keys: apiKeys(cfg), Hosted: o.hosted != nil, Metrics: t.Handler(), Ready: a.readiness.checks, Settings: settingsOf(cfg), Meter: meter, Logger: a.log, Version: o.Version,
		Tracer: recorded(t), Instance: cfg.Instance, Storage: StorageLocation(cfg), WebhookTimeout: cfg.WebhookTimeout, CountAlways: cfg.Storage.Kind() == config.StorageSQLite,
	})
	if err != nil {
		return nil, err
	}
	ends.start(a.dispatcher, a.events, a.api.DeadLettered)
	a.cleanups.add("records of publishes", func(context.Context) error { a.api.Flush(); return nil })
	a.rollups = &rollups{store: a.stores.tables, take: a.dispatcher.TakeTallies, depths: a.api.Depths, log: a.log, instance: cfg.Instance, startedAt: a.heartbeat.about.StartedAt}
	a.cleanups.add("history", a.rollups.flush)
	return a, a.readiness.measure(meter, o.Version)
}

// recorded is what makes spans where a collector takes them, and nil where nobody does.
func recorded(t *telemetry.Telemetry) trace.Tracer {
	if !t.Collected {
		return nil
	}
	return t.TracerProvider.Tracer("pushlease")
}

// settingsOf are the settings as the API shows them.
func settingsOf(cfg config.Config) (list []api.Setting) {
	for _, e := range cfg.Effective() {
		list = append(list, api.Setting(e))
	}
	return list
}

// URL is the base URL of the API.
func (a *App) URL() string { return "http://" + a.door.listener.Addr().String() }

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
	parts := a.runParts(runCtx, a.dispatcher.Run, a.house.run)
	served := make(chan error, 1)
	go func() { served <- a.door.serve(front(a.api, &a.readiness.draining)) }()

	var failed error
	select {
	case <-ctx.Done():
	case err := <-served: // the socket died: nothing can be asked of this process any more
		failed = fmt.Errorf("serve: %w", err)
	}
	a.readiness.draining.Store(true)
	stop()
	a.log.Info("stopping: no more messages are received; those in flight are finished", "drain", a.cfg.Drain, "shutdown_delay", a.cfg.ShutdownDelay)
	a.door.stop(context.WithoutCancel(ctx), a.cfg.ShutdownDelay, a.cfg.Drain)
	parts.Wait()
	stopEvents()

	return a.close(ctx, failed)
}

// runParts runs all that a process does by itself until ctx ends: what is given and what stands beside it.
func (a *App) runParts(ctx context.Context, given ...func(context.Context)) *sync.WaitGroup {
	parts := &sync.WaitGroup{}
	for _, run := range append(given, a.api.Run, a.readiness.tell, a.heartbeat.run, a.rollups.run, a.lives.run) {
		parts.Go(func() { run(ctx) })
	}
	return parts
}

// close gives back what New has made, and returns why the process ends with what went wrong then.
func (a *App) close(ctx context.Context, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
	defer cancel()
	a.log.Info("stopped")
	return errors.Join(failed, a.cleanups.run(ctx))
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
