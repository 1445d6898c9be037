package functions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"time"
)

// settleMargin is how long before the function timeout POSTs have ended, or a quarter of the timeout
// if that is less: records and the delete come after them, and then the answer.
const settleMargin = 30 * time.Second

// run is one invocation under way.
type run struct {
	f   Function
	id  string
	log *slog.Logger
	// began is when the host's patience began, and timeout how long it lasts; zero is for ever.
	// The host must never wait for the timeout: it would kill the process, and with it all
	// other invocations.
	began   time.Time
	timeout time.Duration
}

// begin counts what the invocation waited for, this process included, as time that has passed:
// the host does so too. calledAt is when it began by this machine's clock, as far as the host says so.
func (r *run) begin(calledAt time.Time, timeout time.Duration) {
	r.timeout = timeout
	if waited := r.began.Sub(calledAt); waited > 0 && waited < timeout {
		r.began = r.began.Add(-waited)
	}
}

// left is so many thirds of the margin before the timeout.
func (r run) left(thirds int64) time.Time {
	margin := int64(min(settleMargin, r.timeout/4))
	return r.began.Add(r.timeout - time.Duration(margin*thirds/3))
}

// postsEnd is when POSTs have to be over, cutShort when a timer's run is cut short, and due how long it
// is until the answer is given whatever happens. What settles a message is never cut short.
func (r run) postsEnd() time.Time { return r.left(3) }
func (r run) cutShort() time.Time { return r.left(2) }
func (r run) due() time.Duration {
	if r.timeout <= 0 {
		return math.MaxInt64
	}
	return time.Until(r.left(1))
}

// errLate: the answer is due, and the work goes on without one.
var errLate = errors.New("the work did not end in time for the host, and goes on without it")

// within waits for work, but not longer than the host does, and no longer than settleMargin once work
// has called decided: the host's places are for POSTs. What storage holds up goes on after the answer.
func (r run) within(work func(decided func()) error) error {
	done, decided := make(chan error, 1), make(chan struct{}, 1)
	go func() { done <- r.survive(func() error { return work(func() { decided <- struct{}{} }) }) }()
	late := time.NewTimer(r.due())
	defer late.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-decided:
			late.Reset(min(r.due(), settleMargin))
		case <-late.C:
			return errLate
		}
	}
}

// errPanic: the work ended with a panic, which is in the log.
var errPanic = errors.New("panic")

// survive does work. A panic ends nothing but its own invocation.
func (r run) survive(work func() error) (err error) {
	defer func() {
		if v := recover(); v != nil { // its text may be a payload's
			r.log.Error("panic in an invocation; others go on", "panic", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	return work()
}

// work counts what is under way, whether it was answered or not. Safe for concurrent use.
type work struct {
	// begins ends when nothing new is to be begun, and all when what is under way is cut short.
	begins, all context.Context //nolint:containedctx // the process's, not a request's
	end         context.CancelFunc
	cut         context.CancelCauseFunc

	mu      sync.Mutex
	refused bool
	inside  sync.WaitGroup
}

func newWork() *work {
	w := &work{}
	w.begins, w.end = context.WithCancel(context.Background())
	w.all, w.cut = context.WithCancelCause(context.Background())
	return w
}

// enter returns ctx as one that is cut short with all other work; ok is false after refuse.
func (w *work) enter(ctx context.Context) (_ context.Context, leave func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused {
		return nil, nil, false
	}
	w.inside.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(w.all, func() { cancel(context.Cause(w.all)) })
	return ctx, func() { stop(); cancel(context.Canceled); w.inside.Done() }, true
}

// beginning is ctx as one that also ends when nothing new is to be begun.
func (w *work) beginning(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(w.begins, cancel)
	return ctx, func() { stop(); cancel() }
}

func (w *work) refuse() {
	w.mu.Lock()
	w.refused = true
	w.mu.Unlock()
	w.end()
}
