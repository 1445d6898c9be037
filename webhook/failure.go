package webhook

import (
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pushlease/pushlease/webhook/internal/transport"
)

// The values of Result.ErrorClass, which are those of policy.ErrorClass.
const (
	classTimeout  = "timeout"
	classConnect  = "connect"
	classDNS      = "dns"
	classTLS      = "tls"
	classReset    = "reset"
	classProtocol = "protocol"
	classBlocked  = "blocked"
	classRequest  = "request"
	classToken    = "token"
	classCanceled = "canceled"
)

// failure is why a try gave no answer. It stands in for the error that net/http
// gave, whose text can hold the URL, addresses and what the receiver sent: spans
// and results see only this one.
type failure struct {
	class string
	text  string
	// again is whether the try may be made once more at once.
	again bool
	// name is whether the address that the guard refused is what a name led to.
	name bool
	// sent is whether anything of the request was.
	sent bool
	// stale is whether it may have been the connection alone that was dead.
	stale bool
	// http1 is whether the receiver asked for HTTP/1.1, and gets it from now on.
	http1 bool
	// held is whether the caller said at the last moment that nothing may be sent.
	held bool
	// short is whether this machine lacked what the try needed.
	short bool
	// tokenAt is when a token that can't be had is worth asking for again; zero where that is not what is missing.
	tokenAt time.Time
}

func (f *failure) Error() string { return f.text }

// ErrorType is what otelhttp writes into the span's attribute error.type.
func (f *failure) ErrorType() string { return f.class }

// failureOf turns an error of the transport into what may be told of it. ctx is the caller's.
func failureOf(ctx context.Context, err error) *failure {
	var (
		e *transport.Error
		f *failure
	)
	switch {
	case ctx.Err() != nil:
		return &failure{class: classCanceled, text: "the exchange was cut short by pushlease"}
	case !errors.As(err, &e):
		return &failure{class: classRequest, text: "the request could not be sent as it is registered"}
	case errors.As(e.Cause, &f) && (f.short || !e.Late): // from the guard
		return f
	case e.Late:
		return lateFailure(e)
	case e.Stage == transport.Request:
		return &failure{class: classRequest, text: "the request could not be sent as it is registered"}
	case errors.Is(e, transport.ErrNotBegun):
		return &failure{class: classCanceled, held: true, text: "pushlease may not send it any more"}
	case e.Stage == transport.Connecting:
		return &failure{class: classConnect, text: "the connection was there when too little time was left: nothing was sent"}
	case e.Stage == transport.Handshaking:
		return tlsFailure(e)
	}
	f = exchangeFailure(e)
	if f.class == classReset && !e.Answered && !e.Reused {
		f.text += afterCertificate(e.Secure) // an alert may be lost with its connection
	}
	f.sent, f.stale, f.again = e.Sent, e.Stale(), e.NoChance()
	f.http1 = e.WantsHTTP1
	return f
}

// lateFailure is about the end of the webhook's timeout. Who looks for the cause of a second
// delivery needs to know whether anything was sent.
func lateFailure(e *transport.Error) *failure {
	f := &failure{class: classTimeout, sent: e.Sent, stale: e.Stale()}
	switch {
	case e.Stage == transport.Connecting:
		f.text = "no connection was there within the webhook's timeout: nothing was sent"
	case e.Stage == transport.Handshaking:
		f.text = "the TLS handshake was not over within the webhook's timeout: nothing was sent"
	case !e.Whole:
		f.text = "the receiver had not taken the whole request within the webhook's timeout"
	default:
		f.text = "the exchange was not over within the webhook's timeout"
	}
	return f
}

func dnsFailure(err error) *failure {
	var dns *net.DNSError
	switch isDNS := errors.As(err, &dns); {
	case isDNS && dns.IsNotFound:
		return &failure{class: classDNS, text: "the host name does not exist or has no address"}
	case short(err), isDNS && slices.ContainsFunc(shortages, func(e syscall.Errno) bool { return strings.HasSuffix(dns.Err, e.Error()) }):
		return shortFailure(err)
	}
	return &failure{class: classDNS, text: "the host name could not be resolved", again: true}
}

// goneFor is how long connections go on whose name does not exist any more: resolvers say so
// at times of a name that does.
const goneFor = 10 * time.Minute

// keepOld is for how long old connections may go on in the place of one that could not be
// opened. Where nobody could be reached, they are all there is. A receiver that does not
// prove any more who it is, or whose name leads where the guard lets nobody go, gets nothing
// over them either.
func keepOld(err error) time.Duration {
	var e *transport.Error
	if errors.As(err, &e) && e.Stage == transport.Handshaking && (e.Died() || errors.Is(e, context.DeadlineExceeded)) {
		return math.MaxInt64
	}
	switch f := failureOf(context.Background(), err); f.class {
	case classDNS:
		if !f.again {
			return goneFor
		}
		return math.MaxInt64
	case classConnect, classCanceled:
		return math.MaxInt64
	}
	return 0
}

// shortages are what the system answers when this machine has no more sockets, ports or memory.
var shortages = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL}

func short(err error) bool {
	return slices.ContainsFunc(shortages, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// shortFailure says nothing about the receiver, so that nothing is charged to it.
func shortFailure(err error) *failure {
	f := &failure{class: classCanceled, short: true, text: "this machine has no socket left: raise the limit of open files, or lower the concurrency"}
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		f.text = "this machine has no free port or address to connect from: widen its range of ports, or lower the concurrency"
	}
	return f
}

// blockedName is about a name none of whose addresses may be dialled.
func blockedName() *failure {
	return &failure{class: classBlocked, name: true, text: "the host name leads only to addresses that the address guard refuses"}
}

func connectFailure(err error) *failure {
	f := &failure{class: classConnect, text: "the connection could not be opened", again: true}
	switch {
	case errors.Is(err, ErrBlockedAddress):
		return &failure{class: classBlocked, text: ErrBlockedAddress.Error()}
	case short(err):
		return shortFailure(err)
	case errors.Is(err, syscall.ECONNREFUSED):
		f.text = "the connection was refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		f.text = "the address can not be reached"
	case silent(err):
		f.text = "the connection could not be opened in time"
	}
	return f
}

// exchangeFailure is about a connection that was there and gave no answer.
func exchangeFailure(e *transport.Error) *failure {
	var stream transport.StreamError
	switch {
	case short(e):
		return shortFailure(e)
	case alert(e) != "":
		return alertFailure(e) // with TLS 1.3 a receiver refuses a client after the handshake
	case e.Unprocessed && errors.Is(e, transport.ErrUnasked):
		return &failure{class: classProtocol, text: "the receiver answered before it was asked: nothing was sent"}
	case e.Unprocessed && e.GoAwayCode() != "":
		return &failure{class: classReset, text: "the receiver took no request on the connection: GOAWAY with " + e.GoAwayCode()}
	case e.Unprocessed && !errors.As(e, &stream):
		return &failure{class: classReset, text: "the receiver closed the connection before it took the request"}
	case errors.As(e, &stream):
		return &failure{class: classReset, text: "the receiver reset the HTTP/2 stream with " + stream.Name()}
	case errors.Is(e, transport.ErrNotFinal), errors.Is(e, transport.ErrFlood), errors.Is(e, transport.ErrUnasked),
		errors.Is(e, transport.ErrMalformed2):
		return &failure{class: classProtocol, text: e.Cause.Error()}
	case errors.Is(e, transport.ErrSpeaksTLS):
		return &failure{class: classProtocol, text: "the receiver speaks TLS on this port: register it with https"}
	case !e.Answered && e.Cut && e.Sent:
		return &failure{class: classReset, text: "the connection died before the receiver had taken the whole request"}
	case !e.Answered && !e.Sent && !e.HTTP2:
		return &failure{class: classReset, text: "the receiver had closed the connection: nothing was sent"}
	case !e.Answered:
		return &failure{class: classReset, text: "the connection died before an answer"}
	case e.Died():
		return &failure{class: classReset, text: "the connection died within the answer's head"}
	}
	return &failure{class: classProtocol, text: "the answer is not HTTP, or its head is malformed or too large"}
}
