package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// C74: what registers webhooks may be run as often as it likes, on any instance and over a
// kill -9, and a message is still POSTed once.
func TestWebhooksAreRegisteredUnderAnIdOfOnesOwn(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p, other := s.start(t), s.start(t)
		in := newInbox(t, receiverOptions{})
		queue := queueName("put")
		id := "hook-" + queue
		put := []string{"webhooks", "put", id, "--queue", queue, "--url", in.url, "--rate", "50"}
		for _, each := range []*process{p, other, other, p} {
			if r, _ := runBinary(t, []string{"PUSHLEASE_SERVER=" + each.url}, put...); r.code != exitOK || !strings.Contains(r.out, id) || strings.Contains(r.out+r.err, "same URL") {
				t.Fatalf("code %d: %s%s", r.code, r.out, r.err)
			}
		}
		body := fmt.Sprintf(`{"queue":%q,"url":%q}`, queue+"-2", in.url)
		other.header = http.Header{"Idempotency-Key": {"register-" + queue}}
		var first, again hook
		other.call(http.MethodPost, "/api/v1/webhooks", body, http.StatusCreated, &first)
		hideFromLogs(first.Secret)
		other.kill()
		p.header = other.header
		p.call(http.MethodPost, "/api/v1/webhooks", body, http.StatusCreated, &again)
		p.header = nil
		if first.ID != again.ID || first.Secret != again.Secret {
			t.Errorf("registered %s, and with the same key again %s", first.ID, again.ID)
		}
		for _, q := range []string{queue, queue + "-2"} {
			p.publish(q, `{"n":1}`)
		}
		in.wait(t, 2)
		for _, q := range []string{queue, queue + "-2"} {
			p.waitEmpty(20*time.Second, q)
		}
		if n := len(in.all()); n != 2 {
			t.Errorf("%d POSTs of 2 messages", n)
		}
	})
}

// C46: receivers in the same private network are reached over http where the operator said so, without the switch for development.
func TestReceiversThatTheOperatorNamesAreReachedOverHTTP(t *testing.T) {
	t.Parallel()
	in := newInbox(t, receiverOptions{})
	byName := strings.Replace(in.url, "127.0.0.1", "localhost", 1)
	for allowed, refused := range map[string]string{"127.0.0.1": "http://127.0.0.2/", "localhost": in.url} {
		p := sqliteStore(t).start(t, "PUSHLEASE_DEV=false", "PUSHLEASE_ALLOW_HTTP="+allowed)
		queue := queueName("http")
		p.call(http.MethodPost, "/api/v1/webhooks", fmt.Sprintf(`{"queue":%q,"url":%q}`, queue, refused), http.StatusBadRequest, nil)
		target := in.url
		if allowed == "localhost" {
			target = byName
		}
		before := len(in.all())
		p.register(queue, target, nil)
		p.publish(queue, `{"n":1}`)
		in.wait(t, before+1)
		p.waitEmpty(20*time.Second, queue)
	}
}
