package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

func TestARepeatedRequestGetsTheFirstAnswerAgain(t *testing.T) {
	for _, target := range []string{publishTarget, publishTarget + "?delay=90s&ttl=1h", publishTarget + "?ttl=never"} {
		h := newHarness(t)
		first := h.do(http.StatusAccepted, "POST", target, "hello", "Idempotency-Key", `"order 1"`, "traceparent", traceHeader)
		if first.header.Get("Idempotency-Replayed") != "" {
			t.Error("the first answer is marked as replayed")
		}
		for range 3 {
			again := h.do(http.StatusAccepted, "POST", target, "hello", "Idempotency-Key", `"order 1"`, "traceparent", otherTrace)
			if !bytes.Equal(first.body, again.body) || again.header.Get("Idempotency-Replayed") != "true" || again.header.Get("Location") != first.header.Get("Location") {
				t.Errorf("again: %s %v\nfirst: %s", again.body, again.header, first.body)
			}
		}
		if h.depth("orders") != 1 || len(h.view.woken) != 1 {
			t.Errorf("%d messages, woken %d times", h.depth("orders"), len(h.view.woken))
		}
	}
}

func TestAKeyTravelsWithTheMessage(t *testing.T) {
	for _, setting := range []queue.Encoding{queue.EncodingAuto, queue.EncodingNone, queue.EncodingBase64} {
		h := newHarness(t, withEncoding(setting))
		h.do(http.StatusAccepted, "POST", publishTarget, `{"a":1}`, "Idempotency-Key", `"a \"b\" \\"`, "Content-Type", "application/json")
		if _, got := h.received(setting); got.IdempotencyKey != `a "b" \` || string(got.Bytes) != `{"a":1}` || got.ContentType != "" {
			t.Errorf("%s: received %+v", setting, got)
		}
	}
}

func TestAKeyIsForOneRequestOfOneQueue(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusAccepted, "POST", publishTarget, "hello", "Idempotency-Key", "k", "Content-Type", "text/x")
	for name, r := range map[string]*http.Request{
		"body":         request("POST", publishTarget, "hello!", "Idempotency-Key", "k", "Content-Type", "text/x"),
		"content type": request("POST", publishTarget, "hello", "Idempotency-Key", "k", "Content-Type", "text/y"),
		"delay":        request("POST", publishTarget+"?delay=1s", "hello", "Idempotency-Key", "k", "Content-Type", "text/x"),
		"ttl":          request("POST", publishTarget+"?ttl=1h", "hello", "Idempotency-Key", "k", "Content-Type", "text/x"),
		"an event":     request("POST", publishTarget, "hello", binaryHeaders("Idempotency-Key", "k")...),
	} {
		t.Run(name, func(*testing.T) { h.serve(http.StatusUnprocessableEntity, r).wantProblem("Idempotency-Key") })
	}
	h.do(http.StatusAccepted, "POST", "/api/v1/queues/others/messages", "else", "Idempotency-Key", "k")
	h.do(http.StatusAccepted, "POST", publishTarget, "hello", "Idempotency-Key", `"k"`, "Content-Type", "text/x")
	if h.depth("orders") != 1 {
		t.Errorf("%d messages", h.depth("orders"))
	}
}

func TestKeysThatCantBeReadAreRefused(t *testing.T) {
	h := newHarness(t)
	for _, key := range []string{"", `""`, `"`, `"a`, `"a"b`, `"a";x=1`, `"a\b"`, "a b", "a,b", `a"b`, `a\b`, "é", "a\x00b", "a\x7f", strings.Repeat("k", 256), strings.Repeat("k", 1<<20)} {
		h.do(http.StatusBadRequest, "POST", publishTarget, "x", "Idempotency-Key", key).wantProblem("Idempotency-Key")
	}
	h.do(http.StatusBadRequest, "POST", publishTarget, "x", "Idempotency-Key", "a", "Idempotency-Key", "a").wantProblem("Idempotency-Key")
	h.do(http.StatusAccepted, "POST", publishTarget, "x", "Idempotency-Key", strings.Repeat("k", 255))
	h.do(http.StatusAccepted, "POST", publishTarget, "y", "Idempotency-Key", `"`+strings.Repeat(`\"`, 255)+`"`)
}

func TestABodyThatDoesNotFitBesideItsKeyIsRefused(t *testing.T) {
	h := newHarness(t)
	a := h.do(http.StatusRequestEntityTooLarge, "POST", publishTarget, strings.Repeat("a", 50_000), "Idempotency-Key", "k")
	a.wantProblem("body")
	if !strings.Contains(string(a.body), "48,000") || h.depth("orders") != 0 {
		t.Errorf("%d messages: %s", h.depth("orders"), a.body)
	}
	h.do(http.StatusAccepted, "POST", publishTarget, strings.Repeat("a", 48_000), "Idempotency-Key", "k")
}

func TestOneOfManySimultaneousRequestsIsSent(t *testing.T) {
	h := newHarness(t)
	answers := make([]*httptest.ResponseRecorder, 20)
	var wg sync.WaitGroup
	for i := range answers {
		answers[i] = httptest.NewRecorder()
		wg.Go(func() { h.api.ServeHTTP(answers[i], request("POST", publishTarget, "hello", "Idempotency-Key", "k")) })
	}
	wg.Wait()
	first := 0
	bodies := map[string]bool{}
	for _, a := range answers {
		switch {
		case a.Code == http.StatusAccepted:
			bodies[a.Body.String()] = true
			if a.Header().Get("Idempotency-Replayed") == "" {
				first++
			}
		case a.Code != http.StatusConflict || a.Header().Get("Retry-After") == "":
			t.Errorf("answer %d: %s", a.Code, a.Body)
		}
	}
	if first != 1 || len(bodies) != 1 || h.depth("orders") != 1 {
		t.Errorf("%d sent, %d answers, %d messages; want one of each", first, len(bodies), h.depth("orders"))
	}
	h.do(http.StatusAccepted, "POST", publishTarget, "hello", "Idempotency-Key", "k")
}

// claims is the real table, but for what a test changes.
type claims struct {
	tables.Claims
	claim  func(ctx context.Context, c tables.Claim, now time.Time) (tables.Claim, bool, error)
	finish func(ctx context.Context, c tables.Claim) error
}

func (f claims) Claim(ctx context.Context, c tables.Claim, now time.Time) (tables.Claim, bool, error) {
	if f.claim != nil {
		return f.claim(ctx, c, now)
	}
	return f.Claims.Claim(ctx, c, now)
}

func (f claims) FinishClaim(ctx context.Context, c tables.Claim) error {
	if f.finish != nil {
		return f.finish(ctx, c)
	}
	return f.Claims.FinishClaim(ctx, c)
}

func TestNothingIsPublishedWhenTheKeyCantBeLookedUp(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Claims = claims{Claims: o.Claims, claim: func(context.Context, tables.Claim, time.Time) (tables.Claim, bool, error) {
			return tables.Claim{}, false, errors.New("table down SECRET-DETAIL")
		}}
	})
	a := h.do(http.StatusServiceUnavailable, "POST", publishTarget, "hello", "Idempotency-Key", "k")
	if !strings.Contains(a.text("detail"), "nothing was published") || a.header.Get("Retry-After") == "" || h.depth("orders") != 0 {
		t.Errorf("%d messages: %s", h.depth("orders"), a.body)
	}
	a.wantNot("SECRET-DETAIL")
	h.do(http.StatusAccepted, "POST", publishTarget, "hello") // without a key the table does not matter
}

// C86: asking again does not help, and readiness knows of nothing.
func TestAKeyWhoseClaimAnotherProgramHasChangedIsAnsweredSo(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Claims = claims{Claims: o.Claims, claim: func(context.Context, tables.Claim, time.Time) (tables.Claim, bool, error) {
			return tables.Claim{}, false, fmt.Errorf("row SECRET-DETAIL: %w", tables.ErrDamaged)
		}}
	})
	a := h.do(http.StatusConflict, "POST", publishTarget, "hello", "Idempotency-Key", "k")
	a.wantProblem("Idempotency-Key")
	if !strings.Contains(a.text("detail"), "nothing was published") || h.depth("orders") != 0 {
		t.Errorf("%d messages: %s", h.depth("orders"), a.body)
	}
	a.wantNot("SECRET-DETAIL")
}

// The first answer of the table is lost, after its effect.
func TestALostAnswerToTheClaimIsNoRival(t *testing.T) {
	lost := false
	h := newHarness(t, func(o *Options) {
		store := o.Claims
		o.Claims = claims{Claims: store, claim: func(ctx context.Context, c tables.Claim, now time.Time) (tables.Claim, bool, error) {
			current, won, err := store.Claim(ctx, c, now)
			if !lost {
				lost = true
				return tables.Claim{}, false, errors.New("connection reset")
			}
			return current, won, err
		}}
	})
	h.do(http.StatusAccepted, "POST", publishTarget, "hello", "Idempotency-Key", "k")
	if a := h.do(http.StatusAccepted, "POST", publishTarget, "hello", "Idempotency-Key", "k"); a.header.Get("Idempotency-Replayed") != "true" || h.depth("orders") != 1 {
		t.Errorf("%d messages: %v", h.depth("orders"), a.header)
	}
}

func TestARefusedSendFreesTheKey(t *testing.T) {
	down := failingSends{err: queue.ErrBusy}
	h := newHarness(t, func(o *Options) { down.Service = o.Queues; o.Queues = &down })
	h.do(http.StatusServiceUnavailable, "POST", publishTarget, "hello", "Idempotency-Key", "k")
	h.api.publisher.Queues = down.Service
	if a := h.do(http.StatusAccepted, "POST", publishTarget, "hello", "Idempotency-Key", "k"); a.header.Get("Idempotency-Replayed") != "" || h.depth("orders") != 1 {
		t.Errorf("%d messages: %v", h.depth("orders"), a.header)
	}
}

// later lets the table believe that so much time has passed.
func later(store tables.Claims, d time.Duration) claims {
	return claims{Claims: store, claim: func(ctx context.Context, c tables.Claim, now time.Time) (tables.Claim, bool, error) {
		c.At, c.Until = c.At.Add(d), c.Until.Add(d)
		return store.Claim(ctx, c, now.Add(d))
	}}
}

func TestAnUnansweredSendKeepsTheKeyUntilItsClaimLapses(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Queues = lostSends{o.Queues} })
	a := h.do(http.StatusServiceUnavailable, "POST", publishTarget, "hello", "Idempotency-Key", "k")
	if !strings.Contains(a.text("detail"), "is safe") || a.header.Get("Retry-After") != "30" {
		t.Errorf("%v: %s", a.header, a.body)
	}
	h.api.publisher.Queues = h.db.Queues()
	c := h.do(http.StatusConflict, "POST", publishTarget, "hello", "Idempotency-Key", "k")
	if c.wantProblem("Idempotency-Key"); c.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	h.do(http.StatusUnprocessableEntity, "POST", publishTarget, "else", "Idempotency-Key", "k")
	h.api.publisher.Claims = later(h.db, 31*time.Second)
	h.do(http.StatusAccepted, "POST", publishTarget, "hello", "Idempotency-Key", "k")
	h.wantCopies(2, "k")
}

// The process dies between the send and the end of its claim.
func TestACrashAfterTheSendLeavesTwoMessagesWithOneKey(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Claims = claims{Claims: o.Claims, finish: func(context.Context, tables.Claim) error { panic(http.ErrAbortHandler) }}
	})
	func() {
		defer func() {
			if recover() != http.ErrAbortHandler {
				t.Error("the handler did not die")
			}
		}()
		h.api.ServeHTTP(httptest.NewRecorder(), request("POST", publishTarget, "hello", "Idempotency-Key", "k"))
	}()
	h.api.publisher.Claims = h.db
	h.do(http.StatusConflict, "POST", publishTarget, "hello", "Idempotency-Key", "k")
	h.api.publisher.Claims = later(h.db, 31*time.Second)
	h.do(http.StatusAccepted, "POST", publishTarget, "hello", "Idempotency-Key", "k")
	h.wantCopies(2, "k")
}

// wantCopies wants so many messages, all with the same body and key: the dispatcher
// delivers one of them.
func (h *harness) wantCopies(n int, key string) {
	h.Helper()
	q, err := h.db.Queues().Queue("orders")
	if err != nil {
		h.Fatal(err)
	}
	got, err := q.Receive(h.Context(), queue.MaxReceive, time.Minute)
	if err != nil || len(got) != n {
		h.Fatalf("received %d messages, %v; want %d", len(got), err, n)
	}
	for _, m := range got {
		if b, err := queue.Decode(queue.EncodingAuto, m.Text); err != nil || b.IdempotencyKey != key || string(b.Bytes) != "hello" {
			h.Errorf("received %q with key %q, %v", b.Bytes, b.IdempotencyKey, err)
		}
	}
}

func TestAPublishWhoseKeyCantBeKeptIsAnsweredAndCounted(t *testing.T) {
	tries := 0
	h := newHarness(t, func(o *Options) {
		o.Claims = claims{Claims: o.Claims, finish: func(context.Context, tables.Claim) error { tries++; return errors.New("table down") }}
	})
	h.do(http.StatusAccepted, "POST", publishTarget, "hello", "Idempotency-Key", "KEY-TEXT")
	if log := h.log.String(); strings.Count(log, "table down") != 1 || strings.Contains(log, "KEY-TEXT") || tries != 2 {
		t.Errorf("%d tries; log: %s", tries, log)
	}
}

func TestAKeyIsFreeAfterTheWindow(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusAccepted, "POST", publishTarget, "hello", "Idempotency-Key", "k")
	h.api.publisher.Claims = later(h.db, tables.ClaimWindow-time.Minute)
	if a := h.do(http.StatusAccepted, "POST", publishTarget, "hello", "Idempotency-Key", "k"); a.header.Get("Idempotency-Replayed") != "true" {
		t.Error("sent again within the window")
	}
	h.api.publisher.Claims = later(h.db, tables.ClaimWindow+time.Minute)
	h.do(http.StatusAccepted, "POST", publishTarget, "else", "Idempotency-Key", "k")
	if h.depth("orders") != 2 {
		t.Errorf("%d messages", h.depth("orders"))
	}
}

func TestAKeyedPublishIsBroughtToAnEndAlthoughTheCallerHangsUp(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	h := newHarness(t, func(o *Options) {
		store := o.Claims
		o.Claims = claims{Claims: store, claim: func(ctx context.Context, c tables.Claim, now time.Time) (tables.Claim, bool, error) {
			defer hangUp()
			return store.Claim(ctx, c, now)
		}}
	})
	first := h.serve(http.StatusAccepted, request("POST", publishTarget, "hello", "Idempotency-Key", "k").WithContext(ctx))
	if again := h.do(http.StatusAccepted, "POST", publishTarget, "hello", "Idempotency-Key", "k"); again.text("message_id") != first.text("message_id") {
		t.Errorf("again: %s, first: %s", again.body, first.body)
	}
}

// lostSends sends, and loses the answer.
type lostSends struct{ queue.Service }

func (s lostSends) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return lostQueue{q}, err
}

type lostQueue struct{ queue.Queue }

func (q lostQueue) Send(ctx context.Context, text []byte, opts queue.SendOptions) (queue.Sent, error) {
	if _, err := q.Queue.Send(ctx, text, opts); err != nil {
		return queue.Sent{}, fmt.Errorf("send: %w", err)
	}
	return queue.Sent{}, errors.New("connection reset")
}

// Two messages of one key are known for one within 7 days, and not where both are received after that.
func TestAMessageWithAKeyIsNotDelayedForAsLongAsItsKeyCounts(t *testing.T) {
	h := newHarness(t)
	long := publishTarget + "?ttl=never&delay="
	h.do(http.StatusAccepted, "POST", long+"144h", "hello", "Idempotency-Key", "k")
	h.do(http.StatusAccepted, "POST", long+"145h", "hello")
	a := h.do(http.StatusBadRequest, "POST", long+"145h", "hello", "Idempotency-Key", "k2")
	if !strings.Contains(string(a.body), `"delay"`) {
		t.Errorf("the answer names no delay: %s", a.body)
	}
}
