//go:build linux

package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"
)

// echo answers each connection with what it sends, on all addresses of the far namespace.
func echo(t *testing.T, w *Wire) (port uint16) {
	t.Helper()
	l, err := w.Far.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c) // until the other end goes
				_ = c.Close()
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

func dial(t *testing.T, w *Wire, a netip.Addr, port uint16) net.Conn {
	t.Helper()
	c, err := dialled(t, w, a, port, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func dialled(t *testing.T, w *Wire, a netip.Addr, port uint16, bound time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	c, err := w.Near.Dial(ctx, "tcp", netip.AddrPortFrom(a, port).String())
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// said sends a word and returns what comes back within the bound.
func said(c net.Conn, bound time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(bound)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("word")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 4))
	return err
}

func TestTheMiddleDoesWhatItSays(t *testing.T) {
	t.Parallel()
	for name, addresses := range map[string][2]netip.Addr{
		"IPv4": {netip.MustParseAddr("10.77.1.7"), netip.MustParseAddr("10.77.1.8")},
		"IPv6": {netip.MustParseAddr("fd77:1::7"), netip.MustParseAddr("fd77:1::8")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := New(t)
			port, a := echo(t, w), addresses[0]
			passing := dial(t, w, a, port)
			if err := said(passing, 5*time.Second); err != nil {
				t.Fatalf("a wire without faults: %v", err)
			}

			if n := w.Forget(); n != 1 {
				t.Errorf("%d connections were forgotten, want one", n)
			}
			if err := said(passing, 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a connection that was forgotten ends with %v", err)
			}
			fresh := dial(t, w, a, port)
			if err := said(fresh, 5*time.Second); err != nil {
				t.Errorf("a new connection beside it: %v", err)
			}

			w.Reset()
			if err := said(fresh, 5*time.Second); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("a connection that is reset ends with %v", err)
			}

			w.Slow(100*time.Millisecond, 0)
			slow, began := dial(t, w, a, port), time.Now()
			if err := said(slow, 5*time.Second); err != nil || time.Since(began) < 200*time.Millisecond {
				t.Errorf("there and back in %s with 100 ms each way, %v", time.Since(began), err)
			}
			w.Slow(0, 1)
			if err := said(slow, 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("with all packets lost a word ends with %v", err)
			}

			w.Slow(0, 0)
			w.Thin(256 << 10)
			thin, began := dial(t, w, a, port), time.Now()
			go func() { _, _ = thin.Write(make([]byte, 32<<10)) }()
			if _, err := io.ReadFull(thin, make([]byte, 32<<10)); err != nil || time.Since(began) < 900*time.Millisecond {
				t.Errorf("32 KiB at 32 KiB a second came back in %s, %v", time.Since(began), err)
			}
			w.Thin(0)
			w.Dead(addresses[1])
			var late net.Error
			if _, err := dialled(t, w, addresses[1], port, 300*time.Millisecond); !errors.As(err, &late) || !late.Timeout() {
				t.Errorf("dialling a dead address ends with %v", err)
			}
			if err := said(dial(t, w, a, port), 5*time.Second); err != nil {
				t.Errorf("the address beside it: %v", err)
			}
			w.Alive(addresses[1])
			if err := said(dial(t, w, addresses[1], port), 5*time.Second); err != nil {
				t.Errorf("the address that was dead: %v", err)
			}
		})
	}
}
