package api

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
