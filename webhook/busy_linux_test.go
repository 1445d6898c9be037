package webhook_test

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// A receiver that is at other work before it reads, with less room than the request is long, has the webhook's timeout and not
// the 20 s after which a connection whose bytes wait is taken for dead.
func TestAReceiverThatReadsLateHasTheWebhooksTime(t *testing.T) {
	t.Parallel()
	small := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 8<<10) })
	}}
	listener, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wire := webhooktest.ServeWire(t, listener, func(c *webhooktest.Conn) {
		time.Sleep(24 * time.Second) // its other work
		webhooktest.Answer("HTTP/1.1 200 X\r\n\r\n")(c)
	})
	w := hook()
	w.URL, w.Timeout = wire.URL(), 40*time.Second
	wantAnswer(t, newSender(t, nil).Send(t.Context(), w, message(strings.Repeat("x", 60_000))), 200)
}
