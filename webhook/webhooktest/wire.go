package webhooktest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
)

// Script plays the receiver's part on one connection, which is closed when it
// returns. It has to return when writing or reading fails.
type Script func(c *Conn)

// Conn is one connection to a Wire.
type Conn struct {
	net.Conn
	// N counts the Wire's connections, from 1.
	N    int
	in   *bufio.Reader
	raw  *bytes.Buffer
	wire *Wire
}

// ReadRequest reads one request with its body and records its raw bytes.
func (c *Conn) ReadRequest() (*http.Request, []byte, error) {
	request, err := http.ReadRequest(c.in)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, nil, err
	}
	raw := bytes.Clone(c.raw.Bytes())
	c.raw.Reset()
	c.wire.mu.Lock()
	c.wire.raw = append(c.wire.raw, raw)
	c.wire.mu.Unlock()
	return request, body, nil
}

// ReadHead reads a request's head and leaves its body, for receivers that answer by the head.
func (c *Conn) ReadHead() (*http.Request, error) { return http.ReadRequest(c.in) }

// Wire is a receiver at the level of connections.
type Wire struct {
	script   Script
	listener net.Listener

	mu    sync.Mutex
	raw   [][]byte
	conns []net.Conn
	work  sync.WaitGroup
}

// NewWire starts a receiver over pipes in memory, for synctest bubbles. It ends
// with the test.
func NewWire(t testing.TB, script Script) *Wire {
	return serveWire(t, newPipeListener(), script)
}

// NewTCPWire starts a receiver on a free loopback port. It ends with the test.
func NewTCPWire(t testing.TB, script Script) *Wire {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveWire(t, listener, script)
}

// ServeWire starts a receiver on a listener, for example one with TLS. It ends
// with the test.
func ServeWire(t testing.TB, listener net.Listener, script Script) *Wire {
	return serveWire(t, listener, script)
}

func serveWire(t testing.TB, listener net.Listener, script Script) *Wire {
	w := &Wire{script: script, listener: listener}
	w.work.Go(w.accept)
	t.Cleanup(w.Close)
	return w
}

func (w *Wire) accept() {
	for n := 1; ; n++ {
		conn, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		w.conns = append(w.conns, conn)
		w.mu.Unlock()
		w.work.Go(func() {
			defer conn.Close()
			raw := new(bytes.Buffer)
			w.script(&Conn{Conn: conn, N: n, in: bufio.NewReader(io.TeeReader(conn, raw)), raw: raw, wire: w})
		})
	}
}

// Address is the listener's address.
func (w *Wire) Address() string { return w.listener.Addr().String() }

// URL is a webhook's URL for it, over http.
func (w *Wire) URL() string { return "http://" + w.Address() + "/hook" }

// Dial connects to the receiver, whatever the address.
func (w *Wire) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if pipes, ok := w.listener.(*pipeListener); ok {
		return pipes.dial(ctx)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", w.Address())
}

// Raw gives the bytes of each request read so far, head and body.
func (w *Wire) Raw() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.raw)
}

// Conns counts the connections so far.
func (w *Wire) Conns() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns)
}

// Close ends all connections and waits for their scripts.
func (w *Wire) Close() {
	_ = w.listener.Close()
	w.mu.Lock()
	conns := slices.Clone(w.conns)
	w.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
	w.work.Wait()
}
