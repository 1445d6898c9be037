package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"
)

// publishRaw publishes any bytes with any content type and parameters.
func (p *process) publishRaw(queue, query, contentType string, body []byte) (id string) {
	p.t.Helper()
	a, err := p.try(http.MethodPost, "/api/v1/queues/"+queue+"/messages"+query, contentType, string(body))
	if err != nil || a.status != http.StatusAccepted {
		p.t.Fatalf("publish: %v %d %s", err, a.status, a.body)
	}
	return locationID(a)
}

func TestBytesArriveAsTheyWerePublished(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p := s.start(t)
		secret := newHookSecret()
		in := newInbox(t, receiverOptions{Secrets: []string{secret}})
		queue := queueName("bytes")
		p.register(queue, in.url, map[string]any{"secret": secret})
		random := make([]byte, 48_000)
		_, _ = rand.Read(random)
		for _, tt := range []struct {
			name, contentType, arrives string
			body                       []byte
		}{
			{"64 KiB of text", "text/plain; charset=utf-8", "", bytes.Repeat([]byte("x"), 64<<10)},
			{"64 KiB of JSON", jsonType, "", []byte(`[` + strings.Repeat(`1,`, 32<<10-2) + `11]`)},
			{"random bytes", "application/octet-stream", "", random},
			{"all bytes below 128", "application/x-mine; a=b", "", []byte("\x00\x01\t\n\r\x1f <&>\"' \x7f")},
			{"no UTF-8", "application/octet-stream", "", []byte("\xff\xfe\x00\x01")}, // C15
			{"characters that XML has not", "text/plain; charset=utf-8", "", []byte("\ufffe\uffff\x0b\x1f\ufdd0\U0001FFFF")},
			{"JSON with characters that XML has not", jsonType, "", []byte("{\"a\":\"\ufffe\uffff\"}")},
			{"Chinese", "text/plain; charset=utf-8", "", []byte("订单已付款")},
			{"JSON after a byte order mark", jsonType, "", []byte("\xef\xbb\xbf{\"a\":1}")},
			{"carriage returns", "text/plain; charset=utf-8", "", []byte("a\r\nb\rc\n")},
			{"XML", "application/xml", "", []byte("<?xml version=\"1.0\"?><a b='c'>&amp;<![CDATA[x]]></a>")},
			{"base64 of JSON", "text/plain; charset=utf-8", "", []byte("eyJhIjoxfQ==")},
			{"what looks like an envelope", jsonType, "", []byte(`{"pushlease":1,"body":"eA=="}`)},
			{"blanks around", jsonType, "", []byte(" {\"a\": 1}\n")},
			{"a JSON document sent as a form", "application/x-www-form-urlencoded", jsonType, []byte(`{"a":1}`)},
		} {
			before := len(in.all())
			p.publishRaw(queue, "", tt.contentType, tt.body)
			got := in.wait(t, before+1)[before]
			arrives := tt.arrives
			if arrives == "" {
				arrives = tt.contentType
			}
			if !bytes.Equal(got.Body, tt.body) || got.ContentType != arrives || got.Signature != "valid" {
				t.Errorf("%s: %d bytes as %q, %s; want %d as %q", tt.name, len(got.Body), got.ContentType, got.Signature, len(tt.body), arrives)
			}
		}
		p.waitEmpty(10*time.Second, queue)
	})
}

// A dead letter that is replayed is POSTed again under its old id, once.
func TestReplayOfADeadLetter(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p := s.start(t)
		secret := newHookSecret()
		in := newInbox(t, receiverOptions{Secrets: []string{secret}, Script: []reply{{Status: 400}, {Status: 422}, {Status: 200}}})
		queue := queueName("replay")
		h := p.register(queue, in.url, map[string]any{"secret": secret})
		body := `{"text":"` + bodyMark + `"}`
		id := p.publish(queue, body)
		first := p.waitState(20*time.Second, queue, id, h.ID, "dead_lettered")
		for round, state := range []string{"dead_lettered", "delivered"} {
			p.waitEmpty(10*time.Second, queue)
			dead := p.waitState(time.Second, queue, id, h.ID, "dead_lettered").DeadLetterID
			p.call(http.MethodPost, "/api/v1/dead-letters/"+dead+"/replay", "", http.StatusAccepted, nil)
			in.wait(t, round+2)
			p.waitEmpty(20*time.Second, queue)
			next := p.waitState(20*time.Second, queue, id, h.ID, state)
			if state == "delivered" {
				break
			}
			if next.DeadLetterID == "" {
				t.Errorf("after a replay that was refused: %+v", next)
			}
		}
		for i, got := range in.all() {
			if got.ID != in.all()[0].ID || string(got.Body) != body || got.Signature != "valid" {
				t.Errorf("POST %d is %+v with %q", i+1, got, got.Body)
			}
		}
		if n := len(in.all()); n != 3 {
			t.Errorf("%d POSTs, want 3", n)
		}
		var d struct{ Status string }
		waitUntil(t, 10*time.Second, func() string {
			p.call(http.MethodGet, "/api/v1/dead-letters/"+first.DeadLetterID, "", http.StatusOK, &d)
			if d.Status == "replayed" {
				return ""
			}
			return "the first dead letter is " + d.Status
		})
	})
}

// A webhook is disabled, its secret rotated and its URL changed while the program
// runs; the other process of the installation follows.
func TestWebhooksChangeWithoutARestart(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p, other := s.start(t), s.start(t)
		old := newInbox(t, receiverOptions{})
		queue := queueName("change")
		h := p.register(queue, old.url, nil)
		p.publish(queue, `{"n":1}`)
		old.wait(t, 1)
		other.waitPolling(queue)

		p.call(http.MethodPost, "/api/v1/webhooks/"+h.ID+"/disable", "", http.StatusOK, nil)
		waitUntil(t, 20*time.Second, func() string {
			for _, each := range []*process{p, other} {
				var q struct{ Poller *struct{ Polling bool } }
				each.call(http.MethodGet, "/api/v1/queues/"+queue, "", http.StatusOK, &q)
				if q.Poller != nil && q.Poller.Polling {
					return "the queue is still polled"
				}
			}
			return ""
		})
		var rotated struct{ Secret string }
		p.call(http.MethodPost, "/api/v1/webhooks/"+h.ID+"/rotate-secret", "", http.StatusOK, &rotated)
		hideFromLogs(rotated.Secret)
		in := newInbox(t, receiverOptions{Secrets: []string{rotated.Secret}})
		before := newInbox(t, receiverOptions{Secrets: []string{h.Secret}})
		patch, err := json.Marshal(map[string]string{"url": in.url})
		if err != nil {
			t.Fatal(err)
		}
		p.call(http.MethodPatch, "/api/v1/webhooks/"+h.ID, string(patch), http.StatusOK, nil)
		id := p.publish(queue, `{"n":2}`)
		p.call(http.MethodPost, "/api/v1/webhooks/"+h.ID+"/enable", "", http.StatusOK, nil)
		if got := in.wait(t, 1)[0]; got.Signature != "valid" {
			t.Errorf("signed with the new secret: %s", got.Signature)
		}
		p.waitState(20*time.Second, queue, id, h.ID, "delivered")
		p.waitEmpty(10*time.Second, queue)

		patch = []byte(strings.Replace(string(patch), in.url, before.url, 1))
		p.call(http.MethodPatch, "/api/v1/webhooks/"+h.ID, string(patch), http.StatusOK, nil)
		waitUntil(t, 10*time.Second, func() string { // the other process may still POST to the old URL
			p.publish(queue, `{"n":3}`)
			if len(before.all()) == 0 {
				return "nothing came to the new URL"
			}
			return ""
		})
		if got := before.all()[0]; got.Signature != "valid" {
			t.Errorf("signed with the old secret during the rotation: %s", got.Signature)
		}
		p.waitEmpty(20*time.Second, queue)
		if n := len(old.all()); n != 1 {
			t.Errorf("%d POSTs to the first URL, want 1", n)
		}
	})
}

// A message whose life ends while it is retried, or while its POST is under way, is
// not lost without a trace.
func TestMessageAtTheEndOfItsLifeIsNotLost(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p := s.start(t)
		for _, tt := range []struct {
			name, ttl, state string
			answer           reply
			posts            int
		}{
			{"refused", "25s", "dead_lettered", reply{Status: 500}, 1},
			{"slow", "12s", "delivered", reply{Status: 200, Delay: 15 * time.Second}, 1},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				p := p.within(t)
				in := newInbox(t, receiverOptions{Answer: tt.answer})
				queue := queueName("expiring")
				h := p.register(queue, in.url, nil)
				id := p.publishRaw(queue, "?ttl="+tt.ttl, jsonType, []byte(`{"text":"`+bodyMark+`"}`))
				next := p.waitState(40*time.Second, queue, id, h.ID, tt.state)
				p.waitEmpty(10*time.Second, queue)
				if n := len(in.all()); n != tt.posts {
					t.Errorf("%d POSTs, want %d: %+v", n, tt.posts, next)
				}
			})
		}
	})
}

func TestUndecodableTextIsADeadLetterWithItsText(t *testing.T) {
	t.Parallel()
	s := azuriteStore(t)
	queue := queueName("undecodable")
	p := s.start(t, "PUSHLEASE_QUEUES="+queue+"=base64")
	in := newInbox(t, receiverOptions{})
	p.register(queue, in.url, nil)
	client, err := azqueue.NewServiceClientFromConnectionString(s.account.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.publish(queue, `{"n":1}`) // makes the queue
	in.wait(t, 1)
	text := "this is " + bodyMark + ", not base64"
	sent, err := client.NewQueueClient(queue).EnqueueMessage(context.Background(), text, nil)
	if err != nil {
		t.Fatal(err)
	}
	id := *sent.Messages[0].MessageID
	next := p.waitState(20*time.Second, queue, id, "", "dead_lettered")
	p.waitEmpty(10*time.Second, queue)
	a, err := p.try(http.MethodGet, "/api/v1/dead-letters/"+next.DeadLetterID+"/body", "", "")
	if err != nil || next.Reason != "Undecodable" || string(a.body) != text {
		t.Errorf("the dead letter is %+v with the text %q (%v)", next, a.body, err)
	}
	if n := len(in.all()); n != 1 {
		t.Errorf("%d POSTs, want 1", n)
	}
}
