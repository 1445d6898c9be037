package webhook

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// nextAddress is how long one address of a name is waited for until the next is tried
	// beside it (RFC 8305).
	nextAddress = 250 * time.Millisecond
	// deadFor is how long an address that did not connect comes after all others.
	deadFor = time.Minute
	// maxDead bounds what is remembered.
	maxDead = 4096
)

// dial connects to host:port for URLs of the scheme. Its error is a *failure.
func (g *guard) dial(ctx context.Context, scheme, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, connectFailure(err)
	}
	to := destination{host, scheme == "http"}
	ctx = context.WithValue(ctx, destinationKey{}, to)
	addrs, err := g.resolve(ctx, to)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, dnsFailure(&net.DNSError{IsNotFound: true})
	}
	conn, err := g.connect(ctx, addrs, port)
	if errors.Is(err, syscall.ENETUNREACH) { // each of them: see moreTelling
		others, failed := g.otherKind(ctx, to, addrs)
		if failed != nil {
			return nil, failed
		}
		if len(others) > 0 {
			conn, err = g.connect(ctx, others, port)
		}
	}
	if err != nil {
		return nil, connectFailure(err)
	}
	return conn, nil
}

// connect dials the addresses of one name.
func (g *guard) connect(ctx context.Context, addrs []netip.Addr, port string) (net.Conn, error) {
	if len(addrs) == 1 {
		return g.dialer(ctx, "tcp", net.JoinHostPort(addrs[0].String(), port))
	}
	return g.race(ctx, g.addresses.order(addrs, port))
}

// withoutIPv6 dials, and calls an IPv6 address unreachable where this machine has no address to reach it
// from. Linux answers that with EADDRNOTAVAIL, which it does too when all ports are in use.
func withoutIPv6(dial DialFunc, hasSource func(address string) bool) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		to, parsed := netip.ParseAddrPort(address)
		if errors.Is(err, syscall.EADDRNOTAVAIL) && parsed == nil && to.Addr().Is6() && !hasSource(address) {
			err = &net.OpError{Op: "dial", Net: network, Addr: net.TCPAddrFromAddrPort(to), Err: os.NewSyscallError("connect", syscall.ENETUNREACH)}
		}
		return conn, err
	}
}

// hasSource reports whether this machine has an address to reach this one from. A socket for UDP takes no
// port of those for TCP, and connecting it sends nothing.
func hasSource(address string) bool {
	conn, err := net.Dial("udp", address) //nolint:noctx // it waits for nobody
	if err != nil {
		return !errors.Is(err, syscall.EADDRNOTAVAIL) && !errors.Is(err, syscall.ENETUNREACH)
	}
	_ = conn.Close()
	return true
}

// lookup resolves a name. Its addresses of both kinds are asked for at once; where the answer
// is that there is none, each kind is asked for again by itself, since an error of one must
// not pass for the other's "there is no such name".
func (g *guard) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs, err := g.resolver.LookupNetIP(ctx, "ip", host)
	if !notFound(err) {
		return addrs, err
	}
	for _, kind := range [...]string{"ip4", "ip6"} {
		found, failed := g.resolver.LookupNetIP(ctx, kind, host)
		addrs = append(addrs, found...)
		if failed != nil && !notFound(failed) {
			err = failed
		}
	}
	if len(addrs) > 0 {
		return addrs, nil
	}
	return nil, err
}

// otherKind asks for the kind of address that a name was not found to have, and gives those that are allowed: a
// lookup of both kinds tells nothing of an error of one where there are addresses of the other.
func (g *guard) otherKind(ctx context.Context, to destination, found []netip.Addr) ([]netip.Addr, error) {
	four := func(addr netip.Addr) bool { return addr.Unmap().Is4() }
	six := func(addr netip.Addr) bool { return !four(addr) }
	_, notName := netip.ParseAddr(to.host)
	kind := "ip4"
	switch {
	case notName == nil, slices.ContainsFunc(found, four) && slices.ContainsFunc(found, six):
		return nil, nil
	case four(found[0]):
		kind = "ip6"
	}
	others, err := g.resolver.LookupNetIP(ctx, kind, to.host)
	if err != nil && !notFound(err) {
		return nil, dnsFailure(err)
	}
	return g.allowed(others, to), nil
}

func notFound(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

// race dials addresses one after the other, each beside those before it, and gives the first
// connection. All are begun in half of the time that there is.
func (g *guard) race(ctx context.Context, addresses []string) (net.Conn, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop() // and nobody takes what connects later: see start
	r := &race{results: make(chan dialed), over: ctx.Done(), began: make([]time.Time, len(addresses))}
	step := nextAddress
	if by, ok := ctx.Deadline(); ok {
		step = min(step, time.Until(by)/2/time.Duration(len(addresses)))
	}
	next := time.NewTimer(step)
	defer next.Stop()
	var worst error
	for begun, pending := 0, 0; begun < len(addresses) || pending > 0; {
		if begun < len(addresses) {
			r.start(ctx, g.dialer, addresses, begun)
			begun, pending = begun+1, pending+1
			next.Reset(step)
		}
		select {
		case d := <-r.results:
			if d.err == nil {
				g.addresses.beaten(addresses, r.began, d.index, step)
				return d.conn, nil
			}
			pending--
			if short(d.err) {
				r.began[d.index] = time.Time{} // in effect it was not dialled
			} else {
				g.addresses.failed(addresses[d.index])
			}
			worst = moreTelling(worst, d.err)
		case <-next.C:
		case <-ctx.Done():
			g.addresses.beaten(addresses, r.began, -1, step)
			return nil, moreTelling(worst, ctx.Err())
		}
	}
	return nil, worst
}

// race is the state of one. A dial that ends after it closes its connection.
type race struct {
	results chan dialed
	over    <-chan struct{}
	began   []time.Time
}

type dialed struct {
	conn  net.Conn
	err   error
	index int
}

func (r *race) start(ctx context.Context, dial DialFunc, addresses []string, index int) {
	r.began[index] = time.Now()
	go func() {
		conn, err := dial(ctx, "tcp", addresses[index])
		select {
		case r.results <- dialed{conn, err, index}:
		case <-r.over:
			if err == nil {
				_ = conn.Close()
			}
		}
	}()
}

// moreTelling chooses between the errors of two addresses: what a receiver said before what
// this machine lacks, and that before an address that is silent or can't be reached from here.
func moreTelling(a, b error) error {
	rank := func(err error) int {
		switch {
		case err == nil:
			return 0
		case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
			return 1
		case silent(err):
			return 2
		case short(err):
			return 3
		case errors.Is(err, syscall.ECONNREFUSED):
			return 5
		}
		return 4
	}
	if rank(b) > rank(a) {
		return b
	}
	return a
}

// silent is whether nothing came from an address.
func silent(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// addressBook remembers which addresses did not connect lately. Safe for concurrent use.
type addressBook struct {
	mu   sync.Mutex
	dead map[string]time.Time // until when
	turn int
}

// order gives the addresses of one name in the order in which they are dialled: the two kinds
// in turn (RFC 8305), each time beginning with another one, dead ones last.
func (b *addressBook) order(addrs []netip.Addr, port string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	var kinds [2][]string
	for _, addr := range addrs {
		kind := 0
		if addr.Is4() != addrs[0].Is4() { // the system's order says which kind is first
			kind = 1
		}
		kinds[kind] = append(kinds[kind], net.JoinHostPort(addr.String(), port))
	}
	var alive, dead []string
	for i := range len(addrs) {
		for _, kind := range kinds {
			if i >= len(kind) {
				continue
			}
			address := kind[(i+b.turn)%len(kind)]
			if now.Before(b.dead[address]) {
				dead = append(dead, address)
			} else {
				alive = append(alive, address)
			}
		}
	}
	b.turn++
	return append(alive, dead...)
}

func (b *addressBook) failed(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead == nil || len(b.dead) >= maxDead {
		b.dead = map[string]time.Time{}
	}
	b.dead[address] = time.Now().Add(deadFor)
}

// beaten is about a race that ended: who began before the winner, and had the time that an
// address gets for itself, is taken for dead.
func (b *addressBook) beaten(addresses []string, began []time.Time, winner int, step time.Duration) {
	if winner >= 0 {
		b.mu.Lock()
		delete(b.dead, addresses[winner])
		b.mu.Unlock()
	}
	for i, at := range began {
		if i != winner && !at.IsZero() && time.Since(at) >= step {
			b.failed(addresses[i])
		}
	}
}
