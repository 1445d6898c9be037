package webhook_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

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
	t.Parallel()
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

// silentAfter is a receiver whose first connection says nothing from the answer to that stream on, to pings neither: a
// middle forgot it. arrived is closed by the stream before.
func silentAfter(t *testing.T, stream uint32, arrived chan<- bool) *frames {
	return &frames{reply: func(f *http2.Framer, conn int, s uint32) error {
		if conn == 1 && s == stream-2 {
			close(arrived)
			return nil
		}
		var err error
		if stream > 1 || conn > 1 {
			err = answerHeaders(f, s, "200", true)
		}
		if conn == 1 && s == stream {
			<-t.Context().Done()
		}
		return err
	}}
}

// C89: a connection that was forgotten while it was at work carried an answer to another POST after one was written, and
// nothing from then on. That is the connection's own fault, whether the POST's time ends first or the ping's, and the
// next POST goes elsewhere.
func TestAnHTTP2ConnectionThatGoesSilentAtItsWorkIsNoEvidence(t *testing.T) {
	t.Parallel()
	for class, timeout := range map[string]time.Duration{"timeout": 5 * time.Second, "reset": 30 * time.Second} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan bool)
			s, w := eitherProtocol(t, silentAfter(t, 5, arrived).serve, webhooktest.Hang)
			w.Timeout = timeout
			wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
			first := make(chan webhook.Result, 1)
			go func() { first <- s.Send(t.Context(), w, message("{}")) }()
			<-arrived
			wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
			if got := <-first; got.ErrorClass != class || !got.StaleConn {
				t.Errorf("%s %q, the connection's own: %v, want a %s of the connection's own", got.ErrorClass, got.Error, got.StaleConn, class)
			}
			wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
		})
	}
}

// A new connection on which nothing ever came is evidence against the receiver, and the next POST goes over another one.
func TestASilentNewHTTP2ConnectionIsUsedOnce(t *testing.T) {
	t.Parallel()
	s, w := eitherProtocol(t, silentAfter(t, 1, nil).serve, webhooktest.Hang)
	w.Timeout = 5 * time.Second // a ping comes after 3
	got := s.Send(t.Context(), w, message("{}"))
	if wantFailure(t, got, "timeout"); got.StaleConn {
		t.Error("a timeout on a fresh connection is said to be the connection's")
	}
	wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
}

// diesBusy is a receiver whose first connection dies once many POSTs have arrived, on it or, where it was slow to come up, beside it.
type diesBusy struct {
	first   uint32 // the stream that they begin with
	many    int
	answers bool // the first of them
	mu      sync.Mutex
	conn    *webhooktest.Conn
	busy    int // of them, on the first connection
	beside  int
}

func (d *diesBusy) part(_ *http2.Framer, c *webhooktest.Conn, _ int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.N == 1 {
		d.conn = c
	}
	return nil
}

func (d *diesBusy) reply(f *http2.Framer, conn int, stream uint32) error {
	if conn == 1 && stream < d.first {
		return answerHeaders(f, stream, "200", true)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if conn > 1 {
		d.beside++
	} else {
		d.busy++
	}
	if d.busy+d.beside == d.many {
		if d.answers {
			_ = answerHeaders(http2.NewFramer(d.conn, d.conn), d.first, "200", true)
		}
		dies := d.conn
		time.AfterFunc(100*time.Millisecond, func() { _ = dies.Close() }) // at its work
	}
	if conn > 1 {
		return answerHeaders(f, stream, "200", true)
	}
	return nil
}

// C82: what a receiver may have been working on when it died is not repeated at once, however
// many POSTs its connection carried.
func TestABusyHTTP2ConnectionThatDiesHadItsChance(t *testing.T) {
	const many = 16
	for name, c := range map[string]struct {
		before  int  // messages that are answered, one after the other
		answers bool // the first of many is answered, too
		again   bool // they are sent once more
	}{
		"new":                        {0, false, false},
		"idle until then":            {1, false, true}, // it may have died before any of them arrived
		"answering while it is used": {1, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			receiver := &diesBusy{first: uint32(2*c.before + 1), many: many, answers: c.answers}
			s, w := eitherProtocol(t, (&frames{reply: receiver.reply, part: receiver.part}).serve, webhooktest.Hang)
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
			wantRedials, wantFailed := 0, receiver.busy
			if c.again {
				wantRedials, wantFailed = receiver.busy, 0
			}
			if c.answers {
				wantFailed--
			}
			if redials != wantRedials || failed != wantFailed {
				t.Errorf("%d redials, want %d; %d failed, want %d", redials, wantRedials, failed, wantFailed)
			}
		})
	}
}

// heads answers with heads, each of a status and further fields, of which the last one ends the stream.
func heads(f *http2.Framer, stream uint32, all ...[]hpack.HeaderField) error {
	for i, fields := range all {
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		for _, field := range fields {
			_ = encoder.WriteField(field)
		}
		first, rest := block.Bytes(), []byte(nil)
		if len(first) > 16<<10 {
			first, rest = first[:16<<10], first[16<<10:]
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndHeaders: rest == nil, EndStream: i == len(all)-1})
		for len(rest) > 0 {
			n := min(len(rest), 16<<10)
			_ = f.WriteContinuation(stream, n == len(rest), rest[:n])
			rest = rest[n:]
		}
	}
	return nil
}

func status(code string) []hpack.HeaderField {
	return []hpack.HeaderField{{Name: ":status", Value: code}}
}

// Over HTTP/1.1 a 2xx counts at its status line, whatever else its head is. Of a malformed head over HTTP/2 the library does not tell
// the status: what took the message is POSTed once more, over HTTP/1.1, and not until its attempts are used up. Who speaks HTTP/2
// alone is spoken to over it again.
func TestAMalformedHeadOverHTTP2IsAskedForOverHTTP1(t *testing.T) {
	t.Parallel()
	for name, field := range map[string]hpack.HeaderField{
		"upper case": {Name: "X-Trace", Value: "a"}, "blank in a name": {Name: "x trace", Value: "a"}, "control character": {Name: "x-trace", Value: "a\x01b"},
		"pseudo field": {Name: ":foo", Value: "a"}, "too large": {Name: "x-big", Value: strings.Repeat("x", 300<<10)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			two := &frames{reply: func(f *http2.Framer, _ int, stream uint32) error {
				return heads(f, stream, append(status("200"), field))
			}}
			s, w := eitherProtocol(t, two.serve, webhooktest.Answer("HTTP/1.1 200 X\r\n"+field.Name+": a\r\n\r\n"))
			got := s.Send(t.Context(), w, message("{}"))
			if wantFailure(t, got, "protocol"); !strings.Contains(got.Error, "HTTP/1.1") || got.StaleConn {
				t.Errorf("%q, the connection's own: %v", got.Error, got.StaleConn)
			}
			for range 3 {
				wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
			}
			if _, bodies := two.count(); len(bodies) != 1 {
				t.Errorf("%d POSTs over HTTP/2, want 1", len(bodies))
			}
		})
	}
	t.Run("HTTP/2 alone", func(t *testing.T) {
		t.Parallel()
		two := &frames{reply: func(f *http2.Framer, conn int, stream uint32) error {
			if conn == 1 {
				return heads(f, stream, append(status("200"), hpack.HeaderField{Name: "X-Trace", Value: "a"}))
			}
			return heads(f, stream, status("200"))
		}}
		s, w := onlyHTTP2(t, two.serve)
		wantFailure(t, s.Send(t.Context(), w, message("{}")), "protocol")
		wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200) // after a handshake that failed
	})
}

// Interim answers that come no faster than HTTP/1.1's are read end nothing; a flood is told as what it is.
func TestInterimAnswersOverHTTP2AreBoundedByTheirPace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n     int
		pause time.Duration
		want  string
	}{"slow": {130, 30 * time.Millisecond, ""}, "flood": {130, 0, "too many interim answers"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			two := &frames{reply: func(f *http2.Framer, _ int, stream uint32) error {
				for range c.n {
					_ = answerHeaders(f, stream, "102", false)
					time.Sleep(c.pause) // what a receiver does meanwhile
				}
				return answerHeaders(f, stream, "200", true)
			}}
			s, w := eitherProtocol(t, two.serve, webhooktest.Hang)
			w.Timeout = 30 * time.Second
			got := s.Send(t.Context(), w, message("{}"))
			if c.want == "" {
				wantAnswer(t, got, 200)
			} else if wantFailure(t, got, "protocol"); got.Error != c.want {
				t.Errorf("%q, want %q", got.Error, c.want)
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

// What ends while a body waits for room on its connection was not taken: it is sent once more at once, and nobody is
// charged. A request that the receiver had whole may have been processed.
func TestABodyThatWasCutByTheEndOfItsConnectionIsSentAgain(t *testing.T) {
	t.Parallel()
	const window = 65535 // of a connection, until the receiver widens it
	body := strings.Repeat("x", 48<<10)
	for name, end := range map[string]func(f *http2.Framer, c *webhooktest.Conn) error{
		"closed": func(*http2.Framer, *webhooktest.Conn) error { return io.EOF },
		"GOAWAY after both, then closed": func(f *http2.Framer, _ *webhooktest.Conn) error {
			return errors.Join(f.WriteGoAway(1<<31-1, http2.ErrCodeNo, []byte("secret-text")), io.EOF)
		},
		"GOAWAY with a fault, then closed": func(f *http2.Framer, _ *webhooktest.Conn) error {
			return errors.Join(f.WriteGoAway(1<<31-1, http2.ErrCodeInternal, nil), io.EOF)
		},
		"silent": func(_ *http2.Framer, c *webhooktest.Conn) error { // until a ping has had no answer
			_, err := io.Copy(io.Discard, c)
			return errors.Join(err, io.EOF)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := make(chan struct{}, 2)
			receiver := &frames{
				reply: func(f *http2.Framer, conn int, stream uint32) error {
					if conn == 1 {
						whole <- struct{}{}
						return nil
					}
					return answerHeaders(f, stream, "200", true)
				},
				part: func(f *http2.Framer, c *webhooktest.Conn, taken int) error {
					if c.N > 1 || taken < window {
						return nil
					}
					return end(f, c)
				},
			}
			s, w := eitherProtocol(t, receiver.serve, webhooktest.Hang)
			w.Timeout = 20 * time.Second
			first := make(chan webhook.Result, 1)
			go func() { first <- s.Send(t.Context(), w, message(body)) }()
			select {
			case <-whole: // what is left of the window is not enough for another one
			case got := <-first:
				t.Fatalf("the receiver has nothing whole: %+v", got)
			}
			again := s.Send(t.Context(), w, message(body))
			if wantAnswer(t, again, 200); again.Redials != 1 {
				t.Errorf("the one that was cut: %d redials", again.Redials)
			}
			if got := <-first; got.ErrorClass != "reset" || got.Redials != 0 {
				t.Errorf("the one that the receiver has: %d %s %q, %d redials", got.Status, got.ErrorClass, got.Error, got.Redials)
			}
			if _, bodies := receiver.count(); len(bodies) != 2 {
				t.Errorf("the receiver has %d whole ones", len(bodies))
			}
		})
	}
}

// A stream that the receiver ends, or that is given up, takes nothing with it.
func TestABodyOutlivesTheStreamBesideIt(t *testing.T) {
	t.Parallel()
	const window = 65535
	body := strings.Repeat("x", 48<<10)
	for name, resets := range map[string]bool{"reset": true, "given up": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var first atomic.Uint32 // the stream that gets no answer
			arrived, ended := make(chan struct{}, 4), make(chan struct{})
			receiver := &frames{}
			receiver.reply = func(f *http2.Framer, _ int, stream uint32) error {
				if _, bodies := receiver.count(); bodies[len(bodies)-1] != "{}" {
					return answerHeaders(f, stream, "200", true)
				}
				first.Store(stream)
				arrived <- struct{}{}
				return nil
			}
			receiver.part = func(f *http2.Framer, _ *webhooktest.Conn, taken int) error {
				if taken != window {
					return nil
				}
				var err error
				if resets {
					err = f.WriteRSTStream(first.Load(), http2.ErrCodeInternal)
				}
				<-ended
				return errors.Join(err, f.WriteWindowUpdate(0, 1<<20))
			}
			s, w := eitherProtocol(t, receiver.serve, webhooktest.Hang)
			w.Timeout = 20 * time.Second
			hasty := *w
			if !resets {
				hasty.Timeout = 4 * time.Second
			}
			var unanswered webhook.Result
			go func() {
				unanswered = s.Send(t.Context(), &hasty, message("{}"))
				close(ended)
			}()
			select {
			case <-arrived:
			case <-ended:
				t.Fatalf("the first one did not arrive: %s %q", unanswered.ErrorClass, unanswered.Error)
			}
			results := make(chan webhook.Result)
			for range 2 {
				go func() { results <- s.Send(t.Context(), w, message(body)) }()
			}
			for range 2 {
				got := <-results
				if wantAnswer(t, got, 200); got.Redials != 0 {
					t.Errorf("%d redials", got.Redials)
				}
			}
			if <-ended; unanswered.Status != 0 {
				t.Errorf("the first one is answered %d", unanswered.Status)
			}
		})
	}
}
