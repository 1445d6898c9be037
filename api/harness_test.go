package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/sqlite/sqlitetest"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

// harness is an API on a real store. Every answer is checked against openapi.yaml.
type harness struct {
	*testing.T
	api  *API
	db   *sqlite.DB
	doc  *openapi3.T
	log  *syncBuffer
	view *dispatcherView
}

func newHarness(t *testing.T, change ...func(*Options)) *harness {
	t.Helper()
	testTime = time.Now().UTC().Truncate(time.Millisecond)
	db, err := sqlite.Open(t.Context(), sqlitetest.File(t), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	guard := webhook.GuardOptions{AllowPrivate: true}
	sender, err := webhook.NewSender(webhook.Options{Guard: guard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sender.Close)
	h := &harness{T: t, db: db, doc: document(t), log: &syncBuffer{}, view: &dispatcherView{queues: map[string]status.Queue{}}}
	opts := Options{
		Webhooks: db, LeftQueues: db, Deliveries: db, History: db, DeadLetters: db, Claims: db, Healths: db, Jobs: db, Instances: db, Rollups: db, Audits: db, Queues: db.Queues(),
		Encoding:      func(string) queue.Encoding { return queue.EncodingAuto },
		ByEvent:       func(name string) bool { return name == "events" },
		KeepUnmatched: func(name string) bool { return name == "kept" },
		Dispatcher:    h.view,
		Sender:        sender,
		ValidateURL:   func(u string) error { return webhook.ValidateURL(u, webhook.GuardOptions{}) },
		CheckAuth:     func(auth *webhook.Auth) []*content.FieldError { return auth.Problems(webhook.GuardOptions{}) },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = io.WriteString(w, "up 1\n")
		}),
		Ready:   func(context.Context) []Check { return []Check{{Name: "storage", OK: true}} },
		Logger:  slog.New(slog.NewJSONHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Version: "test", Instance: "test",
	}
	for _, f := range change {
		f(&opts)
	}
	if h.api, err = New(opts); err != nil {
		t.Fatal(err)
	}
	return h
}

// allowLocal lets webhooks have http URLs on this machine.
func allowLocal(o *Options) {
	o.ValidateURL = func(u string) error { return webhook.ValidateURL(u, webhook.GuardOptions{AllowPrivate: true}) }
	o.CheckAuth = func(auth *webhook.Auth) []*content.FieldError {
		return auth.Problems(webhook.GuardOptions{AllowPrivate: true})
	}
}

// withKeys gives the API one key per scope; its token is the scope's name.
func withKeys(o *Options) {
	for _, s := range []Scope{ScopePublish, ScopeRead, ScopeOperate, ScopeAdmin} {
		o.Keys = append(o.Keys, Key{Name: "key-" + string(s), Hash: sha256.Sum256([]byte(s)), Scopes: []Scope{s}})
	}
}

// document is openapi.yaml with every object closed: users are told that answers grow, and
// the tests that nothing is in them that the document does not have.
var document = func() func(*testing.T) *openapi3.T {
	load := sync.OnceValues(func() (*openapi3.T, error) {
		doc, err := openapi3.NewLoader().LoadFromData(openapiYAML)
		if err == nil {
			for _, schema := range doc.Components.Schemas {
				closeObjects(schema.Value)
			}
		}
		return doc, err
	})
	return func(t *testing.T) *openapi3.T {
		t.Helper()
		doc, err := load()
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
}()

func closeObjects(s *openapi3.Schema) {
	if s == nil {
		return
	}
	if open := &s.AdditionalProperties; len(s.Properties) > 0 && open.Has == nil && open.Schema == nil {
		closed := false
		open.Has = &closed
	}
	for _, property := range s.Properties {
		closeObjects(property.Value)
	}
	if s.Items != nil {
		closeObjects(s.Items.Value)
	}
}

type answer struct {
	*testing.T
	status int
	header http.Header
	body   []byte
}

// request makes a request as it comes from this machine; headers are pairs.
func request(method, target, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:50000", "localhost:8080"
	if strings.HasPrefix(body, "{") && !strings.HasSuffix(target, "/messages") && !slices.Contains(headers, "Content-Type") {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// do makes a request and wants the status.
func (h *harness) do(status int, method, target, body string, headers ...string) answer {
	h.Helper()
	return h.serve(status, request(method, target, body, headers...))
}

func (h *harness) serve(status int, r *http.Request) answer {
	h.Helper()
	w := httptest.NewRecorder()
	h.api.ServeHTTP(w, r)
	a := answer{h.T, w.Code, w.Header(), w.Body.Bytes()}
	if a.status != status {
		h.Fatalf("%s %s = %d, want %d: %s", r.Method, r.URL, a.status, status, a.body)
	}
	h.checkAnswer(r, a)
	return a
}

// checkAnswer holds an answer against the document.
func (h *harness) checkAnswer(r *http.Request, a answer) {
	h.Helper()
	cache := "no-store"
	if strings.HasPrefix(r.URL.Path, "/.well-known/") && a.status == http.StatusOK { // public keys may be kept for a while
		cache = "public, max-age=5"
	}
	if a.header.Get("X-Request-Id") == "" || a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Cache-Control") != cache || a.header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
		h.Errorf("%s %s: headers are missing: %v", r.Method, r.URL, a.header)
	}
	if a.status >= 400 && a.status < 500 && r.Method != http.MethodHead {
		if len(a.get("errors").([]any)) == 0 || a.text("errors", 0, "cure") == "" {
			h.Errorf("%s %s: no field and cure in %s", r.Method, r.URL, a.body)
		}
	}
	if a.status >= 400 && r.Method != http.MethodHead {
		h.checkProblem(a)
	}
	method := strings.Replace(r.Method, http.MethodHead, http.MethodGet, 1)
	match := chi.NewRouteContext()
	path := r.URL.Path
	if r.URL.RawPath != "" {
		path = r.URL.RawPath
	}
	if !h.api.router.Match(match, method, path) {
		if !strings.HasPrefix(a.header.Get("Content-Type"), "application/problem+json") {
			h.Errorf("%s %s: content type %q, want a problem", r.Method, r.URL, a.header.Get("Content-Type"))
		}
		return
	}
	if ofPage(match.RoutePattern()) {
		return
	}
	responses := h.doc.Paths.Find(match.RoutePattern()).GetOperation(method).Responses
	response := responses.Status(a.status)
	if response == nil && a.status >= 500 {
		response = responses.Default()
	}
	if response == nil {
		h.Fatalf("%s %s: the document has no answer %d", method, match.RoutePattern(), a.status)
	}
	if len(a.body) == 0 {
		return
	}
	contentType := a.header.Get("Content-Type")
	media := response.Value.Content.Get(contentType)
	if media == nil {
		h.Fatalf("%s %s: the document has no answer %d of type %q", method, match.RoutePattern(), a.status, contentType)
	}
	if !strings.Contains(contentType, "json") {
		return
	}
	if err := media.Schema.Value.VisitJSON(a.json(), openapi3.VisitAsResponse(), openapi3.MultiErrors(), openapi3.EnableFormatValidation()); err != nil {
		h.Errorf("%s %s: answer %d is not what the document says: %v\n%s", method, match.RoutePattern(), a.status, err, a.body)
	}
}

// checkProblem wants what every problem of a kind has.
func (h *harness) checkProblem(a answer) {
	h.Helper()
	for _, kind := range web.Kinds() {
		if a.text("type") != "urn:pushlease:problem:"+kind.Name {
			continue
		}
		if a.status != kind.Status || a.get("status") != float64(kind.Status) || a.text("title") != kind.Title {
			h.Errorf("%s: status %d, title %q, want %d and %q", kind.Name, a.status, a.text("title"), kind.Status, kind.Title)
		}
		if kind.Wait > 0 && a.header.Get("Retry-After") == "" {
			h.Errorf("%s: there is no Retry-After", kind.Name)
		}
		return
	}
	h.Errorf("the type of %s is not known", a.body)
}

func (a answer) json() any {
	a.Helper()
	var v any
	if err := json.Unmarshal(a.body, &v); err != nil {
		a.Fatalf("answer is not JSON: %v: %s", err, a.body)
	}
	return v
}

// get walks into the answer's JSON: object members by name, array items by index.
func (a answer) get(path ...any) any {
	a.Helper()
	v := a.json()
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				a.Fatalf("no %v in %s", path, a.body)
			}
			v = m[s]
		case int:
			l, ok := v.([]any)
			if !ok || s >= len(l) {
				a.Fatalf("no %v in %s", path, a.body)
			}
			v = l[s]
		}
	}
	return v
}

func (a answer) text(path ...any) string {
	a.Helper()
	s, ok := a.get(path...).(string)
	if !ok {
		a.Fatalf("%v is no string in %s", path, a.body)
	}
	return s
}

// wantProblem wants a problem that blames the field and has a cure.
func (a answer) wantProblem(field string) {
	a.Helper()
	var p web.Problem
	if err := json.Unmarshal(a.body, &p); err != nil {
		a.Fatal(err)
	}
	for _, e := range p.Errors {
		if e.Field == field && e.Problem != "" && e.Cure != "" {
			return
		}
	}
	a.Errorf("no error about %q in %s", field, a.body)
}

func (a answer) wantNot(text string) {
	a.Helper()
	if bytes.Contains(a.body, []byte(text)) {
		a.Errorf("%q is in the answer: %s", text, a.body)
	}
}

// register makes a webhook and returns the answer.
func (h *harness) register(body string) answer {
	h.Helper()
	return h.do(http.StatusCreated, "POST", "/api/v1/webhooks", body)
}

// receive takes the one visible message of a queue.
func (h *harness) receive(name string) *queue.Message {
	h.Helper()
	q, err := h.db.Queues().Queue(name)
	if err != nil {
		h.Fatal(err)
	}
	got, err := q.Receive(h.Context(), queue.MaxReceive, time.Minute)
	if err != nil || len(got) != 1 {
		h.Fatalf("received %d messages, %v; want 1", len(got), err)
	}
	return got[0]
}

// dispatcherView stands where the dispatcher would.
type dispatcherView struct {
	mu      sync.Mutex
	woken   []string
	changes int
	queues  map[string]status.Queue
	states  map[string]status.Standing
	// webhook answers for each webhook; nil knows none.
	webhook func(id string) (status.Webhook, bool)
}

func (v *dispatcherView) Wake(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.woken = append(v.woken, name)
}

func (v *dispatcherView) RegistryChanged() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changes++
}

func (v *dispatcherView) Queue(name string) (status.Queue, bool) {
	s, ok := v.queues[name]
	return s, ok
}

func (v *dispatcherView) Webhook(id string) (status.Webhook, bool) {
	if v.webhook == nil {
		return status.Webhook{}, false
	}
	return v.webhook(id)
}

func (v *dispatcherView) States() map[string]status.Standing {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.states)
}

// set has a webhook be in a state.
func (v *dispatcherView) set(id string, s status.Standing) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.states == nil {
		v.states = map[string]status.Standing{}
	}
	v.states[id] = s
}

// syncBuffer is a buffer that may be written concurrently.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// failingSends lets every Send fail; everything else is the real store.
type failingSends struct {
	queue.Service
	err error
}

func (s failingSends) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return failingQueue{q, s.err}, err
}

type failingQueue struct {
	queue.Queue
	err error
}

func (q failingQueue) Send(context.Context, []byte, queue.SendOptions) (queue.Sent, error) {
	return queue.Sent{}, q.err
}

// racingWebhooks runs before ahead of each write, as another instance might.
type racingWebhooks struct {
	tables.Webhooks
	before func()
}

func (r racingWebhooks) PutWebhook(ctx context.Context, reg tables.Registration) (tables.Registration, error) {
	r.before()
	return r.Webhooks.PutWebhook(ctx, reg)
}
