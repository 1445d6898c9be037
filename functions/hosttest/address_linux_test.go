package hosttest

import (
	"net"
	"syscall"
	"testing"
)

// TestAHandlersAddressIsGivenToNobodyElse, before it listens there and after: a test's receiver was taken for
// the handler, and answered a registration with its 200.
func TestAHandlersAddressIsGivenToNobodyElse(t *testing.T) {
	addr, free := ownAddress()
	defer free()
	for range 2 {
		// Of two that want the same number the system lets in the second where both share it, and gives it to nobody
		// who asks for any: that is what one that shares nothing stands for here.
		stranger := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			if failed := c.Control(func(socket uintptr) {
				err = syscall.SetsockoptInt(int(socket), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
			}); failed != nil {
				return failed
			}
			return err
		}}
		if other, err := stranger.Listen(t.Context(), "tcp4", addr); err == nil {
			_ = other.Close()
			t.Error("another listens at the handler's address")
		}
		handler, err := net.Listen("tcp4", addr)
		if err != nil {
			t.Fatalf("the handler can't listen at its own address: %v", err)
		}
		if err := handler.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
