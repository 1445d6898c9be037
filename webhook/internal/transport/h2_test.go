package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A receiver that sends an endless answer over HTTP/2 has told us no more than it may before it is read.
func TestWhatIsNotReadOfAnAnswerIsBoundedOverHTTP2(t *testing.T) {
	var serving sync.WaitGroup
	defer serving.Wait()
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	authorities := x509.NewCertPool()
	authorities.AddCert(certified.Certificate())
	stream, connection := 0, 65535 // at first, by RFC 9113, section 6.9.2
	c := New(Config{
		Dial: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			serving.Go(func() {
				server := tls.Server(theirs, &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}})
				defer server.Close()
				if _, err := io.ReadFull(server, make([]byte, len(http2.ClientPreface))); err != nil {
					return
				}
				frames := http2.NewFramer(server, server)
				for {
					switch f, err := frames.ReadFrame(); f := f.(type) {
					case *http2.SettingsFrame:
						if n, ok := f.Value(http2.SettingInitialWindowSize); ok {
							stream = int(n)
						}
					case *http2.WindowUpdateFrame:
						connection += int(f.Increment)
					case *http2.HeadersFrame:
						return
					default:
						if err != nil {
							return
						}
					}
				}
			})
			return ours, nil
		},
		KeepOld: func(error) time.Duration { return 0 },
		TLS:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities, ServerName: "example.com"},
	})
	defer c.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://example.com/hook", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if response, err := c.RoundTrip(r); err == nil {
		_ = response.Body.Close()
		t.Error("there was an answer")
	}
	serving.Wait()
	if stream != unreadStream || connection > unread+65535 || connection == 65535 {
		t.Errorf("%d bytes of an answer may be sent unread, and %d on a connection; want %d and at most %d", stream, connection, unreadStream, unread+65535)
	}
}
