package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// C23 a: a server that ends each idle connection just as the next request
// arrives costs no message an attempt, and nothing arrives twice.
func TestReusedConnectionThatDiedIsTriedOnceMore(t *testing.T) {
	send := func(t *testing.T, wire *webhooktest.Wire, url string) {
		s := newSender(t, wire.Dial)
		w := hook()
		w.URL = url
		redials := 0
		for i := range 100 {
			got := s.Send(t.Context(), w, message(strconv.Itoa(i)))
			wantAnswer(t, got, 200)
			redials += got.Redials
		}
		if redials != 50 || wire.Conns() != 100 || len(wire.Raw()) != 100 {
			t.Errorf("%d redials, %d connections, %d requests; want 50, 100, 100", redials, wire.Conns(), len(wire.Raw()))
		}
	}
	t.Run("pipe", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			wire := webhooktest.NewWire(t, webhooktest.CloseOnReuse)
			send(t, wire, "http://127.0.0.1/")
		})
	})
	t.Run("TCP", func(t *testing.T) {
		wire := webhooktest.NewTCPWire(t, webhooktest.CloseOnReuse)
		send(t, wire, wire.URL())
	})
}

// The second try is on a fresh connection, not on the next dead one.
func TestManyDeadConnectionsCostOneRedial(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		wire := webhooktest.NewWire(t, func(c *webhooktest.Conn) {
			if _, _, err := c.ReadRequest(); err != nil {
				return
			}
			if c.N <= 8 {
				<-gate
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			_, _, _ = c.ReadRequest() // and die with it
		})
		s := newSender(t, wire.Dial)
		results := make(chan webhook.Result, 8)
		for range 8 {
			go func() { results <- s.Send(t.Context(), hook(), message("{}")) }()
		}
		synctest.Wait() // eight connections are open
		close(gate)
		for range 8 {
			wantAnswer(t, <-results, 200)
		}
		got := s.Send(t.Context(), hook(), message("{}"))
		wantAnswer(t, got, 200)
		if got.Redials != 1 || wire.Conns() != 9 {
			t.Errorf("%d redials, %d connections; want 1, 9", got.Redials, wire.Conns())
		}
	})
}

func TestNothingElseIsRepeated(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	answerThen := func(second string) webhooktest.Script {
		return func(c *webhooktest.Conn) {
			for _, text := range []string{ok, second} {
				if _, _, err := c.ReadRequest(); err != nil {
					return
				}
				_, _ = io.WriteString(c, text)
			}
		}
	}
	for name, c := range map[string]struct {
		script webhooktest.Script
		class  string
		warm   bool
		unread bool // the last request
	}{
		"not taken on a reused connection":     {script: func(c *webhooktest.Conn) { answerOnce(c, ok); time.Sleep(time.Hour) }, class: "timeout", warm: true, unread: true},
		"reset on a fresh connection":          {script: webhooktest.Reset, class: "reset"},
		"half a head on a fresh connection":    {script: func(c *webhooktest.Conn) { answerOnce(c, "HTTP/1.1 200") }, class: "reset"},
		"half a head on a reused connection":   {script: answerThen("HTTP/1.1 500 OK\r\n"), class: "reset", warm: true},
		"malformed":                            {script: webhooktest.Answer("hello secret-text\r\n\r\n"), class: "protocol"},
		"malformed on a reused connection":     {script: answerThen("hello secret-text\r\n\r\n"), class: "protocol", warm: true},
		"bad status":                           {script: webhooktest.Answer("HTTP/1.1 2x0 secret-text\r\n\r\n"), class: "protocol"},
		"bad header":                           {script: webhooktest.Answer("HTTP/1.1 500 OK\r\nsecret-text\r\n\r\n"), class: "protocol"},
		"two lengths":                          {script: webhooktest.Answer("HTTP/1.1 500 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), class: "protocol"},
		"interim and then the end":             {script: func(c *webhooktest.Conn) { answerOnce(c, "HTTP/1.1 103 X\r\n\r\n") }, class: "reset"},
		"hang on a reused connection":          {script: func(c *webhooktest.Conn) { answerOnce(c, ok); webhooktest.Hang(c) }, class: "timeout", warm: true},
		"switching protocols":                  {script: webhooktest.Answer("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), class: "protocol"},
		"503 with Retry-After is no redial":    {script: webhooktest.Answer("HTTP/1.1 503 X\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n")},
		"429 with Retry-After is no redial":    {script: webhooktest.Answer("HTTP/1.1 429 X\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n")},
		"redirect without Location is no redo": {script: webhooktest.Answer("HTTP/1.1 307 X\r\nContent-Length: 0\r\n\r\n")},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				wire := webhooktest.NewWire(t, c.script)
				s := newSender(t, wire.Dial)
				want := 1
				if c.warm {
					wantAnswer(t, s.Send(t.Context(), hook(), message("{}")), 200)
					want++
				}
				if c.unread {
					want--
				}
				got := s.Send(t.Context(), hook(), message("{}"))
				if c.class != "" {
					wantFailure(t, got, c.class)
					webhooktest.AssertNoSecrets(t, []string{got.Error}, "secret-text")
				}
				if got.Redials != 0 || len(wire.Raw()) != want || wire.Conns() != 1 {
					t.Errorf("%d redials, %d requests over %d connections", got.Redials, len(wire.Raw()), wire.Conns())
				}
			})
		})
	}
}

func answerOnce(c *webhooktest.Conn, text string) {
	if _, _, err := c.ReadRequest(); err == nil {
		_, _ = io.WriteString(c, text)
	}
}

func TestFailedDialIsTriedOnceMore(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	d := &dials{next: fails(refused)}
	s := newSender(t, d.dial)
	got := s.Send(t.Context(), hook(), message("{}"))
	wantFailure(t, got, "connect")
	if got.Redials != 1 || len(d.list()) != 2 {
		t.Errorf("%d redials, dialled %v", got.Redials, d.list())
	}
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(nil)
		defer receiver.Close()
		first := true
		s := newSender(t, func(ctx context.Context, network, address string) (net.Conn, error) {
			if first {
				first = false
				return nil, refused
			}
			return receiver.Dial(ctx, network, address)
		})
		defer s.Close()
		got := s.Send(t.Context(), hook(), message("{}"))
		wantAnswer(t, got, 200)
		if got.Redials != 1 || len(receiver.Received()) != 1 {
			t.Errorf("%d redials, %d requests", got.Redials, len(receiver.Received()))
		}
	})
}

func TestClosedPortIsConnect(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := hook()
	w.URL = "http://" + listener.Addr().String() + "/"
	listener.Close()
	got := newSender(t, nil).Send(t.Context(), w, message("{}"))
	wantFailure(t, got, "connect")
	if got.Error != "the connection was refused" || got.Redials != 1 {
		t.Errorf("%q after %d redials", got.Error, got.Redials)
	}
}

func TestUnresolvedName(t *testing.T) {
	temporary := answer{err: &net.DNSError{Err: "server misbehaving", Name: "receiver.example", IsTemporary: true}}
	for name, c := range map[string]struct {
		resolver *names
		lookups  int
	}{
		"does not exist": {resolving("other.example"), 3}, // and each kind of address by itself
		"no address":     {resolving("receiver.example", answer{}), 1},
		"out of order":   {resolving("receiver.example", temporary), 2},
		"other error":    {resolving("receiver.example", answer{err: errors.New("receiver.example: path-secret")}), 2},
	} {
		t.Run(name, func(t *testing.T) {
			d := &dials{next: fails(io.EOF)}
			w := hook()
			w.URL = "http://receiver.example/"
			got := newSender(t, d.dial, with(c.resolver)).Send(t.Context(), w, message("{}"))
			wantFailure(t, got, "dns")
			if c.resolver.count() != c.lookups || got.Redials != (c.lookups-1)%2 || len(d.list()) != 0 {
				t.Errorf("%d lookups, %d redials, dialled %v", c.resolver.count(), got.Redials, d.list())
			}
		})
	}
}

// A name with several addresses: the next one is used when one does not answer,
// and it leaves time for the others.
func TestAddressesAreTriedInTurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(nil)
		defer receiver.Close()
		d := &dials{next: func(ctx context.Context, network, address string) (net.Conn, error) {
			switch address {
			case "[2606:4700::1]:80":
				return stalledDial(ctx, network, address)
			case "93.184.216.1:80":
				return nil, syscall.ECONNREFUSED
			}
			return receiver.Dial(ctx, network, address)
		}}
		s := newSender(t, d.dial, with(resolving("receiver.example", addresses("2606:4700::1", "93.184.216.1", "::ffff:93.184.216.2"))))
		defer s.Close()
		w := hook()
		w.URL = "http://receiver.example/"
		got := s.Send(t.Context(), w, message("{}"))
		wantAnswer(t, got, 200)
		if fmt.Sprint(d.list()) != "[[2606:4700::1]:80 93.184.216.1:80 93.184.216.2:80]" || got.Redials != 0 || got.Duration > 3*time.Second {
			t.Errorf("dialled %v, %d redials, %v", d.list(), got.Redials, got.Duration)
		}
	})
}

// C31: what a name means is checked at every dial.
func TestForbiddenAddressIsNeverDialled(t *testing.T) {
	for name, c := range map[string]struct {
		url    string
		answer answer
	}{
		"loopback":          {"https://receiver.example/", addresses("127.0.0.1")},
		"two of them":       {"https://receiver.example/", addresses("0.0.0.0", "::1")},
		"behind NAT64":      {"https://receiver.example/", addresses("64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b::a83f:8110")},
		"mapped":            {"https://receiver.example/", addresses("::ffff:10.0.0.1")},
		"metadata":          {"https://receiver.example/", addresses("169.254.169.254")},
		"zone":              {"https://receiver.example/", addresses("fe80::1%eth0")},
		"public, with zone": {"https://receiver.example/", addresses("2606:4700::1%1")},
		"Azure":             {"https://receiver.example/", addresses("168.63.129.16")},
		"literal":           {"https://127.0.0.1/", answer{}},
		"literal, local":    {"https://[fd00:ec2::254]/", answer{}},
		"name":              {"https://LOCALHOST./", addresses("127.0.0.1")},
	} {
		t.Run(name, func(t *testing.T) {
			d := &dials{next: fails(io.EOF)}
			resolver := &names{answers: map[string][]answer{"receiver.example": {c.answer}, "localhost": {c.answer}}}
			s := newSender(t, d.dial, with(resolver), guarded(webhook.GuardOptions{}))
			w := hook()
			w.URL = c.url
			got := s.Send(t.Context(), w, message("{}"))
			wantFailure(t, got, "blocked")
			if literal := strings.HasPrefix(name, "literal"); got.NameBlocked == literal {
				t.Errorf("the name led there: %v", got.NameBlocked)
			}
			lookups := 2 // of both kinds of address, and of the one that was not found
			switch {
			case strings.HasPrefix(name, "literal"):
				lookups = 0
			case name == "two of them":
				lookups = 1
			}
			if len(d.list()) != 0 || got.Redials != 0 || resolver.count() != lookups {
				t.Errorf("dialled %v, %d redials, %d lookups, want %d", d.list(), got.Redials, resolver.count(), lookups)
			}
		})
	}
}

// C41: a resolver with DNS64 adds an address behind NAT64 to each name that has IPv4 only.
// It is judged as the IPv4 address inside; a range that allows the prefix allows nothing.
func TestAddressBehindNAT64IsJudgedAsTheIPv4AddressInside(t *testing.T) {
	const public = "64:ff9b::5db8:d70e" // 93.184.215.14
	prefix := []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")}
	for _, c := range []struct {
		name, url string
		answer    answer
		guard     webhook.GuardOptions
		dialled   string
	}{
		{"both", "http://receiver.example/", addresses("93.184.215.14", public), webhook.GuardOptions{}, "[93.184.215.14:80]"},
		{"alone", "http://receiver.example/", addresses(public), webhook.GuardOptions{}, "[[" + public + "]:80]"},
		{"literal", "http://[" + public + "]/", answer{}, webhook.GuardOptions{}, "[[" + public + "]:80]"},
		{"denied inside", "http://receiver.example/", addresses(public), webhook.GuardOptions{DenyCIDRs: []netip.Prefix{netip.MustParsePrefix("93.184.215.0/24")}}, "[]"},
		{"prefix allowed", "http://receiver.example/", addresses("64:ff9b::a9fe:a9fe", "64:ff9b::a83f:8110"), webhook.GuardOptions{AllowCIDRs: prefix}, "[]"},
		{"local use", "http://receiver.example/", addresses("64:ff9b:1::5db8:d70e"), webhook.GuardOptions{AllowCIDRs: prefix}, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				receiver := webhooktest.NewReceiver(nil)
				defer receiver.Close()
				d := &dials{next: receiver.Dial}
				c.guard.AllowPrivate = true // http; the addresses of this test are none that it is about
				s := newSender(t, d.dial, with(resolving("receiver.example", c.answer)), guarded(c.guard))
				defer s.Close()
				w := hook()
				w.URL = c.url
				got := s.Send(t.Context(), w, message("{}"))
				if fmt.Sprint(d.list()) != c.dialled || (got.Status == 200) != (c.dialled != "[]") {
					t.Errorf("dialled %v, %d %s, want %s", d.list(), got.Status, got.ErrorClass, c.dialled)
				}
			})
		})
	}
}

// C42: of a name's addresses those are used that are allowed.
func TestOneAllowedAddressOfANameIsUsed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(nil)
		defer receiver.Close()
		d := &dials{next: receiver.Dial}
		s := newSender(t, d.dial, with(resolving("receiver.example", addresses("169.254.169.254", "93.184.216.34", "::"))))
		defer s.Close()
		w := hook()
		w.URL = "http://receiver.example/"
		wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
		if fmt.Sprint(d.list()) != "[93.184.216.34:80]" {
			t.Errorf("dialled %v", d.list())
		}
	})
}

// C31: safe at the first look and internal at the second.
func TestRebindingIsBlocked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		wire := webhooktest.NewWire(t, func(c *webhooktest.Conn) {
			answerOnce(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		})
		d := &dials{next: wire.Dial}
		resolver := resolving("receiver.example", addresses("93.184.216.34"), addresses("127.0.0.1"))
		s := newSender(t, d.dial, with(resolver), func(o *webhook.Options) {
			o.Guard.DenyCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		})
		w := hook()
		w.URL = "http://receiver.example/"
		wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
		wantFailure(t, s.Send(t.Context(), w, message("{}")), "blocked")
		if fmt.Sprint(d.list()) != "[93.184.216.34:80]" {
			t.Errorf("dialled %v", d.list())
		}
	})
}

// C23 c: a busy webhook follows its name within a minute.
func TestChangedAddressIsUsedWithinAMinute(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		before, after := webhooktest.NewReceiver(nil), webhooktest.NewReceiver(nil)
		defer before.Close()
		defer after.Close()
		resolver := resolving("receiver.example", addresses("93.184.216.1"), addresses("93.184.216.2"))
		s := newSender(t, func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "93.184.216.1:80" {
				return before.Dial(ctx, network, address)
			}
			return after.Dial(ctx, network, address)
		}, with(resolver))
		defer s.Close()
		w := hook()
		w.URL = "http://receiver.example/"
		for range 60 {
			wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
			time.Sleep(time.Second)
		}
		if len(after.Received()) == 0 || len(before.Dialed()) != 1 {
			t.Errorf("%d requests at the new address, %d connections to the old", len(after.Received()), len(before.Dialed()))
		}
	})
}

// What is in flight when the pool is exchanged ends undisturbed.
func TestRotationDoesNotHurtWhatIsInFlight(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		wire := webhooktest.NewWire(t, func(c *webhooktest.Conn) {
			if c.N == 1 {
				if _, _, err := c.ReadRequest(); err == nil {
					<-release
					_, _ = io.WriteString(c, "HTTP/1.1 201 OK\r\nContent-Length: 0\r\n\r\n")
				}
				return
			}
			webhooktest.Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")(c)
		})
		s := newSender(t, wire.Dial)
		slow := hook()
		slow.Timeout = time.Hour
		result := make(chan webhook.Result)
		go func() { result <- s.Send(t.Context(), slow, message("{}")) }()
		synctest.Wait()
		for range 300 {
			wantAnswer(t, s.Send(t.Context(), hook(), message("{}")), 200)
			time.Sleep(time.Second)
		}
		close(release)
		wantAnswer(t, <-result, 201)
		if n := wire.Conns(); n < 6 || n > 9 {
			t.Errorf("%d connections in five minutes, want one per 45 s", n)
		}
	})
}

// A limit of this machine says nothing about the receiver: it is charged to nobody.
func TestAShortageOfThisMachineIsNoFailureOfTheReceiver(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		dial := &dials{next: fails(&net.OpError{Op: "dial", Err: os.NewSyscallError("socket", errno)})}
		s := newSender(t, dial.dial)
		if got := s.Send(t.Context(), hook(), message("1")); got.ErrorClass != "canceled" || len(dial.list()) != 1 {
			t.Errorf("%v: %q after %d dials, %s", errno, got.ErrorClass, len(dial.list()), got.Error)
		}
		if last := s.Shortage(); !strings.HasPrefix(last.Text, "this machine has no ") || time.Since(last.At) > time.Minute {
			t.Errorf("%v: the last shortage is %+v", errno, last)
		}
		// The resolver opens sockets too, and passes on nothing but the text.
		lookup := &net.DNSError{Err: "dial udp 127.0.0.53:53: socket: " + errno.Error(), Name: "hooks.test", IsTemporary: true}
		s = newSender(t, fails(errors.New("not dialled")), with(resolving("hooks.test", answer{err: lookup})))
		w := hook()
		w.URL = "https://hooks.test/"
		if got := s.Send(t.Context(), w, message("1")); got.ErrorClass != "canceled" || s.Shortage().At.IsZero() {
			t.Errorf("%v in the resolver: %q, %s", errno, got.ErrorClass, got.Error)
		}
	}
}
