package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const publishTarget = "/api/v1/queues/orders/messages"

func TestPublishedBytesAndTypeArriveAsTheyWere(t *testing.T) {
	tests := []struct{ name, body, contentType, want string }{
		{"JSON", `{"b":1,"a":"<é & \u001B>","n":12345678901234567890}`, "application/json", ""},
		{"JSON as curl -d marks it", `{"a":1}`, "application/x-www-form-urlencoded", ""},
		{"a form", `a=1&b=2`, "application/x-www-form-urlencoded", "application/x-www-form-urlencoded"},
		{"CloudEvent", ` {"specversion":"1.0","id":"1", "source":"/s","type":"t"}` + "\n", "application/cloudevents+json; charset=utf-8", "application/cloudevents+json; charset=utf-8"},
		{"what looks like an event", `{"specversion":"1.0"}`, "application/json", ""},
		{"binary", "\xff\xfe\x00\x01", "", ""},
		{"binary with a type", "\xff\xfe\x00\x01", "application/gzip", "application/gzip"},
		{"text with line ends", "\r\n\tü\r\n", "", ""},
		{"word that is base64", "SEND", "", ""},
		{"what looks like an envelope", `{"pushlease":1,"body":"YQ=="}`, "", ""},
		{"byte order mark", "\xef\xbb\xbf{}", "application/json", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t)
			var headers []string
			if tt.contentType != "" {
				headers = []string{"Content-Type", tt.contentType}
			}
			a := h.do(http.StatusAccepted, "POST", publishTarget, tt.body, headers...)
			m := h.receive("orders")
			body, err := queue.Decode(queue.EncodingAuto, m.Text)
			if err != nil {
				t.Fatal(err)
			}
			if string(body.Bytes) != tt.body || body.ContentType != tt.want {
				t.Errorf("received %q as %q, want %q as %q", body.Bytes, body.ContentType, tt.body, tt.want)
			}
			if m.ID != a.text("message_id") || a.header.Get("Location") != "/api/v1/messages/"+m.ID {
				t.Errorf("id %s, answer %s, Location %s", m.ID, a.body, a.header.Get("Location"))
			}
			if len(h.view.woken) != 1 || h.view.woken[0] != "orders" {
				t.Errorf("woken: %v", h.view.woken)
			}
		})
	}
}

// C87: on a queue that holds base64, every text is base64, whatever came with the body.
func TestWhatIsPublishedToABase64QueueIsBase64(t *testing.T) {
	for _, headers := range [][]string{
		{}, {"Content-Type", "application/json; charset=utf-8"}, {"Content-Type", "application/xml"}, {"Idempotency-Key", "k"},
		{"Content-Type", "application/json", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	} {
		h := newHarness(t, func(o *Options) { o.Encoding = func(string) queue.Encoding { return queue.EncodingBase64 } })
		h.do(http.StatusAccepted, "POST", publishTarget, `{"a":1}`, headers...)
		m := h.receive("orders")
		if _, err := base64.StdEncoding.Strict().DecodeString(string(m.Text)); err != nil {
			t.Errorf("%v: stored as %q", headers, m.Text)
		}
		if body, err := queue.Decode(queue.EncodingBase64, m.Text); err != nil || string(body.Bytes) != `{"a":1}` {
			t.Errorf("%v: read as %q, %v", headers, body.Bytes, err)
		}
	}
}

// C87: what the type says of the body anyway is not stored beside it.
func TestUsualTypesInAnySpellingNeedNoEnvelope(t *testing.T) {
	for contentType, body := range map[string]string{
		"application/json; charset=utf-8": `{"a":1}`, "application/json;charset=UTF-8": `{"a":1}`, `Application/JSON; charset="utf-8"`: `{"a":1}`,
		"text/plain": "hello", "text/plain;charset=UTF-8": "hello", "TEXT/PLAIN": "hello", `text/plain; charset="UTF-8"`: "hello",
	} {
		h := newHarness(t)
		h.do(http.StatusAccepted, "POST", publishTarget, body, "Content-Type", contentType)
		if m := h.receive("orders"); string(m.Text) != body {
			t.Errorf("%s: stored as %q", contentType, m.Text)
		}
	}
	h := newHarness(t)
	h.do(http.StatusAccepted, "POST", publishTarget, `{"a":"`+strings.Repeat("x", 60_000)+`"}`, "Content-Type", "application/json; charset=utf-8")
}

// inOneStep has messages and their records stored together.
func inOneStep(o *Options) { o.RecordedSends = oneStep{o.Queues.(*sqlite.Queues)} }

type oneStep struct{ queues *sqlite.Queues }

func (s oneStep) SendRecorded(ctx context.Context, name string, text []byte, opts queue.SendOptions, record func(queue.Sent) tables.Record) (queue.Sent, bool, error) {
	sent, err := s.queues.SendRecorded(ctx, name, text, opts, record)
	return sent, false, err
}

func TestPublishRecordsTheMessageForItsTimeline(t *testing.T) {
	t.Run("in two steps", func(t *testing.T) { wantPublishedTimeline(t, newHarness(t)) })
	t.Run("in one step", func(t *testing.T) {
		wantPublishedTimeline(t, newHarness(t, inOneStep, func(o *Options) { o.Deliveries = failingRecords{o.Deliveries} }))
	})
}

func wantPublishedTimeline(t *testing.T, h *harness) {
	t.Helper()
	h.register(`{"queue":"orders","url":"https://hooks.example.com/x"}`)
	a := h.do(http.StatusAccepted, "POST", publishTarget+"?delay=90m&ttl=2h", `{"a":1}`)
	if len(h.view.woken) != 1 {
		t.Errorf("woken: %v", h.view.woken)
	}
	at := func(field string) time.Time {
		t.Helper()
		v, err := time.Parse(time.RFC3339, a.text(field))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if d := at("visible_at").Sub(at("inserted_at")); d != 90*time.Minute {
		t.Errorf("visible after %s", d)
	}
	if d := at("expires_at").Sub(at("inserted_at")); d != 2*time.Hour {
		t.Errorf("expires after %s", d)
	}
	m := h.do(http.StatusOK, "GET", a.header.Get("Location"), "")
	sum := sha256.Sum256([]byte(`{"a":1}`))
	if m.text("events", 0, "event") != "published" || m.get("size") != 7.0 || m.text("body_hash") != hex.EncodeToString(sum[:8]) || m.text("encoding") != "none" {
		t.Errorf("timeline: %s", m.body)
	}
	if !strings.Contains(m.text("next", 0, "text"), "can be received from "+web.Stamp(at("visible_at"))) {
		t.Errorf("next: %v", m.get("next"))
	}
	h.do(http.StatusNotFound, "GET", a.header.Get("Location")+"?queue=others", "")
}

func TestPublishInOneStepTellsOfEveryForm(t *testing.T) {
	h := newHarness(t, inOneStep, func(o *Options) { o.Deliveries = failingRecords{o.Deliveries} })
	keyed := h.do(http.StatusAccepted, "POST", publishTarget, "x", "Idempotency-Key", "k")
	again := h.do(http.StatusAccepted, "POST", publishTarget, "x", "Idempotency-Key", "k")
	if again.text("message_id") != keyed.text("message_id") || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the repeated request was answered %s, the first %s", again.body, keyed.body)
	}
	batch := h.do(http.StatusAccepted, "POST", publishTarget, `[{"specversion":"1.0","id":"1","source":"/s","type":"t"}]`,
		"Content-Type", "application/cloudevents-batch+json")
	for _, id := range []string{keyed.text("message_id"), batch.text("events", 0, "message_id")} {
		if m := h.do(http.StatusOK, "GET", "/api/v1/messages/"+id, ""); m.text("events", 0, "event") != "published" {
			t.Errorf("timeline: %s", m.body)
		}
	}
}

type failingRecordedSends struct{ err error }

func (f failingRecordedSends) SendRecorded(context.Context, string, []byte, queue.SendOptions, func(queue.Sent) tables.Record) (queue.Sent, bool, error) {
	return queue.Sent{}, false, f.err
}

func TestFailedPublishInOneStepIsNotLookedFor(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.RecordedSends = failingRecordedSends{queue.ErrBusy} })
	a := h.do(http.StatusServiceUnavailable, "POST", publishTarget, "x")
	if !strings.Contains(a.text("detail"), "was not published") || len(h.view.woken) != 0 {
		t.Errorf("answer %s, woken %v", a.body, h.view.woken)
	}
}

func TestPublishTakesDelayAndLife(t *testing.T) {
	h := newHarness(t)
	if a := h.do(http.StatusAccepted, "POST", publishTarget+"?ttl=never&delay=100ms", "x"); a.get("expires_at") != nil || a.text("visible_at") == a.text("inserted_at") {
		t.Errorf("ttl=never: %s", a.body)
	}
	for query, field := range map[string]string{
		"delay=5": "delay", "delay=-1s": "delay", "delay=169h": "delay", "delay=168h": "delay", "delay=2h&ttl=1h": "delay", "delay=3541s&ttl=1h": "delay", "delay=21s&ttl=40s": "delay",
		"ttl=0s": "ttl", "ttl=-1s": "ttl", "ttl=forever": "ttl", "ttl=1000000h": "ttl", "dealy=5s": "dealy", "delay=1s&delay=2s": "delay", "delay=%zz": "query",
	} {
		h.do(http.StatusBadRequest, "POST", publishTarget+"?"+query, "x").wantProblem(field)
	}
	for _, query := range []string{"delay=168h&ttl=169h", "delay=59m&ttl=1h", "delay=20s&ttl=40s", "ttl=1s"} {
		h.do(http.StatusAccepted, "POST", publishTarget+"?"+query, "x")
	}
}

func TestPublishRefusesWhatItCouldOnlyDropSilently(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusBadRequest, "POST", publishTarget, "").wantProblem("body")
	h.do(http.StatusUnsupportedMediaType, "POST", publishTarget, "x", "Content-Encoding", "gzip").wantProblem("Content-Encoding")
	h.do(http.StatusAccepted, "POST", publishTarget, "x", "Content-Encoding", "identity")
	for _, contentType := range []string{"json", "é/é", "a/b\x7f", "text/plain; charset", strings.Repeat("a", 200) + "/" + strings.Repeat("b", 100)} {
		h.do(http.StatusUnsupportedMediaType, "POST", publishTarget, "x", "Content-Type", contentType).wantProblem("Content-Type")
	}
	h.do(http.StatusUnsupportedMediaType, "POST", publishTarget, "x", "Content-Type", "text/plain", "Content-Type", "text/html").wantProblem("Content-Type")
	r := request("POST", publishTarget, "")
	r.Body = io.NopCloser(iotest.ErrReader(errors.New("connection reset")))
	h.serve(http.StatusBadRequest, r).wantProblem("body")
}

func TestPublishNamesTheLimit(t *testing.T) {
	h := newHarness(t)
	const limit = queue.MaxTextBytes
	h.do(http.StatusAccepted, "POST", publishTarget, strings.Repeat("a", limit))
	for name, body := range map[string]string{
		"one byte too many":     strings.Repeat("a", limit+1),
		"binary of that length": strings.Repeat("\xff", limit),
		"megabytes":             strings.Repeat("a", 1<<22),
	} {
		a := h.do(http.StatusRequestEntityTooLarge, "POST", publishTarget, body)
		a.wantProblem("body")
		if !strings.Contains(string(a.body), "65536") {
			t.Errorf("%s: the limit is not named: %s", name, a.body)
		}
	}
	h.do(http.StatusRequestEntityTooLarge, "POST", publishTarget, strings.Repeat("a", 50_000), "Content-Type", "application/x-custom").wantProblem("body")
}

func TestFailedPublishSaysWhetherTheMessageMayBeThere(t *testing.T) {
	tests := []struct {
		name   string
		err    error
		status int
		detail string
	}{
		{"refused before effect", queue.ErrBusy, http.StatusServiceUnavailable, "was not published"},
		{"denied", queue.ErrDenied, http.StatusServiceUnavailable, "was not published"},
		{"no answer", errors.New("connection reset SECRET-DETAIL"), http.StatusServiceUnavailable, "may or may not be in the queue"},
		{"cancelled", context.Canceled, http.StatusServiceUnavailable, "may or may not be in the queue"},
		{"characters", queue.ErrUnsendable, http.StatusUnprocessableEntity, "can't carry"},
		{"too large for the service", queue.ErrTooLarge, http.StatusRequestEntityTooLarge, "65536"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, func(o *Options) { o.Queues = failingSends{o.Queues, tt.err} })
			a := h.do(tt.status, "POST", publishTarget, "x")
			if !strings.Contains(a.text("detail"), tt.detail) {
				t.Errorf("detail = %q", a.text("detail"))
			}
			a.wantNot("SECRET-DETAIL")
			if (a.header.Get("Retry-After") != "") != (tt.status == http.StatusServiceUnavailable) {
				t.Errorf("Retry-After = %q", a.header.Get("Retry-After"))
			}
			if len(h.view.woken) != 0 {
				t.Error("the dispatcher was woken for nothing")
			}
		})
	}
}

type failingRecords struct{ tables.Deliveries }

func (failingRecords) Record(context.Context, tables.Record) error { return errors.New("table down") }

func TestPublishSucceedsWithoutItsRecord(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Deliveries = failingRecords{o.Deliveries} })
	a := h.do(http.StatusAccepted, "POST", publishTarget, "x")
	if m := h.receive("orders"); m.ID != a.text("message_id") {
		t.Errorf("received %s, published %s", m.ID, a.text("message_id"))
	}
	if n := strings.Count(h.log.String(), "table down"); n != 1 {
		t.Errorf("the fault was logged %d times, want once", n)
	}
}

// hangUps ends the request's context as soon as the message is stored.
type hangUps struct {
	queue.Service
	hangUp context.CancelFunc
}

func (s hangUps) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return hangUpQueue{q, s.hangUp}, err
}

type hangUpQueue struct {
	queue.Queue
	hangUp context.CancelFunc
}

func (q hangUpQueue) Send(ctx context.Context, text []byte, opts queue.SendOptions) (queue.Sent, error) {
	defer q.hangUp()
	return q.Queue.Send(ctx, text, opts)
}

func TestPublishIsRecordedAlthoughTheCallerHangsUp(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	h := newHarness(t, func(o *Options) { o.Queues = hangUps{o.Queues, hangUp} })
	a := h.serve(http.StatusAccepted, request("POST", publishTarget, "x").WithContext(ctx))
	h.do(http.StatusOK, "GET", a.header.Get("Location"), "")
}

func TestPublishNamesAllThatIsWrongAtOnce(t *testing.T) {
	const batch = `[{"specversion":"1.0","id":"1","source":"/s"}]`
	tests := []struct {
		name, target, body string
		headers, fields    []string
		status             int
	}{
		{"a message", "/api/v1/queues/Or_ders/messages?delay=soon", "", []string{"Content-Type", "json", "Idempotency-Key", " "},
			[]string{"queue", "delay", "Idempotency-Key", "body", "Content-Type"}, http.StatusBadRequest},
		{"a compressed one", "/api/v1/queues/orders/messages?ttl=x", "", []string{"Content-Encoding", "gzip"},
			[]string{"ttl", "Content-Encoding", "body"}, http.StatusBadRequest},
		{"an event of binary mode", "/api/v1/queues/o/messages", "x", []string{"Ce-Id", "1", "Ce-Type", "t", "Content-Type", "x"},
			[]string{"queue", "Content-Type", "ce-source", "ce-specversion"}, http.StatusBadRequest},
		{"an event whose type is missing", "/api/v1/queues/orders/messages", `{"specversion":"2.0","id":"1","source":"/s"}`,
			[]string{"Content-Type", "application/cloudevents+json", "Idempotency-Key", "a b"}, []string{"Idempotency-Key", "specversion", "type"}, http.StatusBadRequest},
		{"a batch", "/api/v1/queues/orders/messages", batch, []string{"Content-Type", "application/cloudevents-batch+json", "Idempotency-Key", "k", "Ce-Id", "1"},
			[]string{"Idempotency-Key", "ce-*", "[0].type"}, http.StatusUnprocessableEntity},
		{"what a filter is tried with", "/api/v1/queues/o/match?x=y", "", []string{"Content-Type", "json"},
			[]string{"queue", "x", "body", "Content-Type"}, http.StatusBadRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newHarness(t).do(tt.status, "POST", tt.target, tt.body, tt.headers...)
			for _, field := range tt.fields {
				a.wantProblem(field)
			}
		})
	}
}
