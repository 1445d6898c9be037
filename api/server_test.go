package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// The handler on a real server, as curl meets it.
func TestOverARealConnection(t *testing.T) {
	h := newHarness(t)
	server := httptest.NewServer(h.api)
	defer server.Close()

	// A chunked body, which has no Content-Length.
	resp, err := http.Post(server.URL+publishTarget, "application/json", io.MultiReader(strings.NewReader(`{"a":`), strings.NewReader(`1}`)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("publish = %d", resp.StatusCode)
	}
	if m := h.receive("orders"); string(m.Text) != `{"a":1}` {
		t.Errorf("received %q", m.Text)
	}

	head, err := http.Head(server.URL + "/api/v1/webhooks")
	if err != nil {
		t.Fatal(err)
	}
	defer head.Body.Close()
	if body, err := io.ReadAll(head.Body); head.StatusCode != http.StatusOK || len(body) != 0 || err != nil {
		t.Errorf("HEAD = %d, %q, %v", head.StatusCode, body, err)
	}
}

func TestABodyThatLiesAboutItsLengthStoresNothing(t *testing.T) {
	h := newHarness(t)
	server := httptest.NewServer(h.api)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST "+publishTarget+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nshort"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d, want 400", resp.StatusCode)
	}
	if names, err := h.db.Queues().List(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("queues %v, %v: something was stored", names, err)
	}
}

func TestTestPostMayTakeLongerThanTheServerReads(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Second) }))
		defer receiver.Close()
		sender, err := webhook.NewSender(webhook.Options{Guard: webhook.GuardOptions{AllowPrivate: true}, DialContext: receiver.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer sender.Close()
		h := newHarness(t, allowLocal, func(o *Options) { o.Sender = sender })
		id := h.register(`{"queue":"orders","url":"http://127.0.0.1/hook"}`).text("id")

		client, conn := net.Pipe()
		server := &http.Server{Handler: asLocal(h.api), ReadTimeout: time.Second, WriteTimeout: time.Second}
		listener := &oneConn{conn: make(chan net.Conn, 1)}
		listener.conn <- conn
		go func() { _ = server.Serve(listener) }()
		defer server.Close()
		defer client.Close()
		if _, err := io.WriteString(client, "POST /api/v1/webhooks/"+id+"/test HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(body), `"action":"complete"`) {
			t.Errorf("answer %d %s, %v", resp.StatusCode, body, err)
		}
	})
}

// The server reads a body that is left before the answer goes out, and a caller that does not
// send it would keep a connection from others for as long as requests may take.
func TestABodyThatNobodyReadsIsNotWaitedFor(t *testing.T) {
	const page = "\r\n" + pageHeader + ": 1"
	for _, tt := range []struct {
		first  string
		status int
	}{
		{"POST /api/v1/anything HTTP/1.1", http.StatusNotFound},
		{"POST /api/v1/webhooks HTTP/1.1", http.StatusUnauthorized},
		{"POST /api/v1/webhooks HTTP/1.1\r\nAuthorization: Bearer read", http.StatusForbidden},
		{"POST /api/v1/session HTTP/1.1" + page, http.StatusUnauthorized},
		{"DELETE /api/v1/session HTTP/1.1" + page, http.StatusBadRequest},
		{"GET /healthz HTTP/1.1", http.StatusOK},
		{"GET /ui/ HTTP/1.1", http.StatusOK},
		{"PUT /healthz HTTP/1.1", http.StatusMethodNotAllowed},
	} {
		bubble.Test(t, func(t *testing.T) {
			client, conn := net.Pipe()
			server := &http.Server{Handler: asLocal(newHarness(t, withKeys).api), ReadTimeout: time.Minute}
			listener := &oneConn{conn: make(chan net.Conn, 1)}
			listener.conn <- conn
			go func() { _ = server.Serve(listener) }()
			defer server.Close()
			defer client.Close()
			start := time.Now()
			if _, err := io.WriteString(client, tt.first+"\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if took := time.Since(start); resp.StatusCode != tt.status || took > 5*time.Second {
				t.Errorf("%s: %d after %s", tt.first, resp.StatusCode, took)
			}
		})
	}
}

// asLocal makes a request over a pipe one from this machine.
func asLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = "127.0.0.1:50000"
		next.ServeHTTP(w, r)
	})
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   chan net.Conn
	closed sync.Once
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conn; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	l.closed.Do(func() { close(l.conn) })
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// C83: a caller that sends too much sees why, and not a reset.
func TestABodyThatIsFarTooLargeIsAnswered(t *testing.T) {
	h := newHarness(t)
	server := httptest.NewServer(h.api)
	defer server.Close()
	body := strings.Repeat("x", 10<<20)
	for range 5 {
		for _, target := range []string{publishTarget, "/api/v1/webhooks"} {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// As many programs do it: all is written, and then the answer is read.
			if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", target, len(body), body); err != nil {
				t.Fatalf("%s: %v", target, err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("%s: %v", target, err)
			}
			if _ = resp.Body.Close(); resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Fatalf("%s = %d", target, resp.StatusCode)
			}
		}
	}
}
