package webhook_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// issuer is a certificate and its key, and what it issues.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes a certificate; by nil signs itself.
func issue(t *testing.T, by *issuer, change func(*x509.Certificate)) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"example.com"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	change(template)
	parent := &issuer{template, key}
	if by != nil {
		parent = by
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, &key.PublicKey, parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{cert, key}
}

func authority(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject, c.IsCA, c.BasicConstraintsValid, c.KeyUsage = pkix.Name{CommonName: name}, true, true, x509.KeyUsageCertSign
		c.DNSNames, c.ExtKeyUsage = nil, nil
	}
}

// C95: a fault of TLS says what was seen and who mends it.
func TestEachFaultOfTLSIsNamed(t *testing.T) {
	root := issue(t, nil, authority("root"))
	middle := issue(t, root, authority("middle"))
	roots := x509.NewCertPool()
	roots.AddCert(root.cert)
	good := issue(t, root, func(*x509.Certificate) {})
	ended := issue(t, root, func(c *x509.Certificate) { authority("ended")(c); c.NotAfter = time.Now().Add(-time.Minute) })
	serving := func(of *issuer, chain ...*issuer) *tls.Config {
		c := tls.Certificate{Certificate: [][]byte{of.cert.Raw}, PrivateKey: of.key}
		for _, more := range chain {
			c.Certificate = append(c.Certificate, more.cert.Raw)
		}
		return &tls.Config{Certificates: []tls.Certificate{c}}
	}
	with12 := func(c *tls.Config, change func(*tls.Config)) *tls.Config { change(c); return c }
	for name, c := range map[string]struct {
		config *tls.Config
		text   string
	}{
		"whole chain": {serving(issue(t, middle, func(*x509.Certificate) {}), middle), ""},
		"incomplete chain": {serving(issue(t, middle, func(*x509.Certificate) {})),
			"no trusted authority signed the receiver's certificate, or its intermediate certificates are not sent"},
		"signed by itself": {serving(issue(t, nil, func(*x509.Certificate) {})), "the receiver's certificate is signed by itself, not by a trusted authority"},
		"common name only": {serving(issue(t, root, func(c *x509.Certificate) { c.DNSNames = nil })),
			"the receiver's certificate has only a common name: it needs the host among its alternative names (SAN)"},
		"other name": {serving(issue(t, root, func(c *x509.Certificate) { c.DNSNames = []string{"other.example"} })), "the receiver's certificate is for another name"},
		"not for servers": {serving(issue(t, root, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })),
			"the receiver's certificate is not one for servers"},
		"expired": {serving(issue(t, root, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })),
			"the receiver's certificate has expired or is not valid yet"},
		"expired authority": {serving(issue(t, ended, func(*x509.Certificate) {}), ended), "an authority of the receiver's certificate has expired: have its chain renewed, or set tls.ca"},
		"old protocol": {with12(serving(good), func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }),
			"the receiver offers only versions of TLS below 1.2, or below the webhook's tls.min_version"},
		"no common cipher": {with12(serving(good), func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_RSA_WITH_RC4_128_SHA}
		}), "the receiver found no cipher suite in common, or refused the handshake"},
		"client certificate, TLS 1.2": {with12(serving(good), func(c *tls.Config) { c.MaxVersion, c.ClientAuth = tls.VersionTLS12, tls.RequireAnyClientCert }),
			"the receiver asks for a client certificate (mTLS): set tls.client_certificate and tls.client_key"},
		"client certificate, TLS 1.3": {with12(serving(good), func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }),
			"the receiver asks for a client certificate (mTLS): set tls.client_certificate and tls.client_key"},
		"client certificate that is not required": {with12(serving(good), func(c *tls.Config) { c.ClientAuth = tls.RequestClientCert }), ""},
		"other protocol": {with12(serving(good), func(c *tls.Config) { c.NextProtos = []string{"other"} }),
			"the receiver ended the TLS connection with the alert no application protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			wire := webhooktest.NewTCPWire(t, func(conn *webhooktest.Conn) {
				secure := tls.Server(conn.Conn, c.config)
				if err := secure.Handshake(); err == nil {
					buffer := make([]byte, 4096)
					_, _ = secure.Read(buffer)
					_, _ = io.WriteString(secure, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
				_, _ = io.Copy(io.Discard, conn.Conn) // closing at once could overtake the alert
			})
			w := hook()
			_, port, _ := net.SplitHostPort(wire.Address())
			w.URL = "https://example.com:" + port + "/"
			got := newSender(t, nil, trusting(roots), with(resolving("example.com", addresses("127.0.0.1")))).Send(t.Context(), w, message("{}"))
			if c.text == "" {
				wantAnswer(t, got, 200)
				return
			}
			wantFailure(t, got, "tls")
			if got.Error != c.text {
				t.Errorf("%q, want %q", got.Error, c.text)
			}
		})
	}
}

// The same for what is no fault of a certificate.
func TestWhatWasSeenOfAnExchangeIsNamed(t *testing.T) {
	t.Run("http to a port of TLS", func(t *testing.T) {
		wire := webhooktest.NewTCPWire(t, func(c *webhooktest.Conn) { answerOnce(c, "\x15\x03\x01\x00\x02\x02\x0a") }) // unexpected_message
		w := hook()
		w.URL = wire.URL()
		got := newSender(t, nil).Send(t.Context(), w, message("{}"))
		if !strings.Contains(got.Error, "register it with https") {
			t.Errorf("%s %q", got.ErrorClass, got.Error)
		}
	})
	t.Run("handshake that hangs", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			w := hook()
			w.URL = "https://127.0.0.1/"
			got := newSender(t, webhooktest.NewWire(t, webhooktest.Silence).Dial).Send(t.Context(), w, message("{}"))
			if wantFailure(t, got, "timeout"); !strings.Contains(got.Error, "nothing was sent") {
				t.Error(got.Error)
			}
		})
	})
	t.Run("dial that hangs", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			got := newSender(t, stalledDial).Send(t.Context(), hook(), message("{}"))
			if wantFailure(t, got, "timeout"); !strings.Contains(got.Error, "nothing was sent") {
				t.Error(got.Error)
			}
		})
	})
	t.Run("HTTP/2 stream", func(t *testing.T) {
		receiver := &frames{reply: func(f *http2.Framer, _ int, stream uint32) error {
			return f.WriteRSTStream(stream, http2.ErrCodeEnhanceYourCalm)
		}}
		s, w := eitherProtocol(t, receiver.serve, webhooktest.Hang)
		got := s.Send(t.Context(), w, message("{}"))
		if wantFailure(t, got, "reset"); !strings.HasSuffix(got.Error, "ENHANCE_YOUR_CALM") {
			t.Error(got.Error)
		}
	})
}
