package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/webhook"
)

// posted is a POST as it came, by the path that it came to.
type posted struct {
	header http.Header
	body   string
}

// posts is a receiver of several webhooks, each on a path of its own. The first POST to a
// path that begins with /flaky is answered 503.
type posts struct {
	url string

	mu sync.Mutex
	at map[string][]posted
}

func newPosts(t *testing.T) *posts {
	p := &posts{at: map[string][]posted{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.at[r.URL.Path] = append(p.at[r.URL.Path], posted{r.Header.Clone(), string(body)})
		if strings.HasPrefix(r.URL.Path, "/flaky") && len(p.at[r.URL.Path]) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(func() { hangUp(server) })
	p.url = server.URL
	return p
}

func (p *posts) of(path string) []posted {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]posted(nil), p.at[path]...)
}

// Fan-out through the binary: each webhook gets what its filter takes, in its format and
// signed; a retry goes on in the event's trace (C38); what none takes is kept, or completed where the operator says so.
func TestFiltersAndFormatsEndToEnd(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		const traceID, spanID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
		const data = `{"total":12345678901234567890,"note":"é & \u001B"}`
		event := `{"specversion":"1.0","id":"e 1","source":"/shop","type":"order.paid","traceparent":"00-` + traceID + `-` + spanID + `-01","data":` + data + `}`
		in, queue, kept, secret := newPosts(t), queueName("fanout"), queueName("kept"), newHookSecret()
		p := s.start(t, "PUSHLEASE_QUEUES="+queue+"=auto:unmatched=complete")
		register := func(path string, more map[string]any) hook {
			more["secret"] = secret
			more["policy"] = map[string]any{"backoff": map[string]any{"delays": []string{"1s"}}}
			return p.register(queue, in.url+path, more)
		}
		raw := register("/raw", map[string]any{"filter": map[string]any{"types": []string{"order.*"}}})
		register("/flaky/binary", map[string]any{"format": "cloudevents-binary", "filter": map[string]any{"sources": []string{"/shop"}}})
		register("/structured", map[string]any{"format": "cloudevents-structured", "filter": map[string]any{
			"fields": []any{map[string]any{"field": "n", "op": "gt", "value": 1}},
		}})
		register("/never", map[string]any{"filter": map[string]any{"types": []string{"order.refunded"}}})

		eventID, plainID, otherID := p.publish(queue, event), p.publish(queue, `{"n":2}`), p.publish(queue, `{"n":0}`)
		p.waitState(20*time.Second, queue, eventID, raw.ID, "delivered")
		p.waitState(20*time.Second, queue, otherID, "", "unmatched")
		p.waitEmpty(20*time.Second, queue)

		for path, want := range map[string][]string{
			"/raw": {"application/json " + event}, "/flaky/binary": {"application/json " + data, "application/json " + data}, "/never": nil,
		} {
			var got []string
			for _, r := range in.of(path) {
				got = append(got, r.header.Get("Content-Type")+" "+r.body)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s got %q, want %q", path, got, want)
			}
		}
		wrapped := in.of("/structured")
		if len(wrapped) != 1 || !strings.Contains(wrapped[0].body, `"id":"`+plainID+`"`) || !strings.HasSuffix(wrapped[0].body, `"data":{"n":2}}`) ||
			wrapped[0].header.Get("Content-Type") != "application/cloudevents+json" {
			t.Errorf("/structured got %q", wrapped)
		}
		if n := len(wrapped); n == 1 {
			if err := webhook.Verify([]string{secret}, wrapped[0].header, []byte(wrapped[0].body), time.Now(), 5*time.Minute); err != nil {
				t.Error("the wrapped event:", err)
			}
		}
		tries := in.of("/flaky/binary")
		if len(tries) != 2 {
			t.Fatalf("%d tries", len(tries))
		}
		spans := map[string]bool{spanID: true}
		for _, r := range tries {
			if err := webhook.Verify([]string{secret}, r.header, []byte(r.body), time.Now(), 5*time.Minute); err != nil {
				t.Error("the event's data:", err)
			}
			if r.header.Get("Ce-Id") != "e%201" || r.header.Get("Ce-Type") != "order.paid" || r.header.Get("Ce-Specversion") != "1.0" {
				t.Errorf("attributes: %v", r.header)
			}
			parts := strings.Split(r.header.Get("Traceparent"), "-")
			if len(r.header.Values("Traceparent")) != 1 || len(parts) != 4 || parts[1] != traceID || spans[parts[2]] {
				t.Errorf("traceparent %q; want the event's trace and a new span", r.header.Values("Traceparent"))
				continue
			}
			spans[parts[2]] = true
		}
		if n := p.metric("pushlease_messages_settled_total", `queue="`+queue+`"`, `reason="Unmatched"`); n != 1 {
			t.Errorf("%v messages are counted as unmatched", n)
		}
		var match struct{ Outcome string }
		p.call(http.MethodPost, "/api/v1/queues/"+queue+"/match", `{"n":0}`, http.StatusOK, &match)
		if match.Outcome != "unmatched" {
			t.Errorf("the dry run says %s", match.Outcome)
		}
		p.register(kept, in.url+"/kept", map[string]any{"filter": map[string]any{"types": []string{"order.piad"}}})
		keptID := p.publish(kept, event)
		if d := p.waitState(20*time.Second, kept, keptID, "", "dead_lettered"); d.Reason != "Unmatched" {
			t.Errorf("what a misspelt filter refuses is %+v", d)
		}
	})
}
