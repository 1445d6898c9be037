package webhook

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
)

// BenchmarkSend is one POST over loopback, its receiver included, through all layers: on
// our own exchange, and on net/http's transport in its place.
func BenchmarkSend(b *testing.B) {
	receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
	receiver.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	receiver.Start()
	defer receiver.Close()
	for _, size := range []string{"1k", "64k"} {
		for _, exchange := range []string{"own", "net-http"} {
			b.Run(size+"/"+exchange, func(b *testing.B) {
				opts := Options{Guard: GuardOptions{AllowPrivate: true}, Unrecorded: true, TracerProvider: noop.NewTracerProvider()}
				s, err := NewSender(opts)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				if exchange == "net-http" {
					t := &http.Transport{MaxIdleConnsPerHost: 256, ReadBufferSize: 1 << 10, WriteBufferSize: 2 << 10, DisableCompression: true}
					defer t.CloseIdleConnections()
					s.client = s.newClient(bounded{t}, opts)
				}
				body := []byte(strings.Repeat("x", map[string]int{"1k": 1 << 10, "64k": 64 << 10}[size]))
				w := &Webhook{URL: receiver.URL + "/hook", Secrets: []Secret{NewSecret(time.Now())}, Timeout: 30 * time.Second}
				b.ReportAllocs()
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						if got := s.Send(context.Background(), w, Request{MessageID: "m", Queue: "q", Attempt: 1, Body: body}); got.Status != http.StatusNoContent {
							b.Errorf("%d %s", got.Status, got.Error)
						}
					}
				})
			})
		}
	}
}

// bounded gives net/http its deadline, which it takes from the context.
type bounded struct{ inner http.RoundTripper }

func (t bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, stop := context.WithTimeout(r.Context(), 30*time.Second)
	response, err := t.inner.RoundTrip(r.WithContext(ctx))
	if err != nil {
		stop()
		return nil, err
	}
	response.Body = stopping{response.Body, stop}
	return response, nil
}

type stopping struct {
	io.ReadCloser
	stop context.CancelFunc
}

func (s stopping) Close() error { defer s.stop(); return s.ReadCloser.Close() }
