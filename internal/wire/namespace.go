//go:build linux

package wire

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace: interfaces, routes and sockets that the machine's other
// programs don't see. It is gone when Close was called and its last socket and process are.
type Namespace struct {
	file *os.File
}

// newNamespace makes an empty one. It needs CAP_SYS_ADMIN.
func newNamespace() (*Namespace, error) {
	type made struct {
		n   *Namespace
		err error
	}
	answer := make(chan made)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and is in nobody's way
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			answer <- made{err: fmt.Errorf("a network namespace: %w", err)}
			return
		}
		file, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		answer <- made{&Namespace{file: file}, err}
	}()
	m := <-answer
	return m.n, m.err
}

// in calls f on a thread that is in the namespace. What f makes, sockets and processes, stays in it.
func (n *Namespace) in(f func() error) error {
	answer := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, as above
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			answer <- fmt.Errorf("entering the network namespace: %w", err)
			return
		}
		answer <- f()
	}()
	return <-answer
}

// Listen listens in the namespace, for instance on "tcp" and ":80", for all addresses of it.
func (n *Namespace) Listen(network, address string) (l net.Listener, err error) {
	err = n.in(func() error {
		l, err = net.Listen(network, address)
		return err
	})
	return l, err
}

// ListenPacket is Listen for datagrams.
func (n *Namespace) ListenPacket(network, address string) (c net.PacketConn, err error) {
	err = n.in(func() error {
		c, err = net.ListenPacket(network, address)
		return err
	})
	return c, err
}

// Dial connects from the namespace to an address, which is no name.
func (n *Namespace) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = n.in(func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Start starts a program in the namespace.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	return n.in(cmd.Start)
}

// Run runs a command with its arguments in the namespace, such as "ip", "link", "set", "lo", "up".
func (n *Namespace) Run(words ...string) error {
	return n.in(func() error {
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, out)
		}
		return nil
	})
}

func (n *Namespace) close() error { return n.file.Close() }
