package dispatcher

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// TestRoutingTable is the source documents' table of what leads to a dead letter. The row
// about poison is in TestMessageThatKillsItsProcessIsPoison.
func TestRoutingTable(t *testing.T) {
	const limit = 3
	retryable := func(status int, class policy.ErrorClass) func(webhook.Request, int) webhook.Result {
		return func(webhook.Request, int) webhook.Result {
			return webhook.Result{Status: status, ErrorClass: string(class)}
		}
	}
	refused := func(status int, body string) func(webhook.Request, int) webhook.Result {
		return func(webhook.Request, int) webhook.Result { return webhook.Result{Status: status, Body: []byte(body)} }
	}
	tests := []struct {
		name   string
		answer func(webhook.Request, int) webhook.Result
		posts  int
		reason policy.Reason // of the dead letter; empty for none
	}{
		{"success", statuses(200), 1, ""},
		{"success at the last attempt", statuses(500, 500, 200), 3, ""},
		{"retryable below the maximum, then success", statuses(429, 201), 2, ""},
		{"400", statuses(400), 1, policy.NonRetryableError},
		{"401", statuses(401), 1, policy.NonRetryableError},
		{"403", statuses(403), 1, policy.NonRetryableError},
		{"404", statuses(404), 1, policy.NonRetryableError},
		{"409", statuses(409), 1, policy.NonRetryableError},
		{"not retryable at any count", statuses(500, 400), 2, policy.NonRetryableError},
		{"a text that was added", refused(500, `{"error":"Duplicate INVOICE 7"}`), 1, policy.NonRetryableError},
		{"another text that was added", refused(503, "Invalid Customer ID"), 1, policy.NonRetryableError},
		{"500 at the maximum", statuses(500), limit, policy.MaxDeliveryCountExceeded},
		{"429 at the maximum", statuses(429), limit, policy.MaxDeliveryCountExceeded},
		{"503 at the maximum", statuses(503), limit, policy.MaxDeliveryCountExceeded},
		{"timeout at the maximum", retryable(0, policy.ClassTimeout), limit, policy.MaxDeliveryCountExceeded},
		{"network error at the maximum", retryable(0, policy.ClassReset), limit, policy.MaxDeliveryCountExceeded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bench) { // R5
				b.webhook.Policy.MaxAttempts = limit
				b.webhook.Policy.Rules = []policy.Rule{
					{Match: "*", BodyContains: "duplicate invoice", Action: "dead-letter"},
					{Match: "*", BodyContains: "invalid customer id", Action: "dead-letter"},
				}
				b.webhook = b.update(b.webhook)
				b.sender.answer = tt.answer
				_, stop := b.start(nil)
				b.send(`{"invoice":7}`)
				time.Sleep(10 * time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), tt.posts)
				want(t, "messages left", b.total(testQueue), 0)
				var reason policy.Reason
				if list := b.deadLetters(); len(list) > 0 {
					reason = list[0].Reason
				}
				want(t, "reason", reason, tt.reason)
			})
		})
	}
}

// retryPoison is a webhook on the poison queue with the preset short.
func (b *bench) retryPoison(jitter float64) {
	b.t.Helper()
	b.register("wh_retry", func(r *tables.Registration) {
		p, err := policy.Preset("short")
		if err != nil {
			b.t.Fatal(err)
		}
		p.Backoff.Jitter = jitter
		r.Queue, r.Policy = poisonQueue, p
	})
}

// sendPoison puts a text on the poison queue, as another program's host does.
func (b *bench) sendPoison(text string) queue.Sent {
	b.t.Helper()
	sent, err := b.queue(poisonQueue).Send(b.t.Context(), []byte(text), queue.SendOptions{TTL: queue.NoExpiry})
	if err != nil {
		b.t.Fatal(err)
	}
	return sent
}

// TestPoisonQueueIsRetriedAfterFourEightAndSixteenMinutes: base × 2^(retry+1) with a
// base of 2 minutes, and up to 30 % more; then dead-lettered, without a copy on a
// poison queue of the poison queue.
func TestPoisonQueueIsRetriedAfterFourEightAndSixteenMinutes(t *testing.T) {
	for _, jitter := range []float64{0, 0.3} {
		inBubble(t, func(b *bench) { // R6
			b.retryPoison(jitter)
			b.sender.answer = statuses(500)
			_, stop := b.start(func(o *Options) { o.Lease = 5 * time.Minute })
			b.sendPoison(`{"a":1}`)
			time.Sleep(2 * time.Hour)
			stop()
			want(t, "POSTs", b.sender.count(), 4)
			const pollSlack = 3 * time.Second // the queue is polled every 2 s, and counts whole seconds
			for i, delay := range []time.Duration{4 * time.Minute, 8 * time.Minute, 16 * time.Minute} {
				most := delay + time.Duration(jitter*float64(delay)) + pollSlack
				if took := b.sender.posts[i+1].at.Sub(b.sender.posts[i].at); took < delay || took > most {
					t.Errorf("jitter %v: retry %d after %s, want %s to %s", jitter, i, took, delay, most)
				}
			}
			list := b.deadLetters()
			want(t, "dead letters", len(list), 1)
			want(t, "reason", list[0].Reason, policy.MaxDeliveryCountExceeded)
			want(t, "queue", list[0].Queue, poisonQueue)
			want(t, "copied to", list[0].CopiedToQueue, "")
			want(t, "messages left", b.total(poisonQueue), 0)
			want(t, "messages on a second poison queue", b.total(poisonQueue+tables.PoisonSuffix), 0)
		})
	}
}

// TestPoisonQueueBatchIsHandledSideBySide: one that fails, one that can't be read and
// one that is slow take nothing from the others, and none leaves without an outcome.
func TestPoisonQueueBatchIsHandledSideBySide(t *testing.T) {
	inBubble(t, func(b *bench) { // R6
		b.retryPoison(0)
		base64Of := func(body string) string { return base64.StdEncoding.EncodeToString([]byte(body)) }
		failing := b.sendPoison(base64Of(`{"n":"fails once"}`))
		refused := b.sendPoison(base64Of(`{"n":"refused"}`))
		b.sendPoison("!not base64!")
		for range 29 {
			b.sendPoison(base64Of(`{"n":"ok"}`))
		}
		b.sender.takes = 20 * time.Second
		b.sender.answer = func(r webhook.Request, n int) webhook.Result {
			switch {
			case r.MessageID == failing.ID && n == 1:
				return webhook.Result{Status: 503}
			case r.MessageID == refused.ID:
				return webhook.Result{Status: 422}
			}
			return webhook.Result{Status: 200}
		}
		_, stop := b.start(func(o *Options) {
			o.Encoding = func(string) queue.Encoding { return queue.EncodingBase64 }
			o.Lease = 5 * time.Minute
		})
		time.Sleep(30 * time.Second)
		want(t, "POSTs in the time of one", b.sender.count(), 31)
		want(t, "messages left", b.total(poisonQueue), 1)
		time.Sleep(5 * time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 32)
		want(t, "messages left", b.total(poisonQueue), 0)
		reasons := map[policy.Reason]int{}
		for _, dl := range b.deadLetters() {
			reasons[dl.Reason]++
		}
		want(t, "unreadable ones", reasons[policy.Undecodable], 1)
		want(t, "refused ones", reasons[policy.NonRetryableError], 1)
		want(t, "kinds of dead letters", len(reasons), 2)
	})
}
