package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// sse is one event as it came.
type sse struct{ id, event, data string }

// listener is a caller of the stream in simulated time. While held it does not read.
type listener struct {
	*testing.T
	header http.Header
	ended  bool
	leave  context.CancelFunc

	mu   sync.Mutex
	text strings.Builder
	held chan struct{}
}

func (l *listener) Header() http.Header { return l.header }
func (l *listener) WriteHeader(int)     {}
func (l *listener) Flush()              {}
func (l *listener) Write(p []byte) (int, error) {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held != nil {
		<-held
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// hold makes the listener stop reading until release.
func (l *listener) hold() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make(chan struct{})
	l.held = held
	return func() {
		l.mu.Lock()
		l.held = nil
		l.mu.Unlock()
		close(held)
	}
}

// listen follows the stream, from a bubble.
func (h *harness) listen(query string, headers ...string) *listener {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener{T: h.T, header: http.Header{}, leave: cancel}
	h.Cleanup(func() { cancel(); synctest.Wait() })
	go func() {
		h.api.ServeHTTP(l, request("GET", "/api/v1/stream"+query, "", headers...).WithContext(ctx))
		l.ended = true
	}()
	synctest.Wait()
	return l
}

// events are what came since the last call, once all that was told has been sent.
func (l *listener) events() (events []sse) {
	l.Helper()
	time.Sleep(2 * streamKept * streamEach) // simulated: each event has its time
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for block := range strings.SplitSeq(l.text.String(), "\n\n") {
		var e sse
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "id":
				e.id = value
			case "event":
				e.event = value
			case "data":
				e.data = value
			}
		}
		if e.event != "" {
			events = append(events, e)
		}
	}
	l.text.Reset()
	return events
}

// names are the types of events.
func names(events []sse) (list []string) {
	for _, e := range events {
		list = append(list, e.event)
	}
	return list
}

func attemptOf(queueName, webhookID string, n int) *tables.Attempt {
	return &tables.Attempt{
		MessageKey: tables.MessageKey{Queue: queueName, MessageID: fmt.Sprintf("m%d", n)}, WebhookID: webhookID, Number: 1, StartedAt: time.Now(),
		Status: 503, Action: policy.Abandon, Reason: policy.RetryableError, Snippet: "echoed secret", Charged: true,
	}
}

// Who was cut off is told of a webhook that turned meanwhile; who begins hours later is told nothing of before.
func TestWhoComesBackSoonIsToldOfTheTurnsMeanwhile(t *testing.T) {
	for _, away := range []time.Duration{2 * time.Second, time.Hour} {
		bubble.Test(t, func(t *testing.T) {
			h := newHarness(t)
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { h.api.Run(ctx) })
			defer running.Wait()
			defer stop()
			h.view.set("wh_1", status.Standing{Queue: "orders", State: status.Healthy})
			l := h.listen("")
			time.Sleep(2 * turnsEvery)
			came := l.events()
			l.leave()
			time.Sleep(turnsEvery)
			h.view.set("wh_1", status.Standing{Queue: "orders", State: status.Failing})
			time.Sleep(away)
			turns := slices.DeleteFunc(h.listen("", "Last-Event-ID", came[0].id).events(), func(e sse) bool { return e.event != string(streamWebhook) })
			if want := away < turnsKept; len(turns) > 0 != want {
				t.Errorf("after %s: %+v", away, turns)
			}
		})
	}
}

func TestTheStreamTellsWhatHappens(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHarness(t)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.api.Run(ctx) })
		defer running.Wait()
		defer stop()
		h.register(`{"queue":"orders","url":"https://example.com/"}`)
		h.view.set("wh_1", status.Standing{Queue: "orders", State: status.Busy})
		l := h.listen("")
		time.Sleep(2 * turnsEvery) // the first look
		l.events()

		h.api.Attempted(attemptOf("orders", "wh_1", 1))
		h.api.DeadLettered(tables.DeadLetter{ID: "dl_1", MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m9"}, Status: tables.Waiting, Reason: policy.NonRetryableError, DeadLetteredAt: time.Now(), Text: []byte("the body")})
		h.view.set("wh_1", status.Standing{Queue: "orders", State: status.Healthy}) // was busy: no news
		time.Sleep(2 * turnsEvery)
		h.view.set("wh_1", status.Standing{Queue: "orders", State: status.Failing})
		time.Sleep(2 * turnsEvery)
		if _, err := must(h.db.Queues().Queue("orders"))(t).Send(t.Context(), []byte("x"), queue.SendOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(depthsEvery)
		h.do(http.StatusAccepted, "POST", "/api/v1/replays", `{"queue":"orders"}`)
		events := l.events()
		schemas := map[string]string{"attempt": "Attempt", "dead_letter": "DeadLetter", "job": "ReplayJob"}
		for _, e := range events {
			var data any
			if err := json.Unmarshal([]byte(e.data), &data); err != nil {
				t.Fatalf("%s: %v", e.data, err)
			}
			schema := h.doc.Components.Schemas[schemas[e.event]]
			if schema == nil {
				continue
			}
			if err := schema.Value.VisitJSON(data, openapi3.MultiErrors(), openapi3.EnableFormatValidation()); err != nil {
				t.Errorf("%s is not what the document says: %v\n%s", e.event, err, e.data)
			}
		}
		if got := slices.Compact(names(events)); !slices.Equal(got, []string{"attempt", "dead_letter", "webhook", "depth", "job"}) {
			t.Fatalf("%v", events)
		}
		all := fmt.Sprint(events)
		for _, want := range []string{`"message_id":"m1"`, `"id":"dl_1"`, `"state":"failing","was":"healthy"`, `"visible":1`, `"state":"done"`} {
			if !strings.Contains(all, want) {
				t.Errorf("%s is not in %s", want, all)
			}
		}
		for _, secret := range []string{"echoed secret", "the body", "dGhlIGJvZHk", "busy"} {
			if strings.Contains(all, secret) {
				t.Errorf("%q is in the stream", secret)
			}
		}
	})
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestAStreamHasWhatWasAskedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHarness(t)
		tests := map[string]int{
			"": 4, "?queue=orders": 3, "?webhook=a": 2, "?queue=orders&webhook=b": 1, "?type=dead_letter": 1, "?type=attempt,dead_letter": 4, "?type=job": 0,
		}
		listeners := map[string]*listener{}
		for query := range tests {
			listeners[query] = h.listen(query)
		}
		h.api.Attempted(attemptOf("orders", "a", 1))
		h.api.Attempted(attemptOf("orders", "b", 2))
		h.api.Attempted(attemptOf("parcels", "a", 3))
		h.api.DeadLettered(tables.DeadLetter{ID: "dl_1", MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m9"}})
		for query, want := range tests {
			if got := listeners[query].events(); len(got) != want+1 || got[0].event != "hello" {
				t.Errorf("%s: %v, want %d", query, got, want)
			}
		}
		for _, query := range []string{"?type=attempts", "?queue=-", "?limit=1", "?type=attempt,"} {
			h.do(http.StatusBadRequest, "GET", "/api/v1/stream"+query, "")
		}
	})
}

func TestAStreamGoesOnBehindTheLastEvent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHarness(t)
		first := h.listen("")
		h.api.Attempted(attemptOf("orders", "a", 1))
		came := first.events()
		first.leave()
		synctest.Wait()
		if !first.ended {
			t.Fatal("the stream goes on without its caller")
		}
		h.api.Attempted(attemptOf("orders", "a", 2))
		again := h.listen("", "Last-Event-ID", came[1].id).events()
		if len(again) != 2 || !strings.Contains(again[1].data, `"m2"`) {
			t.Fatalf("%v, want the second attempt", again)
		}
		if began := h.listen("", "Last-Event-ID", came[0].id).events(); len(began) != 3 {
			t.Errorf("%v, want both attempts", began)
		}
		for _, unknown := range []string{"another-1", "x", h.api.stream.mark(99), h.api.stream.mark(0) + "x"} {
			if got := h.listen("", "Last-Event-ID", unknown).events(); !slices.Equal(names(got), []string{"hello", "gap"}) || !strings.Contains(got[1].data, `"missed":0`) {
				t.Errorf("%s: %v, want a gap of which nobody knows the size", unknown, got)
			}
		}
		for n := range streamKept + 7 {
			h.api.Attempted(attemptOf("orders", "a", 100+n))
		}
		late := h.listen("", "Last-Event-ID", again[1].id).events()
		if len(late) != streamKept+2 || late[1].event != "gap" || !strings.Contains(late[1].data, `"missed":7`) || !strings.Contains(late[2].data, `"m107"`) {
			t.Errorf("%d events, then %v, want a gap of 7 and the newest %d", len(late), late[:3], streamKept)
		}
	})
}

// Telling an event takes the same whether somebody follows and does not read, and such a one misses the oldest.
func TestWhoDoesNotReadHoldsUpNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHarness(t)
		l := h.listen("")
		release := l.hold()
		h.api.Attempted(attemptOf("orders", "a", 0))
		time.Sleep(time.Second) // it is being written now
		began := time.Now()
		for n := range 3 * streamKept {
			h.api.Attempted(attemptOf("orders", "a", 1+n))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("telling took %s", took)
		}
		if kept := len(h.api.stream.kept); kept != streamKept {
			t.Errorf("%d events are kept, want %d", kept, streamKept)
		}
		release()
		got := l.events()
		if len(got) != streamKept+3 || got[2].event != "gap" || !strings.Contains(got[2].data, fmt.Sprintf(`"missed":%d`, 2*streamKept)) {
			t.Errorf("%d events, want hello, the first, a gap and the newest %d: %v", len(got), streamKept, got[:3])
		}
	})
}

// One who follows everything is sent so many a second, whatever happens.
func TestAStreamIsSentAThousandEventsASecond(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHarness(t)
		l := h.listen("?type=attempt")
		for n := range 10 * 500 { // ten seconds of 500 attempts and 1,000 dead letters each
			h.api.Attempted(attemptOf("orders", "a", n))
			h.api.DeadLettered(tables.DeadLetter{ID: "dl"})
			h.api.DeadLettered(tables.DeadLetter{ID: "dl"})
			time.Sleep(2 * time.Millisecond)
		}
		if got := l.events(); len(got) != 5001 { // as many as that are sent: none is missing
			t.Errorf("%d events, want hello and 5000", len(got))
		}
		for n := range 10_000 { // one second of 10,000
			h.api.Attempted(attemptOf("orders", "a", n))
			if n%10 == 9 {
				time.Sleep(time.Millisecond)
			}
		}
		sent, missed := 0, 0
		for _, e := range l.events() {
			var gap gapTold
			if e.event == "attempt" {
				sent++
			} else if err := json.Unmarshal([]byte(e.data), &gap); err == nil {
				missed += int(gap.Missed)
			}
		}
		if sent+missed != 10_000 || sent > 1000+2*streamKept {
			t.Errorf("%d attempts sent and %d missed of 10,000", sent, missed)
		}
	})
}

func TestAQuietStreamSaysThatItIsThereAndEndsAfterAnHour(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHarness(t)
		l := h.listen("?queue=parcels")
		l.events()
		h.api.Attempted(attemptOf("orders", "a", 1)) // is not for this one
		time.Sleep(streamQuiet)
		synctest.Wait()
		l.mu.Lock()
		text := l.text.String()
		l.mu.Unlock()
		if text != ": nothing new\nid: "+h.api.stream.mark(1)+"\n\n" {
			t.Errorf("%q", text)
		}
		time.Sleep(streamLife)
		synctest.Wait()
		if !l.ended {
			t.Error("the stream is still open")
		}
	})
}

func TestFollowersAreBoundedAndAreSentHomeAtAStop(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := newHarness(t)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.api.Run(ctx) })
		var all []*listener
		for range maxFollowers {
			all = append(all, h.listen(""))
		}
		if a := h.do(http.StatusServiceUnavailable, "GET", "/api/v1/stream", ""); !strings.Contains(a.text("detail"), "/api/v1/attempts") || a.header.Get("Retry-After") != "30" {
			t.Errorf("%s", a.body)
		}
		all[0].leave()
		synctest.Wait()
		if more := h.listen(""); more.ended {
			t.Error("nobody may follow although one has gone")
		}
		stop()
		running.Wait()
		synctest.Wait()
		for i, l := range all {
			if !l.ended {
				t.Errorf("caller %d still follows", i)
			}
		}
		h.do(http.StatusServiceUnavailable, "GET", "/api/v1/stream", "")
	})
}

func TestTheStreamIsForThoseWhoMayRead(t *testing.T) {
	h := newHarness(t, withKeys)
	h.do(http.StatusUnauthorized, "GET", "/api/v1/stream", "")
	h.do(http.StatusForbidden, "GET", "/api/v1/stream", "", "Authorization", "Bearer publish")
	if a := h.do(http.StatusOK, "HEAD", "/api/v1/stream", "", "Authorization", "Bearer read"); a.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v", a.header)
	}
	hosted := newHarness(t, withKeys, func(o *Options) { o.Hosted = true })
	hosted.do(http.StatusNotImplemented, "GET", "/api/v1/stream", "", "Authorization", "Bearer read")
}

// As a browser meets it: over a connection with the server's deadlines, each event at once.
func TestTheStreamOverARealConnection(t *testing.T) {
	h := newHarness(t)
	server := httptest.NewServer(h.api)
	defer server.Close()
	resp, err := http.Get(server.URL + "/api/v1/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	read := func(until string) string {
		var text strings.Builder
		for !strings.Contains(text.String(), until) {
			one := make([]byte, 1)
			if _, err := io.ReadFull(resp.Body, one); err != nil {
				t.Fatalf("%v after %q", err, text.String())
			}
			text.Write(one)
		}
		return text.String()
	}
	read("event: hello\ndata: {\"instance\":\"test\",\"version\":\"test\"}\n\n")
	for n := range 3 {
		h.api.Attempted(attemptOf("orders", "a", n))
		read(fmt.Sprintf(`"message_id":"m%d"`, n))
	}
	h.api.stream.stop()
	if rest, err := io.ReadAll(resp.Body); err != nil || strings.Contains(string(rest), "event:") {
		t.Errorf("%q, %v: want the end", rest, err)
	}
}
