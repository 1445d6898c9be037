package webhook_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// What may not begin any more when its connection is there is not sent, on a new one and on one that was used before,
// and the connection serves the next one.
func TestNothingIsSentThatMayNotBeginAnyMore(t *testing.T) {
	for _, protocol := range []string{"http", "https", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			var requests, connections atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
			cert, roots := certificate(t)
			server.TLS, server.EnableHTTP2 = &tls.Config{Certificates: []tls.Certificate{cert}}, protocol == "h2"
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections.Add(1)
				}
			}
			if protocol == "http" {
				server.Start()
			} else {
				server.StartTLS()
			}
			defer server.Close()
			s, w := newSender(t, nil, trusting(roots)), hook()
			w.URL = server.URL
			for i, may := range []bool{false, true, false, true} {
				m := message("{}")
				m.Begin = func() bool { return may }
				got := s.Send(t.Context(), w, m)
				if got.NotBegun == may || may != (got.Status == 200) || requests.Load() != int64(i+1)/2 {
					t.Errorf("%d: status %d, %q, not begun %v, %d requests", i, got.Status, got.Error, got.NotBegun, requests.Load())
				}
			}
			if connections.Load() != 1 {
				t.Errorf("%d connections, want 1", connections.Load())
			}
		})
	}
}
