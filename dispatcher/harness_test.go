package dispatcher

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/sqlite/sqlitetest"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// bench is one store with a scripted receiver, and dispatchers over it. Everything
// runs in a synctest bubble on the real embedded store: an hour takes milliseconds.
type bench struct {
	t      *testing.T
	db     *sqlite.DB
	queues *faultyQueues
	store  *faultyStore
	// together is both in one step: dispatchers over queues and store use it too.
	together *faultyCompletes
	sender   *scripted
	log      *lockedBuffer
	logger   *slog.Logger
	webhook  tables.Registration
}

const testQueue = "orders"

// Bounds that the documentation states.
const (
	otherCopyMax  = 5 * time.Minute  // of the wait for another message with the same event
	doubtDelayMax = 30 * time.Second // between looks at what may have been delivered
	doubtMargin   = 2 * time.Minute  // of a life, in which it is POSTed in doubt
	poisonMargin  = 7                // receives beyond the attempts
	poisonProofs  = 3                // POSTs that had begun
	hostLookMax   = 30 * time.Minute // of a host's held message
	maxReceivers  = 4                // receives at a time from one queue
	guardMargin   = time.Hour        // before its end a message that nobody can be sent is a dead letter
	guardInterval = 12 * time.Second // between two looks at most
)

// bodyHash is how records tell bodies apart.
func bodyHash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// inBubble runs f with a fresh bench in a synctest bubble.
func inBubble(t *testing.T, f func(b *bench)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), sqlitetest.File(t), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(newBench(t, db))
	})
}

// newBench is a bench on the file, with a webhook that takes everything.
func newBench(t *testing.T, db *sqlite.DB) *bench {
	t.Helper()
	log := &lockedBuffer{}
	b := &bench{
		t: t, db: db, sender: &scripted{}, log: log, logger: slog.New(slog.NewJSONHandler(log, nil)),
		queues: &faultyQueues{Service: db.Queues()}, store: &faultyStore{Store: db},
	}
	b.together = &faultyCompletes{b: b}
	b.sender.answer = func(webhook.Request, int) webhook.Result { return webhook.Result{Status: 200} }
	b.webhook = b.register("wh_a", nil)
	return b
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// unlimited is the flow of webhooks whose tests are about something else: as many POSTs as
// the queue allows, whatever comes of them.
var unlimited = func() policy.Flow {
	f := policy.DefaultFlow()
	f.Concurrency, f.Adaptive, f.Breaker.Enabled, f.AutoDisableAfter = policy.MaxConcurrency, false, false, 0
	return f
}()

// register adds a webhook on testQueue; change may alter it first.
func (b *bench) register(id string, change func(*tables.Registration)) tables.Registration {
	b.t.Helper()
	p, err := policy.Preset("standard")
	if err != nil {
		b.t.Fatal(err)
	}
	p.Backoff.Jitter = 0
	r := tables.Registration{
		Webhook: webhook.Webhook{ID: id, Queue: testQueue, URL: "https://example.com/hook", Timeout: 30 * time.Second},
		Policy:  p, Flow: unlimited, Enabled: true, CreatedAt: time.Now().UTC(), UpdatedAt: time.Now().UTC(),
	}
	if change != nil {
		change(&r)
	}
	r, err = b.db.PutWebhook(b.t.Context(), r)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) update(r tables.Registration) tables.Registration {
	b.t.Helper()
	r, err := b.db.PutWebhook(b.t.Context(), r)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// options are those of a dispatcher over the bench; change may alter them.
func (b *bench) options(change func(*Options)) Options {
	o := Options{
		Queues: b.queues, Store: b.store, Sender: b.sender, Lease: time.Minute, PollMax: 2 * time.Second,
		RegistryRefresh: 5 * time.Second, PoisonCopy: true, Instance: "test", Logger: b.logger,
		Meter: noop.NewMeterProvider().Meter(""), Tracer: tracenoop.NewTracerProvider().Tracer(""),
	}
	if change != nil {
		change(&o)
	}
	if o.Queues == b.queues && o.Store == b.store {
		o.RecordedCompletes = b.together
	}
	return o
}

// start runs a dispatcher; the returned stop ends it and waits.
func (b *bench) start(change func(*Options)) (d *Dispatcher, stop func()) {
	b.t.Helper()
	return b.run(b.options(change), (*Dispatcher).Run)
}

// Deliver decides about a leased message, whose lease it neither renews nor settles.
func (d *Dispatcher) Deliver(ctx context.Context, queueName string, m *queue.Message) Outcome {
	return d.deliverer.Deliver(ctx, queueName, m, delivery.Usual(m, d.o.LookGap(queueName)), nil)
}

// startHosted is start for one that receives nothing by itself. It has read the registry.
func (b *bench) startHosted() (d *Dispatcher, stop func()) {
	b.t.Helper()
	d, stop = b.run(b.options(nil), hostedAlone)
	time.Sleep(time.Second)
	return d, stop
}

// hostedAlone is RunHosted under a host whose calls have all returned when it is stopped.
//
//nolint:revive // its arguments are those of (*Dispatcher).Run
func hostedAlone(d *Dispatcher, ctx context.Context) { d.RunHosted(ctx, func(context.Context) {}) }

func (b *bench) run(o Options, run func(*Dispatcher, context.Context)) (d *Dispatcher, stop func()) {
	b.t.Helper()
	d, err := New(o)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() { run(d, ctx); close(done) }()
	return d, func() { cancel(); <-done }
}

func (b *bench) queue(name string) queue.Queue {
	b.t.Helper()
	q, err := b.db.Queues().Queue(name)
	if err != nil {
		b.t.Fatal(err)
	}
	return q
}

func (b *bench) send(body string) queue.Sent {
	b.t.Helper()
	text, err := queue.Encode(queue.EncodingAuto, []byte(body), "")
	if err != nil {
		b.t.Fatal(err)
	}
	return b.sendText(text, queue.SendOptions{})
}

func (b *bench) sendText(text []byte, o queue.SendOptions) queue.Sent {
	b.t.Helper()
	sent, err := b.queue(testQueue).Send(b.t.Context(), text, o)
	if err != nil {
		b.t.Fatal(err)
	}
	return sent
}

func (b *bench) total(queueName string) int64 {
	b.t.Helper()
	depth, err := b.queue(queueName).Depth(b.t.Context())
	if errors.Is(err, queue.ErrQueueNotFound) {
		return 0
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return depth.Total
}

// delivery returns the recorded delivery of a message to a webhook.
func (b *bench) delivery(sent queue.Sent, webhookID string) tables.Delivery {
	b.t.Helper()
	all, err := b.db.Load(b.t.Context(), tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, del := range all {
		if del.WebhookID == webhookID {
			return del
		}
	}
	return tables.Delivery{}
}

func (b *bench) attempts(sent queue.Sent) []tables.Attempt {
	b.t.Helper()
	_, attempts, err := b.db.Message(b.t.Context(), testQueue, sent.ID)
	if err != nil && !errors.Is(err, tables.ErrNotFound) {
		b.t.Fatal(err)
	}
	return attempts
}

// numbers are those of a message's attempts on record, by their start.
func (b *bench) numbers(sent queue.Sent) (all []int) {
	b.t.Helper()
	for _, a := range b.attempts(sent) {
		all = append(all, a.Number)
	}
	return all
}

func (b *bench) deadLetters() []tables.DeadLetter {
	b.t.Helper()
	list, _, err := b.db.ListDeadLetters(b.t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: 100})
	if err != nil {
		b.t.Fatal(err)
	}
	return list
}

// statusOf is how a queue fares.
func statusOf(d *Dispatcher, queueName string) status.Queue {
	s, _ := d.Queue(queueName)
	return s
}

// want compares two values with ==.
func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// scripted is a receiver: answer is called with the request and its number among
// those for the same message and webhook, from 1.
type scripted struct {
	mu     sync.Mutex
	answer func(r webhook.Request, n int) webhook.Result
	// takes is how long an answer takes.
	takes time.Duration
	posts []post
	seen  map[string]int
}

type post struct {
	webhook string
	request webhook.Request
	at      time.Time
}

// Send blocks for takes, or until ctx ends, as the real sender does.
func (s *scripted) Send(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
	start := time.Now()
	s.mu.Lock()
	if s.seen == nil {
		s.seen = map[string]int{}
	}
	key := w.ID + "/" + r.MessageID
	s.seen[key]++
	n, takes, answer := s.seen[key], s.takes, s.answer
	s.posts = append(s.posts, post{w.ID, r, start})
	s.mu.Unlock()
	if takes > 0 && !retry.Sleep(ctx, takes) {
		return webhook.Result{StartedAt: start, Duration: time.Since(start), ErrorClass: string(policy.ClassCanceled)}
	}
	res := answer(r, n)
	res.StartedAt, res.Duration = start, time.Since(start)
	return res
}

// numbers are those that the receiver was told of the attempts, in their order.
func (s *scripted) numbers() (all []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.posts {
		all = append(all, s.posts[i].request.Attempt)
	}
	return all
}

func (s *scripted) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.posts)
}

func statuses(list ...int) func(webhook.Request, int) webhook.Result {
	return func(_ webhook.Request, n int) webhook.Result {
		return webhook.Result{Status: list[min(n, len(list))-1]}
	}
}

// fault says what happens to one call: it fails before it takes effect, or it takes
// effect and only the answer is lost.
type fault int

const (
	failBefore fault = iota + 1
	answerLost
	panics
)

var (
	errBefore = fmt.Errorf("injected: %w", queue.ErrBusy)
	errLost   = errors.New("injected: the answer was lost")
)

// faults decides by operation and call number, from 1.
type faults struct {
	mu    sync.Mutex
	rules map[string]func(n int) fault
	calls map[string]int
}

func (f *faults) on(operation string, rule func(n int) fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rules == nil {
		f.rules = map[string]func(int) fault{}
	}
	f.rules[operation] = rule
}

// rule is that for the operation; nil when there is none.
func (f *faults) rule(operation string) func(n int) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rules[operation]
}

// ruled reports whether there is a rule for the operation.
func (f *faults) ruled(operation string) bool { return f.rule(operation) != nil }

func (f *faults) count(operation string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[operation]
}

// do makes one call with the fault that its number asks for.
func (f *faults) do(operation string, call func() error) error {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[operation]++
	var what fault
	if rule := f.rules[operation]; rule != nil {
		what = rule(f.calls[operation])
	}
	f.mu.Unlock()
	if what == panics {
		panic("injected")
	}
	if what == failBefore {
		return errBefore
	}
	if err := call(); err != nil {
		return err
	}
	if what == answerLost {
		return errLost
	}
	return nil
}

func firstCalls(n int, what fault) func(int) fault {
	return func(call int) fault {
		if call <= n {
			return what
		}
		return 0
	}
}

// outage lasts until it is ended.
type outage struct{ over atomic.Bool }

func (o *outage) end() { o.over.Store(true) }

func (o *outage) rule(what fault) func(int) fault {
	return func(int) fault {
		if o.over.Load() {
			return 0
		}
		return what
	}
}

func always(what fault) func(int) fault { return func(int) fault { return what } }

type faultyQueues struct {
	queue.Service
	faults
	last sync.Map // message id → *queue.Message of the last receive
}

func (s *faultyQueues) received(id string) *queue.Message {
	m, _ := s.last.Load(id)
	return m.(*queue.Message)
}

func (s *faultyQueues) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return &faultyQueue{q, s}, err
}

type faultyQueue struct {
	queue.Queue
	s *faultyQueues
}

func (q *faultyQueue) Receive(ctx context.Context, n int, lease time.Duration) (got []*queue.Message, err error) {
	err = q.s.do("receive", func() error { got, err = q.Queue.Receive(ctx, n, lease); return err })
	if err != nil {
		got = nil
	}
	for _, m := range got {
		q.s.last.Store(m.ID, m)
	}
	return got, err
}

func (q *faultyQueue) Peek(ctx context.Context, n int) (got []queue.Peeked, err error) {
	err = q.s.do("peek", func() error {
		return q.s.do("peek "+q.Name(), func() error { got, err = q.Queue.Peek(ctx, n); return err })
	})
	return got, err
}

// Renew with a lost answer loses the new receipt too, as on Azure.
func (q *faultyQueue) Renew(ctx context.Context, m *queue.Message, lease time.Duration) error {
	return q.s.do("renew", func() error {
		old, until, granted := m.Lease.Receipt(), m.Lease.Until(), m.Lease.Granted()
		err := q.Queue.Renew(ctx, m, lease)
		if rule := q.s.rule("renew"); err == nil && rule != nil && rule(q.s.count("renew")) == answerLost {
			m.Lease.Renewed(old, until.Add(-granted), granted)
		}
		return err
	})
}

func (q *faultyQueue) Complete(ctx context.Context, m *queue.Message) error {
	return q.s.do("complete", func() error { return q.Queue.Complete(ctx, m) })
}

func (q *faultyQueue) Abandon(ctx context.Context, m *queue.Message, delay time.Duration) error {
	return q.s.do("abandon", func() error { return q.Queue.Abandon(ctx, m, delay) })
}

func (q *faultyQueue) Hide(ctx context.Context, m *queue.Message, delay time.Duration) error {
	return q.s.do("abandon", func() error { return q.Queue.Hide(ctx, m, delay) })
}

func (q *faultyQueue) Depth(ctx context.Context) (depth queue.Depth, err error) {
	err = q.s.do("depth", func() error { depth, err = q.Queue.Depth(ctx); return err })
	return depth, err
}

func (q *faultyQueue) Send(ctx context.Context, text []byte, o queue.SendOptions) (sent queue.Sent, err error) {
	err = q.s.do("send", func() error { sent, err = q.Queue.Send(ctx, text, o); return err })
	return sent, err
}

type faultyStore struct {
	Store
	faults
}

func (s *faultyStore) Load(ctx context.Context, key tables.MessageKey) (dels []tables.Delivery, err error) {
	err = s.do("load", func() error { dels, err = s.Store.Load(ctx, key); return err })
	return dels, err
}

func (s *faultyStore) PutHealth(ctx context.Context, rows ...tables.Health) error {
	return s.do("put_health", func() error { return s.Store.PutHealth(ctx, rows...) })
}

func (s *faultyStore) Record(ctx context.Context, r tables.Record) error {
	return s.do("record", func() error { return s.Store.Record(ctx, r) })
}

func (s *faultyStore) Note(ctx context.Context, ds []tables.Delivery) error {
	return s.do("note", func() error { return s.Store.Note(ctx, ds) })
}

func (s *faultyStore) ListWebhooks(ctx context.Context) (list []tables.Registration, bad []tables.RowError, err error) {
	err = s.do("list-webhooks", func() error { list, bad, err = s.Store.ListWebhooks(ctx); return err })
	return list, bad, err
}

func (s *faultyStore) PutDeadLetter(ctx context.Context, dl tables.DeadLetter) (row tables.DeadLetter, err error) {
	err = s.do("put-dead-letter", func() error { row, err = s.Store.PutDeadLetter(ctx, dl); return err })
	return row, err
}

func (s *faultyStore) GetDeadLetter(ctx context.Context, id string) (row tables.DeadLetter, err error) {
	err = s.do("get-dead-letter", func() error { row, err = s.Store.GetDeadLetter(ctx, id); return err })
	return row, err
}

func (s *faultyStore) UpdateDeadLetter(ctx context.Context, dl tables.DeadLetter) (row tables.DeadLetter, err error) {
	err = s.do("update-dead-letter", func() error { row, err = s.Store.UpdateDeadLetter(ctx, dl); return err })
	return row, err
}

func (s *faultyStore) ListLeftQueues(ctx context.Context) (list []tables.LeftQueue, err error) {
	err = s.do("list-left", func() error { list, err = s.Store.ListLeftQueues(ctx); return err })
	return list, err
}
