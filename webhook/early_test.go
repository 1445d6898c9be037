package webhook_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// answersByTheHead answers when it has read the head, and closes with the body unread; "" is
// no answer, and a reset.
func answersByTheHead(answer string) webhooktest.Script {
	return func(c *webhooktest.Conn) {
		tcp, ok := c.Conn.(*net.TCPConn)
		if ok {
			_ = tcp.SetReadBuffer(4 << 10)
		}
		if _, err := c.ReadHead(); err != nil {
			return
		}
		if answer == "" && ok {
			_ = tcp.SetLinger(0)
		}
		_, _ = io.WriteString(c, answer)
	}
}

// sendMany sends n messages, some at a time, and gives how often which status came; a failure
// counts as 0.
func sendMany(t *testing.T, s *webhook.Sender, w *webhook.Webhook, n, atOnce int, body string) map[int]int {
	var mu sync.Mutex
	var work sync.WaitGroup
	statuses, next := map[int]int{}, make(chan struct{}, n)
	for range n {
		next <- struct{}{}
	}
	close(next)
	for range atOnce {
		work.Go(func() {
			for range next {
				got := s.Send(t.Context(), w, message(body))
				mu.Lock()
				statuses[got.Status]++
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return statuses
}

// C43: the answer of a receiver that does not read the whole request is the outcome.
func TestAnAnswerThatArrivedWinsOverAFailedWrite(t *testing.T) {
	body := strings.Repeat("x", 65_000)
	for _, status := range []int{200, 401, 413} {
		for _, header := range []string{"", "Connection: close\r\n"} {
			t.Run(fmt.Sprint(status, header), func(t *testing.T) {
				var posts atomic.Int64
				script := answersByTheHead(fmt.Sprintf("HTTP/1.1 %d X\r\n%sContent-Length: 2\r\n\r\nok", status, header))
				wire := webhooktest.NewTCPWire(t, func(c *webhooktest.Conn) { posts.Add(1); script(c) })
				w := hook()
				w.URL = wire.URL()
				got := sendMany(t, newSender(t, nil), w, 150, 8, body)
				if got[status] != 150 || posts.Load() != 150 {
					t.Errorf("statuses %v of %d POSTs; want 150 times %d", got, posts.Load(), status)
				}
			})
		}
	}
	t.Run("reset", func(t *testing.T) {
		wire := webhooktest.NewTCPWire(t, answersByTheHead(""))
		w := hook()
		w.URL = wire.URL()
		got := newSender(t, nil).Send(t.Context(), w, message(body))
		wantFailure(t, got, "reset")
	})
}

// Over TLS too, as far as a reset leaves what was not decrypted yet: here the receiver
// waits until the answer was read.
func TestAnAnswerOverTLSWinsOverAFailedWrite(t *testing.T) {
	cert, roots := certificate(t)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	var posts atomic.Int64
	wire := webhooktest.ServeWire(t, listener, func(c *webhooktest.Conn) {
		posts.Add(1)
		if _, err := c.ReadHead(); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 413 X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			_, _ = io.Copy(io.Discard, c) // until the sender closes
		}
	})
	w := hook()
	w.URL = strings.Replace(wire.URL(), "http:", "https:", 1)
	got := sendMany(t, newSender(t, nil, trusting(roots)), w, 60, 8, strings.Repeat("x", 65_000))
	if got[413] != 60 || posts.Load() > 60 {
		t.Errorf("statuses %v over %d connections; want 60 times 413", got, posts.Load())
	}
}

// unwritable takes so many bytes, and then fails as a socket does that was reset.
type unwritable struct {
	net.Conn
	left   int
	failed chan struct{}
}

func (u *unwritable) Write(p []byte) (int, error) {
	if u.left -= len(p); u.left >= 0 {
		return u.Conn.Write(p)
	}
	select {
	case <-u.failed:
	default:
		close(u.failed)
	}
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.ECONNRESET)}
}

// The reading side decides when a write has failed, with TLS and without, whoever writes: a short body is written by who
// reads, a long one beside it. The answer comes after the failure here, or nothing does, which is waited for shortly.
func TestAnAnswerThatComesAfterAFailedWriteWins(t *testing.T) {
	cert, roots := certificate(t)
	for _, scheme := range []string{"http", "https"} {
		for _, size := range []int{12_000, 65_000} {
			for _, status := range []int{200, 413, 0} {
				t.Run(fmt.Sprint(scheme, size, status), func(t *testing.T) {
					bubble.Test(t, func(t *testing.T) {
						failed := make(chan struct{})
						wire := webhooktest.NewWire(t, func(c *webhooktest.Conn) {
							conn := c.Conn
							if scheme == "https" {
								conn = tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{cert}})
							}
							in := bufio.NewReader(conn)
							if _, err := http.ReadRequest(in); err != nil {
								return
							}
							gone := make(chan struct{})
							go func() { _, _ = io.Copy(io.Discard, in); close(gone) }() // a pipe holds nothing
							<-failed
							time.Sleep(10 * time.Millisecond) // in the bubble: all that the failure does is done
							if status > 0 {
								_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n", status)
							}
							<-gone
						})
						dial := func(ctx context.Context, network, address string) (net.Conn, error) {
							conn, err := wire.Dial(ctx, network, address)
							return &unwritable{conn, 6_000, failed}, err
						}
						w := hook()
						w.URL = scheme + "://127.0.0.1/hook"
						got := newSender(t, dial, trusting(roots)).Send(t.Context(), w, message(strings.Repeat("x", size)))
						if status > 0 {
							wantAnswer(t, got, status)
							return
						}
						wantFailure(t, got, "reset")
						if got.Duration > 3*time.Second { // of two: what was cut is sent once more
							t.Errorf("it took %v to see that no answer comes", got.Duration)
						}
					})
				})
			}
		}
	}
}

// A receiver that answers and then neither reads nor closes makes nobody wait for the rest.
func TestAnAnswerIsTakenWhileTheRequestIsWritten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		wire := webhooktest.NewWire(t, func(c *webhooktest.Conn) { // a pipe holds no byte that was not read
			if _, err := c.ReadHead(); err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 429 X\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")
				<-release
			}
		})
		got := newSender(t, wire.Dial).Send(t.Context(), hook(), message(strings.Repeat("x", 65_000)))
		wantAnswer(t, got, 429)
		if got.RetryAfter != "7" || got.Duration > 50*time.Millisecond {
			t.Errorf("Retry-After %q after %v", got.RetryAfter, got.Duration)
		}
		close(release)
	})
}

// A 2xx decides with its status line, whatever the receiver writes behind it; any other
// status needs a head that can be read.
func TestTheStatusLineOf2xxIsEnough(t *testing.T) {
	large := "X: " + strings.Repeat("a", 2<<20)
	for name, rest := range map[string]string{
		"no header":           "secret-text\r\n\r\n",
		"end":                 "",
		"end within a header": "Content-Le",
		"two lengths":         "Content-Length: 1\r\nContent-Length: 2\r\n\r\na",
		"negative length":     "Content-Length: -1\r\n\r\n",
		"unknown coding":      "Transfer-Encoding: gzip\r\n\r\n",
		"too large":           large,
		"binary":              "\x00\xff\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			for line, status := range map[string]int{"HTTP/1.1 200 OK": 200, "HTTP/1.0 204 X": 204, "HTTP/1.1 299": 299, "HTTP/1.1 500 X": 0, "HTTP/1.1 404 X": 0} {
				wire := webhooktest.NewTCPWire(t, func(c *webhooktest.Conn) { answerOnce(c, line+"\r\n"+rest) })
				w := hook()
				w.URL = wire.URL()
				got := newSender(t, nil).Send(t.Context(), w, message("{}"))
				if got.Status != status || (got.ErrorClass == "") != (status > 0) || len(wire.Raw()) != 1 {
					t.Errorf("%s: status %d, %s %q, %d requests", line, got.Status, got.ErrorClass, got.Error, len(wire.Raw()))
				}
				webhooktest.AssertNoSecrets(t, []string{got.Error}, "secret-text")
			}
		})
	}
	for _, line := range []string{"HTTP/1.1 200", "HTTP/1.1 20", "HTTP/1.1 2000 OK\r\n\r\n", "ICY 200 OK\r\n\r\n", "\r\nHTTP/1.1 200 OK\r\n\r\n"} {
		wire := webhooktest.NewTCPWire(t, func(c *webhooktest.Conn) { answerOnce(c, line) })
		w := hook()
		w.URL = wire.URL()
		if got := newSender(t, nil).Send(t.Context(), w, message("{}")); got.Status != 0 {
			t.Errorf("%q is taken for %d", line, got.Status)
		}
	}
}

// The receiver's own server, reading as slowly as it likes, gets every byte of a long body.
func TestLongBodiesArriveWhole(t *testing.T) {
	receiver := webhooktest.NewReceiver(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(receiver.Close)
	s := newSender(t, receiver.Dial)
	for _, size := range []int{1, 1000, 2047, 2048, 2049, 16<<10 - 1, 16 << 10, 16<<10 + 1, 64 << 10} {
		body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		got := s.Send(t.Context(), hook(), message(body))
		wantAnswer(t, got, 200)
		if string(got.Body) != body {
			t.Errorf("%d bytes came back as %d", size, len(got.Body))
		}
	}
	if n := len(receiver.Dialed()); n != 1 {
		t.Errorf("%d connections, want 1: long bodies do not cost the connection", n)
	}
}
