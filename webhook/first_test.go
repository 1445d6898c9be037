package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// C51: what is there on a new connection before the request was written is nobody's answer,
// whatever it says, and the message is not sent to who says it.
func TestWhatIsSaidOnANewConnectionBeforeTheRequestIsNoAnswer(t *testing.T) {
	for name, says := range map[string]string{
		"200": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "404": "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n",
		"half a line": "HTTP/1.1 20", "a greeting": "220 secret-text ESMTP\r\n",
	} {
		for _, closes := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", closes ", closes), func(t *testing.T) {
				said := make(chan struct{}, 10)
				wire := webhooktest.NewTCPWire(t, func(c *webhooktest.Conn) {
					_, _ = io.WriteString(c, says)
					if closes {
						_ = c.Close()
					}
					said <- struct{}{}
					_, _, _ = c.ReadRequest()
				})
				dial := func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := wire.Dial(ctx, network, address)
					<-said
					return conn, err
				}
				s := newSender(t, dial)
				for range 3 {
					got := s.Send(t.Context(), hook(), message("{}"))
					wantFailure(t, got, "protocol")
					if got.Error != "the receiver answered before it was asked: nothing was sent" || len(wire.Raw()) != 0 {
						t.Errorf("%q, %d requests", got.Error, len(wire.Raw()))
					}
				}
			})
		}
	}
}

// C51: a host of which nothing is known is listened to first, and one that spoke unasked is
// from then on: what it says to all that connect comes after the connection was made.
func TestAHostOfWhichNothingGoodIsKnownIsListenedToFirst(t *testing.T) {
	speaks := func(c *webhooktest.Conn) {
		go func() {
			time.Sleep(3 * time.Millisecond)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}()
		_, _, _ = c.ReadRequest()
		_, _ = io.Copy(io.Discard, c)
	}
	bubble.Test(t, func(t *testing.T) {
		wire := webhooktest.NewWire(t, speaks)
		s := newSender(t, wire.Dial)
		for range 3 {
			wantFailure(t, s.Send(t.Context(), hook(), message("{}")), "protocol")
		}
		if len(wire.Raw()) != 0 {
			t.Errorf("%d requests", len(wire.Raw()))
		}
	})
	bubble.Test(t, func(t *testing.T) { // whom that costs time
		wire := webhooktest.NewWire(t, func(c *webhooktest.Conn) {
			answerOnce(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		})
		s := newSender(t, wire.Dial)
		for i, most := range []time.Duration{6 * time.Millisecond, time.Millisecond, time.Millisecond} {
			got := s.Send(t.Context(), hook(), message("{}"))
			wantAnswer(t, got, 200)
			if got.Duration > most {
				t.Errorf("message %d took %v", i, got.Duration)
			}
		}
	})
}

// A connection that the receiver has closed again costs no message an attempt: nothing was
// sent over it.
func TestAConnectionThatIsClosedAtOnceIsOpenedOnceMore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		wire := webhooktest.NewWire(t, func(c *webhooktest.Conn) {
			if c.N%2 == 0 {
				answerOnce(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			}
		})
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := wire.Dial(ctx, network, address)
			synctest.Wait() // until the script has ended, or waits
			return conn, err
		}
		s := newSender(t, dial)
		for range 5 {
			got := s.Send(t.Context(), hook(), message("{}"))
			wantAnswer(t, got, 200)
			if got.Redials != 1 {
				t.Errorf("%d redials", got.Redials)
			}
		}
		if len(wire.Raw()) != 5 {
			t.Errorf("%d requests", len(wire.Raw()))
		}
	})
}

// C43, C51: an answer to a request that is still being written is one, on a connection that
// was used before too.
func TestAnEarlyAnswerOnAUsedConnectionCounts(t *testing.T) {
	release := make(chan struct{})
	wire := webhooktest.NewTCPWire(t, func(c *webhooktest.Conn) {
		_ = c.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		answerOnce(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		if _, err := c.ReadHead(); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 413 X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			<-release // it does not read on, and does not close
		}
	})
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := wire.Dial(ctx, network, address)
		if err == nil {
			_ = conn.(*net.TCPConn).SetWriteBuffer(4 << 10)
		}
		return conn, err
	}
	s := newSender(t, dial)
	defer close(release)
	wantAnswer(t, s.Send(t.Context(), hook(), message("{}")), 200)
	wantAnswer(t, s.Send(t.Context(), hook(), message(strings.Repeat("x", 1<<20))), 413)
}
