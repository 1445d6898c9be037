package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook/content"
)

func batchOf(n int) string {
	events := make([]string, n)
	for i := range events {
		events[i] = fmt.Sprintf(`{"specversion":"1.0", "id":"%d","source":"/s","type":"t"}`, i)
	}
	return "[" + strings.Join(events, " ,\n") + "]"
}

func TestEachEventOfABatchIsAMessage(t *testing.T) {
	h := newHarness(t)
	a := h.do(http.StatusAccepted, "POST", publishTarget+"?delay=5s", batchOf(100), "Content-Type", batchMedia+"; charset=utf-8", "traceparent", traceHeader)
	if n := len(a.get("events").([]any)); n != 100 || h.depth("orders") != 100 {
		t.Errorf("%d results, %d messages, want 100 of both", n, h.depth("orders"))
	}
	for i := range 100 {
		if a.text("events", i, "outcome") != "sent" || a.text("events", i, "id") != fmt.Sprint(i) || a.get("events", i, "index") != float64(i) {
			t.Fatalf("event %d: %v", i, a.get("events", i))
		}
	}
	m := h.do(http.StatusOK, "GET", "/api/v1/messages/"+a.text("events", 7, "message_id"), "")
	if m.text("events", 0, "event") != "published" {
		t.Errorf("timeline: %s", m.body)
	}
	if len(h.view.woken) != 1 {
		t.Errorf("woken %d times", len(h.view.woken))
	}
}

func TestEventsOfABatchAreStoredAsTheyStandInIt(t *testing.T) {
	h := newHarness(t)
	const event = `{ "data":{"a":1.0,"a":2}, "specversion":"1.0","id":"\u0037","source":"/s","type":"t" }`
	h.do(http.StatusAccepted, "POST", publishTarget, "\xef\xbb\xbf [ "+event+" ] ", "Content-Type", batchMedia, "traceparent", traceHeader)
	_, got := h.received(queue.EncodingAuto)
	if string(got.Bytes) != event || got.ContentType != eventMedia || got.TraceParent != traceHeader {
		t.Errorf("received %q as %q with %q", got.Bytes, got.ContentType, got.TraceParent)
	}
	if c := content.Read(got.Bytes, got.ContentType); c.Event == nil || c.Event.ID != "7" {
		t.Errorf("read as %+v", c.Event)
	}
	if a := h.do(http.StatusAccepted, "POST", publishTarget, "[]", "Content-Type", batchMedia); len(a.get("events").([]any)) != 0 {
		t.Errorf("an empty batch: %s", a.body)
	}
}

func TestNothingOfABrokenBatchIsSent(t *testing.T) {
	h := newHarness(t)
	large := strings.TrimSuffix(goodEvent, "}") + `,"data":"` + strings.Repeat("a", queue.MaxTextBytes) + `"}`
	for name, tt := range map[string]struct {
		body, field string
		status      int
	}{
		"no list":              {goodEvent, "body", 422},
		"nothing":              {"", "body", 422},
		"cut off":              {"[" + goodEvent + ",", "body", 422},
		"text after it":        {"[" + goodEvent + "] x", "body", 422},
		"no comma":             {"[" + goodEvent + goodEvent + "]", "body", 422},
		"not UTF-8":            {"[" + goodEvent + ",\"\xff\"]", "body", 422},
		"deep":                 {strings.Repeat("[", 100_000), "body", 422},
		"an attribute":         {"[" + goodEvent + `,{"specversion":"1.0","id":"7","source":"","type":"t"}]`, "[1].source", 422},
		"an attribute twice":   {"[" + goodEvent + `,{"id":"7","id":"7"}]`, "[1]", 422},
		"null":                 {"[null," + goodEvent + "]", "[0]", 422},
		"a batch in a batch":   {"[[]]", "[0]", 422},
		"101 events":           {batchOf(101), "body", 413},
		"100,000 empty":        {"[" + strings.Repeat("{},", 99_999) + "{}]", "body", 413},
		"100 empty":            {"[" + strings.Repeat("{},", 99) + "{}]", "[0].id", 422},
		"an event too large":   {"[" + goodEvent + "," + large + "]", "[1]", 413},
		"too large as a whole": {"[" + strings.Repeat(" ", 1<<20) + "]", "body", 413},
	} {
		t.Run(name, func(t *testing.T) {
			h.do(tt.status, "POST", publishTarget, tt.body, "Content-Type", batchMedia).wantProblem(tt.field)
		})
	}
	h.do(http.StatusUnprocessableEntity, "POST", publishTarget, batchOf(1), "Content-Type", batchMedia, "Idempotency-Key", "k").wantProblem("Idempotency-Key")
	h.do(http.StatusUnprocessableEntity, "POST", publishTarget, batchOf(1), "Content-Type", batchMedia, "ce-id", "7").wantProblem("ce-*")
	h.do(http.StatusUnsupportedMediaType, "POST", publishTarget, batchOf(1), "Content-Type", batchMedia, "Content-Type", "text/plain").wantProblem("Content-Type")
	if n := h.depth("orders"); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
}

// sendsUntil lets the send of that number fail, counted from 0, and all after it.
type sendsUntil struct {
	queue.Service
	left *atomic.Int64
	err  error
}

func newSendsUntil(s queue.Service, n int64, err error) sendsUntil {
	left := &atomic.Int64{}
	left.Store(n)
	return sendsUntil{s, left, err}
}

func (s sendsUntil) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return queueUntil{q, s}, err
}

type queueUntil struct {
	queue.Queue
	s sendsUntil
}

func (q queueUntil) Send(ctx context.Context, text []byte, opts queue.SendOptions) (queue.Sent, error) {
	if q.s.left.Add(-1) < 0 {
		return queue.Sent{}, q.s.err
	}
	return q.Queue.Send(ctx, text, opts)
}

func TestAFaultWithinABatchSaysWhatWasSent(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		status int
		third  string
		sent   int64
	}{
		{"no answer", errors.New("connection reset SECRET-DETAIL"), http.StatusServiceUnavailable, "unknown", 2},
		{"busy", queue.ErrBusy, http.StatusServiceUnavailable, "not_sent", 2},
		{"too large for the service", queue.ErrTooLarge, http.StatusRequestEntityTooLarge, "not_sent", 2},
		{"busy at once", queue.ErrBusy, http.StatusServiceUnavailable, "not_sent", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, func(o *Options) { o.Queues = newSendsUntil(o.Queues, tt.sent, tt.err) })
			a := h.do(tt.status, "POST", publishTarget, batchOf(4), "Content-Type", batchMedia)
			a.wantNot("SECRET-DETAIL")
			var p struct {
				Detail string
				Events []struct {
					ID        string `json:"id"`
					MessageID string `json:"message_id"`
					Outcome   string `json:"outcome"`
				}
			}
			if err := json.Unmarshal(a.body, &p); err != nil || len(p.Events) != 4 {
				t.Fatalf("%v: %s", err, a.body)
			}
			for i, e := range p.Events {
				want := "not_sent"
				switch {
				case int64(i) < tt.sent:
					want = "sent"
				case i == 2:
					want = tt.third
				}
				if e.Outcome != want || (e.MessageID != "") != (want == "sent") || e.ID != fmt.Sprint(i) {
					t.Errorf("event %d: %+v, want %s", i, e, want)
				}
			}
			if !strings.Contains(p.Detail, fmt.Sprintf("%d of 4", tt.sent)) || h.depth("orders") != tt.sent {
				t.Errorf("%d messages: %s", h.depth("orders"), p.Detail)
			}
			if int64(len(h.view.woken)) != min(tt.sent, 1) {
				t.Errorf("woken %d times", len(h.view.woken))
			}
		})
	}
}

// recorded counts records of messages that nobody was woken for yet.
type recorded struct {
	tables.Deliveries
	view  *dispatcherView
	early atomic.Int64
}

func (d *recorded) Record(ctx context.Context, r tables.Record) error {
	d.view.mu.Lock()
	if len(d.view.woken) == 0 {
		d.early.Add(1)
	}
	d.view.mu.Unlock()
	return d.Deliveries.Record(ctx, r)
}

func TestABatchIsLookedForBeforeItIsRecorded(t *testing.T) {
	var store *recorded
	h := newHarness(t, func(o *Options) {
		store = &recorded{Deliveries: o.Deliveries, view: o.Dispatcher.(*dispatcherView)}
		o.Deliveries = store
	})
	h.do(http.StatusAccepted, "POST", publishTarget, batchOf(5), "Content-Type", batchMedia)
	if n := store.early.Load(); n != 0 {
		t.Errorf("%d records were written before the dispatcher was woken", n)
	}
}
