package webhook_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// answerThenDie answers the first request on a connection, and dies so long after it has
// read the second.
func answerThenDie(after time.Duration) webhooktest.Script {
	return func(c *webhooktest.Conn) {
		answerOnce(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		if _, _, err := c.ReadRequest(); err == nil {
			time.Sleep(after)
		}
	}
}

// C82: a request is repeated when its connection died at once, not when the receiver may have
// worked on it.
func TestARequestIsRepeatedOnlyWhereItHadNoChance(t *testing.T) {
	for after, redials := range map[time.Duration]int{0: 1, 60 * time.Millisecond: 1, 999 * time.Millisecond: 1, time.Second: 0, 3 * time.Second: 0} {
		bubble.Test(t, func(t *testing.T) {
			wire := webhooktest.NewWire(t, answerThenDie(after))
			s := newSender(t, wire.Dial)
			wantAnswer(t, s.Send(t.Context(), hook(), message("{}")), 200)
			got := s.Send(t.Context(), hook(), message("{}"))
			if got.Redials != redials || len(wire.Raw()) != 2+redials {
				t.Errorf("died after %v: %d redials, %d requests", after, got.Redials, len(wire.Raw()))
			}
			if redials == 1 {
				wantAnswer(t, got, 200)
				return
			}
			wantFailure(t, got, "reset")
			if !got.StaleConn {
				t.Error("the failure counts as evidence against the receiver")
			}
		})
	}
	t.Run("not wholly written", func(t *testing.T) {
		wire := webhooktest.NewTCPWire(t, func(c *webhooktest.Conn) {
			if c.N == 1 { // a fresh one
				answersByTheHead("")(c)
				return
			}
			answerOnce(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		})
		// A socket takes 64 KiB at once: no body is that long that a message can have.
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := wire.Dial(ctx, network, address)
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(4 << 10)
			}
			return conn, err
		}
		got := newSender(t, dial).Send(t.Context(), hook(), message(strings.Repeat("x", 1<<20)))
		wantAnswer(t, got, 200)
		if got.Redials != 1 {
			t.Errorf("%d redials, want 1", got.Redials)
		}
	})
}

// C93: what was sent stays on record when the repetition finds nobody, or can't be made at all.
func TestWhatWasSentStaysOnRecordWhenTheRepetitionFails(t *testing.T) {
	for errno, want := range map[syscall.Errno][2]string{
		syscall.ECONNREFUSED: {"reset", "the connection was refused"},
		// Nobody is charged: the first end alone would have been forgiven, the second is ours.
		syscall.EADDRNOTAVAIL: {"canceled", "this machine has no free port or address to connect from"},
	} {
		bubble.Test(t, func(t *testing.T) {
			wire := webhooktest.NewWire(t, answerThenDie(0))
			dials := 0
			s := newSender(t, func(ctx context.Context, network, address string) (net.Conn, error) {
				if dials++; dials > 1 {
					return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)}
				}
				return wire.Dial(ctx, network, address)
			})
			wantAnswer(t, s.Send(t.Context(), hook(), message("{}")), 200)
			got := s.Send(t.Context(), hook(), message("{}"))
			wantFailure(t, got, want[0])
			if got.Redials != 1 || got.Error != "the connection died before an answer; then "+want[1] {
				t.Errorf("%v: %d redials, %q", errno, got.Redials, got.Error)
			}
		})
	}
}

// C93: so it does when the repetition is cut short here, by a stop or a lost lease, and when it is sent too.
func TestWhatWasSentStaysOnRecordWhateverBecomesOfTheRepetition(t *testing.T) {
	for name, c := range map[string]struct {
		stop  bool
		class string
		text  string
	}{
		"cut short": {true, "canceled", "the connection died before an answer; then the exchange was cut short by pushlease"},
		"sent":      {false, "timeout", "the connection died before an answer; then the exchange was not over within the webhook's timeout"},
	} {
		bubble.Test(t, func(t *testing.T) {
			wire := webhooktest.NewWire(t, func(c *webhooktest.Conn) {
				if c.N == 1 {
					answerThenDie(0)(c)
					return
				}
				webhooktest.Hang(c)
			})
			s := newSender(t, wire.Dial)
			wantAnswer(t, s.Send(t.Context(), hook(), message("{}")), 200)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.stop {
				time.AfterFunc(time.Second, cancel)
			}
			got := s.Send(ctx, hook(), message("{}"))
			wantFailure(t, got, c.class)
			if got.Redials != 1 || got.Error != c.text {
				t.Errorf("%s: %d redials, %q", name, got.Redials, got.Error)
			}
		})
	}
}

// C112: a POST has the webhook's whole timeout, however long its connection took; where
// something else bounds it, none begins with less than half of it.
func TestAPostBeginsWithTimeToBeAnswered(t *testing.T) {
	slowly := func(wire *webhooktest.Wire, wait time.Duration) webhook.DialFunc {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			time.Sleep(wait)
			return wire.Dial(ctx, network, address)
		}
	}
	answersAfter := func(wait time.Duration) webhooktest.Script {
		return func(c *webhooktest.Conn) {
			if _, _, err := c.ReadRequest(); err == nil {
				time.Sleep(wait)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		}
	}
	bubble.Test(t, func(t *testing.T) {
		wire := webhooktest.NewWire(t, answersAfter(4*time.Second))
		got := newSender(t, slowly(wire, 4*time.Second)).Send(t.Context(), hook(), message("{}"))
		wantAnswer(t, got, 200)
	})
	bubble.Test(t, func(t *testing.T) {
		wire := webhooktest.NewWire(t, answersAfter(0))
		r := message("{}")
		r.Until = time.Now().Add(5 * time.Second)
		got := newSender(t, slowly(wire, 4*time.Second)).Send(t.Context(), hook(), r)
		wantFailure(t, got, "connect")
		if len(wire.Raw()) != 0 {
			t.Error("a POST was begun with a second left of five")
		}
	})
	bubble.Test(t, func(t *testing.T) {
		wire := webhooktest.NewWire(t, webhooktest.Hang)
		r := message("{}")
		r.Until = time.Now().Add(3 * time.Second)
		got := newSender(t, wire.Dial).Send(t.Context(), hook(), r)
		wantFailure(t, got, "timeout")
		if got.Duration != 3*time.Second {
			t.Errorf("after %v, bounded by 3s", got.Duration)
		}
	})
}

// flows is a middle that forgets the connections of before: their bytes get nowhere.
type flows struct {
	to    webhook.DialFunc
	era   atomic.Int64
	dials atomic.Int64
}

func (f *flows) dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.dials.Add(1)
	conn, err := f.to(ctx, network, address)
	return &flow{Conn: conn, of: f, era: f.era.Load()}, err
}

type flow struct {
	net.Conn
	of  *flows
	era int64
}

func (c *flow) Write(p []byte) (int, error) {
	if c.era < c.of.era.Load() {
		return len(p), nil // the kernel takes them
	}
	return c.Conn.Write(p)
}

// Read: nor do those that are on their way to us, which would be a sign of life.
func (c *flow) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || c.era == c.of.era.Load() {
			return n, err
		}
	}
}

// C89: flows that were flushed once cost each connection at most one timeout, and all else
// is delivered on new ones.
func TestSilentlyDeadConnectionsAreUsedOnceEach(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(nil)
		defer receiver.Close()
		f := &flows{to: receiver.Dial}
		s := newSender(t, f.dial)
		defer s.Close()
		w := hook()
		w.Timeout = 30 * time.Second
		results := make(chan webhook.Result, 1000)
		for range 64 { // 64 idle connections
			go func() { results <- s.Send(t.Context(), w, message("{}")) }()
		}
		for range 64 {
			wantAnswer(t, <-results, 200)
		}
		open := f.dials.Load()
		f.era.Add(1)
		for range 400 { // 20 a second
			go func() { results <- s.Send(t.Context(), w, message("{}")) }()
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		timeouts, delivered := int64(0), 0
		for range 400 {
			switch got := <-results; {
			case got.Status == 200:
				delivered++
			case got.ErrorClass == "timeout" && got.StaleConn:
				timeouts++
			default:
				t.Errorf("%s %q", got.ErrorClass, got.Error)
			}
		}
		if timeouts > min(open, 61) || delivered != 400-int(timeouts) {
			t.Errorf("%d timeouts of %d dead connections, %d delivered", timeouts, open, delivered)
		}
		r := message("{}")
		r.Fresh = true
		f.era.Add(1) // and a test send is never told about a connection of before
		wantAnswer(t, s.Send(t.Context(), w, r), 200)
	})
}

// A retry comes later than its timeout, and finds a connection that works.
func TestAfterATimeoutOnAUsedConnectionTheIdleOnesOfItsAgeAreGone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(nil)
		defer receiver.Close()
		f := &flows{to: receiver.Dial}
		s := newSender(t, f.dial)
		defer s.Close()
		results := make(chan webhook.Result, 64)
		for range 64 {
			go func() { results <- s.Send(t.Context(), hook(), message("{}")) }()
		}
		for range 64 {
			wantAnswer(t, <-results, 200)
		}
		f.era.Add(1)
		time.Sleep(100 * time.Millisecond)
		got := s.Send(t.Context(), hook(), message("{}"))
		wantFailure(t, got, "timeout")
		if !got.StaleConn {
			t.Error("a timeout without a byte on a used connection counts as evidence")
		}
		for range 20 {
			wantAnswer(t, s.Send(t.Context(), hook(), message("{}")), 200)
		}
	})
	bubble.Test(t, func(t *testing.T) { // a receiver that hangs on a fresh one is evidence
		wire := webhooktest.NewWire(t, webhooktest.Hang)
		if got := newSender(t, wire.Dial).Send(t.Context(), hook(), message("{}")); got.StaleConn {
			t.Error("a timeout on a fresh connection is said to be the connection's")
		}
	})
}

// With HTTP/2 all share the dead connection: new requests leave it after 3 s, and a ping ends
// it for those that wait.
func TestASilentlyDeadHTTP2ConnectionIsFoundOut(t *testing.T) {
	t.Parallel()
	_, w := tlsServer(t, func(http.ResponseWriter, *http.Request) {}, true)
	_, roots := certificate(t)
	f := &flows{to: (&net.Dialer{}).DialContext}
	s := newSender(t, f.dial, trusting(roots), with(resolving("example.com", addresses("127.0.0.1"))))
	w.Timeout = 30 * time.Second
	wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
	f.era.Add(1)
	flushed := time.Now()
	results := make(chan webhook.Result, 80)
	for range 80 { // 20 a second
		go func() { results <- s.Send(t.Context(), w, message("{}")) }()
		time.Sleep(50 * time.Millisecond)
	}
	for range 80 {
		got := <-results
		begun, ended := got.StartedAt.Sub(flushed), got.StartedAt.Add(got.Duration).Sub(flushed)
		switch {
		case got.Status != 200 && (got.ErrorClass != "reset" || !got.StaleConn):
			t.Errorf("%s %q", got.ErrorClass, got.Error)
		case ended > 10*time.Second, got.Status != 200 && begun > 3500*time.Millisecond:
			t.Errorf("begun %v after the flush, ended after %v with %d %q", begun, ended, got.Status, got.Error)
		}
	}
}

// goneFor is how long connections go on whose name does not exist any more, with the 45 s
// before that is asked.
const goneFor = 10*time.Minute + 45*time.Second

// C105, C115: while no connection can be opened in the place of the old ones, those go on.
func TestConnectionsGoOnWhileNoneCanTakeTheirPlace(t *testing.T) {
	good := addresses("93.184.216.34")
	lookup := func(err error) answer { return answer{err: err} }
	socket := func(errno syscall.Errno) error {
		return &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", errno)}
	}
	for name, c := range map[string]struct {
		lookup answer // every one after the first
		dial   error  // likewise
		lasts  time.Duration
	}{
		"lookup fails":          {lookup: lookup(&net.DNSError{Err: "server misbehaving", IsTemporary: true}), lasts: time.Hour},
		"lookup has no socket":  {lookup: lookup(&net.DNSError{Err: "dial udp: socket: " + syscall.EMFILE.Error(), IsTemporary: true}), lasts: time.Hour},
		"no such name":          {lookup: lookup(&net.DNSError{Err: "no such host", IsNotFound: true}), lasts: goneFor},
		"no file descriptor":    {lookup: good, dial: socket(syscall.EMFILE), lasts: time.Hour},
		"no port":               {lookup: good, dial: socket(syscall.EADDRNOTAVAIL), lasts: time.Hour},
		"refused":               {lookup: good, dial: socket(syscall.ECONNREFUSED), lasts: time.Hour},
		"nobody answers":        {lookup: good, dial: context.DeadlineExceeded, lasts: time.Hour},
		"the guard lets nobody": {lookup: addresses("127.0.0.1"), lasts: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				receiver := webhooktest.NewReceiver(nil)
				defer receiver.Close()
				dials := 0
				dial := func(ctx context.Context, network, address string) (net.Conn, error) {
					if dials++; dials > 1 && c.dial != nil {
						return nil, c.dial
					}
					return receiver.Dial(ctx, network, address)
				}
				s := newSender(t, dial, with(resolving("receiver.example", good, c.lookup)), func(o *webhook.Options) {
					o.Guard.DenyCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
				})
				defer s.Close()
				w := hook()
				w.URL = "http://receiver.example/"
				begun := time.Now()
				last := begun
				for time.Since(begun) < time.Hour && s.Send(t.Context(), w, message("{}")).Status == 200 {
					last = time.Now()
					time.Sleep(20 * time.Second)
				}
				if lasted := last.Sub(begun); (lasted - c.lasts).Abs() > time.Minute {
					t.Errorf("the connection went on for %v, want about %v", lasted, c.lasts)
				}
				synctest.Wait()
			})
		})
	}
}

// lookups is a resolver that asks for each answer.
type lookups func() answer

func (l lookups) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	a := l()
	return a.addrs, a.err
}

// C51: a receiver that closes each connection is listened to before the first POST, and not again and again.
func TestAReceiverThatClosesEachConnectionIsListenedToOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Host == "receiver.example" {
				rw.Header().Set("Connection", "close")
			}
		}))
		defer receiver.Close()
		s := newSender(t, receiver.Dial, with(lookups(func() answer { return addresses("93.184.216.34") })))
		defer s.Close()
		w := hook()
		w.URL = "http://receiver.example/"
		other := hook()
		other.URL = "http://other.example/"
		for n := range 4 {
			begun := time.Now()
			wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
			if took := time.Since(begun); took > time.Millisecond != (n == 0) {
				t.Errorf("POST %d took %v", n+1, took)
			}
			for range 5 { // another one keeps its connection, and what is known of hosts is looked through meanwhile
				wantAnswer(t, s.Send(t.Context(), other, message("{}")), 200)
				time.Sleep(5 * time.Second)
			}
		}
		synctest.Wait()
	})
}

// C105, C115: how long old connections go on for a name that does not exist any more begins with that answer,
// whatever kept others from being opened before.
func TestANameThatIsGoneCountsFromItsOwnAnswer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(nil)
		defer receiver.Close()
		begun := time.Now()
		good, gone := answer{addrs: addresses("93.184.216.34").addrs}, &net.DNSError{Err: "no such host", IsNotFound: true}
		resolver := lookups(func() answer {
			if at := time.Since(begun); at > 30*time.Minute && at < 32*time.Minute {
				return answer{err: gone}
			}
			return good
		})
		dials := 0
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials++; dials > 1 {
				return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
			}
			return receiver.Dial(ctx, network, address)
		}
		s := newSender(t, dial, with(resolver))
		defer s.Close()
		w := hook()
		w.URL = "http://receiver.example/"
		for time.Since(begun) < time.Hour {
			if got := s.Send(t.Context(), w, message("{}")); got.Status != 200 {
				t.Fatalf("after %v: %d %q", time.Since(begun), got.Status, got.Error)
			}
			time.Sleep(20 * time.Second)
		}
		synctest.Wait()
	})
}

// C88: where the operator says so, HTTP/2 is never offered.
func TestHTTP2IsNotOfferedWhereItIsNotWanted(t *testing.T) {
	receiver := &frames{reply: func(f *http2.Framer, _ int, stream uint32) error {
		return f.WriteRSTStream(stream, http2.ErrCodeInternal)
	}}
	s, w := eitherProtocol(t, receiver.serve, webhooktest.Answer("HTTP/1.1 204 X\r\n\r\n"))
	w.HTTP1 = true
	for range 2 {
		got := s.Send(t.Context(), w, message("{}"))
		wantAnswer(t, got, 204)
		if got.Redials != 0 {
			t.Errorf("%d redials", got.Redials)
		}
	}
	other := *w
	other.HTTP1 = false
	if got := s.Send(t.Context(), &other, message("{}")); got.Status != 0 {
		t.Errorf("one that offers HTTP/2 got %d over the other's connection", got.Status)
	}
	if conns, _ := receiver.count(); conns != 1 {
		t.Errorf("%d connections of HTTP/2, want one", conns)
	}
}
