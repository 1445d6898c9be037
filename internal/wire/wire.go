//go:build linux

// Package wire is a network for tests: two namespaces, a near and a far one, that meet in a wire
// whose middle is this process. The middle delays and loses packets, forgets connections as a
// NAT or a load balancer does, resets them, and has addresses that nothing answers from. What is
// at the ends is the system's own TCP.
//
// It needs Linux, the rights to make namespaces and TUN devices (root, as a rule), and ip of
// iproute2. Where one is missing, a test that asks for a wire is skipped, and fails with CI=true.
package wire

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The addresses. All of Servers and Servers6 are in the far namespace: who listens there on all
// addresses is reached under each of them.
var (
	Near     = netip.MustParseAddr("10.77.0.1")
	Near6    = netip.MustParseAddr("fd77::1")
	Servers  = netip.MustParsePrefix("10.77.1.0/24")
	Servers6 = netip.MustParsePrefix("fd77:1::/64")
)

// Wire is two namespaces and what is between them. Its methods may be called at any time.
type Wire struct {
	Near, Far *Namespace

	mu     sync.Mutex
	delay  time.Duration // one way
	rate   int           // bytes a second, each way; 0 is no bound
	loss   float64       // the share of packets that is lost
	random *rand.Rand
	dead   map[netip.Addr]bool
	flows  map[flow]fate
}

// fate is what happens to the packets of a connection.
type fate int

const (
	passes fate = iota
	vanishes
	isReset
)

// New makes a wire that passes everything on at once, and takes it away when the test ends.
func New(t testing.TB) *Wire {
	t.Helper()
	w, err := build(t)
	if err != nil {
		const cure = "run the tests as root on Linux, with iproute2 installed"
		if os.Getenv("CI") == "true" {
			t.Fatalf("no network for tests: %v: %s", err, cure)
		}
		t.Skipf("SKIPPED, networks are not tested here: %v: %s", err, cure)
	}
	return w
}

func build(t testing.TB) (*Wire, error) {
	w := &Wire{random: rand.New(rand.NewPCG(1, 2)), dead: map[netip.Addr]bool{}, flows: map[flow]fate{}}
	var devices [2]*os.File
	for i, end := range []struct {
		namespace **Namespace
		lines     []string
	}{
		{&w.Near, []string{"ip addr add 10.77.0.1/32 dev wire", "ip -6 addr add fd77::1/128 dev wire nodad"}},
		{&w.Far, []string{"ip route add local 10.77.1.0/24 dev lo", "ip -6 route add local fd77:1::/64 dev lo"}},
	} {
		n, err := newNamespace()
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = n.close() }) // nothing is written to it
		*end.namespace = n
		if devices[i], err = n.device("wire"); err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = devices[i].Close() }) // ends its reader
		lines := append([]string{"ip link set lo up", "ip link set wire up"}, end.lines...)
		for _, line := range append(lines, "ip route add default dev wire", "ip -6 route add default dev wire") {
			if err := n.Run(strings.Fields(line)...); err != nil {
				return nil, err
			}
		}
	}
	var readers sync.WaitGroup
	readers.Go(func() { w.carry(devices[0], devices[1]) })
	readers.Go(func() { w.carry(devices[1], devices[0]) })
	t.Cleanup(func() {
		for _, d := range devices {
			_ = d.Close() // ends its reader
		}
		readers.Wait()
	})
	return w, nil
}

// device makes a TUN device in the namespace: what is routed to it is read from the file.
func (n *Namespace) device(name string) (file *os.File, err error) {
	err = n.in(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return os.NewSyscallError("opening /dev/net/tun", err)
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			_ = unix.Close(fd) // the error above says more
			return os.NewSyscallError("TUNSETIFF", err)
		}
		file = os.NewFile(uintptr(fd), "tun") // after TUNSETIFF, so that Go's poller takes it
		return nil
	})
	return file, err
}

// packet is one on its way, and when it gets to the other end.
type packet struct {
	bytes []byte
	at    time.Time
}

// carry passes packets on, in their order, until a device is closed.
func (w *Wire) carry(from, to *os.File) {
	under := make(chan packet, 1<<14)
	var free time.Time // when what is on its way has been put on the line
	var writer sync.WaitGroup
	writer.Go(func() {
		for p := range under {
			if wait := time.Until(p.at); wait > 0 {
				<-time.After(wait)
			}
			_, _ = to.Write(p.bytes) // what a device does not take is lost, as on any network
		}
	})
	defer writer.Wait()
	defer close(under)
	for {
		buffer := make([]byte, 2048) // the device's MTU is 1,500
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		answer, pass, delay := w.judge(buffer[:n])
		if answer != nil {
			_, _ = from.Write(answer) // as above
		}
		if !pass {
			continue
		}
		now := time.Now()
		if free.Before(now) {
			free = now
		}
		if free = free.Add(w.takes(n)); free.Sub(now) > lineQueue {
			free = free.Add(-w.takes(n))
			continue // a full queue loses what comes
		}
		select {
		case under <- packet{buffer[:n], free.Add(delay)}:
		default: // a full queue loses what comes
		}
	}
}

// judge says what becomes of a packet; answer goes back to its sender.
func (w *Wire) judge(bytes []byte) (answer []byte, pass bool, delay time.Duration) {
	s, ok := read(bytes)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !ok || w.dead[s.flow.near.Addr()] || w.dead[s.flow.far.Addr()] || w.loss > 0 && w.random.Float64() < w.loss {
		return nil, false, 0
	}
	if !s.tcp {
		return nil, true, w.delay
	}
	if s.opens {
		w.flows[s.flow] = passes
	}
	switch w.flows[s.flow] {
	case vanishes:
		return nil, false, 0
	case isReset:
		return s.reset(), false, 0
	}
	return nil, true, w.delay
}

// Slow delays each packet, in each direction, and loses a share of them.
func (w *Wire) Slow(delay time.Duration, loss float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay, w.loss = delay, loss
}

// Thin gives the line a rate in bits a second, in each direction.
func (w *Wire) Thin(bits int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rate = bits / 8
}

// lineQueue is how long a packet waits for a thin line at most.
const lineQueue = 2 * time.Second

// takes is how long so many bytes are put on the line.
func (w *Wire) takes(n int) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rate == 0 {
		return 0
	}
	return time.Duration(n) * time.Second / time.Duration(w.rate)
}

// Dead lets nothing through to or from these addresses, and no answer come: black holes.
func (w *Wire) Dead(addresses ...netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range addresses {
		w.dead[a] = true
	}
}

// Alive ends that: all comes through from and to these addresses again.
func (w *Wire) Alive(addresses ...netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range addresses {
		delete(w.dead, a)
	}
}

// Forget makes the packets of all connections that there are vanish, or of those with these far addresses, as a NAT or load
// balancer does that has restarted. New ones pass. It returns how many there were.
func (w *Wire) Forget(with ...netip.Addr) int { return w.all(vanishes, with...) }

// Reset answers the next packet of each connection that there is with a reset.
func (w *Wire) Reset() int { return w.all(isReset) }

func (w *Wire) all(f fate, with ...netip.Addr) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, is := range w.flows {
		if is == passes && (len(with) == 0 || slices.Contains(with, k.far.Addr())) {
			w.flows[k] = f
			n++
		}
	}
	return n
}
