package app

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// flood is a listener to which a new caller comes whenever one is accepted.
type flood struct {
	accepted atomic.Int64
	closed   atomic.Bool
	mu       sync.Mutex
	callers  []net.Conn
}

func (l *flood) Accept() (net.Conn, error) {
	if l.closed.Load() {
		return nil, net.ErrClosed
	}
	l.accepted.Add(1)
	client, conn := net.Pipe()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.callers = append(l.callers, client)
	return conn, nil
}
func (l *flood) Close() error   { l.closed.Store(true); return nil }
func (l *flood) Addr() net.Addr { return &net.TCPAddr{} }

func TestAFloodOfCallersLeavesSocketsForDeliveries(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := &flood{}
		a := &App{listener: l, server: newServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))}
		done := make(chan error, 1)
		go func() { done <- a.serve() }()
		synctest.Wait()
		if n := l.accepted.Load(); n != maxConnections {
			t.Errorf("%d callers were let in, want %d", n, maxConnections)
		}
		l.mu.Lock()
		_ = l.callers[0].Close()
		l.mu.Unlock()
		synctest.Wait()
		if n := l.accepted.Load(); n != maxConnections+1 {
			t.Errorf("%d callers were let in after one had gone", n)
		}
		_ = a.server.Close()
		<-done
	})
}
