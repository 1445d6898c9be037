//go:build linux

package main

import (
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/wire"
	"github.com/pushlease/pushlease/policy"
)

// server returns an address of a far server.
func server(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 1, n}) }

// far is what is at the other end of a wire: a receiver, and the name server of the program.
type far struct {
	*wire.Wire
	t        *testing.T
	receiver *wireReceiver
	url      string // of the receiver, under its name
	ca       string // the file with its certificate; empty without TLS

	names *nameServer
}

// receiverName is the one that the certificate of httptest is for.
const receiverName = "example.com"

// startFar makes a wire and what is at its far end. The receiver takes its time for each answer, so
// that several connections are in use.
func startFar(t *testing.T, protocol string, takes time.Duration) *far {
	t.Helper()
	f := &far{Wire: wire.New(t), t: t, receiver: newWireReceiver(takes)}
	f.names = startNames(t, f.Wire)
	f.names.isAt(receiverName, server(1))
	l, err := f.Far.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(f.receiver)
	_ = s.Listener.Close() // the one that it made for itself
	s.Listener = l
	scheme := "http"
	if s.EnableHTTP2 = protocol == "HTTP/2"; s.EnableHTTP2 {
		scheme = "https"
		s.StartTLS()
		f.ca = filepath.Join(t.TempDir(), "ca.pem")
		certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		if err := os.WriteFile(f.ca, certificate, 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		s.Start()
	}
	t.Cleanup(func() { hangUp(s) })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	f.url = scheme + "://" + net.JoinHostPort(receiverName, port)
	return f
}

// start starts the program at the near end, on a SQLite file. Its API is reached from here.
func (f *far) start(settings ...string) *process {
	f.t.Helper()
	return f.startOn(sqliteStore(f.t), settings...)
}

// startOn is start on a store that is reached from there.
func (f *far) startOn(s *store, settings ...string) *process {
	f.t.Helper()
	resolver := filepath.Join(f.t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolver, []byte("nameserver "+server(53).String()+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	s.begin = func(cmd *exec.Cmd) error {
		cmd.Args = []string{"sh", "-c", `mount --bind "$1" /etc/resolv.conf && exec "$0" serve`, cmd.Path, resolver}
		cmd.Path = "/bin/sh"
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		return f.Near.Start(cmd)
	}
	s.reach = f.reach
	if f.ca != "" {
		settings = append(settings, "SSL_CERT_FILE="+f.ca)
	}
	return s.start(f.t, settings...)
}

// reach passes connections of this machine on to an address of the near end.
func (f *far) reach(api string) string {
	u, err := url.Parse(api)
	if err != nil {
		f.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = l.Close() })
	go passOn(l, func() (net.Conn, error) { return f.Near.Dial(f.t.Context(), "tcp", u.Host) })
	return "http://" + l.Addr().String()
}

// wireReceiver takes every message, and notes when it did.
type wireReceiver struct {
	takes time.Duration
	gate  chan struct{} // where it is there, nothing is taken before it is closed
	mu    sync.Mutex
	took  map[string][]time.Time // by message
	at    map[string]int         // by the address that it was reached under
	began int
}

func newWireReceiver(takes time.Duration) *wireReceiver {
	return &wireReceiver{takes: takes, took: map[string][]time.Time{}, at: map[string]int{}}
}

func (r *wireReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return // the connection broke
	}
	r.mu.Lock()
	r.began++
	r.mu.Unlock()
	if r.gate != nil {
		select {
		case <-r.gate:
		case <-req.Context().Done():
			return
		}
	}
	time.Sleep(r.takes) // what a receiver does meanwhile
	r.mu.Lock()
	defer r.mu.Unlock()
	id := req.Header.Get("webhook-id")
	r.took[id] = append(r.took[id], time.Now())
	if local, ok := req.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		r.at[local.AddrPort().Addr().Unmap().String()]++
	}
	if r.takes == 0 {
		w.Header().Set("Connection", "close")
	}
}

func (r *wireReceiver) under(a netip.Addr) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[a.String()]
}

// steadily publishes 20 messages a second for so long, and returns when each was.
func (p *process) steadily(queue string, lasts time.Duration) map[string]time.Time {
	p.t.Helper()
	published := map[string]time.Time{}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(lasts); time.Now().Before(end); <-tick.C {
		at := time.Now()
		published[p.publish(queue, bodyMark)] = at
	}
	return published
}

// noDeadLetters checks that each message was taken and none given up; it returns how many were taken twice.
func (f *far) noDeadLetters(p *process, queue string, published map[string]time.Time) (twice int) {
	f.t.Helper()
	if rows := p.deadLetters(queue, ""); len(rows) > 0 {
		f.t.Errorf("%d dead letters, the first one is %+v", len(rows), rows[0])
	}
	f.receiver.mu.Lock()
	defer f.receiver.mu.Unlock()
	lost := 0
	for id := range published {
		switch n := len(f.receiver.took[id]); {
		case n == 0:
			lost++
		case n > 1:
			twice++
		}
	}
	if lost > 0 {
		f.t.Errorf("%d messages of %d were not taken", lost, len(published))
	}
	return twice
}

// windowMax is how many POSTs a webhook may have under way, unless its registration says otherwise.
const windowMax = 64

var protocols = []string{"HTTP/1.1", "HTTP/2"}

// taken is how many messages the receiver has taken.
func (r *wireReceiver) taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.took)
}

// through publishes steadily to a new webhook, for half a second and until answers have come, has something happen
// to the network, goes on for so long, and waits until all has ended. It returns when each message was published.
func (f *far) through(name string, more map[string]any, happen func(), lasts time.Duration) (*process, map[string]time.Time) {
	f.t.Helper()
	p := f.start()
	p.register(name, f.url, more)
	published := p.steadily(name, 500*time.Millisecond) // few, so that a share of failures shows
	for f.receiver.taken() <= policy.WindowStart {      // a POST after the first ones was begun: they were answered
		maps.Copy(published, p.steadily(name, 50*time.Millisecond))
	}
	happen()
	maps.Copy(published, p.steadily(name, lasts))
	p.waitEmpty(time.Minute, name)
	return p, published
}

// neverOpen checks that no breaker has opened.
func (p *process) neverOpen() {
	p.t.Helper()
	if n := p.metric("pushlease_webhook_breaker_changes_total", `state="open"`); n != 0 {
		p.t.Errorf("a breaker opened %v times", n)
	}
}

// impatient gives a message two attempts, a second apart: a third timeout would be its end.
func impatient() map[string]any {
	return map[string]any{"timeout": "5s", "flow": map[string]any{}, "policy": map[string]any{"preset": "realtime"}}
}

// TestConnectionsThatAMiddleForgetsCostOneTimeoutEach: nothing else fails, all else goes on within
// seconds, and nothing is held against the webhook (C89). A connection may be found dead before the timeout
// by its ping, or by bytes that nobody acknowledges: what was on it ends as reset.
func TestConnectionsThatAMiddleForgetsCostOneTimeoutEach(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			forget(t, protocol, impatient(), time.Second)
		})
		t.Run(protocol+" by defaults", func(t *testing.T) {
			t.Parallel()
			forget(t, protocol, map[string]any{"flow": map[string]any{}}, 6500*time.Millisecond)
		})
	}
}

// forget has flows forgotten before a webhook whose second attempt comes after that pause at the latest.
func forget(t *testing.T, protocol string, more map[string]any, pause time.Duration) {
	f := startFar(t, protocol, 200*time.Millisecond)
	name, connections := queueName("forgotten"), 0
	var began time.Time
	p, published := f.through(name, more, func() { connections, began = f.Forget(), time.Now() }, 10*time.Second)
	f.noDeadLetters(p, name, published)
	p.neverOpen()

	failed, first := map[string]time.Time{}, time.Now()
	for _, a := range p.attempts(name) {
		if a.Status == http.StatusOK {
			continue
		}
		took, err := time.ParseDuration(a.Duration)
		if _, twice := failed[a.MessageID]; err != nil || twice || a.ErrorClass != "timeout" && a.ErrorClass != "reset" {
			t.Errorf("an attempt is %+v, %v; its message failed before: %v", a, err, twice)
		}
		ended := a.StartedAt.Add(took)
		failed[a.MessageID] = ended
		if ended.Before(first) {
			first = ended
		}
	}
	bound := connections
	if protocol == "HTTP/2" {
		bound = windowMax // all that were under way on the one connection
	}
	if n := len(failed); n == 0 || n > bound {
		t.Errorf("%d failures of %d connections that were forgotten, want from 1 to %d", n, connections, bound)
	}
	late := 0
	f.receiver.mu.Lock()
	defer f.receiver.mu.Unlock()
	for id, at := range published {
		due := first
		if at.After(due) {
			due = at
		}
		if ended, ok := failed[id]; ok {
			due = ended.Add(pause)
		}
		if taken := f.receiver.took[id]; len(taken) > 0 && taken[0].Sub(due) > 5*time.Second {
			late++
		}
	}
	if late > 0 {
		t.Errorf("%d messages were taken more than 5 s after the first failure, their publish, or their next attempt", late)
	}
	t.Logf("%d messages, %d connections forgotten, %d failures, the first after %s", len(published), connections, len(failed), first.Sub(began).Round(100*time.Millisecond))
}

// TestConnectionsThatAMiddleResetsLoseNothing: what was under way may be taken twice, for the
// receiver may have taken it before the reset.
func TestConnectionsThatAMiddleResetsLoseNothing(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			f := startFar(t, protocol, 200*time.Millisecond)
			name, connections := queueName("reset"), 0
			p, published := f.through(name, impatient(), func() { connections = f.Reset() }, 2*time.Second)
			twice := f.noDeadLetters(p, name, published)
			if connections == 0 || twice > 4*4 { // four are under way at a time, more on a busy machine
				t.Errorf("%d connections were reset, and %d messages were taken twice", connections, twice)
			}
			t.Logf("%d messages, %d connections reset, %d taken twice", len(published), connections, twice)
		})
	}
}

// TestANetworkThatLosesPacketsLosesAndDoublesNothing: a twentieth of all packets in each direction, and
// 100 ms there and back.
func TestANetworkThatLosesPacketsLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			f := startFar(t, protocol, time.Millisecond)
			p, name := f.start(), queueName("lossy")
			p.register(name, f.url, map[string]any{"flow": map[string]any{}})
			f.Slow(50*time.Millisecond, 0.05)
			published := p.steadily(name, 5*time.Second)
			p.waitEmpty(time.Minute, name)
			if twice := f.noDeadLetters(p, name, published); twice > 0 {
				t.Errorf("%d messages were taken twice", twice)
			}
		})
	}
}

// TestAThinLineLosesAndDoublesNothing: 256 kbit a second, and 16 KiB in each of 20 messages, which are ten seconds of
// the line. Their timeout leaves room for that, as the documents say (C115).
func TestAThinLineLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			f := startFar(t, protocol, time.Millisecond)
			p, name := f.start(), queueName("thin")
			p.register(name, f.url, map[string]any{"timeout": "30s", "flow": map[string]any{}})
			f.Thin(256_000)
			took := f.large(p, name, 20, 16<<10)
			if took < 10*time.Second {
				t.Errorf("took %s: the line is not a thin one", took)
			}
			t.Logf("20 messages of 16 KiB took %s at 256 kbit/s", took.Round(100*time.Millisecond))
		})
	}
}

// TestAFarReceiverIsSentLargeBodies: 300 ms there and back. The window of HTTP/2, which all bodies on a connection share,
// lets 64 KiB through in that time; further connections are opened beside it (C115).
func TestAFarReceiverIsSentLargeBodies(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			f := startFar(t, protocol, time.Millisecond)
			p, name := f.start(), queueName("far")
			p.register(name, f.url, map[string]any{"timeout": "30s", "flow": map[string]any{}})
			f.Slow(150*time.Millisecond, 0)
			took := f.large(p, name, 100, 47_000)
			if took > 20*time.Second {
				t.Errorf("100 messages of 47 KB took %s, want 20 s at most", took)
			}
			t.Logf("100 messages of 47 KB took %s at 300 ms there and back", took.Round(100*time.Millisecond))
		})
	}
}

// large publishes messages of one size, waits until all were taken, each once and with its first attempt, and returns how
// long that took.
func (f *far) large(p *process, name string, n, size int) time.Duration {
	f.t.Helper()
	published, began := map[string]time.Time{}, time.Now()
	for range n {
		published[p.publish(name, strings.Repeat("x", size))] = time.Now()
	}
	p.waitEmpty(time.Minute, name)
	took := time.Since(began)
	if twice := f.noDeadLetters(p, name, published); twice > 0 {
		f.t.Errorf("%d messages were taken twice", twice)
	}
	for _, a := range p.attempts(name) {
		if a.Number != 1 || a.Status != http.StatusOK {
			f.t.Errorf("an attempt is %+v", a)
		}
	}
	return took
}

// TestALiveAddressBehindDeadOnesIsFound: the name server gives the one that answers last, and nothing
// comes from the others (C104).
func TestALiveAddressBehindDeadOnesIsFound(t *testing.T) {
	t.Parallel()
	for _, n := range []byte{12, 40} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			f := startFar(t, "HTTP/1.1", 0)
			var addresses []netip.Addr
			for i := range n {
				addresses = append(addresses, server(100+i))
			}
			f.names.isAt(receiverName, addresses...)
			f.Dead(addresses[:n-1]...)
			p, name := f.start(), queueName("behind")
			hook := p.register(name, f.url, impatient())
			for range 10 {
				p.waitState(30*time.Second, name, p.publish(name, bodyMark), hook.ID, "delivered")
			}
			if got := f.receiver.under(addresses[n-1]); got != 10 {
				t.Errorf("%d POSTs came under the live address, want 10", got)
			}
			for _, a := range p.attempts(name) {
				if a.Number != 1 || a.Status != http.StatusOK {
					t.Errorf("an attempt is %+v", a)
				}
			}
		})
	}
}

// TestADeadIPv6AddressCostsAQuarterOfASecond: each POST has a connection of its own (C104).
func TestADeadIPv6AddressCostsAQuarterOfASecond(t *testing.T) {
	t.Parallel()
	f := startFar(t, "HTTP/1.1", 0)
	six := netip.MustParseAddr("fd77:1::1")
	f.names.isAt(receiverName, six, server(1))
	f.Dead(six)
	p, name := f.start(), queueName("six")
	hook := p.register(name, f.url, impatient())
	for range 10 {
		p.waitState(30*time.Second, name, p.publish(name, bodyMark), hook.ID, "delivered")
	}
	slow := 0
	for _, a := range p.attempts(name) {
		took, err := time.ParseDuration(a.Duration)
		if err != nil || a.Number != 1 || a.Status != http.StatusOK {
			t.Errorf("an attempt is %+v, %v", a, err)
		}
		if took > 400*time.Millisecond {
			t.Errorf("an attempt took %s, want 0.4 s at most", took)
		}
		if took > 200*time.Millisecond {
			slow++
		}
	}
	if slow > 5 {
		t.Errorf("%d of 10 attempts waited for the dead address, which is remembered", slow)
	}
}

// TestAReceiverThatMovesIsFollowedWithinSeconds: its name leads elsewhere, and nothing comes from where
// it was any more (C89).
func TestAReceiverThatMovesIsFollowedWithinSeconds(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			f := startFar(t, protocol, 200*time.Millisecond)
			name := queueName("moved")
			var moved time.Time
			p, published := f.through(name, impatient(), func() {
				f.names.isAt(receiverName, server(2))
				f.Dead(server(1))
				moved = time.Now()
			}, 10*time.Second)
			f.noDeadLetters(p, name, published)
			f.receiver.mu.Lock()
			defer f.receiver.mu.Unlock()
			first := time.Duration(1 << 62)
			for id := range published {
				if taken := f.receiver.took[id]; len(taken) > 0 && taken[0].After(moved.Add(time.Second)) {
					first = min(first, taken[0].Sub(moved))
				}
			}
			if first > 10*time.Second {
				t.Errorf("the first POST at the new address came after %s, want 10 s at most", first)
			}
			t.Logf("the first POST at the new address came after %s", first.Round(10*time.Millisecond))
		})
	}
}

// TestPortsThatRunOutAreNotTheReceiversFault: this machine has 20 of them for 60 POSTs at a time (C105).
func TestPortsThatRunOutAreNotTheReceiversFault(t *testing.T) {
	t.Parallel()
	f := startFar(t, "HTTP/1.1", time.Second)
	if err := f.Near.Run("sysctl", "-q", "-w", "net.ipv4.ip_local_port_range=50000 50019"); err != nil {
		t.Fatal(err)
	}
	p, name := f.start(), queueName("ports")
	more := impatient()
	more["timeout"], more["flow"] = "30s", map[string]any{"adaptive": false, "concurrency": 60}
	p.register(name, f.url, more)
	published := map[string]time.Time{}
	for range 120 {
		published[p.publish(name, bodyMark)] = time.Now()
	}
	p.waitEmpty(time.Minute, name)
	if twice := f.noDeadLetters(p, name, published); twice > 0 {
		t.Errorf("%d messages were taken twice", twice)
	}
	ours := 0
	for _, a := range p.attempts(name) {
		switch {
		case a.Status == http.StatusOK:
		case a.ErrorClass == "canceled" && !a.Charged:
			ours++
		default:
			t.Errorf("an attempt is %+v", a)
		}
	}
	if ours == 0 {
		t.Error("no port was missed: the test tests nothing")
	}
	p.neverOpen()
	t.Logf("%d attempts found no port", ours)
}
