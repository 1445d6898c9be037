package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// send publishes with headers, which are pairs, and wants a 202.
func (p *process) send(queue, body string, headers ...string) (answer []byte, header http.Header) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/api/v1/queues/"+queue+"/messages", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := e2eClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusAccepted {
		p.t.Fatalf("answer %d, %v: %s", resp.StatusCode, err, answer)
	}
	return answer, resp.Header
}

func messageID(t *testing.T, answer []byte) string {
	t.Helper()
	var m struct {
		MessageID string `json:"message_id"`
	}
	if err := json.Unmarshal(answer, &m); err != nil || m.MessageID == "" {
		t.Fatalf("no message id in %s: %v", answer, err)
	}
	return m.MessageID
}

// An event in binary mode, sent three times under one key, is POSTed once, as the data and
// attributes that it was sent with, in the trace of the request that published it.
func TestAKeyedEventIsDeliveredOnceEndToEnd(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		const traceID, data = "0af7651916cd43dd8448eb211c80319c", `{"total":1.50}`
		p, in, queue := s.start(t), newPosts(t), queueName("publish")
		h := p.register(queue, in.url+"/binary", map[string]any{"format": "cloudevents-binary"})
		var first []byte
		for i := range 3 {
			answer, header := p.send(queue, data, "Content-Type", "application/json", "ce-specversion", "1.0", "ce-id", "e%201", "ce-source", "/shop", "ce-type", "order.paid",
				"Idempotency-Key", `"order 1"`, "traceparent", "00-"+traceID+"-b7ad6b716920333"+string(rune('1'+i))+"-01")
			if i == 0 {
				first = answer
			}
			if !bytes.Equal(answer, first) || (header.Get("Idempotency-Replayed") == "true") != (i > 0) {
				t.Errorf("answer %d: %s %v; the first was %s", i, answer, header, first)
			}
		}
		p.waitState(20*time.Second, queue, messageID(t, first), h.ID, "delivered")
		p.waitEmpty(20*time.Second, queue)
		got := in.of("/binary")
		if len(got) != 1 {
			t.Fatalf("%d POSTs, want 1", len(got))
		}
		if got[0].body != data || got[0].header.Get("Ce-Id") != "e%201" || got[0].header.Get("Content-Type") != "application/json" {
			t.Errorf("received %s with %v", got[0].body, got[0].header)
		}
		if !strings.Contains(got[0].header.Get("Traceparent"), traceID) {
			t.Errorf("traceparent %q, want trace %s", got[0].header.Get("Traceparent"), traceID)
		}
	})
}

// Each event of a batch is delivered, and one with its id again is not, where the queue
// tells messages apart by event.
func TestABatchMayBeRepeatedEndToEnd(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		queue := queueName("batch")
		p, in := s.start(t, "PUSHLEASE_QUEUES="+queue+"=auto:dedup=event-id"), newPosts(t)
		p.register(queue, in.url+"/raw", nil)
		const one, two = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`, `{"specversion":"1.0", "id":"2","source":"/s","type":"t"}`
		for range 2 {
			p.send(queue, "["+one+","+two+"]", "Content-Type", "application/cloudevents-batch+json")
			p.waitEmpty(20*time.Second, queue)
		}
		bodies := map[string]int{}
		for _, post := range in.of("/raw") {
			bodies[post.body]++
			if post.header.Get("Content-Type") != "application/cloudevents+json" {
				t.Errorf("content type %q", post.header.Get("Content-Type"))
			}
		}
		if len(bodies) != 2 || bodies[one] != 1 || bodies[two] != 1 {
			t.Errorf("POSTs by body: %v", bodies)
		}
	})
}
