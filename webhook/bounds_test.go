package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// C26: no answer makes memory grow by 50 MB; the status decides.
func TestLargeAnswersAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		script webhooktest.Script
		status int
		begins string
	}{
		"1 GiB":         {webhooktest.LargeBody(200, 1<<30), 200, "\x00\x00"},
		"10 MB":         {webhooktest.LargeBody(404, 10_000_000), 404, "\x00\x00"},
		"endless":       {webhooktest.EndlessBody(500), 500, "aaaa"},
		"10 GB in gzip": {webhooktest.GzipBomb(202, 10<<30), 202, "\x1f\x8b"},
		"1 MB head":     {webhooktest.LargeHead(200, 1_000_000), 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			wire := webhooktest.NewTCPWire(t, c.script)
			w := hook()
			w.URL = wire.URL()
			s := newSender(t, nil)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := s.Send(t.Context(), w, message("{}"))
			runtime.ReadMemStats(&after)
			wantAnswer(t, got, c.status)
			if len(got.Body) > webhook.MaxBodyRead || !strings.HasPrefix(string(got.Body), c.begins) {
				t.Errorf("%d bytes of body", len(got.Body))
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 50<<20 {
				t.Errorf("%d bytes allocated", grown)
			}
		})
	}
	t.Run("4 MB head", func(t *testing.T) {
		wire := webhooktest.NewTCPWire(t, webhooktest.LargeHead(500, 4_000_000))
		w := hook()
		w.URL = wire.URL()
		wantFailure(t, newSender(t, nil).Send(t.Context(), w, message("{}")), "protocol")
	})
}

// A line of a head takes more memory than bytes, and is held while the body is waited for.
func TestAnAnswersHeadOfManyLinesTakesLittleMemory(t *testing.T) {
	var head strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&head, "%x:\n", i)
	}
	for status, want := range map[int]string{200: "", 500: "protocol"} {
		wire := webhooktest.NewTCPWire(t, webhooktest.Answer(fmt.Sprintf("HTTP/1.1 %d X\n%sContent-Length: 0\n\n", status, head.String())))
		w := hook()
		w.URL = wire.URL()
		s := newSender(t, nil)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := s.Send(t.Context(), w, message("{}"))
		runtime.ReadMemStats(&after)
		if got.ErrorClass != want || want == "" && got.Status != status {
			t.Errorf("%d: %+v", status, got)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
			t.Errorf("%d: %d bytes allocated for a head of %d", status, grown, head.Len())
		}
	}
}

// C25: a flood of interim answers ends at the deadline and does not spin.
func TestFloodOfInterimAnswersIsSlowedDown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		wire := webhooktest.NewWire(t, func(c *webhooktest.Conn) {
			_, _, _ = c.ReadRequest()
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n"); err != nil {
					return
				}
				sent.Add(1)
			}
		})
		s := newSender(t, wire.Dial)
		got := s.Send(t.Context(), hook(), message("{}"))
		wantFailure(t, got, "timeout")
		if got.Duration != 5*time.Second || sent.Load() > 1000 {
			t.Errorf("%d answers read in %v", sent.Load(), got.Duration)
		}
	})
}

// A line of a head that the deadline cuts off is late, and not malformed.
func TestAHeadThatIsCutOffByTheDeadlineIsATimeout(t *testing.T) {
	for _, head := range []string{"HTTP/1.1 500 X\r\nContent-", "HTTP/1.1 500 X\r\nA: b\r\n", "HTTP/1.1 200 OK\r\nContent-", "HTTP/1.1 200 OK\r\nA: b\r\n"} {
		bubble.Test(t, func(t *testing.T) {
			wire := webhooktest.NewWire(t, func(c *webhooktest.Conn) {
				_, _, _ = c.ReadRequest()
				_, _ = io.WriteString(c, head)
				webhooktest.Silence(c)
			})
			wantFailure(t, newSender(t, wire.Dial).Send(t.Context(), hook(), message("{}")), "timeout")
		})
	}
}

// Interim answers are bounded together: as many large ones as there may be were 25 MB for one POST.
func TestLargeInterimAnswersAreBoundedTogether(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		wire := webhooktest.NewWire(t, func(c *webhooktest.Conn) {
			_, _, _ = c.ReadRequest()
			for {
				n, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("a", 64<<10)+"\r\n\r\n")
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		})
		got := newSender(t, wire.Dial).Send(t.Context(), hook(), message("{}"))
		wantFailure(t, got, "protocol")
		if sent.Load() > 1<<20 {
			t.Errorf("%d bytes were read", sent.Load())
		}
	})
}

// A receiver that answers 600 POSTs in step, again and again, keeps its connections, which are more than a host
// that is less busy may have idle.
func TestAsManyConnectionsAsWereBusyMayBeIdle(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }))
		defer receiver.Close()
		d := &dials{next: receiver.Dial}
		s := newSender(t, d.dial)
		const busy = 600
		for range 4 {
			var all sync.WaitGroup
			for range busy {
				all.Go(func() { s.Send(t.Context(), hook(), message("{}")) })
			}
			all.Wait()
			time.Sleep(time.Second)
		}
		if n := len(d.list()); n > busy+10 {
			t.Errorf("%d connections were dialled for 4 times %d POSTs", n, busy)
		}
	})
}

func TestInterimAnswersAreNeverFinal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		text := strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 20) + "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
		wire := webhooktest.NewWire(t, webhooktest.Answer(text))
		wantAnswer(t, newSender(t, wire.Dial).Send(t.Context(), hook(), message("{}")), 202)
	})
}

// C26: 10,000 answers of mixed size leave no connection and no goroutine. The
// bubble fails when a goroutine is left.
func TestConnectionsEndByThemselves(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			size := map[byte]int{'1': 10, '2': 5_000, '3': 66_000, '4': 200_000} // mostly 0
			body, _ := io.ReadAll(r.Body)
			_, _ = io.WriteString(w, strings.Repeat("x", size[body[0]]))
		}))
		defer receiver.Close()
		var open atomic.Int64
		s := newSender(t, func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := receiver.Dial(ctx, network, address)
			if err == nil {
				open.Add(1)
				conn = &counted{Conn: conn, open: &open}
			}
			return conn, err
		})
		defer s.Close()
		var work sync.WaitGroup
		for worker := range 20 {
			work.Go(func() {
				for i := range 500 {
					wantAnswer(t, s.Send(t.Context(), hook(), message(string(rune('0'+(worker+i)%50)))), 200)
				}
			})
		}
		work.Wait()
		if n := open.Load(); n > 20 {
			t.Errorf("%d connections open after the work", n)
		}
		time.Sleep(time.Minute)
		if n := open.Load(); n != 0 {
			t.Errorf("%d connections open after a minute of rest", n)
		}
	})
}

type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// A stalled handshake or dial does not outlive the exchange that wanted it.
func TestNothingOutlivesTheDeadline(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var open atomic.Int64
		wire := webhooktest.NewWire(t, webhooktest.Silence)
		s := newSender(t, func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := wire.Dial(ctx, network, address)
			open.Add(1)
			return &counted{Conn: conn, open: &open}, err
		})
		w := hook()
		w.URL = "https://127.0.0.1/"
		wantFailure(t, s.Send(t.Context(), w, message("{}")), "timeout")
		synctest.Wait()
		if open.Load() != 0 {
			t.Error("the connection is still open")
		}
	})
}

// Proxies of the environment would dial unguarded.
func TestEnvironmentProxiesAreIgnored(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(nil)
		defer receiver.Close()
		s := newSender(t, receiver.Dial, with(resolving("receiver.example", addresses("93.184.216.34"))))
		defer s.Close()
		w := hook()
		w.URL = "http://receiver.example/"
		wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
		if got := receiver.Dialed(); len(got) != 1 || got[0] != "93.184.216.34:80" {
			t.Errorf("dialled %v", got)
		}
	})
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for _, bad := range []netip.Prefix{{}, netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 40), netip.MustParsePrefix("::ffff:10.0.0.0/104")} {
		if s, err := webhook.NewSender(webhook.Options{Guard: webhook.GuardOptions{AllowCIDRs: []netip.Prefix{bad}}}); err == nil {
			s.Close()
			t.Errorf("%v was taken", bad)
		}
	}
}

// A body a little over the cap is drained, so that its connection is used again.
func TestConnectionIsReusedAfterALittleTooMuch(t *testing.T) {
	for size, conns := range map[int64]int{0: 1, 10: 1, webhook.MaxBodyRead: 1, webhook.MaxBodyRead + 1000: 1, webhook.MaxBodyRead + 100_000: 3} {
		wire := webhooktest.NewTCPWire(t, func(c *webhooktest.Conn) {
			for {
				if _, _, err := c.ReadRequest(); err != nil {
					return
				}
				head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
				if _, err := io.WriteString(c, head+strings.Repeat("x", int(size))); err != nil {
					return
				}
			}
		})
		w := hook()
		w.URL = wire.URL()
		s := newSender(t, nil)
		for range 3 {
			got := s.Send(t.Context(), w, message("{}"))
			wantAnswer(t, got, 200)
			if want := min(size, webhook.MaxBodyRead); int64(len(got.Body)) != want || got.Redials != 0 {
				t.Errorf("size %d: %d bytes, %d redials", size, len(got.Body), got.Redials)
			}
		}
		if wire.Conns() != conns {
			t.Errorf("size %d: %d connections, want %d", size, wire.Conns(), conns)
		}
	}
}

func TestNothingIsDialledWhenTheCallerHasGone(t *testing.T) {
	d := &dials{next: fails(io.EOF)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := newSender(t, d.dial).Send(ctx, hook(), message("{}"))
	wantFailure(t, got, "canceled")
	if len(d.list()) != 0 || got.Redials != 0 {
		t.Errorf("dialled %v, %d redials", d.list(), got.Redials)
	}
}
