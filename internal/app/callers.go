package app

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxConnections bounds the callers at a time, since those who have not even said who
	// they are would otherwise take the sockets that the deliveries need.
	maxConnections = 1024
	// maxOfPeer bounds those of one address.
	maxOfPeer = maxConnections / 2
	// pressedFrom is how many connections make quiet ones end earlier, and quietWhenPressed
	// how early.
	pressedFrom      = maxConnections * 3 / 4
	quietWhenPressed = 5 * time.Second
	// probeConnections are kept for those who find all others at work: they are asked
	// whether the process is alive and ready, and nothing else.
	probeConnections = 16
)

// callers are the connections of the API's callers. A caller who comes while all
// connections are taken is never left waiting: the connection that has been quiet for the
// longest is closed for it, and where none is quiet it may ask for the process's health.
type callers struct {
	net.Listener

	mu     sync.Mutex
	all    []*caller // in the order in which they came
	probes int       // how many of them are kept for probes
}

// caller is one connection.
type caller struct {
	net.Conn
	of   *callers
	peer string
	// probing says that it came when all others were at work.
	probing bool
	once    sync.Once

	// What follows is guarded by of.mu.
	quiet bool // no request is being read or answered
	since time.Time
}

// Accept implements net.Listener.
func (l *callers) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &caller{Conn: conn, of: l, peer: peerOf(conn.RemoteAddr()), quiet: true, since: time.Now()}
	for _, old := range l.admit(c) {
		_ = old.Close() // it was quiet, and has nothing to say
	}
	return c, nil
}

// admit adds c, and returns the connections to close for it.
func (l *callers) admit(c *caller) (closed []*caller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	working, ofPeer := len(l.all)-l.probes, 0
	for _, other := range l.all {
		if !other.probing && other.peer == c.peer {
			ofPeer++
		}
	}
	switch {
	case ofPeer >= maxOfPeer:
		closed = l.quietest(func(other *caller) bool { return !other.probing && other.peer == c.peer })
	case working >= maxConnections:
		closed = l.quietest(func(other *caller) bool { return !other.probing })
	case working >= pressedFrom:
		for _, other := range l.all {
			if !other.probing && other.quiet && time.Since(other.since) >= quietWhenPressed {
				closed = append(closed, other)
			}
		}
	}
	if c.probing = len(closed) == 0 && (ofPeer >= maxOfPeer || working >= maxConnections); c.probing {
		if l.probes >= probeConnections {
			first := slices.IndexFunc(l.all, func(other *caller) bool { return other.probing })
			closed = append(closed, l.all[first])
		}
		l.probes++
	}
	l.all = append(l.all, c)
	return closed
}

// quietest is the connection among some that has been quiet for the longest, if any is.
func (l *callers) quietest(among func(*caller) bool) []*caller {
	var found []*caller
	for _, c := range l.all {
		if among(c) && c.quiet && (found == nil || c.since.Before(found[0].since)) {
			found = []*caller{c}
		}
	}
	return found
}

// Close implements net.Conn.
func (c *caller) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		if i := slices.Index(c.of.all, c); i >= 0 {
			c.of.all = slices.Delete(c.of.all, i, i+1)
		}
		if c.probing {
			c.of.probes--
		}
	})
	return c.Conn.Close()
}

// changed is the server's hook for the state of a connection.
func (*callers) changed(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*caller)
	if !ok {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.quiet, c.since = state == http.StateNew || state == http.StateIdle, time.Now()
}

type probingKey struct{}

// mark is the server's hook for the context of a connection's requests.
func (*callers) mark(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*caller); ok && c.probing {
		return context.WithValue(ctx, probingKey{}, true)
	}
	return ctx
}

// onlyProbes reports whether a request may only ask for the process's health.
func onlyProbes(ctx context.Context) bool { return ctx.Value(probingKey{}) != nil }

// peerOf is whom a connection counts for: an IPv4 address, or the network of an IPv6 one,
// in which one machine has as many addresses as it likes.
func peerOf(addr net.Addr) string {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip := at.Addr().Unmap()
	if ip.Is6() {
		return netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
	}
	return ip.String()
}
