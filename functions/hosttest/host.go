package hosttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
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
	// Forward makes it an older host, which forwards HTTP requests and knows no proxying.
	Forward bool
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
	pings    int // that were answered after the first
	calls    map[string]*calls
}

// calls are the invocations of one function.
type calls struct{ all, running, most int }

// life is one incarnation of the host: from its start to its stop.
type life struct {
	ctx  context.Context
	end  context.CancelFunc
	work *sync.WaitGroup
}

// handler is one process of the app.
type handler struct {
	cmd  *exec.Cmd
	addr string
	up   chan struct{} // closed when it has answered
	gone chan struct{} // closed when it has ended
	// expected: the host killed it on purpose.
	expected bool
}

// FunctionKey opens functions of authLevel function.
const FunctionKey = "function-key-of-the-fake-host"

// Version is what the fake calls itself.
const Version = "4.1052.200-fake"

const (
	// proxyLimit is the host's own bound on a proxied request.
	proxyLimit = 240 * time.Second
	// pingEvery is how often the host asks whether the handler is well; its interval is
	// longer.
	pingEvery = time.Second
)

// maxFailures is how many ends of the handler stop the host.
const maxFailures = 3

// Start reads the app and runs it until the test ends.
func Start(t testing.TB, o Options) *Host {
	t.Helper()
	if o.Lease == 0 {
		o.Lease = hostLease
	}
	h := &Host{o: o, calls: map[string]*calls{}}
	var err error
	if h.app, err = readApp(o.Root, h.getenv); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, Proxy: nil}
	h.client = &http.Client{Timeout: h.app.timeout + time.Minute, Transport: transport}
	h.proxied = transport.Clone()
	if h.proxied.ResponseHeaderTimeout = o.ProxyLimit; o.ProxyLimit == 0 {
		h.proxied.ResponseHeaderTimeout = proxyLimit
	}
	if h.app.forwarding {
		h.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	h.outer = httptest.NewServer(http.HandlerFunc(h.serveOuter))
	h.begin()
	t.Cleanup(func() {
		h.Stop()
		h.outer.Close()
		h.client.CloseIdleConnections()
		h.proxied.CloseIdleConnections()
	})
	return h
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
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.gone
	}
	l.work.Wait()
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
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.gone
}

// Pid is the handler's.
func (h *Host) Pid() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.handler.cmd.Process.Pid
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

// Pings counts the host's questions after the start whether the handler is well that were
// answered. Nothing follows from one that is not.
func (h *Host) Pings() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pings
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
	l := life{ctx, end, &sync.WaitGroup{}}
	h.mu.Lock()
	h.life, h.failures = l, 0
	h.mu.Unlock()
	h.launch(l)
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
		_ = p.cmd.Process.Kill() // it may have ended
	}
}

// launch starts a process and watches it.
func (h *Host) launch(l life) {
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		h.halt(err)
		return
	}
	addr := free.Addr().String()
	_ = free.Close() // only its number was of interest
	_, port, _ := net.SplitHostPort(addr)
	p := &handler{addr: addr, up: make(chan struct{}), gone: make(chan struct{})}
	p.cmd = exec.Command(h.app.executable, h.app.arguments...)
	p.cmd.Dir = h.o.Root
	p.cmd.Env = append(h.environment(),
		"FUNCTIONS_CUSTOMHANDLER_PORT="+port, "FUNCTIONS_HTTPWORKER_PORT="+port,
		"FUNCTIONS_CUSTOMHANDLER_WORKER_ID=fake", "FUNCTIONS_HTTPWORKER_ID=fake", "FUNCTIONS_APP_ROOT_PATH="+h.o.Root)
	p.cmd.Stdout, p.cmd.Stderr = &h.log.out, &h.log.err
	start := time.Now()
	h.mu.Lock()
	if l.ctx.Err() != nil {
		h.mu.Unlock()
		return
	}
	err = p.cmd.Start()
	if err == nil {
		h.handler = p
	}
	h.mu.Unlock()
	if err != nil {
		h.halt(fmt.Errorf("start the handler: %w", err))
		return
	}
	l.work.Go(func() { h.watch(l, p) })
	l.work.Go(func() { h.probe(l, p, start) })
}

// probe asks every 25 ms until anything answers.
func (h *Host) probe(l life, p *handler, start time.Time) {
	for time.Since(start) < h.app.initTime {
		resp, err := h.client.Get("http://" + p.addr + "/")
		if err == nil {
			_ = resp.Body.Close()
			h.mu.Lock()
			h.started = append(h.started, time.Since(start))
			h.mu.Unlock()
			close(p.up)
			h.ping(l, p)
			return
		}
		select {
		case <-time.After(25 * time.Millisecond):
		case <-p.gone:
			return
		case <-l.ctx.Done():
			return
		}
	}
	h.halt(errors.New("the handler did not answer in time"))
}

// ping goes on to ask as long as the process lives.
func (h *Host) ping(l life, p *handler) {
	for {
		select {
		case <-time.After(pingEvery):
		case <-p.gone:
			return
		case <-l.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(l.ctx, pingEvery)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+"/", nil)
		if err == nil {
			var resp *http.Response
			if resp, err = h.client.Do(req); err == nil {
				_ = resp.Body.Close()
				h.mu.Lock()
				h.pings++
				h.mu.Unlock()
			}
		}
		cancel()
	}
}

// watch waits for the process's end and does what the host does about it.
func (h *Host) watch(l life, p *handler) {
	_ = p.cmd.Wait() // its code is looked at
	close(p.gone)
	code := p.cmd.ProcessState.ExitCode()
	h.mu.Lock()
	expected := p.expected
	if !expected && code != 0 && code != 200 {
		if time.Since(h.lastFail) > 30*time.Minute {
			h.failures = 0
		}
		h.failures++
		h.lastFail = time.Now()
	}
	failures := h.failures
	h.mu.Unlock()
	switch {
	case l.ctx.Err() != nil:
	case !expected && code == 0: // as if it were not needed any more
	case failures >= maxFailures:
		h.halt(fmt.Errorf("the handler ended %d times, the last time with %d", failures, code))
	default:
		h.launch(l)
	}
}

// overrun is the end of a handler one of whose invocations took too long.
func (h *Host) overrun(p *handler) {
	h.mu.Lock()
	p.expected = true
	h.mu.Unlock()
	_ = p.cmd.Process.Kill() // it may have ended
}

// ready waits for a handler that answers, as invocations do.
func (h *Host) ready(ctx context.Context) (*handler, error) {
	deadline := time.After(4 * h.app.initTime)
	for {
		h.mu.Lock()
		p := h.handler
		h.mu.Unlock()
		if p == nil {
			return nil, errors.New("no handler was ever started")
		}
		select {
		case <-p.gone:
		case <-p.up:
			return p, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-deadline:
			err := errors.New("no handler came up in time")
			h.halt(err)
			return nil, err
		}
		select { // a new one is on its way
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
