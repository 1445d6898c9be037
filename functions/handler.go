package functions

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushlease/pushlease/dispatcher"
	"github.com/pushlease/pushlease/queue"
)

// The names of the timer functions: what a timer runs is told by its folder's name.
const (
	timerPump         = "pump"
	timerHousekeeping = "housekeeping"
)

// startPatience is how long a request waits for the rest of the process to be up, or
// half of the function timeout if that is less.
const startPatience = 20 * time.Second

// Parts are what invocations and requests are handled with.
type Parts struct {
	Dispatcher *dispatcher.Dispatcher
	Queues     queue.Service
	// API serves /api/v1 and, under their usual names, health and metrics.
	API http.Handler
	// Housekeep removes what has expired; it returns when ctx ends, or before.
	Housekeep func(ctx context.Context) error
	Log       *slog.Logger
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
	work   *work

	first  sync.Once
	called chan struct{} // closed by the first request
}

// New makes the handler of an app that the host reaches at addr, 127.0.0.1:port.
func New(addr string, layout Layout) *Handler {
	return &Handler{addr: addr, layout: layout, up: make(chan struct{}), pumps: make(chan struct{}, 1), work: newWork(), called: make(chan struct{})}
}

// Called is closed when anybody has called. The host does so as soon as the port is open.
func (h *Handler) Called() <-chan struct{} { return h.called }

// Start lets in what waits. Call it once.
func (h *Handler) Start(p Parts) {
	h.parts = p
	close(h.up)
}

// Finish takes nothing new, and returns when what is under way has ended. That is cut short when
// until ends, with its cause: what it was about is given back.
func (h *Handler) Finish(until context.Context) {
	h.work.refuse()
	defer context.AfterFunc(until, func() { h.work.cut(context.Cause(until)) })()
	h.work.inside.Wait()
}

// healthPaths are reachable from outside under the API's prefix only.
var healthPaths = map[string]string{
	"/api/v1/healthz": "/healthz", "/api/v1/readyz": "/readyz", "/api/v1/metrics": "/metrics",
}

// ServeHTTP tells the host's own requests from those it passes on. Its probe is GET /;
// what it passes on is /api or under it; an invocation is a POST to exactly /<function>.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	h.first.Do(func() { close(h.called) })
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
	lower := strings.ToLower(r.URL.Path) // the host's routes know no case
	if strings.HasPrefix(lower, "/"+usualPrefix+"/") {
		h.serveAPI(w, asPublished(r), arrived)
		return
	}
	f, ok := h.layout.Functions[strings.TrimPrefix(r.URL.Path, "/")]
	if !ok || f.Trigger == httpTrigger || lower == "/"+usualPrefix {
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

// published is where the API is in serve.
const published = "/api/v1"

// asPublished is a request for the API with the path that it has in serve. The host's routes know no
// case in the part of a path that is theirs. Some hosts call /<function> and then the path, and the
// function's name is api.
func asPublished(r *http.Request) *http.Request {
	r = r.Clone(r.Context())
	for _, called := range []string{published, "/api" + published} {
		if rest, ok := below(r.URL.Path, called); ok {
			r.URL.Path = published + rest
			if raw, ok := below(r.URL.RawPath, called); ok {
				r.URL.RawPath = published + raw
			}
			break
		}
	}
	if path, ok := healthPaths[r.URL.Path]; ok {
		r.URL.Path, r.URL.RawPath = path, ""
	}
	return r
}

// below is the rest of a path that begins with prefix, in capitals or not.
func below(path, prefix string) (rest string, ok bool) {
	if len(path) < len(prefix) || !strings.EqualFold(path[:len(prefix)], prefix) {
		return "", false
	}
	rest = path[len(prefix):]
	return rest, rest == "" || rest[0] == '/'
}

// apiRead is how long a request for the API may take to be read, as in serve.
const apiRead = time.Minute

// serveAPI ends a request before the function timeout, which would end this process: whatever its caller
// sends late, or whoever is slow that it asks.
func (h *Handler) serveAPI(w http.ResponseWriter, r *http.Request, arrived time.Time) {
	b := bounded{ResponseWriter: w}
	if in := (run{began: arrived, timeout: h.layout.Timeout}); in.timeout > 0 {
		b.read, b.write = in.cutShort(), in.left(1)
		ctx, cancel := context.WithDeadline(r.Context(), b.read)
		defer cancel()
		r = r.WithContext(ctx)
	}
	if r.ContentLength != 0 { // without a body net/http reads on to see whether the caller leaves: at its deadline he would have left
		_ = b.SetReadDeadline(arrived.Add(apiRead)) // not every server has deadlines
	}
	_ = b.SetWriteDeadline(time.Time{})
	h.parts.API.ServeHTTP(b, r)
}

// bounded are answers whose deadlines are no later than the host allows, whatever is asked for.
type bounded struct {
	http.ResponseWriter
	read, write time.Time // zero where the host waits for ever
}

// Unwrap is for http.ResponseController.
func (b bounded) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b bounded) SetReadDeadline(at time.Time) error {
	return http.NewResponseController(b.ResponseWriter).SetReadDeadline(earlier(at, b.read))
}

func (b bounded) SetWriteDeadline(at time.Time) error {
	return http.NewResponseController(b.ResponseWriter).SetWriteDeadline(earlier(at, b.write))
}

// earlier is the earlier one of two deadlines, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
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
// the host passes on from outside keeps its Host or is marked by the host's proxy. It may come to any path: a host that
// forwards decodes the path once more, and resolves what looks like /../ then.
func (h *Handler) forged(r *http.Request) string {
	switch {
	case r.Method != http.MethodPost:
		return "it is no POST"
	case r.Host != h.addr:
		return "it is addressed to another host"
	case len(r.Header.Values(invocationID)) != 1 || !guid.MatchString(r.Header.Get(invocationID)):
		return "it has not one invocation id" // a host that forwards puts a client's own before its own
	case r.ContentLength >= 0:
		return "it is not in chunks as the host's own are" // what is forwarded never is
	}
	for name := range r.Header {
		if name == "Forwarded" || slices.ContainsFunc(passedOn, func(mark string) bool { return strings.HasPrefix(name, mark) }) {
			return "it was passed on by a proxy"
		}
	}
	return ""
}

// invoke handles one invocation. It goes on when the host hangs up, since what is
// being POSTed has to be recorded.
func (h *Handler) invoke(w http.ResponseWriter, r *http.Request, f Function, arrived time.Time) {
	id := r.Header.Get(invocationID)
	in := run{f: f, id: id, began: arrived, log: h.parts.Log.With("function", f.Name, "invocation", id)}
	inv, err := readInvocation(r)
	if err != nil {
		in.log.Error("the invocation can't be read", "error", err)
		answer(w, http.StatusBadRequest)
		return
	}
	handle, timeout := h.timer, tickTimeout(h.layout.Timeout)
	if f.Trigger == queueTrigger {
		handle, timeout = h.message, h.layout.Timeout
	}
	in.begin(inv.calledAt(f), timeout)
	ctx, leave, ok := h.work.enter(context.WithoutCancel(r.Context()))
	if !ok {
		answer(w, http.StatusServiceUnavailable)
		return
	}
	if err := in.within(func(decided func()) error { defer leave(); return handle(ctx, in, inv, decided) }); err != nil {
		in.log.Error("the invocation failed", "error", err)
		answer(w, http.StatusInternalServerError)
		return
	}
	answer(w, http.StatusOK)
}

// message handles one message. An error makes the host give it back, unless it was taken over.
func (h *Handler) message(ctx context.Context, in run, inv invocation, decided func()) error {
	m, err := readMessage(inv, in.f)
	if err != nil {
		return err
	}
	q, err := h.parts.Queues.Queue(in.f.Queue)
	if err != nil {
		return fmt.Errorf("open queue: %w", err)
	}
	if in.timeout > 0 {
		ctx = dispatcher.WithPostDeadline(ctx, in.postsEnd(), in.timeout/4)
	}
	result, err := h.parts.Dispatcher.HandleHosted(ctx, q, m, decided)
	if err != nil {
		return err
	}
	in.log.Info("message settled", "queue", in.f.Queue, "message", m.ID, "delivery_count", m.DequeueCount,
		"settled", result)
	if result.Settled() {
		return nil
	}
	return fmt.Errorf("the message %s could not be settled: it comes back when its lease ends", m.ID)
}
