package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

func TestUnknownAddressesAndMethodsAreProblems(t *testing.T) {
	h := newHarness(t)
	for _, target := range []string{"/", "/api", "/api/v1", "/api/v1/", "/api/v1/webhooks/", "/api/v2/webhooks", "/api/v1/queues/orders/messages/1", "//healthz"} {
		h.do(http.StatusNotFound, "GET", target, "")
	}
	for target, allow := range map[string]string{
		"/healthz":                          "GET, HEAD",
		"/api/v1/webhooks":                  "GET, HEAD, POST",
		"/api/v1/webhooks/wh_1":             "GET, HEAD, PUT, PATCH, DELETE",
		"/api/v1/webhooks/wh_1/enable":      "POST",
		"/api/v1/queues/orders/match":       "POST",
		"/api/v1/queues/orders/messages":    "GET, HEAD, POST",
		"/api/v1/dead-letters/a%2Fb/replay": "POST",
	} {
		r := request("TRACE", target, "")
		w := httptest.NewRecorder()
		h.api.ServeHTTP(w, r)
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != allow || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("TRACE %s = %d, Allow %q", target, w.Code, w.Header().Get("Allow"))
		}
	}
	for _, method := range []string{"TRACE", "MADE-UP"} {
		w := httptest.NewRecorder()
		h.api.ServeHTTP(w, request(method, "/api/v1/webhooks", ""))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s = %d", method, w.Code)
		}
	}
	w := httptest.NewRecorder()
	h.api.ServeHTTP(w, request("HEAD", "/api/v1/queues/orders/match", ""))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("HEAD of what only takes POST = %d", w.Code)
	}
}

func TestHeadIsAnsweredWhereGetIs(t *testing.T) {
	h := newHarness(t)
	id := h.register(hook).text("id")
	for _, target := range []string{"/healthz", "/readyz", "/metrics", "/api/v1/openapi.yaml", "/api/v1/webhooks", "/api/v1/webhooks/" + id} {
		h.do(http.StatusOK, "HEAD", target, "")
	}
}

func TestReadinessSaysWhyNot(t *testing.T) {
	ready := func(o *Options) {
		o.Ready = func(ctx context.Context) []Check {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("the checks have no deadline")
			}
			return []Check{{Name: "storage", OK: false, Detail: "account contoso answers 403"}, {Name: "webhooks", OK: true}}
		}
	}
	a := newHarness(t, ready).do(http.StatusServiceUnavailable, "GET", "/readyz", "")
	if a.text("checks", 0, "detail") == "" || a.get("checks", 1, "ok") != true {
		t.Errorf("checks: %s", a.body)
	}
	h := newHarness(t, ready, withKeys)
	h.do(http.StatusServiceUnavailable, "GET", "/readyz", "").wantNot("contoso")
	h.do(http.StatusServiceUnavailable, "GET", "/readyz", "", "Authorization", "Bearer publish").wantNot("contoso")
	if a := h.do(http.StatusServiceUnavailable, "GET", "/readyz", "", "Authorization", "Bearer read"); a.text("checks", 0, "detail") == "" {
		t.Errorf("no details for a reader: %s", a.body)
	}
	r := request("GET", "/healthz", "", "Host", "10.0.0.7")
	r.RemoteAddr = "192.0.2.1:5000"
	newHarness(t, ready).serve(http.StatusOK, r)
}

func TestReadinessTellsReadersWhereEverythingIsKept(t *testing.T) {
	h := newHarness(t, withKeys, func(o *Options) { o.Storage = "sqlite:/data/contoso.db" })
	h.do(http.StatusOK, "GET", "/readyz", "").wantNot("contoso")
	if a := h.do(http.StatusOK, "GET", "/readyz", "", "Authorization", "Bearer read"); a.text("storage") != "sqlite:/data/contoso.db" {
		t.Errorf("a reader is told %s", a.body)
	}
}

func TestReadinessNamesNoQueueToStrangers(t *testing.T) {
	h := newHarness(t, withKeys, func(o *Options) {
		o.Ready = func(context.Context) []Check {
			return []Check{{Name: "draining", OK: true}, {Name: "queue merger", OK: true}, {Name: "queue payroll", OK: false, Detail: "status 403"}}
		}
	})
	a := h.do(http.StatusServiceUnavailable, "GET", "/readyz", "")
	a.wantNot("merger")
	a.wantNot("payroll")
	if a.text("checks", 1, "name") != "queue" || a.get("checks", 1, "ok") != false || a.get("checks", 0, "ok") != true {
		t.Errorf("checks: %s", a.body)
	}
	if a := h.do(http.StatusServiceUnavailable, "GET", "/readyz", "", "Authorization", "Bearer read"); a.text("checks", 2, "name") != "queue payroll" {
		t.Errorf("a reader is not told which queue: %s", a.body)
	}
}

func TestAFaultThatIsTheSameElsewhereDegradesAndLeavesItReady(t *testing.T) {
	for name, tt := range map[string]struct {
		checks []Check
		status int
		word   string
	}{
		"all is well": {[]Check{{Name: "webhooks", OK: true}}, http.StatusOK, "ready"},
		"one queue":   {[]Check{{Name: "queue a", Detail: "status 403", Degrades: true}, {Name: "queue b", OK: true}}, http.StatusOK, "degraded"},
		"one queue and the registrations": {[]Check{{Name: "queue a", Detail: "status 403", Degrades: true}, {Name: "webhooks", Detail: "no answer"}},
			http.StatusServiceUnavailable, ""},
	} {
		h := newHarness(t, withKeys, func(o *Options) { o.Ready = func(context.Context) []Check { return tt.checks } })
		a := h.do(tt.status, "GET", "/readyz", "")
		if tt.word != "" && a.text("status") != tt.word {
			t.Errorf("%s: %s", name, a.body)
		}
		if tt.word == "degraded" && h.do(tt.status, "GET", "/readyz", "", "Authorization", "Bearer read").text("checks", 0, "detail") != "status 403" {
			t.Errorf("%s: the check that fails is not shown", name)
		}
	}
}

func TestStorageFaultIsA503AndLoggedOnce(t *testing.T) {
	h := newHarness(t)
	id := h.register(hook).text("id")
	dead := tables.DeadLetterID(tables.MessageKey{Queue: "orders", MessageID: "m"}, "wh_1", 0, testTime)
	if err := h.db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, call := range []struct{ method, target, body string }{
		{"GET", "/api/v1/webhooks", ""},
		{"POST", "/api/v1/webhooks", hook},
		{"GET", "/api/v1/webhooks/" + id, ""},
		{"PATCH", "/api/v1/webhooks/" + id, `{"name":"x"}`},
		{"DELETE", "/api/v1/webhooks/" + id, ""},
		{"POST", "/api/v1/webhooks/" + id + "/enable", ""},
		{"POST", "/api/v1/webhooks/" + id + "/test", ""},
		{"POST", "/api/v1/webhooks/" + id + "/rotate-secret", ""},
		{"GET", "/api/v1/queues", ""},
		{"GET", "/api/v1/queues/orders", ""},
		{"POST", publishTarget, "x"},
		{"GET", "/api/v1/messages/m", ""},
		{"GET", "/api/v1/attempts", ""},
		{"GET", "/api/v1/dead-letters", ""},
		{"GET", "/api/v1/dead-letters/" + dead, ""},
		{"GET", "/api/v1/dead-letters/" + dead + "/body", ""},
		{"DELETE", "/api/v1/dead-letters/" + dead, ""},
		{"POST", "/api/v1/dead-letters/" + dead + "/replay", ""},
	} {
		before := len(h.log.String())
		a := h.do(http.StatusServiceUnavailable, call.method, call.target, call.body)
		if a.header.Get("Retry-After") != "5" {
			t.Errorf("%s %s: Retry-After = %q", call.method, call.target, a.header.Get("Retry-After"))
		}
		if lines := strings.Count(h.log.String()[before:], "\n"); lines != 1 {
			t.Errorf("%s %s: %d log lines, want one:\n%s", call.method, call.target, lines, h.log.String()[before:])
		}
	}
	h.do(http.StatusOK, "GET", "/healthz", "")
}

// panicking panics with what a request brought.
type panicking struct{ tables.Webhooks }

func (panicking) GetWebhook(_ context.Context, id string) (tables.Registration, error) {
	panic("PAYLOAD of " + id)
}

func (panicking) ListWebhooks(context.Context) ([]tables.Registration, []tables.RowError, error) {
	panic(http.ErrAbortHandler)
}

func TestPanicIsAProblemAndLoggedOnceWithoutItsValue(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Webhooks = panicking{o.Webhooks} })
	a := h.do(http.StatusInternalServerError, "GET", "/api/v1/webhooks/wh_1", "")
	a.wantNot("PAYLOAD")
	log := h.log.String()
	if strings.Contains(log, "PAYLOAD") || strings.Count(log, "\n") != 1 || !strings.Contains(log, "observe_test.go") {
		t.Errorf("log: %s", log)
	}
	if !strings.Contains(log, strings.TrimPrefix(a.text("instance"), "urn:pushlease:request:")) {
		t.Error("the log line has another request id than the answer")
	}
	defer func() {
		if recover() != http.ErrAbortHandler {
			t.Error("an abort was swallowed")
		}
	}()
	h.api.ServeHTTP(httptest.NewRecorder(), request("GET", "/api/v1/webhooks", ""))
}

func TestLogHasNeitherPathNorQueryNorSecretNorPayload(t *testing.T) {
	h := newHarness(t, withKeys, func(o *Options) { o.Deliveries = failingRecords{o.Deliveries} })
	auth := []string{"Authorization", "Bearer admin"}
	a := h.do(http.StatusCreated, "POST", "/api/v1/webhooks?", hook, auth...)
	id := a.text("id")
	rotated := h.do(http.StatusOK, "POST", "/api/v1/webhooks/"+id+"/rotate-secret", "", auth...)
	h.do(http.StatusAccepted, "POST", publishTarget, "PAYL0AD", auth...)
	h.do(http.StatusBadRequest, "GET", "/api/v1/attempts?webhook=QUERYVALUE&QUERYNAME=QUERYVALUE", "", auth...)
	h.do(http.StatusUnauthorized, "GET", "/api/v1/webhooks/"+id, "", "Authorization", "Bearer WR0NG-TOKEN")
	h.do(http.StatusNotFound, "GET", "/PATHVALUE", "", auth...)
	w := httptest.NewRecorder()
	h.api.ServeHTTP(w, request("METHODVALUE", "/api/v1/webhooks", ""))

	webhooktest.AssertNoSecrets(t, []string{h.log.String()},
		a.text("secret"), rotated.text("secret"), "T0KEN-VALUE", "SIGNED", "PAYL0AD", "QUERYVALUE", "QUERYNAME", "WR0NG-TOKEN", "PATHVALUE", "METHODVALUE", "Bearer", "example.com")
	var line struct {
		Method, Route, Duration any
		Status                  int
		RequestID               string `json:"request_id"`
		Key                     string `json:"api_key"`
	}
	if err := json.Unmarshal([]byte(strings.SplitN(h.log.String(), "\n", 2)[0]), &line); err != nil {
		t.Fatal(err)
	}
	if line.Method != "POST" || line.Route != "/api/v1/webhooks" || line.Status != 201 || line.RequestID != a.header.Get("X-Request-Id") || line.Key != "key-admin" {
		t.Errorf("log line: %+v", line)
	}
}

// hangingLister does not answer until the caller does not wait any more.
type hangingLister struct{ tables.Webhooks }

func (hangingLister) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	<-ctx.Done()
	return nil, nil, ctx.Err()
}

// A request that was ended because storage hangs is an error; one whose caller has gone is none.
func TestARequestThatIsEndedInTimeIsAnErrorAndOneWhoseCallerHasGoneIsNone(t *testing.T) {
	for level, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"ERROR": func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, 0) },
		"INFO": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		},
	} {
		h := newHarness(t, func(o *Options) { o.Webhooks = hangingLister{o.Webhooks} })
		ctx, cancel := end(t.Context())
		w := httptest.NewRecorder()
		h.api.ServeHTTP(w, request("GET", "/api/v1/webhooks", "").WithContext(ctx))
		cancel()
		if text := h.log.String(); w.Code < 500 || !strings.Contains(text, `"level":"`+level+`"`) {
			t.Errorf("answered %d, logged as %s, want %s", w.Code, text, level)
		}
	}
}

// faultyLister has one row that can't be read.
type faultyLister struct{ tables.Webhooks }

func (f faultyLister) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	all, _, err := f.Webhooks.ListWebhooks(ctx)
	all = slices.DeleteFunc(all, func(r tables.Registration) bool { return r.ID == "wh_bad" })
	return all, []tables.RowError{{ID: "wh_bad", Queue: "refunds", Err: queue.ErrBusy}}, err
}

func TestARowThatCanNotBeReadIsNamedBesideTheOthers(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Webhooks = faultyLister{o.Webhooks} })
	h.register(hook)
	a := h.do(http.StatusOK, "GET", "/api/v1/webhooks", "")
	if a.text("unreadable", 0, "id") != "wh_bad" || len(a.get("data").([]any)) != 1 {
		t.Errorf("list: %s", a.body)
	}
}

func (f faultyLister) GetWebhook(ctx context.Context, id string) (tables.Registration, error) {
	if id == "wh_bad" {
		return tables.Registration{}, fmt.Errorf("get webhook: %w", tables.ErrDamaged)
	}
	return f.Webhooks.GetWebhook(ctx, id)
}

// A row that another program has changed is no fault of storage that passes: what to do stands in the answer.
func TestAWebhookWhoseRowIsDamagedSaysSoAndWhatToDo(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Webhooks = faultyLister{o.Webhooks} })
	d := h.putDeadLetter(dead("m", "wh_bad", "payload"))
	for _, r := range []*http.Request{
		request("GET", "/api/v1/webhooks/wh_bad", ""), request("PATCH", "/api/v1/webhooks/wh_bad", `{"name":"a"}`), request("PUT", "/api/v1/webhooks/wh_bad", hook),
		request("POST", "/api/v1/webhooks/wh_bad/enable", ""), request("POST", "/api/v1/webhooks/wh_bad/test", ""), request("POST", "/api/v1/dead-letters/"+d.ID+"/replay", ""),
	} {
		a := h.serve(http.StatusConflict, r)
		a.wantNot("readyz")
		if a.wantProblem("id"); a.text("type") != "urn:pushlease:problem:damaged" || a.header.Get("Retry-After") != "" {
			t.Errorf("%s %s: %s", r.Method, r.URL.Path, a.body)
		}
	}
}

// Who deletes a webhook whose row is damaged leaves a note for its queue, as with any other.
func TestADeletedWebhookWhoseRowIsDamagedLeavesANote(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Webhooks = faultyLister{o.Webhooks} })
	if _, err := h.db.PutWebhook(t.Context(), tables.Registration{Webhook: webhook.Webhook{ID: "wh_bad"}}); err != nil {
		t.Fatal(err)
	}
	h.do(http.StatusNoContent, "DELETE", "/api/v1/webhooks/wh_bad", "")
	if notes, err := h.db.ListLeftQueues(t.Context()); err != nil || len(notes) != 1 || notes[0].Queue != "refunds" {
		t.Errorf("notes %v, %v", notes, err)
	}
}

// The sender that the composition root passes is the real one.
var _ Sender = (*webhook.Sender)(nil)
