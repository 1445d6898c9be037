package webhook

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

// C105: where IPv6 is off, a receiver that has nothing else is out of reach. That is no shortage of ports.
func TestAMachineWithoutIPv6LacksNoPorts(t *testing.T) {
	taken := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)}
	for name, c := range map[string]struct {
		address string
		source  bool
		short   bool
		text    string
	}{
		"IPv6 is off":          {"[2606:4700::1]:443", false, false, "the address can not be reached"},
		"the ports are in use": {"[2606:4700::1]:443", true, true, "this machine has no free port or address to connect from: widen its range of ports, or lower the concurrency"},
		"so they are for IPv4": {"93.184.216.34:443", false, true, "this machine has no free port or address to connect from: widen its range of ports, or lower the concurrency"},
	} {
		dial := withoutIPv6(func(context.Context, string, string) (net.Conn, error) { return nil, taken }, func(string) bool { return c.source })
		_, err := dial(t.Context(), "tcp", c.address)
		if f := connectFailure(err); f.short != c.short || f.text != c.text {
			t.Errorf("%s: short is %v, %q", name, f.short, f.text)
		}
	}
	if !hasSource("127.0.0.1:9") {
		t.Error("this machine has no address to reach itself from")
	}
	refused := errors.New("refused")
	if _, err := withoutIPv6(func(context.Context, string, string) (net.Conn, error) { return nil, refused }, hasSource)(t.Context(), "tcp", "[::1]:9"); !errors.Is(err, refused) {
		t.Errorf("another error became %v", err)
	}
}

// C105: an address is not dead because this machine had no port for it: others would be dialled before it for a minute.
func TestAShortageOfThisMachineMakesNoAddressADeadOne(t *testing.T) {
	for errno, dead := range map[syscall.Errno]int{syscall.EADDRNOTAVAIL: 0, syscall.EMFILE: 0, syscall.ECONNREFUSED: 2} {
		g := newGuard(GuardOptions{}, nil, func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)}
		})
		if _, err := g.race(t.Context(), []string{"93.184.216.1:80", "93.184.216.2:80"}); err == nil {
			t.Fatal("no error")
		}
		if got := len(g.addresses.dead); got != dead {
			t.Errorf("%v: %d dead addresses, want %d", errno, got, dead)
		}
	}
}

// C105: nor is it where the race goes on beside it, and another address is silent to the end, or connects late.
func TestAShortageBesideOthersMakesNoAddressADeadOne(t *testing.T) {
	const lacking, silent, slow = "93.184.216.1:80", "93.184.216.2:80", "93.184.216.3:80"
	for name, c := range map[string]struct {
		second string
		dead   int
	}{"silent": {silent, 1}, "late": {slow, 0}} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				there, far := net.Pipe()
				defer func() { _, _ = there.Close(), far.Close() }()
				g := newGuard(GuardOptions{}, nil, func(ctx context.Context, _, address string) (net.Conn, error) {
					switch address {
					case lacking:
						return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)}
					case slow:
						time.Sleep(2 * time.Second)
						return there, nil
					}
					<-ctx.Done()
					return nil, ctx.Err()
				})
				ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
				defer stop()
				if _, err := g.race(ctx, []string{lacking, c.second}); (err == nil) != (c.second == slow) {
					t.Errorf("the race ended with %v", err)
				}
				if _, dead := g.addresses.dead[lacking]; dead || len(g.addresses.dead) != c.dead {
					t.Errorf("dead are %v, want %d, and not %s", g.addresses.dead, c.dead, lacking)
				}
			})
		})
	}
}
