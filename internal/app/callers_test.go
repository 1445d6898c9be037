package app

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

// peerConn is a connection that comes from an address.
type peerConn struct {
	net.Conn
	from net.TCPAddr
}

func (c *peerConn) RemoteAddr() net.Addr { return &c.from }

// socket is a listener that tests connect to.
type socket struct{ conns chan net.Conn }

func (l *socket) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l *socket) Close() error   { return nil }
func (l *socket) Addr() net.Addr { return &net.TCPAddr{} }

// serveFront serves handler as a process does.
func serveFront(t *testing.T, handler http.Handler) *socket {
	l := &socket{make(chan net.Conn)}
	log := slog.New(slog.DiscardHandler)
	d := &door{listener: l, server: newServer(nil, log), log: log}
	done := make(chan error, 1)
	go func() { done <- d.serve(front(handler, &atomic.Bool{})) }()
	t.Cleanup(func() {
		close(l.conns)
		_ = d.server.Close() // what is open still
		if err := <-done; !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l
}

// connect comes from the peer with this number, and never waits for others.
func (l *socket) connect(peer int) net.Conn {
	client, conn := net.Pipe()
	l.conns <- &peerConn{conn, net.TCPAddr{IP: net.IPv4(10, byte(peer>>16), byte(peer>>8), byte(peer)), Port: 50000}}
	return client
}

// ask makes one request; an error is one of the connection.
func ask(conn net.Conn, path string) (status int, err error) {
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second)) // a pipe takes every deadline
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// probes answers as the API does where only probes are answered; /slow waits for release.
func probes(release <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/slow"):
			<-release
		case onlyProbes(r.Context()) && r.URL.Path != "/healthz":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
}

// Callers who have been answered and keep their connections keep nobody else out.
func TestQuietConnectionsKeepNobodyOut(t *testing.T) {
	for name, tt := range map[string]struct {
		peers  int
		silent bool
	}{"of one peer": {peers: 1}, "of many peers": {peers: 4000}, "that have said nothing": {peers: 4000, silent: true}} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				l := serveFront(t, probes(nil))
				for i := range maxConnections + 200 {
					conn := l.connect(i % tt.peers)
					defer conn.Close()
					if tt.silent && i < maxConnections+100 {
						continue
					}
					if status, err := ask(conn, "/api/v1/queues"); status != http.StatusOK || err != nil {
						t.Fatalf("caller %d is answered %d, %v", i, status, err)
					}
				}
			})
		})
	}
}

// While every connection is at work, the process still says that it is alive, and takes
// no more sockets from the deliveries.
func TestProbesAreAnsweredWhileEveryConnectionIsAtWork(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		l := serveFront(t, probes(release))
		var busy []net.Conn
		for i := range maxConnections {
			conn := l.connect(i)
			busy = append(busy, conn)
			if _, err := io.WriteString(conn, "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for i := range 3 * probeConnections {
			conn := l.connect(5000 + i)
			defer conn.Close()
			path, want := "/healthz", http.StatusOK
			if i%2 == 1 {
				path, want = "/api/v1/queues", http.StatusServiceUnavailable
			}
			if status, err := ask(conn, path); status != want || err != nil {
				t.Errorf("%s is answered %d, %v", path, status, err)
			}
		}
		var before []net.Conn
		for i := range 2 * probeConnections { // they say nothing, and take each other's place
			before = append(before, l.connect(6000+i))
			defer before[i].Close()
		}
		if status, err := ask(before[0], "/healthz"); err == nil {
			t.Errorf("more are let in for probes than there are places: the first one is answered %d", status)
		}
		silent := l.connect(7000)
		defer silent.Close()
		if status, err := ask(silent, "/healthz"); status != http.StatusOK || err != nil {
			t.Errorf("a probe behind silent ones is answered %d, %v", status, err)
		}
		close(release)
		for _, conn := range busy {
			_ = conn.Close()
		}
		synctest.Wait()
		conn := l.connect(8000)
		defer conn.Close()
		if status, err := ask(conn, "/api/v1/queues"); status != http.StatusOK || err != nil {
			t.Errorf("afterwards a caller is answered %d, %v", status, err)
		}
	})
}

func TestOnePeerDoesNotTakeAllConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		l := serveFront(t, probes(release))
		var busy []net.Conn
		for range maxConnections {
			conn := l.connect(1)
			busy = append(busy, conn)
			go func() { _, _ = io.WriteString(conn, "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n") }()
			synctest.Wait()
		}
		defer func() {
			for _, conn := range busy {
				_ = conn.Close()
			}
		}()
		conn := l.connect(2)
		defer conn.Close()
		if status, err := ask(conn, "/api/v1/queues"); status != http.StatusOK || err != nil {
			t.Errorf("another peer is answered %d, %v", status, err)
		}
	})
}

func TestPeersAreToldApartByAddressAndIPv6Network(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1:5000": "192.0.2.1", "[::ffff:192.0.2.1]:5000": "192.0.2.1",
		"[2001:db8:1:2::3]:5000": "2001:db8:1:2::/64", "[fe80::1%eth0]:5000": "fe80::/64", "[::1]:5000": "::/64",
	} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := peerOf(a); got != want {
			t.Errorf("%s counts for %s, want %s", addr, got, want)
		}
	}
}

// Who makes room is the caller that has been quiet for the longest; and before all places are taken already those go that
// have said nothing for some seconds (C77).
func TestTheQuietestMakesRoomAndEarlierUnderPressure(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := serveFront(t, probes(nil))
		served := func(what string, conn net.Conn, want bool) {
			t.Helper()
			if status, err := ask(conn, "/api/v1/queues"); (status == http.StatusOK && err == nil) != want {
				t.Errorf("%s is answered %d, %v", what, status, err)
			}
		}
		var all []net.Conn
		come := func(upTo int) {
			for len(all) < upTo {
				conn := l.connect(len(all))
				t.Cleanup(func() { _ = conn.Close() })
				all = append(all, conn)
				served("who comes", conn, true)
			}
		}
		come(pressedFrom)
		time.Sleep(quietWhenPressed - time.Second)
		served("one that goes on", all[0], true)
		time.Sleep(time.Second)
		come(pressedFrom + 1)
		served("one that was quiet for long", all[1], false)
		served("one that was not", all[0], true)

		come(pressedFrom + maxConnections - 1) // with the two of before as many as there are places
		time.Sleep(time.Second)
		served("one that goes on", all[0], true)
		served("another one", all[pressedFrom], true)
		come(len(all) + 1)
		served("the quietest", all[pressedFrom+1], false)
		served("one that has asked since", all[0], true)
		served("another one", all[pressedFrom], true)
	})
}

// A machine has as many IPv6 addresses as it likes, in one network.
func TestAPeerIsAnAddressOrANetwork(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:5": "10.0.0.1", "[::ffff:10.0.0.1]:6": "10.0.0.1", "[2001:db8::1]:1": "2001:db8::/64", "[2001:db8::ffff:2]:2": "2001:db8::/64", "[2001:db8:0:1::1%eth0]:3": "2001:db8:0:1::/64",
	} {
		at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))
		if got := peerOf(at); got != want {
			t.Errorf("%s counts for %s, want %s", address, got, want)
		}
	}
}
