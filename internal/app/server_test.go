package app

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

// oneConn is a listener that accepts one connection.
type oneConn chan net.Conn

func (l oneConn) Accept() (net.Conn, error) {
	if conn, ok := <-l; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (l oneConn) Close() error   { return nil }
func (l oneConn) Addr() net.Addr { return &net.TCPAddr{} }

func TestACallerThatTakesNoAnswerIsLetGo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ended := make(chan time.Duration, 1)
		start := time.Now()
		server := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
			ended <- time.Since(start)
		}), slog.New(slog.DiscardHandler))
		client, conn := net.Pipe()
		defer client.Close()
		listener := make(oneConn, 1)
		listener <- conn
		go func() { _ = server.Serve(listener) }()
		defer close(listener)
		if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		select {
		case took := <-ended:
			if took > 5*time.Minute {
				t.Errorf("it was held for %s", took)
			}
		case <-time.After(time.Hour):
			t.Error("it is still held after an hour")
		}
	})
}
