package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
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
	classCanceled = "canceled"
)

// failure is why a try gave no answer. It stands in for the error that net/http
// gave, whose text can hold the URL, addresses and what the receiver sent: spans
// and results see only this one.
type failure struct {
	class string
	text  string
	// again is whether the try may be made once more at once (DESIGN section 14).
	again bool
	// name is whether the address that the guard refused is what a name led to.
	name bool
}

func (f *failure) Error() string { return f.text }

// ErrorType is what otelhttp writes into the span's attribute error.type.
func (f *failure) ErrorType() string { return f.class }

var (
	errDeadline = errors.New("the deadline of the exchange has passed")
	errFlood    = errors.New("too many interim answers")
)

func ended(ctx context.Context) *failure {
	if errors.Is(context.Cause(ctx), errDeadline) {
		return &failure{class: classTimeout, text: "the exchange was not over within the webhook's timeout"}
	}
	return &failure{class: classCanceled, text: "the exchange was cut short by pushlease"}
}

func dnsFailure(err error) *failure {
	var dns *net.DNSError
	switch isDNS := errors.As(err, &dns); {
	case isDNS && dns.IsNotFound:
		return &failure{class: classDNS, text: "the host name does not exist or has no address"}
	case short(err), isDNS && slices.ContainsFunc(shortages, func(e syscall.Errno) bool { return strings.HasSuffix(dns.Err, e.Error()) }):
		return shortFailure()
	}
	return &failure{class: classDNS, text: "the host name could not be resolved", again: true}
}

// shortages are what the system answers when this machine has no more sockets.
var shortages = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}

func short(err error) bool {
	return slices.ContainsFunc(shortages, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// shortFailure says nothing about the receiver, so that nothing is charged to it.
func shortFailure() *failure {
	return &failure{class: classCanceled, text: "this machine has no socket left: raise the limit of open files, or lower the concurrency"}
}

// blockedName is about a name none of whose addresses may be dialled.
func blockedName() *failure {
	return &failure{class: classBlocked, name: true, text: "the host name leads only to addresses that the address guard refuses"}
}

func connectFailure(err error) *failure {
	f := &failure{class: classConnect, text: "the connection could not be opened", again: true}
	var network net.Error
	switch {
	case errors.Is(err, ErrBlockedAddress):
		return &failure{class: classBlocked, text: ErrBlockedAddress.Error()}
	case short(err):
		return shortFailure()
	case errors.Is(err, syscall.ECONNREFUSED):
		f.text = "the connection was refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		f.text = "the address can not be reached"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		f.text = "the connection could not be opened in time"
	}
	return f
}

func tlsFailure(err error) *failure {
	f := &failure{class: classTLS, text: "the TLS handshake failed", again: true}
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		expired   x509.CertificateInvalidError
		record    tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &authority):
		f.text = "the receiver's certificate is not signed by a trusted authority"
	case errors.As(err, &name):
		f.text = "the receiver's certificate is for another name"
	case errors.As(err, &expired) && expired.Reason == x509.Expired:
		f.text = "the receiver's certificate has expired or is not valid yet"
	case errors.As(err, &record):
		f.text = "the receiver does not speak TLS on this port"
	}
	return f
}

// exchangeFailure is about a connection that was there and gave no answer.
func exchangeFailure(err error, reused, firstByte bool) *failure {
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "remote error":
		// With TLS 1.3 a receiver refuses a client after the handshake.
		return &failure{class: classTLS, text: "the receiver ended the TLS connection with an alert"}
	case unprocessed(err):
		return &failure{class: classReset, text: "the receiver closed the connection before it took the request", again: true}
	case !firstByte:
		return &failure{class: classReset, text: "the connection died before an answer", again: reused && !streamReset(err)}
	case died(err):
		return &failure{class: classReset, text: "the connection died within the answer's head"}
	}
	return &failure{class: classProtocol, text: "the answer is not HTTP, or its head is malformed or too large"}
}

// What net/http's HTTP/2 says in the texts of errors; it exports none of them.
const (
	h2CannotRepeat = "http2: Transport: cannot retry err ["
	h2GoAway       = "http2: Transport received Server's graceful shutdown GOAWAY"
	h2Unusable     = "http2: client conn not usable"
	h2StreamError  = "stream error: stream ID "
	h2Refused      = "REFUSED_STREAM; received from peer"
)

// unprocessed is whether HTTP/2 guarantees that the receiver did not begin with
// the request: GOAWAY with a lower last stream, REFUSED_STREAM, or a connection
// that took no further stream. Texts that a receiver could write are not
// looked at.
func unprocessed(err error) bool {
	text := strings.TrimPrefix(err.Error(), h2CannotRepeat)
	return strings.HasPrefix(text, h2GoAway) || strings.HasPrefix(text, h2Unusable) ||
		strings.HasPrefix(text, h2StreamError) && strings.Contains(text, h2Refused)
}

// streamReset is whether only the HTTP/2 stream ended: its connection lives.
func streamReset(err error) bool {
	return strings.HasPrefix(strings.TrimPrefix(err.Error(), h2CannotRepeat), h2StreamError)
}

func died(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed) || errors.As(err, &op)
}
