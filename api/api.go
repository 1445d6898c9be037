// Package api is the REST API under /api/v1, and /healthz, /readyz and /metrics
// beside it. It registers webhooks, publishes messages, and answers what happened
// to a message and what happens next. The document that describes it is
// openapi.yaml, which it serves.
package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/api/internal/publish"
	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

// Options is what an API is made of. Everything but RecordedSends, RecordedReplays, EventsQueue, Keys, Hosted, Meter, Instance,
// Version, CountAlways and WebhookTimeout is required.
type Options struct {
	// The store.
	Webhooks    tables.Webhooks
	LeftQueues  tables.LeftQueues
	Deliveries  tables.Deliveries
	History     tables.History
	DeadLetters tables.DeadLetters
	Claims      tables.Claims
	Healths     tables.Healths
	Jobs        tables.Jobs
	Instances   tables.Instances
	Rollups     tables.Rollups
	Audits      tables.Audits
	Queues      queue.Service
	// RecordedSends sends and records in one step; nil where the store has no such thing.
	RecordedSends RecordedSends
	// RecordedReplays marks a dead letter and sends its replay in one step; nil where the
	// store has no such thing.
	RecordedReplays RecordedReplays
	// Encoding is the setting of a queue.
	Encoding func(queue string) queue.Encoding
	// KeepUnmatched says whether a queue's messages that every filter refuses become dead
	// letters.
	KeepUnmatched func(queue string) bool
	// ByEvent says whether a queue tells messages apart by the event that they carry.
	ByEvent func(queue string) bool
	// EventsQueue is the queue on which pushlease tells what happens; empty for none.
	EventsQueue string
	// Dispatcher is told what changed and asked how its queues fare.
	Dispatcher Dispatcher
	// Sender sends test POSTs.
	Sender Sender
	// ValidateURL says why a webhook's URL is refused, with the cure.
	ValidateURL func(url string) error
	// CheckAuth says what is wrong with how a receiver is told who sends, with the cure.
	CheckAuth func(*webhook.Auth) []*content.FieldError
	// Keys are the callers that are let in. Without any, only this machine is.
	Keys []Key
	// Hosted: the Functions host brings the requests, so that nothing comes from this machine.
	Hosted bool
	// Metrics serves /metrics.
	Metrics http.Handler
	// Settings are those of the process.
	Settings []Setting
	// Ready makes the checks behind /readyz; it returns when ctx ends.
	Ready func(ctx context.Context) []Check
	// WebhookTimeout is given to registrations that name none; zero means 30 s.
	WebhookTimeout time.Duration
	// Meter counts publishes; nil counts nothing.
	Meter metric.Meter
	// Tracer makes a span of each request; nil makes none.
	Tracer trace.Tracer
	// Logger gets one line per request.
	Logger *slog.Logger
	// Version is shown by /healthz.
	Version string
	// Instance names this process where what is shown is its own view.
	Instance string
	// CountAlways has the queues counted each minute, also while nobody reads the metrics: for a
	// store that charges nothing for it.
	CountAlways bool
	// Storage says where everything is kept, without a secret. Who may read sees it.
	Storage string
}

// RecordedSends is a store that keeps queues and records together.
type RecordedSends = publish.RecordedSends

// Dispatcher is what the API needs to know of the dispatcher. Safe for concurrent
// use; none of the methods waits for storage.
type Dispatcher interface {
	// Wake makes the queue's poller look at once.
	Wake(queue string)
	// RegistryChanged makes the registered webhooks be read again at once.
	RegistryChanged()
	// Queue describes a queue that the dispatcher knows.
	Queue(name string) (status.Queue, bool)
	// Webhook describes a webhook that the dispatcher knows.
	Webhook(id string) (status.Webhook, bool)
	// States says which state each webhook is in that the dispatcher knows, by id.
	States() map[string]status.Standing
}

// Sender makes one POST to a webhook.
type Sender interface {
	Send(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result
}

// Check is one condition of being ready.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Detail says what is wrong, in a sentence without secrets.
	Detail string `json:"detail,omitempty"`
	// Degrades says of a check that fails that the API is served all the same: a part of
	// the work is not done, and sending requests elsewhere would not change that.
	Degrades bool `json:"-"`
}

// unready reports whether the check says that requests should be sent elsewhere.
func (c Check) unready() bool { return !c.OK && !c.Degrades }

// API serves the REST API; it is an http.Handler, safe for concurrent use. Times
// to read a request and to write an answer are the server's to bound.
type API struct {
	Options
	router     *chi.Mux
	crossSite  *http.CrossOriginProtection
	publisher  *publish.Publisher
	replayed   metric.Int64Counter
	purged     metric.Int64Counter
	requests   metric.Int64Counter
	replays    *replayJobs
	outcomes   outcomes
	backlog    *backlog
	depths     *depths
	stream     *stream
	hooked     hookedQueues
	publicKeys publicKeys
	tests      tests
}

// New returns the API, or an error that names everything missing or wrong.
func New(opts Options) (*API, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if opts.WebhookTimeout == 0 {
		opts.WebhookTimeout = defaultTimeout
	}
	if opts.Meter == nil {
		opts.Meter = noop.Meter{}
	}
	a := &API{Options: opts, crossSite: http.NewCrossOriginProtection()}
	var err error
	a.publisher, err = publish.New(publish.Options{
		Queues: opts.Queues, Deliveries: opts.Deliveries, Claims: opts.Claims, RecordedSends: opts.RecordedSends, Encoding: opts.Encoding,
		Wake: opts.Dispatcher.Wake, Warnings: a.publishWarnings, Meter: opts.Meter, Logger: opts.Logger,
	})
	if err != nil {
		return nil, err
	}
	a.replayed, err = opts.Meter.Int64Counter("pushlease.deadletters.replays",
		metric.WithDescription("Replays of dead letters that were sent, by queue."))
	if err != nil {
		return nil, fmt.Errorf("make counter: %w", err)
	}
	a.purged, err = opts.Meter.Int64Counter("pushlease.deadletters.purged",
		metric.WithDescription("Dead letters that were purged by filter, by queue."))
	if err != nil {
		return nil, fmt.Errorf("make counter: %w", err)
	}
	a.requests, err = opts.Meter.Int64Counter("pushlease.api.requests",
		metric.WithDescription("Requests to the API, by method, route and status class."))
	if err != nil {
		return nil, fmt.Errorf("make counter: %w", err)
	}
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError} { // an alert sees the first failure rise from 0
		a.countRequest(http.MethodPost, publishRoute, status, 0)
	}
	a.stream = newStream()
	a.replays = &replayJobs{store: opts.Jobs, instance: opts.Instance, jobs: map[string]*replayJob{}, stopping: make(chan struct{}), most: maxCandidates, stored: a.tellJob}
	a.backlog, a.depths = &backlog{byQueue: map[string]waiting{}}, newDepths()
	if err := errors.Join(a.backlog.measure(opts.Meter), a.depths.measure(opts.Meter)); err != nil {
		return nil, fmt.Errorf("make gauge: %w", err)
	}
	a.router = a.routes()
	return a, nil
}

func (o Options) validate() error {
	var errs []error
	for _, required := range []struct {
		name    string
		missing bool
	}{
		{"Webhooks", o.Webhooks == nil},
		{"LeftQueues", o.LeftQueues == nil},
		{"Deliveries", o.Deliveries == nil},
		{"History", o.History == nil},
		{"DeadLetters", o.DeadLetters == nil},
		{"Claims", o.Claims == nil},
		{"Healths", o.Healths == nil},
		{"Jobs", o.Jobs == nil},
		{"ByEvent", o.ByEvent == nil},
		{"Instances", o.Instances == nil},
		{"Rollups", o.Rollups == nil},
		{"Audits", o.Audits == nil},
		{"Queues", o.Queues == nil},
		{"Encoding", o.Encoding == nil},
		{"KeepUnmatched", o.KeepUnmatched == nil},
		{"Dispatcher", o.Dispatcher == nil},
		{"Sender", o.Sender == nil},
		{"ValidateURL", o.ValidateURL == nil},
		{"CheckAuth", o.CheckAuth == nil},
		{"Metrics", o.Metrics == nil},
		{"Ready", o.Ready == nil},
		{"Logger", o.Logger == nil},
	} {
		if required.missing {
			errs = append(errs, fmt.Errorf("api: option %s is missing", required.name))
		}
	}
	for i, k := range o.Keys {
		if err := k.validate(); err != nil {
			errs = append(errs, fmt.Errorf("api: option Keys[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// ServeHTTP serves one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.router.ServeHTTP(w, r) }

// publishRoute is where messages are published, as metrics name it.
const publishRoute = "/api/v1/queues/{queue}/messages"

func (a *API) routes() *chi.Mux {
	r := chi.NewRouter()
	r.Use(a.observe, middleware.GetHead)
	r.NotFound(a.allow(scopeAnyone, web.NotFound))
	r.MethodNotAllowed(a.allow(scopeAnyone, web.MethodNotAllowed))

	r.Get("/healthz", a.open(a.healthz))
	r.Get("/readyz", a.open(a.readyz))
	r.Get("/metrics", a.allow(ScopeRead, a.metrics))

	r.Get("/api/v1/openapi.yaml", a.allow(scopeAnyone, openapi))

	r.Get("/.well-known/webhook-keys/{id}", a.allow(scopeAnyone, a.wellKnownKeys))

	r.Get("/", a.allow(scopeAnyone, a.home))
	r.Get("/ui", a.allow(scopeAnyone, a.toPage))
	r.Get("/ui/", a.allow(scopeAnyone, a.page))
	r.Get("/ui/{file}", a.allow(scopeAnyone, a.page))
	r.Get("/api/v1/session", a.allow(scopeAnyone, a.getSession))
	r.Post("/api/v1/session", a.allow(scopeAnyone, a.openSession))
	r.Delete("/api/v1/session", a.allow(scopeAnyone, a.closeSession))

	r.Get("/api/v1/webhooks", a.allow(ScopeRead, a.listWebhooks))
	r.Post("/api/v1/webhooks", a.allow(ScopeAdmin, a.createWebhook))
	r.Get("/api/v1/webhooks/{id}", a.allow(ScopeRead, a.getWebhook))
	r.Put("/api/v1/webhooks/{id}", a.allow(ScopeAdmin, a.putWebhook))
	r.Patch("/api/v1/webhooks/{id}", a.allow(ScopeAdmin, a.patchWebhook))
	r.Delete("/api/v1/webhooks/{id}", a.allow(ScopeAdmin, a.deleteWebhook))
	r.Post("/api/v1/webhooks/{id}/enable", a.allow(ScopeOperate, a.enableWebhook))
	r.Post("/api/v1/webhooks/{id}/disable", a.allow(ScopeOperate, a.disableWebhook))
	r.Post("/api/v1/webhooks/{id}/test", a.allow(ScopeOperate, a.testWebhook))
	r.Post("/api/v1/webhooks/{id}/rotate-secret", a.allow(ScopeAdmin, a.rotateSecret))
	r.Post("/api/v1/webhooks/{id}/rotate-signing-key", a.allow(ScopeAdmin, a.rotateSigningKey))

	r.Get("/api/v1/queues", a.allow(ScopeRead, a.listQueues))
	r.Get("/api/v1/queues/{queue}", a.allow(ScopeRead, a.getQueue))
	r.Delete("/api/v1/queues/{queue}", a.allow(ScopeAdmin, a.deleteQueue))
	r.Post(publishRoute, a.allow(ScopePublish, a.publish))
	r.Get(publishRoute, a.allow(ScopeRead, a.listWaiting))
	r.Post("/api/v1/queues/{queue}/match", a.allow(ScopeRead, a.match))

	r.Get("/api/v1/messages", a.allow(ScopeRead, a.listMessages))
	r.Get("/api/v1/messages/{id}", a.allow(ScopeRead, a.getMessage))
	r.Get("/api/v1/attempts", a.allow(ScopeRead, a.listAttempts))

	r.Get("/api/v1/stream", a.allow(ScopeRead, a.follow))
	r.Get("/api/v1/stats", a.allow(ScopeRead, a.stats))
	r.Get("/api/v1/instances", a.allow(ScopeRead, a.listInstances))
	r.Get("/api/v1/audit", a.allow(ScopeOperate, a.listAudit))
	r.Get("/api/v1/settings", a.allow(ScopeAdmin, a.listSettings))
	r.Get("/api/v1/dead-letters", a.allow(ScopeRead, a.listDeadLetters))
	r.Post("/api/v1/dead-letters/purge", a.allow(ScopeOperate, a.purgeDeadLetters))
	r.Get("/api/v1/dead-letters/summary", a.allow(ScopeRead, a.summarizeDeadLetters))
	r.Get("/api/v1/dead-letters/{id}", a.allow(ScopeRead, a.getDeadLetter))
	r.Delete("/api/v1/dead-letters/{id}", a.allow(ScopeOperate, a.deleteDeadLetter))
	r.Get("/api/v1/dead-letters/{id}/body", a.allow(ScopeOperate, a.getDeadLetterBody))
	r.Post("/api/v1/dead-letters/{id}/replay", a.allow(ScopeOperate, a.replayDeadLetter))

	r.Get("/api/v1/replays", a.allow(ScopeRead, a.listReplayJobs))
	r.Post("/api/v1/replays", a.allow(ScopeOperate, a.startReplayJob))
	r.Get("/api/v1/replays/{id}", a.allow(ScopeRead, a.getReplayJob))
	r.Delete("/api/v1/replays/{id}", a.allow(ScopeOperate, a.cancelReplayJob))
	return r
}
