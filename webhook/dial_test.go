package webhook_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// closing answers each connection once.
func closing(c *webhooktest.Conn) {
	answerOnce(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
}

// C104: however many of a name's addresses are dead, the first attempt delivers, and
// further ones know.
func TestLiveAddressBehindManyDeadOnesIsReached(t *testing.T) {
	for _, n := range []int{2, 9, 12, 40, 200} {
		for _, timeout := range []time.Duration{5 * time.Second, 30 * time.Second} {
			bubble.Test(t, func(t *testing.T) {
				wire := webhooktest.NewWire(t, closing)
				var all answer
				for i := range n {
					all.addrs = append(all.addrs, netip.AddrFrom4([4]byte{93, 184, byte(i), 1}))
				}
				live := net.JoinHostPort(all.addrs[n-1].String(), "80")
				s := newSender(t, func(ctx context.Context, network, address string) (net.Conn, error) {
					if address != live {
						return stalledDial(ctx, network, address)
					}
					return wire.Dial(ctx, network, address)
				}, with(resolving("receiver.example", all)))
				w := hook()
				w.URL, w.Timeout = "http://receiver.example/", timeout
				for i := range 3 {
					got := s.Send(t.Context(), w, message("{}"))
					wantAnswer(t, got, 200)
					if got.Duration > timeout/2+time.Second || i > 0 && got.Duration > time.Millisecond || got.Redials != 0 {
						t.Errorf("%d addresses, message %d: after %v, %d redials", n, i, got.Duration, got.Redials)
					}
				}
			})
		}
	}
}

// One dead address beside a good one costs a quarter of a second, and that once a minute.
func TestADeadAddressCostsAQuarterOfASecondOnceAMinute(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		wire := webhooktest.NewWire(t, closing)
		s := newSender(t, func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "[2606:4700::1]:80" {
				return stalledDial(ctx, network, address)
			}
			return wire.Dial(ctx, network, address)
		}, with(resolving("receiver.example", addresses("2606:4700::1", "93.184.216.1"))))
		w := hook()
		w.URL = "http://receiver.example/"
		slow := 0
		for range 100 {
			got := s.Send(t.Context(), w, message("{}"))
			wantAnswer(t, got, 200)
			if got.Duration > 400*time.Millisecond {
				t.Errorf("after %v", got.Duration)
			}
			if got.Duration >= 250*time.Millisecond {
				slow++
			}
			time.Sleep(time.Second)
		}
		if slow != 2 {
			t.Errorf("%d of 100 connections in 100 s waited for the dead address, want 2", slow)
		}
	})
}

// The two kinds of address take turns, and each time another one of a kind is first.
func TestTheLoadIsSpreadOverTheAddressesOfAName(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		wire := webhooktest.NewWire(t, closing)
		d := &dials{next: wire.Dial}
		s := newSender(t, d.dial, with(resolving("receiver.example", addresses("93.184.216.1", "93.184.216.2", "93.184.216.3"))))
		w := hook()
		w.URL = "http://receiver.example/"
		for range 9 {
			wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
		}
		count := map[string]int{}
		for _, address := range d.list() {
			count[address]++
		}
		if len(count) != 3 || count["93.184.216.1:80"] != 3 {
			t.Errorf("dialled %v", count)
		}
	})
	bubble.Test(t, func(t *testing.T) {
		d := &dials{next: fails(syscall.ECONNREFUSED)}
		s := newSender(t, d.dial, with(resolving("receiver.example", addresses("2606:4700::1", "2606:4700::2", "2606:4700::3", "93.184.216.1"))))
		w := hook()
		w.URL = "http://receiver.example/"
		wantFailure(t, s.Send(t.Context(), w, message("{}")), "connect")
		if got := fmt.Sprint(d.list()[:4]); got != "[[2606:4700::1]:80 93.184.216.1:80 [2606:4700::2]:80 [2606:4700::3]:80]" {
			t.Errorf("dialled %v", got)
		}
	})
}

// A connection that lost the race is closed, not left open.
func TestWhoConnectsTooLateIsClosed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		wire := webhooktest.NewWire(t, closing)
		closed := make(chan struct{})
		s := newSender(t, func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "93.184.216.1:80" {
				time.Sleep(time.Second) // deaf to the context
				return closeTeller{closed: closed}, nil
			}
			return wire.Dial(ctx, network, address)
		}, with(resolving("receiver.example", addresses("93.184.216.1", "93.184.216.2"))))
		w := hook()
		w.URL = "http://receiver.example/"
		wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
		<-closed
	})
}

type closeTeller struct {
	net.Conn
	closed chan struct{}
}

func (c closeTeller) Close() error { close(c.closed); return nil }

// C105: what this machine lacks is charged to nobody, whatever the other address says.
func TestOurOwnShortageIsTheReceiversOnlyWhereTheReceiverSpoke(t *testing.T) {
	opError := func(errno syscall.Errno) error { return &net.OpError{Op: "dial", Err: errno} }
	for name, c := range map[string]struct {
		six, four error
		class     string
	}{
		"ports, no route":       {opError(syscall.ENETUNREACH), opError(syscall.EADDRNOTAVAIL), "canceled"},
		"no route, descriptors": {opError(syscall.EMFILE), opError(syscall.EHOSTUNREACH), "canceled"},
		"both":                  {opError(syscall.EADDRNOTAVAIL), opError(syscall.EADDRNOTAVAIL), "canceled"},
		"refused, no address":   {opError(syscall.EADDRNOTAVAIL), opError(syscall.ECONNREFUSED), "connect"},
		"no route":              {opError(syscall.ENETUNREACH), opError(syscall.ENETUNREACH), "connect"},
		"ports, silence":        {nil, opError(syscall.EADDRNOTAVAIL), "canceled"},
		"silence, descriptors":  {opError(syscall.EMFILE), nil, "canceled"},
		"silence":               {nil, nil, "timeout"},
		"refused, silence":      {nil, opError(syscall.ECONNREFUSED), "timeout"},
	} {
		bubble.Test(t, func(t *testing.T) {
			t.Log(name)
			s := newSender(t, func(ctx context.Context, _, address string) (net.Conn, error) {
				err := c.six
				if address == "93.184.216.1:80" {
					err = c.four
				}
				if err == nil { // silence
					<-ctx.Done()
					err = ctx.Err()
				}
				return nil, err
			}, with(resolving("receiver.example", addresses("2606:4700::1", "93.184.216.1"))))
			w := hook()
			w.URL = "http://receiver.example/"
			wantFailure(t, s.Send(t.Context(), w, message("{}")), c.class)
			if short := !s.Shortage().At.IsZero(); short != (c.class == "canceled") {
				t.Errorf("a shortage is told: %t", short)
			}
		})
	}
}

// kinds is a resolver that answers each kind of address by itself, and of both what the
// last one said.
type kinds map[string]answer

func (k kinds) LookupNetIP(_ context.Context, network, _ string) ([]netip.Addr, error) {
	if _, apart := k["ip"]; network == "ip" && !apart {
		if all := slices.Concat(k["ip4"].addrs, k["ip6"].addrs); len(all) > 0 {
			return all, nil
		}
		return nil, k["ip6"].err
	}
	return k[network].addrs, k[network].err
}

func TestALookupIsJudgedByBothAnswers(t *testing.T) {
	none := answer{err: &net.DNSError{Err: "no such host", Name: "receiver.example", IsNotFound: true}}
	failed := answer{err: &net.DNSError{Err: "server misbehaving", Name: "receiver.example", IsTemporary: true}}
	short := answer{err: &net.DNSError{Err: "dial udp 127.0.0.53:53: socket: " + syscall.EMFILE.Error(), Name: "receiver.example", IsTemporary: true}}
	here, there, inside := addresses("93.184.216.1"), addresses("2606:4700::1"), addresses("::1")
	for name, c := range map[string]struct {
		four, six answer
		class     string
		redials   int
	}{
		"SERVFAIL for A":         {failed, none, "dns", 1},
		"no descriptor for A":    {short, none, "canceled", 0},
		"no descriptor for AAAA": {none, short, "canceled", 0},
		"neither":                {none, none, "dns", 0},

		"no descriptor for A, no way to AAAA":  {short, there, "canceled", 0},
		"SERVFAIL for A, no way to AAAA":       {failed, there, "dns", 1},
		"no A, no way to AAAA":                 {none, there, "connect", 1},
		"no descriptor for AAAA, no way to A":  {here, short, "canceled", 0},
		"no way to both":                       {here, there, "connect", 1},
		"no descriptor for A, AAAA is refused": {short, inside, "canceled", 0},
		"SERVFAIL for A, AAAA is refused":      {failed, inside, "dns", 1},
		"no A, AAAA is refused":                {none, inside, "blocked", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := hook()
			w.URL = "https://receiver.example/"
			got := newSender(t, fails(syscall.ENETUNREACH), with(kinds{"ip4": c.four, "ip6": c.six}), guarded(webhook.GuardOptions{})).Send(t.Context(), w, message("{}"))
			wantFailure(t, got, c.class)
			if got.Redials != c.redials {
				t.Errorf("%d redials, want %d: %s", got.Redials, c.redials, got.Error)
			}
		})
	}
}

// What the lookup of both kinds left out, and is there when it is asked for by itself, is dialled.
func TestAKindOfAddressThatALookupLeftOutIsDialled(t *testing.T) {
	for name, found := range map[string]string{"no way to it": "2606:4700::1", "refused": "::1"} {
		t.Run(name, func(t *testing.T) {
			var dialled []string
			w := hook()
			w.URL = "https://receiver.example/"
			got := newSender(t, func(_ context.Context, _, address string) (net.Conn, error) {
				if dialled = append(dialled, address); address == "93.184.216.1:443" {
					return nil, syscall.ECONNREFUSED
				}
				return nil, syscall.ENETUNREACH
			}, with(kinds{"ip": addresses(found), "ip4": addresses("93.184.216.1", "127.0.0.1")}), guarded(webhook.GuardOptions{})).Send(t.Context(), w, message("{}"))
			wantFailure(t, got, "connect")
			if got.Error != "the connection was refused" || slices.Contains(dialled, "127.0.0.1:443") {
				t.Errorf("%s, after %q", got.Error, dialled)
			}
		})
	}
}

var _ webhook.Resolver = kinds{}
