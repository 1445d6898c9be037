//go:build unix

package webhook

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
)

// BenchmarkSend is one POST over loopback, its receiver included, through all layers: on
// our own exchange, and on net/http's transport in its place.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		receiver := takeAll(b, size)
		for _, exchange := range []string{"own", "net-http"} {
			b.Run(fmt.Sprintf("%dk/%s", size>>10, exchange), func(b *testing.B) {
				opts := Options{Guard: GuardOptions{AllowPrivate: true}, Unrecorded: true, TracerProvider: noop.NewTracerProvider()}
				s, err := NewSender(opts)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				if exchange == "net-http" {
					t := &http.Transport{MaxIdleConnsPerHost: 256, ReadBufferSize: 1 << 10, WriteBufferSize: 2 << 10, DisableCompression: true}
					defer t.CloseIdleConnections()
					s.layer(bounded{t}, opts)
				}
				body := []byte(strings.Repeat("x", size))
				w := &Webhook{URL: "http://" + receiver + "/hook", Secrets: []Secret{NewSecret(time.Now())}, Timeout: 30 * time.Second}
				b.ReportAllocs()
				before := cpu()
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						if got := s.Send(context.Background(), w, Request{MessageID: "m", Queue: "q", Attempt: 1, Body: body}); got.Status != http.StatusNoContent {
							b.Errorf("%d %s", got.Status, got.Error)
						}
					}
				})
				b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// cpu is the time that this process has used.
func cpu() int64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return used.Utime.Nano() + used.Stime.Nano()
}

// takeAll is a receiver that costs little: each request with a body of so many bytes gets 204.
func takeAll(b *testing.B, size int) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReaderSize(conn, 80<<10)
				for {
					for line := []byte("head"); len(line) > 2; {
						if line, err = in.ReadSlice('\n'); err != nil {
							return
						}
					}
					if _, err := in.Discard(size); err != nil {
						return
					}
					if _, err := io.WriteString(conn, "HTTP/1.1 204 No Content\r\nDate: Sat, 28 Nov 2026 18:00:00 GMT\r\n\r\n"); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
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
