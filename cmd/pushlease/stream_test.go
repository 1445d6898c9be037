package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A stream that ends is opened again behind its last event, and one that is refused is not.
func TestStreamGoesOnWhereItWas(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var asked []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.RequestURI()+" "+r.Header.Get("Last-Event-ID"))
			switch len(asked) {
			case 1:
				_, _ = io.WriteString(w, "retry: 1\nid: p-0\nevent: hello\ndata: {\"instance\":\"one\",\"version\":\"0.1\"}\n\n"+
					`id: p-1`+"\nevent: attempt\ndata: "+`{"message_id":"m1","queue":"orders","webhook_id":"wh_1","number":2,"started_at":"2026-01-01T00:00:00.5Z","duration":"0.012s","status":503,"action":"abandon","reason":"RetryableError"}`+"\n\n: nothing new\nid: p-4\n\n")
			case 2:
				_, _ = io.WriteString(w, "id: p-4\nevent: gap\ndata: {\"missed\":7,\"text\":\"Too slow.\"}\n\n"+
					"id: p-5\nevent: dead_letter\ndata: "+strings.Replace(deadLetterJSON, "m1", `m1\u001b[2J`, 1)+"\n\nid: p-6\nevent: job\ndata: {\"id\":\"cut off")
			default:
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, `{"title":"An API key is needed","status":401}`)
			}
		}))
		t.Setenv(serverEnv, server.URL)
		r := execute(t, "", "stream", "--queue", "orders", "--type", "attempt,dead_letter", "-o", format)
		server.Close()
		if r.code != exitRefused || !strings.Contains(r.err, "An API key is needed") {
			t.Errorf("%+v", r)
		}
		const query = "/api/v1/stream?queue=orders&type=attempt%2Cdead_letter "
		if want := fmt.Sprint([]string{query, query + "p-4", query + "p-5"}); fmt.Sprint(asked) != want {
			t.Errorf("asked %v, want %v", asked, want)
		}
		want := []string{"following one, pushlease 0.1", "2026-01-01T00:00:00.500Z  attempt      orders  wh_1  m1  attempt 2: 503 in 12ms, abandon (RetryableError)",
			"7 events are missing. Too slow.", "orders.1-a: NonRetryableError after 1 attempts, the last one 400"}
		if format == "json" {
			want = []string{`{"id":"p-0","event":"hello","data":{"instance":"one","version":"0.1"}}`, `"event":"attempt"`, `{"id":"p-4","event":"gap"`, `"event":"dead_letter"`}
		}
		lines := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%q", lines)
		}
		for i, line := range lines {
			if !strings.Contains(line, want[i]) || strings.Contains(line, "\x1b") {
				t.Errorf("%q, want %q", line, want[i])
			}
		}
	}
}

func TestStreamThatIsNoneIsAnError(t *testing.T) {
	newFakeAPI(t, map[string]canned{"GET /api/v1/stream": {200, "<html>"}})
	if r := execute(t, "", "stream"); r.code != exitFailed || !strings.Contains(r.err, "is --server right?") {
		t.Errorf("%+v", r)
	}
	newFakeAPI(t, map[string]canned{"GET /api/v1/stream": {503, `{"title":"Too many follow the stream","status":503}`}})
	if r := execute(t, "", "stream"); r.code != exitFailed || !strings.Contains(r.err, "Too many follow") {
		t.Errorf("%+v", r)
	}
}
