package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// Stage is how far a request came.
type Stage int

// The stages, in their order.
const (
	// Request: it can't be sent as it is.
	Request Stage = iota
	// Connecting: no connection was there. Nothing was sent.
	Connecting
	// Handshaking: TLS was not agreed on. Nothing was sent.
	Handshaking
	// Exchanging: there was a connection.
	Exchanging
)

// Error is why there is no answer, with all that is known about the exchange.
type Error struct {
	Stage Stage
	Cause error
	// Late is whether the request's time was over. A context that ended is its own error.
	Late bool
	// Reused is whether the connection had carried an exchange before.
	Reused bool
	// Rested is whether nothing else was under way on it, and nothing has come back since.
	Rested bool
	// Alive is whether the connection, though not the exchange, brought something since the
	// request was written: HTTP/2 pings it.
	Alive bool
	HTTP2 bool
	// Sent is whether a byte of the request was written, Whole whether all of it was. Cut is whether it surely
	// was not: of HTTP/2 it may be that neither is known.
	Sent, Whole, Cut bool
	// Answered is whether a byte came back.
	Answered bool
	// After is the time from the end of the writing to the failure.
	After time.Duration
	// Unprocessed is whether HTTP/2 says that the receiver did not begin with the request.
	Unprocessed bool
	// WantsHTTP1 is whether the receiver did not, because it asks for HTTP/1.1. It gets it from
	// now on.
	WantsHTTP1 bool
	// Secure is about the handshake; nil without TLS.
	Secure *Handshake
}

// Handshake is what the receiver did in the handshake.
type Handshake struct {
	// AskedCertificate is whether it wanted a certificate of ours.
	AskedCertificate bool
	// SentCertificate is whether it got one.
	SentCertificate bool
}

func (e *Error) Error() string { return e.Cause.Error() }
func (e *Error) Unwrap() error { return e.Cause }

// repeatable is how soon after it was written a request may be repeated: a receiver that
// closed its idle connection just then is known at once, one that worked on the request
// takes longer to die.
const repeatable = time.Second

// NoChance is whether the receiver provably had none to process the request: it said so, it
// did not get all of it, or the connection, which had been idle, died as it was used again.
func (e *Error) NoChance() bool {
	switch {
	case e.Stage != Exchanging, e.Late, e.Answered:
		return e.Unprocessed
	case e.Unprocessed:
		return true
	case e.Cut:
		return e.Died()
	}
	return died(e.Cause) && e.Rested && e.After < repeatable
}

// Stale is whether it may well be the connection alone that was dead: it had been used
// before, and not a byte came back.
func (e *Error) Stale() bool { return e.Stage == Exchanging && e.Reused && !e.Answered && !e.Alive }

// Errors of the exchange itself.
var (
	// ErrUnasked is about bytes that came before the request can have arrived.
	ErrUnasked = errors.New("the receiver sent bytes that nobody had asked for")
	// ErrHeadTooLarge ends the reading of a head.
	ErrHeadTooLarge = errors.New("the answer's head is too large")
	// ErrNotFinal is about a status that ends no exchange, such as 101.
	ErrNotFinal = errors.New("the answer's status is not a final one")
	// ErrFlood is about interim answers without end.
	ErrFlood = errors.New("too many interim answers")
	// ErrMalformed2 is about an answer over HTTP/2 that can't be read, so that its status is not known. The host is spoken
	// to over HTTP/1.1 from then on, where it can.
	ErrMalformed2 = errors.New("the answer over HTTP/2 is malformed, or its head too large: HTTP/1.1 is tried next")
	// ErrSpeaksTLS is about a receiver that answers plain HTTP with TLS.
	ErrSpeaksTLS = errors.New("the receiver speaks TLS on this port")
	// ErrNotBegun is about a request of which the caller said at the last moment that it must not begin.
	ErrNotBegun = errors.New("the request must not begin any more")
	// ErrTooLate is about a connection that was there when too little time was left.
	ErrTooLate = errors.New("the connection was there too late for a request")

	errLate = errors.New("the request's time is over")
)

// died is whether an error means that a connection ended.
func died(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed) || errors.As(err, &op) && !tlsAlert(err)
}

// Died is whether the failure is that the connection ended.
func (e *Error) Died() bool {
	text := e.Cause.Error()
	return died(e.Cause) || e.HTTP2 && (strings.HasPrefix(text, h2Closed) || text == h2Lost)
}

func late(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errLate) }

// tlsAlert is whether the receiver ended TLS by an alert, which says more than the end of
// the connection that follows it.
func tlsAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}
