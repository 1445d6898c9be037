package webhook_test

import (
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// atOnce sends n messages at the same time.
func atOnce(t *testing.T, s *webhook.Sender, w *webhook.Webhook, n int) []webhook.Result {
	results := make([]webhook.Result, n)
	done := make(chan int, n)
	for i := range n {
		go func() {
			results[i] = s.Send(t.Context(), w, message("{}"))
			done <- i
		}()
	}
	for range n {
		<-done
	}
	return results
}

// C89: a receiver that hangs behind a connection which is alive is evidence against the
// receiver, for each POST on the connection, whether the connection is new or not.
func TestAReceiverThatHangsOverALiveHTTP2ConnectionIsEvidence(t *testing.T) {
	for name, used := range map[string]bool{"new": false, "used": true} {
		t.Run(name, func(t *testing.T) {
			hang := func(f *http2.Framer, _ int, stream uint32) error {
				if used && stream == 1 {
					return answerHeaders(f, stream, "200", true)
				}
				return nil
			}
			t.Parallel()
			receiver := &frames{reply: hang}
			s, w := eitherProtocol(t, receiver.serve, webhooktest.Hang)
			w.Timeout = 4 * time.Second // a ping comes after 3
			if used {
				wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
			}
			for _, got := range atOnce(t, s, w, 16) {
				if got.ErrorClass != "timeout" || got.StaleConn {
					t.Errorf("%s %q, the connection's own: %v", got.ErrorClass, got.Error, got.StaleConn)
				}
			}
			if conns, _ := receiver.count(); conns != 1 {
				t.Errorf("%d connections, want 1", conns)
			}
		})
	}
}

// C82: what a receiver may have been working on when it died is not repeated at once, however
// many POSTs its connection carried.
func TestABusyHTTP2ConnectionThatDiesHadItsChance(t *testing.T) {
	const many = 16
	for name, c := range map[string]struct {
		before  int  // messages that are answered, one after the other
		answers bool // the first of many is answered, too
		redials int
	}{
		"new":                        {0, false, 0},
		"idle until then":            {1, false, many}, // it may have died before any of them arrived
		"answering while it is used": {1, true, 0},
	} {
		first := uint32(2*c.before + 1)
		dies := func(f *http2.Framer, conn int, stream uint32) error {
			switch {
			case conn > 1 || stream < first:
				return answerHeaders(f, stream, "200", true)
			case stream < first+2*(many-1):
				return nil
			case c.answers:
				_ = answerHeaders(f, first, "200", true)
			}
			time.Sleep(100 * time.Millisecond) // at its work
			return io.EOF
		}
		t.Run(name, func(t *testing.T) {
			s, w := eitherProtocol(t, (&frames{reply: dies}).serve, webhooktest.Hang)
			for range c.before {
				wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
			}
			redials, failed := 0, 0
			for _, got := range atOnce(t, s, w, many) {
				redials += got.Redials
				if got.Status != 200 {
					wantFailure(t, got, "reset")
					failed++
				}
			}
			want := many - c.redials
			if c.answers {
				want--
			}
			if redials != c.redials || failed != want {
				t.Errorf("%d redials, want %d; %d failed, want %d", redials, c.redials, failed, want)
			}
		})
	}
}

// C88: a receiver that wants HTTP/1.1 gets it at once, and for a while.
func TestAReceiverThatWantsHTTP1GetsIt(t *testing.T) {
	type reply = func(f *http2.Framer, conn int, stream uint32) error
	goAway := func(f *http2.Framer, last uint32) error {
		return errors.Join(f.WriteGoAway(last, http2.ErrCodeHTTP11Required, nil), io.EOF)
	}
	for name, c := range map[string]struct {
		reply   reply
		asked   int // the first message that is asked for
		redials int
	}{
		"stream": {func(f *http2.Framer, _ int, stream uint32) error {
			return f.WriteRSTStream(stream, http2.ErrCodeHTTP11Required)
		}, 0, 1},
		"connection":                   {func(f *http2.Framer, _ int, stream uint32) error { return goAway(f, stream) }, 0, 1},
		"connection that took nothing": {func(f *http2.Framer, _ int, _ uint32) error { return goAway(f, 0) }, 0, 1},
		"connection that takes nothing more": {func(f *http2.Framer, conn int, stream uint32) error {
			if conn == 1 && stream == 1 {
				return answerHeaders(f, stream, "204", true)
			}
			return goAway(f, stream-2)
		}, 1, 2}, // the first refusal says only that nothing was taken
	} {
		t.Run(name, func(t *testing.T) {
			receiver := &frames{reply: c.reply}
			var plain atomic.Int64
			s, w := eitherProtocol(t, receiver.serve, func(c *webhooktest.Conn) {
				plain.Add(1)
				webhooktest.Answer("HTTP/1.1 204 X\r\n\r\n")(c)
			})
			for i := range 5 {
				got := s.Send(t.Context(), w, message("{}"))
				wantAnswer(t, got, 204)
				want := 0
				if i == c.asked {
					want = c.redials
				}
				if got.Redials != want {
					t.Errorf("message %d: %d redials, want %d", i, got.Redials, want)
				}
			}
			if _, bodies := receiver.count(); len(bodies) != c.asked+c.redials || plain.Load() == 0 {
				t.Errorf("%d requests over HTTP/2, %d connections of HTTP/1.1", len(bodies), plain.Load())
			}
		})
	}
}
