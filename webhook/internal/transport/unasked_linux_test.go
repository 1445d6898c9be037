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

// connected gives both ends of a connection.
func connected(t *testing.T) (dialled, peer net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if dialled, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialled.Close() })
	if peer, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	deadline := time.Now().Add(20 * time.Second)
	if err := errors.Join(dialled.SetDeadline(deadline), peer.SetDeadline(deadline)); err != nil {
		t.Fatal(err)
	}
	return dialled, peer
}

// What a receiver has sent before one byte of the request can have reached it is no answer
// to that request, though it came after the last look at the connection. Here the
// receiver's system takes no more bytes, so that the request waits on this side.
func TestWhatCameBeforeTheRequestArrivedIsNoAnswer(t *testing.T) {
	dialled, peer := connected(t)
	w := newWire(dialled)
	c := newConn(nil, nil, w, w, nil, time.Now())
	c.bound()
	c.used = time.Now()
	confirmed := func() bool {
		for end := time.Now().Add(100 * time.Millisecond); w.waiting() > 0; runtime.Gosched() {
			if time.Now().After(end) {
				return false
			}
		}
		return true
	}
	filler := bytes.Repeat([]byte("x"), 16<<10)
	for full := 0; full < 4; { // a system that is busy may take some more of it later
		if !confirmed() {
			full++
		}
		if _, err := w.Write(filler); err != nil {
			t.Fatal(err)
		}
	}
	ask := func() (line, error) {
		x := &exchange{conn: c, start: w.written.Load()}
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
	x := &exchange{conn: c, start: w.written.Load()}
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

// A receiver that answers by the head, while the body still waits for it, has answered.
func TestAnAnswerToHalfOfARequestIsOne(t *testing.T) {
	dialled, peer := connected(t)
	w := newWire(dialled)
	c := newConn(nil, nil, w, w, nil, time.Now())
	c.bound()
	c.used = time.Now()
	x := &exchange{conn: c, start: w.written.Load()}
	const head = "POST / HTTP/1.1\r\n\r\n"
	if _, err := io.WriteString(w, head); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(peer, make([]byte, len(head))); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = w.Write(make([]byte, 32<<20)) // more than the two systems take
	}()
	for end := time.Now().Add(10 * time.Second); w.waiting() <= 2*int64(len(head)); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("the receiver's system takes all")
		}
	}
	if _, err := io.WriteString(peer, "HTTP/1.1 413 X\r\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := x.statusLine(); err != nil || got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("%+v, %v", got, err)
	}
	_ = dialled.Close()
	<-ended
}
