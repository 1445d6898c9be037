package transport

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pushlease/pushlease/internal/tcp"
)

// wire is a connection below TLS. It counts what was written, can be looked at without
// waiting, and knows whether TLS records ended where reading did. One goroutine reads.
type wire struct {
	net.Conn
	raw syscall.RawConn // nil when there is no socket, as with pipes
	// waiting is how many bytes the receiver's system has not confirmed; nil without a socket.
	waiting func() int64
	// patience is for how long bytes may wait there.
	patience time.Duration

	begun   atomic.Int64 // written, and what a Write is at
	written atomic.Int64
	failed  error     // of a Write; net/http hides it at times
	by      time.Time // the deadline of the exchange

	looking bool
	buf     []byte
	n       int
	err     error
	readNow func(fd uintptr) bool // as a value, so that a look allocates nothing

	secure  bool
	records records

	shared bool         // it is HTTP/2
	heard  atomic.Int64 // when something came on it, in ns
}

// userTimeout ends a connection whose bytes the receiver's system does not acknowledge, or has no room for. It is long
// enough for some lost packets in a row, and far below what the system would wait. An exchange that may take
// longer waits as long: its receiver may be at other work before it reads.
const userTimeout = 20 * time.Second

func newWire(conn net.Conn) *wire {
	w := &wire{Conn: conn}
	if s, ok := conn.(syscall.Conn); ok && canReadNow {
		if raw, err := s.SyscallConn(); err == nil {
			w.raw, w.waiting = raw, tcp.Waiting(raw)
			w.patient(userTimeout)
		}
	}
	w.readNow = func(fd uintptr) bool {
		w.n, w.err = readSocket(fd, w.buf)
		return true
	}
	return w
}

// Read waits for bytes. While the connection is looked at it does not: then the error is
// os.ErrDeadlineExceeded when there are none.
func (w *wire) Read(p []byte) (n int, err error) {
	if w.looking {
		n, err = w.look(p)
	} else {
		n, err = w.Conn.Read(p)
	}
	if w.secure {
		w.records.read(p[:n])
	}
	if w.shared && n > 0 {
		w.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

// until sets the deadline of an exchange.
func (w *wire) until(by time.Time) {
	w.by = by
	_ = w.SetDeadline(by)
	if d := time.Until(by).Truncate(time.Second) + time.Second; d > w.patience && w.raw != nil {
		w.patient(d)
	}
}

func (w *wire) patient(d time.Duration) {
	w.patience = d
	tcp.SetUserTimeout(w.raw, d)
}

func (w *wire) look(p []byte) (int, error) {
	if w.raw == nil {
		_ = w.SetReadDeadline(time.Now().Add(lookFor))
		n, err := w.Conn.Read(p)
		_ = w.SetReadDeadline(w.by)
		return n, err
	}
	w.buf = p
	err := w.raw.Read(w.readNow)
	w.buf = nil
	switch {
	case err != nil:
		return 0, err
	case wouldBlock(w.err):
		return 0, os.ErrDeadlineExceeded
	case w.err != nil:
		return 0, w.err
	case w.n <= 0:
		return 0, io.EOF
	}
	return w.n, nil
}

func (w *wire) Write(p []byte) (int, error) {
	w.begun.Add(int64(len(p)))
	n, err := w.Conn.Write(p)
	w.written.Add(int64(n))
	w.begun.Add(int64(n - len(p)))
	if err != nil {
		w.failed = err
	}
	return n, err
}

// unacknowledged is whether the receiver's system has confirmed nothing yet of the bytes
// that were written since start, or there are none. Then nothing that has arrived can be
// about them. While a Write waits for the receiver, which took a part of it, that is not known.
func (w *wire) unacknowledged(start int64) bool {
	var confirm int64
	if w.raw != nil { // before the counters: what is written meanwhile must not count as waiting
		confirm = w.waiting()
	}
	written := w.written.Load()
	switch begun := w.begun.Load(); {
	case begun == start:
		return true
	case begun != written:
		return false
	}
	return w.raw != nil && confirm >= written-start
}

// records follows the heads of TLS records through the bytes that are read.
type records struct {
	head [5]byte
	got  int // of the head
	left int // of the record's content
}

func (r *records) read(p []byte) {
	for len(p) > 0 {
		if r.left > 0 {
			n := min(r.left, len(p))
			r.left -= n
			p = p[n:]
			continue
		}
		n := copy(r.head[r.got:], p)
		r.got += n
		p = p[n:]
		if r.got == len(r.head) {
			r.got, r.left = 0, int(r.head[3])<<8|int(r.head[4])
		}
	}
}

// whole is whether the last record was read to its end.
func (r *records) whole() bool { return r.got == 0 && r.left == 0 }

// copyBuffers are for request bodies that are not in memory as a whole.
var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// body writes what net/http copies into a full buffer of a connection: a body that is in
// memory is one write, as long as it may be.
type body struct{ to io.Writer }

func (b body) Write(p []byte) (int, error) { return b.to.Write(p) }

func (b body) ReadFrom(r io.Reader) (int64, error) {
	if limited, ok := r.(*io.LimitedReader); ok {
		if memory, ok := limited.R.(*bytes.Reader); ok && int64(memory.Len()) <= limited.N {
			n, err := memory.WriteTo(b.to)
			limited.N -= n
			return n, err
		}
	}
	buffer := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buffer)
	return io.CopyBuffer(b.to, r, buffer[:])
}
