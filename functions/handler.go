package functions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/dispatcher"
	"github.com/pushlease/pushlease/queue"
)

// The names of the timer functions: what a timer runs is told by its folder's name.
const (
	timerPump         = "pump"
	timerHousekeeping = "housekeeping"
)

const (
	// startPatience is how long a request waits for the rest of the process to be up, or
	// half of the function timeout if that is less.
	startPatience = 20 * time.Second
	// renewMargin is how long before the host renews a lease a POST must have ended.
	renewMargin = 30 * time.Second
)

// Parts are what invocations and requests are handled with.
type Parts struct {
	Dispatcher *dispatcher.Dispatcher
	Queues     queue.Service
	// Encoding is the setting of a queue.
	Encoding func(queue string) queue.Encoding
	// API serves /api/v1 and, under their usual names, health and metrics.
	API http.Handler
	// ClockAhead is how far the clock here is ahead of storage's, which dates the host's
	// leases; nil or not known is taken for not at all.
	ClockAhead func() (ahead time.Duration, known bool)
	// Housekeep removes what has expired; it returns when ctx ends, or before.
	Housekeep func(ctx context.Context) error
	// Work ends, with a cause, when what is under way has to be cut short.
	Work context.Context //nolint:containedctx // the process's, not a request's
	Log  *slog.Logger
}

// Handler is the custom handler's HTTP side. It answers the host's readiness probe
// from the beginning, and everything else from Start on.
type Handler struct {
	// addr is the only Host that an invocation may name.
	addr   string
	layout Layout
	parts  Parts
	up     chan struct{}
	pumps  chan struct{} // holds one: a pump that comes late does not join another
}

// New makes the handler of an app that the host reaches at addr, 127.0.0.1:port.
func New(addr string, layout Layout) *Handler {
	return &Handler{addr: addr, layout: layout, up: make(chan struct{}), pumps: make(chan struct{}, 1)}
}

// Start lets in what waits. Call it once.
func (h *Handler) Start(p Parts) {
	h.parts = p
	close(h.up)
}

// healthPaths are reachable from outside under the API's prefix only.
var healthPaths = map[string]string{
	"/api/v1/healthz": "/healthz", "/api/v1/readyz": "/readyz", "/api/v1/metrics": "/metrics",
}

// ServeHTTP tells the host's own requests from those it passes on. Its probe is GET /;
// what it passes on is under /api/; an invocation is a POST to exactly /<function>.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	if r.URL.Path == "/" {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"status":"ok"}`)) // the host takes any answer
		return
	}
	if !h.wait(r.Context()) {
		w.Header().Set("Retry-After", "5")
		answer(w, http.StatusServiceUnavailable)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/api/") {
		if path, ok := healthPaths[r.URL.Path]; ok {
			r = r.Clone(r.Context())
			r.URL.Path, r.URL.RawPath = path, ""
		}
		h.parts.API.ServeHTTP(w, r)
		return
	}
	f, ok := h.layout.Functions[strings.TrimPrefix(r.URL.Path, "/")]
	if !ok || f.Trigger == httpTrigger {
		answer(w, http.StatusNotFound)
		return
	}
	if why := h.forged(r); why != "" {
		h.parts.Log.Warn("an invocation that does not come from the host was refused; keep the prefix api in host.json", "function", f.Name, "why", why)
		answer(w, http.StatusForbidden)
		return
	}
	h.invoke(w, r, f, arrived)
}

func (h *Handler) wait(ctx context.Context) bool {
	patience := startPatience
	if h.layout.Timeout > 0 {
		patience = min(patience, h.layout.Timeout/2)
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-h.up:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

const invocationID = "X-Azure-Functions-InvocationId"

// passedOn begin the headers that proxies add; X-Ms-Invocation-Id is what the host itself
// puts on each request from outside, and on no invocation.
var passedOn = []string{"X-Forwarded", "X-Original-", "X-Arr-", "X-Ms-"}

// forged says why a request can't be an invocation by the host; empty when it can. What
// the host passes on from outside keeps its Host or is marked by the host's proxy.
func (h *Handler) forged(r *http.Request) string {
	switch {
	case r.Method != http.MethodPost:
		return "it is no POST"
	case r.Host != h.addr:
		return "it is addressed to another host"
	case len(r.Header.Values(invocationID)) != 1 || r.Header.Get(invocationID) == "":
		return "it has not one invocation id"
	}
	for name := range r.Header {
		if name == "Forwarded" || slices.ContainsFunc(passedOn, func(mark string) bool { return strings.HasPrefix(name, mark) }) {
			return "it was passed on by a proxy"
		}
	}
	return ""
}

// run is one invocation under way.
type run struct {
	f   Function
	id  string
	log *slog.Logger
	// arrived is when the host's patience began, a wait for the start included.
	arrived time.Time
	timeout time.Duration
}

// share is a part of the time that the host gives, counted from the beginning. The host
// must never wait for its timeout: it would kill the process, and with it all other
// invocations. POSTs end at 3/4, and the answer is given at 9/10 whatever happens.
func (r run) share(num, of int64) time.Time {
	return r.arrived.Add(r.timeout * time.Duration(num) / time.Duration(of))
}

// end is when the POSTs for a message have to be over whose receipt may be stale after
// until. Where the clock here is behind storage's and nobody knows, the host's renewal
// still comes no later than so long after the arrival.
func (r run) end(until time.Time) time.Time {
	end := r.share(3, 4)
	for _, t := range []time.Time{until, r.arrived.Add(hostRenews)} {
		if t = t.Add(-renewMargin); t.Before(end) {
			end = t
		}
	}
	return end
}

// invoke handles one invocation. It goes on when the host hangs up, since what is
// being POSTed has to be recorded.
func (h *Handler) invoke(w http.ResponseWriter, r *http.Request, f Function, arrived time.Time) {
	id := r.Header.Get(invocationID)
	in := run{
		f: f, id: id, arrived: arrived, timeout: h.layout.Timeout,
		log: h.parts.Log.With("function", f.Name, "invocation", id),
	}
	inv, err := readInvocation(r)
	if err != nil {
		in.log.Error("the invocation can't be read", "error", err)
		answer(w, http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(context.Canceled)
	defer context.AfterFunc(h.parts.Work, func() { cancel(context.Cause(h.parts.Work)) })()
	handle := h.timer
	if f.Trigger == queueTrigger {
		handle = h.message
	}
	if err := handle(ctx, in, inv); err != nil {
		in.log.Error("the invocation failed", "error", err)
		answer(w, http.StatusInternalServerError)
		return
	}
	answer(w, http.StatusOK)
}

// errLate: the answer is due, and the work goes on without one.
var errLate = errors.New("the work did not end within the host's function timeout")

// message handles one message. An error makes the host give it back.
func (h *Handler) message(ctx context.Context, in run, inv invocation) error {
	d, err := readMessage(inv, in.f)
	if err != nil {
		return err
	}
	q, err := h.parts.Queues.Queue(in.f.Queue)
	if err != nil {
		return fmt.Errorf("open queue: %w", err)
	}
	if d.doubtful {
		return in.within(func() error { return h.resend(ctx, in, q, d.message.Text) })
	}
	in = h.byOurClock(in, &d)
	end := in.end(d.until)
	if !end.After(time.Now()) {
		return errors.New("the host has renewed the lease already, after a wait: the host gives the message back")
	}
	d.message.Lease.Renewed(d.message.Lease.Receipt(), in.arrived, end.Sub(in.arrived))
	return h.settle(ctx, in, &hostedQueue{Queue: q}, d.message)
}

// byOurClock turns the times of storage's clock into those of ours. The host's patience
// began when it received the message, at the latest: a wait for this process to be
// started counts too.
func (h *Handler) byOurClock(in run, d *delivered) run {
	if h.parts.ClockAhead == nil {
		return in
	}
	ahead, known := h.parts.ClockAhead()
	if !known {
		return in
	}
	d.until = d.until.Add(ahead)
	if received := d.until.Add(-hostRenews); received.Before(in.arrived) {
		in.arrived = received
	}
	return in
}

// settle waits for the message to be settled, but not longer than the host does.
func (h *Handler) settle(ctx context.Context, in run, q *hostedQueue, m *queue.Message) error {
	type outcome struct {
		decision dispatcher.Outcome
		result   string
	}
	done := make(chan outcome, 1)
	go func() {
		decision, result := h.parts.Dispatcher.HandleHosted(ctx, q, m)
		done <- outcome{decision, result}
	}()
	late := time.NewTimer(time.Until(in.share(9, 10)))
	defer late.Stop()
	select {
	case o := <-done:
		abandoned := q.close()
		if !abandoned && o.result != "deleted" {
			return fmt.Errorf("the message %s could not be settled (%s): the host gives it back", m.ID, o.result)
		}
		in.log.Info("message settled", "queue", in.f.Queue, "message", m.ID, "delivery_count", m.DequeueCount,
			"decision", o.decision.Action, "reason", o.decision.Reason, "delay", o.decision.Delay.String(), "settled", o.result)
		return nil
	case <-late.C:
		if q.close() {
			return nil
		}
		return errLate
	}
}

// within waits for work, but not longer than the host does. What storage holds up goes on
// after the answer.
func (r run) within(work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	late := time.NewTimer(time.Until(r.share(9, 10)))
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return errLate
	}
}

// resend puts a message whose id and receipt can't be trusted on the queue anew, as
// the same body in an envelope, and lets the host delete it. One that can't be sent so is
// a dead letter with its whole text: nothing else would end its way, since it can't be
// told from others, nor given back.
func (h *Handler) resend(ctx context.Context, in run, q queue.Queue, text []byte) error {
	in.log.Error(`what the host says about the message may be the message's own words, so it is sent anew under another id; set "dataType": "binary" in the function's function.json`,
		"queue", in.f.Queue)
	again, err := wrapped(h.parts.Encoding(in.f.Queue), text)
	if errors.Is(err, queue.ErrTooLarge) || errors.Is(err, queue.ErrUndecodable) {
		return h.parts.Dispatcher.GiveUp(ctx, in.f.Queue, &queue.Message{ID: in.id, Text: text, InsertedAt: time.Now().UTC()})
	}
	if err != nil {
		return fmt.Errorf("wrap: %w", err)
	}
	sent, err := q.Send(ctx, again, queue.SendOptions{})
	if err != nil {
		return fmt.Errorf("send anew: %w", err)
	}
	in.log.Info("message sent anew", "queue", in.f.Queue, "message", sent.ID)
	return nil
}
