package webhook_test

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// nosy answers in turn 200, after which it says more than it was asked for, and 500. What
// it answered to which message is told by accepted.
type nosy struct {
	turn  atomic.Int64
	posts atomic.Int64

	mu       sync.Mutex
	accepted map[string]bool
	late     sync.WaitGroup
}

const unasked = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

func (n *nosy) serve(c *webhooktest.Conn) {
	var writing sync.Mutex
	write := func(text string) error {
		writing.Lock()
		defer writing.Unlock()
		_, err := io.WriteString(c, text)
		return err
	}
	for {
		_, body, err := c.ReadRequest()
		if err != nil {
			return
		}
		n.posts.Add(1)
		turn := n.turn.Add(1)
		n.mu.Lock()
		n.accepted[string(body)] = turn%2 == 1
		n.mu.Unlock()
		if turn%2 == 0 {
			if write("HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n") != nil {
				return
			}
			continue
		}
		if delay := time.Duration([]int{0, 1, 5, 20}[turn/2%4]) * time.Millisecond; delay > 0 {
			n.late.Go(func() { time.Sleep(delay); _ = write(unasked) }) // the case's own times
			err = write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		} else {
			err = write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + unasked)
		}
		if err != nil {
			return
		}
	}
}

// C51: what a receiver sends unasked is never taken for an answer.
func TestUnaskedBytesAreNobodysAnswer(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("TLS ", secure), func(t *testing.T) {
			n := &nosy{accepted: map[string]bool{}}
			t.Cleanup(n.late.Wait)
			s, w := tcpReceiver(t, secure, n.serve)
			const atOnce = 8
			messages := unaskedMessages(t)
			var wrong, failed, next atomic.Int64
			var work sync.WaitGroup
			count := messages
			if secure {
				count = messages / 10
			}
			for range atOnce {
				work.Go(func() {
					for i := next.Add(1); i <= count; i = next.Add(1) {
						id := strconv.FormatInt(i, 10)
						got := s.Send(t.Context(), w, message(id))
						n.mu.Lock()
						if got.Status == 200 && !n.accepted[id] {
							wrong.Add(1)
						}
						n.mu.Unlock()
						if got.Status == 0 {
							failed.Add(1)
						}
					}
				})
			}
			work.Wait()
			if wrong.Load() > 0 || failed.Load() > 0 || n.posts.Load() != count {
				t.Errorf("%d messages that were answered 500 passed for delivered, %d failed, %d POSTs of %d", wrong.Load(), failed.Load(), n.posts.Load(), count)
			}
		})
	}
}

// unaskedMessages is how many are sent to a receiver that says more than it was asked for: what
// is found with the twenty thousand of the case, which CI asks for, is found with these too.
func unaskedMessages(t *testing.T) int64 {
	text := cmp.Or(os.Getenv("UNASKED_MESSAGES"), "2000")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1000 {
		t.Fatalf("UNASKED_MESSAGES=%q: want a number from 1000 on", text)
	}
	return n
}

// tcpReceiver serves a script on a loopback port, over TLS if asked.
func tcpReceiver(t *testing.T, secure bool, script webhooktest.Script) (*webhook.Sender, *webhook.Webhook) {
	w := hook()
	if !secure {
		w.URL = webhooktest.NewTCPWire(t, script).URL()
		return newSender(t, nil), w
	}
	cert, roots := certificate(t)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	w.URL = strings.Replace(webhooktest.ServeWire(t, listener, script).URL(), "http:", "https:", 1)
	return newSender(t, nil, trusting(roots)), w
}

// However the bytes come, and whatever they are, the connection carries nothing after them.
func TestAConnectionWithUnaskedBytesIsNeverUsedAgain(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for name, extra := range map[string]string{
			"an answer": unasked, "a blank line": "\r\n", "one byte": "x", "408": "HTTP/1.1 408 X\r\nConnection: close\r\n\r\n",
			"more than a buffer": strings.Repeat("x", 10_000), "longer body": "tail",
		} {
			for _, apart := range []bool{false, true} {
				t.Run(fmt.Sprintf("TLS %v/%s/apart %v", secure, name, apart), func(t *testing.T) {
					said := make(chan struct{}, 10)
					var conns atomic.Int64
					s, w := tcpReceiver(t, secure, func(c *webhooktest.Conn) {
						conns.Add(1)
						if _, _, err := c.ReadRequest(); err != nil {
							return
						}
						answer := "HTTP/1.1 201 X\r\nContent-Length: 2\r\n\r\nok"
						if apart {
							_, _ = io.WriteString(c, answer)
							answer = ""
						}
						_, _ = io.WriteString(c, answer+extra)
						said <- struct{}{}
						answerOnce(c, "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")
					})
					for range 3 {
						wantAnswer(t, s.Send(t.Context(), w, message("{}")), 201)
						<-said
					}
					if conns.Load() != 3 {
						t.Errorf("%d connections for 3 messages", conns.Load())
					}
				})
			}
		}
	}
}

// A session ticket, which TLS sends unasked, costs no connection.
func TestTicketsOfTLSAreNotUnaskedBytes(t *testing.T) {
	var mu sync.Mutex
	clients := map[string]bool{}
	s, w := tlsServer(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		clients[r.RemoteAddr] = true
		mu.Unlock()
	}, false)
	for range 20 {
		wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
	}
	if len(clients) != 1 {
		t.Errorf("%d connections, want 1", len(clients))
	}
}

// A receiver that closes what is idle is found out before the next request is written.
func TestAClosedIdleConnectionIsSeenBeforeItIsUsed(t *testing.T) {
	for _, secure := range []bool{false, true} {
		closed := make(chan struct{}, 1)
		s, w := tcpReceiver(t, secure, func(c *webhooktest.Conn) {
			answerOnce(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			_ = c.Close()
			closed <- struct{}{}
		})
		for range 5 {
			got := s.Send(t.Context(), w, message("{}"))
			wantAnswer(t, got, 200)
			if got.Redials != 0 {
				t.Errorf("TLS %v: %d redials", secure, got.Redials)
			}
			<-closed
		}
	}
}
