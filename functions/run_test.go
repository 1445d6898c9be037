package functions

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher"
	"github.com/pushlease/pushlease/internal/bubble"
)

// POSTs end with a margin for settling before the function timeout, which counts what the
// invocation waited for, and the answer comes before it in any case.
func TestPostsAndAnswersEndBeforeTheFunctionTimeout(t *testing.T) {
	at := time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct{ timeout, waited, posts, due time.Duration }{
		"five minutes":         {5 * time.Minute, 0, 270 * time.Second, 290 * time.Second},
		"half an hour":         {30 * time.Minute, 0, 1770 * time.Second, 1790 * time.Second},
		"after a wait":         {5 * time.Minute, 40 * time.Second, 230 * time.Second, 250 * time.Second},
		"short":                {4 * time.Second, 0, 3 * time.Second, 4*time.Second - time.Second/3},
		"a clock that is odd":  {5 * time.Minute, time.Hour, 270 * time.Second, 290 * time.Second},
		"a clock that is late": {5 * time.Minute, -time.Hour, 270 * time.Second, 290 * time.Second},
	} {
		r := run{began: at}
		began := strconv.Quote(at.Add(-tt.waited).Format("2006-01-02T15:04:05.0000000Z"))
		sys := map[string]string{"sys": `{"MethodName":"x","UtcNow":` + began + `}`}
		if called := wire(t, asText(t, `{"sys":{"UtcNow":"x"}}`), sys).calledAt(dispatchOrders); !called.IsZero() {
			t.Errorf("%s: a message's own words say when it was called", name)
		}
		r.begin(wire(t, asBinary("x"), sys).calledAt(dispatchOrders), tt.timeout)
		if posts, due := r.postsEnd().Sub(at), r.left(1).Sub(at).Truncate(time.Microsecond); posts != tt.posts || due != tt.due.Truncate(time.Microsecond) || !r.cutShort().After(r.postsEnd()) {
			t.Errorf("%s: POSTs end after %s, the answer comes after %s", name, posts, due)
		}
	}
}

func TestWithoutAFunctionTimeoutTheAnswerWaitsForTheWork(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for timeout, want := range map[time.Duration]error{0: nil, 5 * time.Minute: errLate} {
			r := run{began: time.Now(), timeout: timeout}
			if err := r.within(func(func()) error { time.Sleep(24 * time.Hour); return nil }); !errors.Is(err, want) {
				t.Errorf("with a timeout of %s: %v", timeout, err)
			}
			time.Sleep(24 * time.Hour) // what was late has ended
		}
	})
}

// What is left when all POSTs are over is settling. Storage that takes none of it holds a place of the
// host for 30 s, with a function timeout or without.
func TestSettlingHoldsNoPlaceOfTheHostForLong(t *testing.T) {
	for name, tt := range map[string]struct{ timeout, posts, settles, answered time.Duration }{
		"at once":             {0, time.Hour, time.Second, time.Hour + time.Second},
		"no end":              {0, time.Hour, 24 * time.Hour, time.Hour + settleMargin},
		"half an hour":        {30 * time.Minute, time.Minute, time.Hour, time.Minute + settleMargin},
		"at the end":          {30 * time.Minute, 29*time.Minute + 29*time.Second, time.Hour, 29*time.Minute + 50*time.Second},
		"longer than allowed": {30 * time.Minute, time.Hour, time.Second, 29*time.Minute + 50*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				r := run{began: time.Now(), timeout: tt.timeout}
				err := r.within(func(decided func()) error {
					time.Sleep(tt.posts)
					decided()
					time.Sleep(tt.settles)
					return nil
				})
				took, inTime := time.Since(r.began), tt.answered >= tt.posts+tt.settles
				if took != tt.answered || inTime != (err == nil) || !inTime && !errors.Is(err, errLate) {
					t.Errorf("answered after %s with %v, want it after %s", took, err, tt.answered)
				}
				time.Sleep(48 * time.Hour) // what was late has ended
			})
		})
	}
}

// A panic outside of a delivery ends its own invocation, and not the process with all others.
func TestAPanicEndsItsOwnInvocation(t *testing.T) {
	for _, timeout := range []time.Duration{0, 5 * time.Minute} {
		bubble.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			h := New("127.0.0.1:7071", Layout{Timeout: timeout, Functions: map[string]Function{"housekeeping": {Name: "housekeeping", Trigger: timerTrigger}}})
			h.Start(Parts{Log: slog.New(slog.NewTextHandler(&log, nil)), Housekeep: func(context.Context) error { panic("the payload") }})
			if status := tick(h); status != http.StatusInternalServerError {
				t.Errorf("answered with %d", status)
			}
			if text := log.String(); !strings.Contains(text, "panic in an invocation") || strings.Contains(text, "the payload") {
				t.Errorf("the log says\n%s", text)
			}
			h.Finish(t.Context()) // it counts as ended
		})
	}
}

// A stop takes nothing new, waits for what is under way, answered or not, and cuts it short at the
// drain bound.
func TestAStopFinishesWhatIsUnderWay(t *testing.T) {
	for name, tt := range map[string]struct {
		takes, stops time.Duration
		cause        error
	}{
		"within the bound": {20 * time.Second, 20 * time.Second, nil},
		"longer":           {time.Hour, 35 * time.Second, dispatcher.ErrStopping},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				h := New("127.0.0.1:7071", Layout{Functions: map[string]Function{"housekeeping": {Name: "housekeeping", Trigger: timerTrigger}}})
				h.Start(Parts{Log: slog.New(slog.DiscardHandler), Housekeep: func(ctx context.Context) error { <-ctx.Done(); return nil }})
				ctx, leave, _ := h.work.enter(t.Context())
				var cause error
				go func() {
					defer leave()
					select {
					case <-time.After(tt.takes):
					case <-ctx.Done():
						cause = context.Cause(ctx)
					}
				}()
				answered := make(chan int)
				go func() { answered <- tick(h) }()
				time.Sleep(time.Second)
				start := time.Now()
				go func() { time.Sleep(time.Second); answered <- tick(h) }()
				work, cut := context.WithCancelCause(t.Context())
				defer time.AfterFunc(35*time.Second, func() { cut(dispatcher.ErrStopping) }).Stop()
				h.Finish(work)
				if took := time.Since(start) + time.Second; took > tt.stops+time.Second {
					t.Errorf("the stop took %s", took)
				}
				if !errors.Is(cause, tt.cause) {
					t.Errorf("the work ended with %v", cause)
				}
				if first, second := <-answered, <-answered; first+second != http.StatusOK+http.StatusServiceUnavailable {
					t.Errorf("before it and while stopping: %d, %d", first, second)
				}
			})
		})
	}
}

// tick has the host run the timer.
func tick(h *Handler) (status int) {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:7071/housekeeping", strings.NewReader(`{"Data":{"timer":{}},"Metadata":{}}`))
	r.Header.Set(invocationID, testID)
	r.ContentLength = -1 // the host sends in chunks
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}
