package sim

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// wire is one connection with room for what is on its way, as TCP has. Its ends are its
// two conns.
type wire struct {
	mu sync.Mutex
	// ways are what is on its way to each end.
	ways  [2]way
	reset bool
	// answer is the POST whose answer is on its way.
	answer *post
	// changed is closed and made anew whenever something changes.
	changed chan struct{}
}

type way struct {
	data   []byte
	closed bool // nothing more comes
}

const wireRoom = 64 << 10

// newWire returns both ends; addr is how each sees the other.
func newWire(addr [2]net.Addr) (near, far *conn) {
	w := &wire{changed: make(chan struct{})}
	near = &conn{wire: w, end: 0, local: addr[0], remote: addr[1]}
	far = &conn{wire: w, end: 1, local: addr[1], remote: addr[0]}
	return near, far
}

// change wakes all who wait. w.mu is held.
func (w *wire) change() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// Reset breaks the connection: what is on its way to the end that asks is lost, the other
// end may still read what had arrived.
func (c *conn) Reset() {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.reset = true
	c.wire.ways[c.end].data = nil
	c.wire.change()
}

// conn is one end of a wire.
type conn struct {
	wire          *wire
	end           int
	local, remote net.Addr

	mu          sync.Mutex
	read, write time.Time // deadlines
}

var _ net.Conn = (*conn)(nil)

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) failure(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (n int, err error) {
	err = c.await("read", &c.read, func() (bool, error) {
		in := &c.wire.ways[c.end]
		switch {
		case len(in.data) > 0:
			n = copy(b, in.data)
			in.data = in.data[n:]
			return true, nil
		case c.wire.reset:
			return true, c.failure("read", os.NewSyscallError("read", syscall.ECONNRESET))
		case in.closed:
			return true, io.EOF
		}
		return len(b) == 0, nil
	})
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (n int, err error) {
	err = c.await("write", &c.write, func() (bool, error) {
		out, in := &c.wire.ways[1-c.end], &c.wire.ways[c.end]
		switch {
		case in.closed && out.closed:
			return true, c.failure("write", net.ErrClosed)
		case c.wire.reset, out.closed:
			return true, c.failure("write", os.NewSyscallError("write", syscall.EPIPE))
		}
		more := min(len(b)-n, wireRoom-len(out.data))
		out.data = append(out.data, b[n:n+more]...)
		n += more
		if more > 0 && n < len(b) { // who reads makes room for the rest
			c.wire.change()
		}
		return n == len(b), nil
	})
	return n, err
}

// await calls step, with the wire locked, until it is done or the deadline has passed.
func (c *conn) await(op string, deadline *time.Time, step func() (bool, error)) error {
	for {
		c.mu.Lock()
		until := *deadline
		c.mu.Unlock()
		if !until.IsZero() && !time.Now().Before(until) {
			return c.failure(op, os.ErrDeadlineExceeded)
		}
		c.wire.mu.Lock()
		done, err := step()
		changed := c.wire.changed
		if done || err != nil {
			c.wire.change()
			c.wire.mu.Unlock()
			return err
		}
		c.wire.mu.Unlock()
		if until.IsZero() {
			<-changed
			continue
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
}

// Close implements net.Conn: the other end reads what is on its way, and then its end.
func (c *conn) Close() error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.ways[0].closed, c.wire.ways[1].closed = true, true
	c.wire.ways[c.end].data = nil
	c.wire.change()
	return nil
}

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.read, t) }

func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.write, t) }

func (c *conn) setDeadline(which *time.Time, t time.Time) error {
	c.mu.Lock()
	*which = t
	c.mu.Unlock()
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	c.wire.change()
	return nil
}

// listener hands out conns that dial made.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return loopback(8080) }

func loopback(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }
