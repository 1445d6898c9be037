package azuritetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy stands in front of an Azurite's two services and injects faults.
// Requests pass through with path, query and headers as they came, so that
// their signatures stay valid. Safe for concurrent use.
type Proxy struct {
	// QueueURL and TableURL are the service addresses, account included.
	QueueURL, TableURL string

	t       testing.TB
	forward *http.Transport
	ends    []*end

	mu       sync.Mutex
	rules    []*rule
	requests []Request
	stale400 bool
}

// Match picks the calls that a fault is for.
type Match struct {
	// Service is "queue" or "table"; empty matches both.
	Service string
	// Operation is one of the names that Request.Operation has; empty matches
	// all.
	Operation string
	// Path is a part of the path that is asked for; empty matches all.
	Path string
	// From and To are the first and the last call that the fault is for,
	// counted over the calls that match since the rule was added, the next one
	// being 1. From 0 means 1, To 0 means for ever.
	From, To int
	// Rate is the share of these calls that the fault is for, picked at random; 0
	// means all. Seed makes the picks: the same one gives the same picks, call by
	// call. Rules with different seeds pick independently.
	Rate float64
	Seed uint64
}

// Request is one request that reached the proxy.
type Request struct {
	// Service is "queue" or "table".
	Service string
	// Operation names what was asked for. Queue: list, create, delete-queue,
	// depth, set-metadata, receive, peek, send, clear, update (renew and
	// abandon), delete (complete). Table: list-tables, create-table,
	// delete-table, batch, insert, query, get, merge, replace, delete-entity.
	Operation string
	Method    string
	// Path is as on the wire, escapes included; so is Query.
	Path, Query string
	// BodySize counts the bytes of the body.
	BodySize int
}

// Proxy starts a proxy that ends with the test. It answers a stale receipt
// with the real service's 404 MessageNotFound; see StaleReceipt400.
func (a *Azurite) Proxy(t testing.TB) *Proxy {
	t.Helper()
	p := &Proxy{t: t, forward: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}}
	t.Cleanup(p.close)
	p.QueueURL = p.listen("queue", a.QueueURL)
	p.TableURL = p.listen("table", a.TableURL)
	return p
}

// ConnectionString names both services behind the proxy.
func (p *Proxy) ConnectionString() string { return connectionString(p.QueueURL, p.TableURL) }

// Fault adds a rule. Every rule that matches a call is applied, in the order
// in which the rules were added.
func (p *Proxy) Fault(m Match, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &rule{Match: m, Fault: f, random: rand.New(rand.NewPCG(m.Seed, 0))})
}

// Heal removes all rules.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
}

// StaleReceipt400 makes the proxy pass on Azurite's (and Microsoft's
// documented, but never seen) 400 PopReceiptMismatch.
func (p *Proxy) StaleReceipt400() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stale400 = true
}

// Count is how many requests of this kind reached the proxy, failed ones
// included. An empty service or operation counts all.
func (p *Proxy) Count(service, operation string) int {
	n := 0
	for _, r := range p.Requests() {
		if matches(service, r.Service) && matches(operation, r.Operation) {
			n++
		}
	}
	return n
}

// Requests lists what reached the proxy, in the order of arrival.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Down refuses connections to both services and cuts those there are.
func (p *Proxy) Down() {
	for _, e := range p.ends {
		e.stop()
	}
}

// Up ends Down, on the same addresses.
func (p *Proxy) Up() {
	for _, e := range p.ends {
		if err := e.start(); err != nil {
			p.t.Errorf("proxy: listen again: %v", err)
		}
	}
}

func (p *Proxy) close() {
	p.Down()
	p.forward.CloseIdleConnections()
}

type rule struct {
	Match
	Fault
	calls  int
	random *rand.Rand
}

// hits counts a call that matches, and reports whether the fault is for it.
func (r *rule) hits() bool {
	r.calls++
	if r.calls < max(r.From, 1) || r.To != 0 && r.calls > r.To {
		return false
	}
	return r.Rate == 0 || r.random.Float64() < r.Rate
}

func matches(want, got string) bool { return want == "" || want == got }

// arrive notes a request and returns the faults for it.
func (p *Proxy) arrive(r Request) (faults []Fault, stale404 bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r)
	for _, rule := range p.rules {
		if !matches(rule.Service, r.Service) || !matches(rule.Operation, r.Operation) || !strings.Contains(r.Path, rule.Path) {
			continue
		}
		if rule.hits() {
			faults = append(faults, rule.Fault)
		}
	}
	return faults, !p.stale400
}

// handle serves one service at target, a URL without path.
func (p *Proxy) handle(service, target string, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the caller hung up
	}
	x := &exchange{
		Request: Request{
			Service: service, Operation: operation(service, r), Method: r.Method,
			Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, BodySize: len(body),
		},
		ctx: r.Context(), query: r.URL.RawQuery,
	}
	faults, stale404 := p.arrive(x.Request)
	var a *answer
	for _, f := range faults {
		if f.before != nil && a == nil {
			a = f.before(x)
		}
	}
	if a == nil {
		if a, err = p.ask(x, target, r.Header, body); err != nil {
			a = cut()
		}
	}
	if stale404 && a.status == http.StatusBadRequest && a.header.Get(errorCodeHeader) == "PopReceiptMismatch" {
		a = failure(service, http.StatusNotFound, "MessageNotFound")
	}
	for _, f := range faults {
		if f.after != nil {
			f.after(x, a)
		}
	}
	a.write(x.ctx, w)
}

// ask passes the request on. It goes on when the caller hangs up, so that a
// call either reached storage or did not, whatever the timing.
func (p *Proxy) ask(x *exchange, target string, header http.Header, body []byte) (*answer, error) {
	url := target + x.Path
	if x.query != "" {
		url += "?" + x.query
	}
	out, err := http.NewRequestWithContext(context.WithoutCancel(x.ctx), x.Method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.Header = header.Clone()
	out.Header.Del("Accept-Encoding") // answers are read here
	out.Header.Del("Connection")
	res, err := p.forward.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	return &answer{status: res.StatusCode, header: res.Header, body: text}, nil
}

// answer is what the caller will get.
type answer struct {
	status int
	header http.Header
	body   []byte
	// cut ends the connection in place of an answer.
	cut bool
	// bodyDelay passes between the header and the body.
	bodyDelay time.Duration
}

func cut() *answer { return &answer{cut: true, header: http.Header{}} }

func (a *answer) write(ctx context.Context, w http.ResponseWriter) {
	if a.cut {
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	maps.Copy(w.Header(), a.header)
	for _, hop := range []string{"Connection", "Keep-Alive", "Transfer-Encoding"} {
		w.Header().Del(hop)
	}
	if a.status != http.StatusNoContent && a.status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	if a.bodyDelay > 0 {
		_ = http.NewResponseController(w).Flush()
		pause(ctx, a.bodyDelay)
	}
	_, _ = w.Write(a.body) // fails when the caller hung up
}

// pause returns false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// end is one listening address of the proxy.
type end struct {
	address string
	handler http.Handler
	mu      sync.Mutex
	server  *http.Server // nil while down
	served  sync.WaitGroup
	// handling is read-locked by every call, so that stop can wait for them.
	handling sync.RWMutex
}

func (p *Proxy) listen(service, target string) string {
	p.t.Helper()
	origin := target[:len(target)-len("/"+account)]
	e := &end{address: "127.0.0.1:0"}
	e.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.handling.RLock()
		defer e.handling.RUnlock()
		p.handle(service, origin, w, r)
	})
	if err := e.start(); err != nil {
		p.t.Fatalf("proxy: %v", err)
	}
	p.ends = append(p.ends, e)
	return "http://" + e.address + "/" + account
}

func (e *end) start() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server != nil {
		return errors.New("it is up")
	}
	l, err := net.Listen("tcp", e.address)
	if err != nil {
		return err
	}
	e.address = l.Addr().String()
	server := &http.Server{Handler: e.handler, ReadHeaderTimeout: time.Minute}
	e.server = server
	e.served.Go(func() { _ = server.Serve(l) }) // always ErrServerClosed
	return nil
}

func (e *end) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server != nil {
		_ = e.server.Close()
		e.server = nil
	}
	e.served.Wait()
	e.handling.Lock() // the calls' contexts have ended with their connections
	defer e.handling.Unlock()
}
