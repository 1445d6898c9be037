package webhook

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"

	"github.com/pushlease/pushlease/webhook/internal/transport"
)

// tlsFailure is about a handshake that failed. It says what was seen, and who mends it.
func tlsFailure(e *transport.Error) *failure {
	f := &failure{class: classTLS, text: "the TLS handshake failed", again: true}
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
	)
	switch {
	case short(e):
		return shortFailure(e)
	case errors.As(e, &authority):
		f.text = authorityText(e)
	case errors.As(e, &name) && len(name.Certificate.DNSNames)+len(name.Certificate.IPAddresses) == 0:
		f.text = "the receiver's certificate has only a common name: it needs the host among its alternative names (SAN)"
	case errors.As(e, &name):
		f.text = "the receiver's certificate is for another name"
	case errors.As(e, &invalid) && invalid.Reason == x509.Expired && invalid.Cert.IsCA:
		f.text = "an authority of the receiver's certificate has expired: have its chain renewed, or set tls.ca"
	case errors.As(e, &invalid) && invalid.Reason == x509.Expired:
		f.text = "the receiver's certificate has expired or is not valid yet"
	case errors.As(e, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		f.text = "the receiver's certificate is not one for servers"
	case errors.As(e, &record):
		f.text = "the receiver does not speak TLS on this port"
	case strings.Contains(e.Error(), "unsupported protocol version"), strings.Contains(e.Error(), "unsupported versions"):
		f.text = oldVersion
	case alert(e) != "":
		return alertFailure(e)
	case e.Died():
		f.text = "the receiver closed the connection in the TLS handshake" + afterCertificate(e.Secure)
	default:
		f.text += afterCertificate(e.Secure)
	}
	return f
}

const oldVersion = "the receiver offers only versions of TLS below 1.2, or below the webhook's tls.min_version"

// authorityText tells apart why a chain does not end at a trusted authority.
func authorityText(e *transport.Error) string {
	var unverified *tls.CertificateVerificationError
	if errors.As(e, &unverified) && len(unverified.UnverifiedCertificates) > 0 {
		sent := unverified.UnverifiedCertificates
		switch {
		case bytes.Equal(sent[0].RawIssuer, sent[0].RawSubject):
			return "the receiver's certificate is signed by itself, not by a trusted authority"
		case len(sent) == 1:
			return "no trusted authority signed the receiver's certificate, or its intermediate certificates are not sent"
		}
	}
	return "the receiver's certificate is not signed by a trusted authority"
}

// alert is the name that crypto/tls has for the alert by which the receiver ended TLS.
func alert(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" && op.Err != nil {
		return strings.TrimPrefix(op.Err.Error(), "tls: ")
	}
	return ""
}

// afterCertificate says of a new connection that ended without a word what its receiver may have wanted.
func afterCertificate(h *transport.Handshake) string {
	switch {
	case h == nil || !h.AskedCertificate:
		return ""
	case h.SentCertificate:
		return ", once it had the client certificate"
	}
	return ", once it had asked for a client certificate: set tls.client_certificate"
}

// alertFailure is about an alert. It is repeated like any other failed handshake when it
// came in one; behind that, the request was sent.
func alertFailure(e *transport.Error) *failure {
	f := &failure{class: classTLS, again: e.Stage == transport.Handshaking}
	switch name := alert(e); {
	case e.Secure != nil && e.Secure.SentCertificate && name != "unrecognized name" && name != "protocol version not supported":
		f.text = "the receiver refused the client certificate (" + name + "): set tls.client_certificate"
	case e.Secure != nil && e.Secure.AskedCertificate && name != "unrecognized name":
		f.text = "the receiver asks for a client certificate (mTLS): set tls.client_certificate and tls.client_key"
	case name == "protocol version not supported":
		f.text = oldVersion
	case name == "unrecognized name":
		f.text = "the receiver has no site of this name (TLS alert unrecognized_name)"
	case name == "handshake failure", name == "insufficient security level":
		f.text = "the receiver found no cipher suite in common, or refused the handshake"
	default:
		f.text = "the receiver ended the TLS connection with the alert " + name
	}
	return f
}
