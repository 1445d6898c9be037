package transport

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// What a receiver has sent before one byte of the request can have reached it is no answer
// to that request, though it came after the last look at the connection. Here the
// receiver's system takes no more bytes, so that the request waits on this side.
func TestWhatCameBeforeTheRequestArrivedIsNoAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	deadline := time.Now().Add(20 * time.Second)
	if err := errors.Join(dialled.SetDeadline(deadline), peer.SetDeadline(deadline)); err != nil {
		t.Fatal(err)
	}

	w := newWire(dialled)
	w.by = deadline
	c := newConn(nil, nil, w, w, nil, time.Now())
	c.head, c.used = maxHead, time.Now()
	confirmed := func() bool {
		for end := time.Now().Add(100 * time.Millisecond); waiting(w.raw) > 0; runtime.Gosched() {
			if time.Now().After(end) {
				return false
			}
		}
		return true
	}
	filler := bytes.Repeat([]byte("x"), 16<<10)
	for confirmed() {
		if _, err := w.Write(filler); err != nil {
			t.Fatal(err)
		}
	}
	ask := func() (line, error) {
		x := &exchange{conn: c, reused: true, start: w.written.Load()}
		if _, err := io.WriteString(w, "POST / HTTP/1.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(peer, "HTTP/1.1 200 OK\r\n"); err != nil {
			t.Fatal(err)
		}
		return x.statusLine()
	}
	if got, err := ask(); !errors.Is(err, ErrUnasked) {
		t.Errorf("an answer before its request: %+v, %v", got, err)
	}

	// The other side of it: when the request has arrived, the same bytes are its answer.
	if _, err := io.CopyN(io.Discard, peer, w.written.Load()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.in.Discard(c.in.Buffered()); err != nil || !confirmed() {
		t.Fatal("the receiver has read all, and nothing is confirmed", err)
	}
	x := &exchange{conn: c, reused: true, start: w.written.Load()}
	if _, err := io.WriteString(w, "POST / HTTP/1.1\r\n\r\n"); err != nil || !confirmed() {
		t.Fatal("the request did not arrive", err)
	}
	if _, err := io.WriteString(peer, "HTTP/1.1 200 OK\r\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := x.statusLine(); err != nil || got.status != http.StatusOK {
		t.Errorf("an answer after its request: %+v, %v", got, err)
	}
}
