package webhook

import (
	"context"
	"net"
	"net/netip"
	"syscall"
)

// Resolver turns a name into addresses. *net.Resolver is one.
type Resolver interface {
	// LookupNetIP gives all addresses of a host; network is "ip".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// DialFunc opens a connection to an address of the form ip:port.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// guard opens connections only to addresses that its options allow. It resolves
// once and dials what it has checked, so that a name can not change in between.
type guard struct {
	options  GuardOptions
	resolver Resolver
	dialer   DialFunc

	addresses addressBook
}

func newGuard(options GuardOptions, resolver Resolver, dialer DialFunc) *guard {
	g := &guard{options: options, resolver: resolver, dialer: dialer}
	if g.resolver == nil {
		g.resolver = net.DefaultResolver
	}
	if g.dialer == nil {
		// No timeout of its own: the exchange has the one deadline.
		d := &net.Dialer{ControlContext: g.control}
		g.dialer = withoutIPv6(d.DialContext, hasSource)
	}
	return g
}

type destinationKey struct{}

// control checks the address that a socket is about to be connected to.
func (g *guard) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	to, _ := ctx.Value(destinationKey{}).(destination)
	if err != nil || !g.options.allowsFor(target.Addr(), to) {
		return ErrBlockedAddress
	}
	return nil
}

// resolve gives those of the host's addresses that are allowed, or a *failure when there
// is none. A literal address that is refused stays so; what a name leads to can heal.
func (g *guard) resolve(ctx context.Context, to destination) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(to.host); err == nil {
		if !g.options.allowsFor(addr, to) {
			return nil, connectFailure(ErrBlockedAddress)
		}
		return []netip.Addr{addr}, nil
	}
	addrs, err := g.lookup(ctx, to.host)
	if err != nil {
		return nil, dnsFailure(err)
	}
	allowed := g.allowed(addrs, to)
	if len(addrs) > 0 && len(allowed) == 0 {
		if allowed, err = g.otherKind(ctx, to, addrs); err == nil && len(allowed) == 0 {
			err = blockedName()
		}
	}
	return allowed, err
}

// allowed are those of a name's addresses that may be dialled.
func (g *guard) allowed(addrs []netip.Addr, to destination) (allowed []netip.Addr) {
	for _, addr := range addrs {
		// net.Resolver gives IPv4 addresses in the mapped form at times.
		if addr = addr.Unmap(); g.options.allowsFor(addr, to) {
			allowed = append(allowed, addr)
		}
	}
	return allowed
}
