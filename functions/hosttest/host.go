package hosttest

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Options say what to run.
type Options struct {
	// Root is the folder of the unpacked app.
	Root string
	// Storage is the app setting AzureWebJobsStorage, a connection string with a key.
	Storage string
	// Env are the other app settings, over the environment of the test.
	Env []string
	// Lease is how long a message is received for; zero means the host's 10 minutes.
	// Half of it later the host renews it. The app is told of 10 minutes in any case.
	Lease time.Duration
	// StoragesClock is how far storage's clock is ahead of the one here, in what the app is
	// told; the app's storage has to say so too.
	StoragesClock time.Duration
	// ProxyLimit is how long a proxied request may be without an answer; zero means the
	// host's 240 s.
	ProxyLimit time.Duration
	// Overlap is how long the handler from before a restart inside may finish what it has; zero
	// means the 20 s that were seen.
	Overlap time.Duration
	// Unread has nobody read what the app logs: the pipe is full soon.
	Unread bool
	// Forward makes it an older host, which forwards HTTP requests and knows no proxying.
	Forward bool
	// BelowFunction has a proxying host call /<function> and then the path.
	BelowFunction bool
}

// Host is a running fake. Its methods may be called from any goroutine.
type Host struct {
	o      Options
	app    app
	client *http.Client
	// proxied is the client's transport with the bound that proxying has.
	proxied *http.Transport
	outer   *httptest.Server
	log     log

	mu       sync.Mutex
	life     life // of the current incarnation
	handler  *handler
	failures int
	lastFail time.Time
	stopped  error // why the host has stopped by itself
	poisoned []string
	passed   int // deletes that failed and were passed over
	started  []time.Duration
	ticked   map[string]time.Time // when each timer last ran
	calls    map[string]*calls
}

// calls are the invocations of one function.
type calls struct{ all, running, most int }

// life is one incarnation of the host: from its start to its stop.
type life struct {
	ctx  context.Context
	end  context.CancelFunc
	work *sync.WaitGroup
	// receiving ends when the listeners stop, at the end of life or before.
	receiving context.Context
	drain     context.CancelFunc
	// calls are the invocations under way.
	calls *sync.WaitGroup
}

// FunctionKey opens functions of authLevel function.
const FunctionKey = "function-key-of-the-fake-host"

// Version is that of the host that the fake is compared with.
const Version = "4.1037.0.0"

const (
	userAgent    = "Azure-Functions-Host/" + Version
	invocationID = "X-Azure-Functions-InvocationId"
	hostVersion  = "X-Azure-Functions-HostVersion"
)

const (
	// proxyLimit is the host's own bound on a proxied request.
	proxyLimit = 240 * time.Second
	// grace is how long a handler goes on after one of its invocations has taken too long.
	grace = 2 * time.Second
)

// maxFailures is how many ends of the handler stop the host.
const maxFailures = 3

// Start reads the app and runs it until the test ends.
func Start(t testing.TB, o Options) *Host {
	t.Helper()
	if o.Lease == 0 {
		o.Lease = hostLease
	}
	if o.Overlap == 0 {
		o.Overlap = longestOverlap
	}
	h := &Host{o: o}
	a, err := readApp(o.Root, h.getenv)
	if err != nil {
		t.Fatal(err)
	}
	h.open(t, a)
	h.begin()
	t.Cleanup(h.Stop)
	return h
}

// open takes the requests from outside until the test ends.
func (h *Host) open(t testing.TB, a app) {
	h.app, h.calls, h.ticked = a, map[string]*calls{}, map[string]time.Time{}
	transport := &http.Transport{MaxIdleConnsPerHost: -1, DisableCompression: true, Proxy: nil} // what is lost is sent again here, and not by the transport
	h.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if a.timeout > 0 {
		h.client.Timeout = a.timeout + time.Minute
	}
	h.proxied = transport.Clone()
	if h.proxied.ResponseHeaderTimeout = h.o.ProxyLimit; h.o.ProxyLimit == 0 {
		h.proxied.ResponseHeaderTimeout = proxyLimit
	}
	h.outer = httptest.NewServer(http.HandlerFunc(h.serveOuter))
	t.Cleanup(func() {
		h.outer.Close()
		h.client.CloseIdleConnections()
		h.proxied.CloseIdleConnections()
	})
}

// URL is where the app is reached from outside.
func (h *Host) URL() string { return h.outer.URL }

// Stop ends the host: SIGKILL for the handler, and what is leased stays so.
func (h *Host) Stop() {
	h.mu.Lock()
	l, p := h.life, h.handler
	l.end()
	h.mu.Unlock()
	if p != nil {
		p.kill()
		<-p.gone
	}
	l.work.Wait()
}

// Drain stops the listeners and waits for the invocations under way. Requests are passed on as
// before.
func (h *Host) Drain() {
	h.mu.Lock()
	l := h.life
	h.mu.Unlock()
	l.drain()
	l.calls.Wait()
}

// Stopping says whether its listeners have stopped: it receives no more messages.
func (h *Host) Stopping() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life.receiving.Err() != nil
}

// interruptPatience is how long a host that is interrupted waits for its invocations.
const interruptPatience = 10 * time.Second

// longestOverlap is the longest that was seen of two handlers.
const longestOverlap = 20 * time.Second

// RestartInside is what a changed host.json does: a new handler at an address of its own runs beside
// the old one, which finishes what is in flight and is killed.
func (h *Host) RestartInside() {
	h.mu.Lock()
	old, p := h.life, h.handler
	h.mu.Unlock()
	old.drain()
	h.begin()
	ended := make(chan struct{})
	go func() { old.calls.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(h.o.Overlap):
	}
	old.end()
	p.kill()
	<-p.gone
	old.work.Wait()
}

// Interrupt is SIGINT for the host: it waits a while for its invocations, and leaves the handler
// running.
func (h *Host) Interrupt() (orphan <-chan struct{}) {
	ended := make(chan struct{})
	go func() { h.Drain(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(interruptPatience):
	}
	return h.Vanish()
}

// Terminate is SIGTERM for the host, which goes on as if nothing had come.
func (h *Host) Terminate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.handler.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
}

// Vanish is SIGKILL for the host: it settles nothing, and leaves the handler running, of which nobody
// reads any more what it logs. orphan is closed when that has ended too.
func (h *Host) Vanish() (orphan <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.life.end()
	_ = h.handler.cmd.Process.Kill() // it may have ended
	h.handler.unread()
	return h.handler.gone
}

// Restart stops the host and starts it again, as the platform does now and then.
func (h *Host) Restart() {
	h.Stop()
	h.begin()
}

// Crash ends the handler as kill -9 does; the host goes on.
func (h *Host) Crash() {
	h.mu.Lock()
	p := h.handler
	h.mu.Unlock()
	p.kill()
	<-p.gone
}

// Pid is the handler's.
func (h *Host) Pid() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.handler.pid
}

// Address is where the handler listens, for requests past the host.
func (h *Host) Address() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.handler.addr
}

// Stopped says why the host has stopped by itself; nil while it runs.
func (h *Host) Stopped() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped
}

// Poisoned are the ids of the messages that the host, not the app, moved away.
func (h *Host) Poisoned() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.poisoned...)
}

// PassedOver counts the deletes of the host that failed because the app had given the
// message back.
func (h *Host) PassedOver() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.passed
}

// Calls counts the invocations of a function, and the most at a time.
func (h *Host) Calls(name string) (n, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.callsOf(name)
	return c.all, c.most
}

// Running counts the invocations of a function that are under way.
func (h *Host) Running(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.callsOf(name).running
}

func (h *Host) callsOf(name string) *calls {
	if h.calls[name] == nil {
		h.calls[name] = &calls{}
	}
	return h.calls[name]
}

// StartTimes are how long each process took from its start to its first answer.
func (h *Host) StartTimes() []time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]time.Duration(nil), h.started...)
}

// Log is what the handler has written, standard output and standard error apart.
func (h *Host) Log() (stdout, stderr string) { return h.log.out.String(), h.log.err.String() }

type log struct{ out, err buffer }

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (h *Host) getenv(name string) string {
	value := ""
	for _, line := range h.environment() {
		if v, ok := strings.CutPrefix(line, name+"="); ok {
			value = v
		}
	}
	return value
}

// environment is the app's: the test's without what would steer the app.
func (h *Host) environment() []string {
	var env []string
	for _, line := range os.Environ() {
		if !strings.HasPrefix(line, "PUSHLEASE_") && !strings.HasPrefix(line, "FUNCTIONS_") &&
			!strings.HasPrefix(line, "AzureWebJobs") && !strings.HasPrefix(line, "OTEL_") {
			env = append(env, line)
		}
	}
	env = append(env, "FUNCTIONS_WORKER_RUNTIME=custom", "AzureWebJobsStorage="+h.o.Storage)
	return append(env, h.o.Env...)
}

// begin starts an incarnation: the handler, and a listener for each queue trigger.
func (h *Host) begin() {
	ctx, end := context.WithCancel(context.Background())
	receiving, drain := context.WithCancel(ctx)
	l := life{ctx, end, &sync.WaitGroup{}, receiving, drain, &sync.WaitGroup{}}
	h.mu.Lock()
	h.life, h.failures = l, 0
	h.mu.Unlock()
	addr, free := ownAddress()
	context.AfterFunc(ctx, free)
	h.launch(l, addr)
	for _, f := range h.app.functions {
		if strings.EqualFold(f.binding.Type, "queueTrigger") {
			h.listen(l, f)
		}
	}
}

// halt is the host's own end, after which nothing works any more.
func (h *Host) halt(why error) {
	h.mu.Lock()
	if h.stopped == nil {
		h.stopped = why
	}
	l, p := h.life, h.handler
	h.mu.Unlock()
	l.end()
	if p != nil {
		p.kill()
	}
}
