package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

const (
	// maxHead and maxLines bound an answer's head. Well above what servers send: past them the
	// status is lost, and with it the delivery, unless it is a 2xx. A line of six bytes takes
	// some 200 in memory, so that bytes alone bound nothing.
	maxHead  = 256 << 10
	maxLines = 1000

	// readBuffer and writeBuffer are held by each connection for as long as it is open, by
	// those of requests that take minutes too. A request of a few hundred bytes with its
	// headers is one write, and what is longer passes them by.
	readBuffer  = 1 << 10
	writeBuffer = 2 << 10

	// freeInterim is how many 1xx answers are read at full speed.
	freeInterim = 100
	// interimPause then slows them down: a flood of them costs its sender a connection and
	// us nothing, until the request's time is over.
	interimPause = 100 * time.Millisecond

	// inline is the longest body that the caller's goroutine writes before it reads. A
	// socket takes as much at once, so that the receiver can't make it wait.
	inline = 16 << 10
	// writerRest is how long the writer of a long body has to end after the answer.
	writerRest = 20 * time.Millisecond
)

// conn is one HTTP/1.1 connection. An exchange has it alone.
type conn struct {
	t      *Transport
	host   *host
	wire   *wire
	stream net.Conn // wire, or TLS over it
	secure *Handshake
	in     *bufio.Reader
	out    *bufio.Writer
	cut    func() // ends what waits on the socket
	head   int    // how many bytes may still be read of an answer's head
	lines  int    // how many lines of it

	born   time.Time // when it was opened
	used   time.Time // when it last answered
	rested time.Time // when it was given back
	once   bool      // it is for one exchange
}

func newConn(t *Transport, h *host, w *wire, stream net.Conn, secure *Handshake, now time.Time) *conn {
	c := &conn{t: t, host: h, wire: w, stream: stream, secure: secure, born: now}
	c.in = bufio.NewReaderSize(source{c}, readBuffer)
	c.out = bufio.NewWriterSize(body{stream}, writeBuffer)
	c.cut = func() { _ = w.SetDeadline(time.Unix(1, 0)) }
	return c
}

// proven is when the connection last showed that it is alive.
func (c *conn) proven() time.Time {
	if c.used.IsZero() {
		return c.born
	}
	return c.used
}

func (c *conn) release() {
	c.t.ended(c.host, time.Time{})
	c.t.give(c)
}

// drop tells the receiver, which TLS does with an alert.
func (c *conn) drop() { _ = c.stream.Close() }

// source is what the buffer reads from: the stream, of which a head has its bounds.
type source struct{ c *conn }

func (s source) Read(p []byte) (int, error) {
	if s.c.head <= 0 || s.c.lines <= 0 {
		return 0, ErrHeadTooLarge
	}
	n, err := s.c.stream.Read(p[:min(len(p), s.c.head)])
	s.c.head -= n
	s.c.lines -= bytes.Count(p[:n], []byte{'\n'})
	return n, err
}

// bound is for a head, and unbound for a body: who reads that bounds it.
func (c *conn) bound()   { c.head, c.lines = maxHead, maxLines }
func (c *conn) unbound() { c.head, c.lines = math.MaxInt, math.MaxInt }

// state is what a look at a connection shows between two exchanges.
type state int

const (
	quiet state = iota
	dead
	// talking: something is there that nobody asked for, and that the next request would
	// take for its answer.
	talking
)

// look gives also the error by which the connection ended.
func (c *conn) look() (state, error) {
	if c.in.Buffered() > 0 {
		return talking, nil
	}
	c.bound()
	c.wire.looking = true
	_, err := c.in.Peek(1)
	c.wire.looking = false
	switch {
	case err == nil, !c.wire.records.whole():
		return talking, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return quiet, nil
	}
	return dead, err
}

// silent is the error of a new connection on which the receiver spoke first, or which it has
// closed again. A part of a TLS record is none: tickets come as they like.
func (c *conn) silent() error {
	state, err := c.look()
	switch {
	case state == quiet, state == talking && c.in.Buffered() == 0:
		return nil
	case state == talking:
		c.t.suspect(c.host)
		err = ErrUnasked
	}
	c.t.ended(c.host, time.Time{})
	_ = c.wire.Close()
	return &Error{Stage: Exchanging, Cause: err, Answered: state == talking, Unprocessed: state == talking, Cut: true, Secure: c.secure}
}

// exchange is the state of one request on a conn.
type exchange struct {
	*conn
	request  *http.Request
	began    time.Time
	deadline time.Time
	reused   bool
	start    int64 // of wire.written
	answered bool
	interim  int

	writing chan error // nil when the caller's goroutine has written
	wrote   time.Time
	whole   bool
	stop    func() bool // no cut any more
}

// exchange makes one, until the deadline that the socket has already. On an error the
// connection is closed, otherwise the body's Close decides what becomes of it.
func (c *conn) exchange(r *http.Request, now, deadline time.Time) (*http.Response, error) {
	x := &exchange{conn: c, request: r, began: now, deadline: deadline, reused: !c.used.IsZero(), start: c.wire.written.Load()}
	x.stop = func() bool { return true }
	if r.Context().Done() != nil {
		x.stop = context.AfterFunc(r.Context(), c.cut)
	}
	response, err := x.answer()
	if err != nil {
		x.stop()
		x.end()
		c.t.ended(c.host, time.Time{})
		return nil, x.failed(err)
	}
	c.used = time.Now()
	c.t.ended(c.host, c.used)
	if response.Body != http.NoBody {
		_ = c.wire.SetReadDeadline(bodyDeadline(r.Context(), response.StatusCode, c.used, deadline))
	}
	response.Body = &answer{exchange: x, body: response.Body, ended: response.Body == http.NoBody, close: response.Close || r.Close || c.once}
	return response, nil
}

// answer writes the request and reads the answer's head. Whatever happened to the writing,
// an answer that has arrived is the outcome.
func (x *exchange) answer() (*http.Response, error) {
	if r := x.request; r.Body == nil || r.ContentLength >= 0 && r.ContentLength <= inline {
		if err := x.write(); err != nil {
			if x.request.Context().Err() != nil {
				return nil, err
			}
			_ = x.wire.SetReadDeadline(lastLook(err))
			if response, failed := x.read(); failed == nil || x.answered || tlsAlert(failed) {
				return response, failed
			}
			return nil, err
		}
		return x.read()
	}
	x.writing = make(chan error, 1)
	go func() {
		err := x.write()
		if err != nil && x.request.Context().Err() == nil {
			// Reading has the last word, but need not wait any more.
			_ = x.wire.SetReadDeadline(lastLook(err))
		}
		x.writing <- err
	}()
	response, err := x.read()
	if err == nil {
		return response, nil
	}
	_ = x.wire.Close()
	if failed := x.written(); failed != nil && !x.answered && !tlsAlert(err) && !x.over(err) {
		return nil, failed
	}
	return nil, err
}

// over is whether an error means that the request's time is over.
func (x *exchange) over(err error) bool { return late(err) && !time.Now().Before(x.deadline) }

// lastLook is how long is waited for an answer after the request could not be written to
// its end. One that has arrived is there at once.
func lastLook(err error) time.Time {
	if late(err) {
		return time.Now().Add(lookFor)
	}
	return time.Now().Add(time.Second)
}

// written waits for the end of the writing, and says how it ended.
func (x *exchange) written() error {
	if x.writing == nil {
		return nil
	}
	err := <-x.writing
	x.writing = nil
	return err
}

func (x *exchange) write() error {
	err := x.request.Write(x.out)
	if err == nil {
		err = x.out.Flush()
	}
	x.wrote, x.whole = time.Now(), err == nil
	if x.wire.failed != nil {
		return x.wire.failed
	}
	return err
}

// read reads heads until that of the final answer. They have one bound together.
func (x *exchange) read() (*http.Response, error) {
	x.bound()
	for {
		response, err := x.readHead()
		switch {
		case err != nil:
			return nil, err
		case response.StatusCode == http.StatusSwitchingProtocols, response.StatusCode < 100:
			return nil, ErrNotFinal
		case response.StatusCode >= 200:
			x.unbound()
			return response, nil
		}
		if err := x.rest(); err != nil {
			return nil, err
		}
	}
}

// rest is the pause after an interim answer.
func (x *exchange) rest() error {
	if x.interim++; x.interim <= freeInterim {
		return nil
	}
	length := interimPause
	if !x.deadline.IsZero() {
		length = min(length, time.Until(x.deadline))
	}
	if length <= 0 { // though the socket has not said so yet
		return errLate
	}
	pause(x.request.Context(), length)
	x.lines = maxLines // its bytes are bounded with those of the others
	return x.request.Context().Err()
}

// readHead reads one head. That of a 2xx may be anything after its status line: the receiver
// has the message, and whatever else it meant to say can't change that.
func (x *exchange) readHead() (*http.Response, error) {
	line, err := x.statusLine()
	if err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(x.in, x.request)
	if err != nil && !x.deadline.IsZero() && !time.Now().Before(x.deadline) {
		return nil, errLate // of a line that was cut off the library says that it is malformed
	}
	switch {
	case err == nil:
		return response, nil
	case line.secure:
		return nil, ErrSpeaksTLS
	case line.status < 200 || line.status > 299 || late(err) || x.request.Context().Err() != nil:
		return nil, err
	}
	return &http.Response{
		Status: strconv.Itoa(line.status), StatusCode: line.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Close: true, Request: x.request,
	}, nil
}

// line is what is seen of the first line of an answer before it is read.
type line struct {
	status int  // 0 unless it is a status line to its end
	secure bool // it is an alert of TLS
}

// statusLine waits for the first line and looks at it, without reading it.
func (x *exchange) statusLine() (line, error) {
	if _, err := x.in.Peek(1); err != nil {
		return line{}, err
	}
	if x.answered = true; x.interim == 0 && x.wire.unacknowledged(x.start) {
		return line{}, ErrUnasked
	}
	for {
		seen, _ := x.in.Peek(x.in.Buffered())
		if len(seen) > 1 && seen[0] == 0x15 && seen[1] == 3 {
			return line{secure: true}, nil
		}
		if end := bytes.IndexByte(seen, '\n'); end >= 0 {
			return line{status: parseStatus(seen[:end])}, nil
		}
		if len(seen) == x.in.Size() {
			return line{}, nil // its length alone makes it none that is worth a look
		}
		if _, err := x.in.Peek(len(seen) + 1); err != nil {
			if late(err) || x.request.Context().Err() != nil {
				return line{}, err
			}
			return line{}, nil // http.ReadResponse says what is wrong with it
		}
	}
}

// parseStatus reads a status line as http.ReadResponse does; 0 means that it is none.
func parseStatus(text []byte) int {
	proto, rest, _ := bytes.Cut(bytes.TrimRight(text, "\r"), []byte{' '})
	code, _, _ := bytes.Cut(bytes.TrimLeft(rest, " "), []byte{' '})
	if _, _, ok := http.ParseHTTPVersion(string(proto)); !ok || len(code) != 3 {
		return 0
	}
	status, err := strconv.Atoi(string(code))
	if err != nil || status < 0 {
		return 0
	}
	return status
}

// failed makes the error of an exchange.
func (x *exchange) failed(cause error) error {
	if err := context.Cause(x.request.Context()); err != nil {
		return err
	}
	e := &Error{
		Stage: Exchanging, Cause: cause, Reused: x.reused, Rested: x.reused, Answered: x.answered, Whole: x.whole, Cut: !x.whole, Secure: x.secure,
		Sent: x.wire.written.Load() > x.start, Late: x.over(cause),
	}
	if !x.wrote.IsZero() {
		e.After = time.Since(x.wrote)
	}
	if errors.Is(cause, ErrUnasked) {
		x.t.suspect(x.host)
	}
	if e.Late && e.Stale() {
		x.t.retire(x.host, x.began, x.conn)
	}
	return e
}

// end closes the connection, and waits for who writes to it.
func (x *exchange) end() {
	_ = x.wire.Close()
	_ = x.written()
}

// answer is the body of an answer. Its Close ends the exchange.
type answer struct {
	*exchange
	body  io.ReadCloser
	ended bool // the body was read to its end
	close bool // the connection can't be used again
	done  bool
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	a.ended = a.ended || errors.Is(err, io.EOF)
	return n, err
}

// Close gives the connection back when it can carry a further request.
func (a *answer) Close() error {
	if a.done {
		return nil
	}
	a.done = true
	uncut := a.stop()
	if a.writing != nil { // an answer to half of a request, or the writer has not said yet that it is done
		rest := time.NewTimer(writerRest)
		defer rest.Stop()
		select {
		case err := <-a.writing:
			a.writing = nil
			a.close = a.close || err != nil
		case <-rest.C:
			a.close = true
		}
	}
	switch {
	case !a.ended || !uncut || a.writing != nil:
		a.end()
		return nil
	case a.close:
		a.drop()
		return nil
	}
	a.t.give(a.conn)
	return nil
}

// bodyDeadline is until when the body of an answer is read. Nearly always the status has decided: that of
// a 2xx waits for nothing but a text for people.
func bodyDeadline(ctx context.Context, status int, now, deadline time.Time) time.Time {
	if LimitsOf(ctx).WholeBody {
		return deadline
	}
	patience := 5 * time.Second
	if status >= 200 && status < 300 {
		patience = time.Second
	}
	if by := now.Add(patience); by.Before(deadline) || deadline.IsZero() {
		return by
	}
	return deadline
}
