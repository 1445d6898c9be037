package dispatcher

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

const poisonQueue = testQueue + tables.PoisonSuffix

func TestDeadLettersDoNotDieOfOldAge(t *testing.T) {
	inBubble(t, func(b *bench) { // C07
		b.sender.answer = statuses(400, 200)
		_, stop := b.start(nil)
		sent := b.send(`{"a":1}`)
		time.Sleep(10 * time.Second)
		stop()
		time.Sleep(8 * 24 * time.Hour) // a day beyond the queue service's default
		list := b.deadLetters()
		want(t, "dead letters", len(list), 1)
		copies, err := b.queue(poisonQueue).Receive(b.t.Context(), 32, time.Minute)
		if err != nil || len(copies) != 1 || !copies[0].ExpiresAt.IsZero() {
			t.Errorf("%d copies, %v", len(copies), err)
		}
		b.replay(list[0].ID, "token-1")
		_, stop = b.start(nil)
		time.Sleep(10 * time.Second)
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "id", b.sender.posts[1].request.MessageID, sent.ID)
		want(t, "body", string(b.sender.posts[1].request.Body), `{"a":1}`)
		want(t, "status", b.deadLetters()[0].Status, tables.Replayed)
	})
}

func TestDeadLetterKeepsItsTextSoThatBothWaysBackSendTheSameBytes(t *testing.T) {
	const body = `{"a":"é"}` + "\n"
	tests := map[queue.Encoding]string{
		queue.EncodingBase64: base64.StdEncoding.EncodeToString([]byte(body)),
		queue.EncodingAuto:   base64.StdEncoding.EncodeToString([]byte(body)),
		queue.EncodingNone:   body,
	}
	for encoding, text := range tests {
		inBubble(t, func(b *bench) { // C08
			b.sender.answer = func(_ webhook.Request, n int) webhook.Result {
				return webhook.Result{Status: []int{400, 200}[min(n, 2)-1]}
			}
			_, stop := b.start(func(o *Options) { o.Encoding = func(string) queue.Encoding { return encoding } })
			b.sendText([]byte(text), queue.SendOptions{})
			time.Sleep(10 * time.Second)
			row, err := b.db.GetDeadLetter(b.t.Context(), b.deadLetters()[0].ID)
			if err != nil {
				t.Fatal(err)
			}
			want(t, "text of the dead letter", string(row.Text), text)
			b.replay(row.ID, "token-1")  // (a) through the API
			time.Sleep(30 * time.Second) // the copy is hidden at first

			copies, err := b.queue(poisonQueue).Receive(b.t.Context(), 32, time.Minute)
			if err != nil || len(copies) != 1 {
				t.Fatalf("%d copies, %v", len(copies), err)
			}
			want(t, "text of the copy", string(copies[0].Text), text)
			b.sender.answer = statuses(200)
			b.sendText(copies[0].Text, queue.SendOptions{}) // (b) by hand, with a storage tool
			time.Sleep(10 * time.Second)
			stop()
			want(t, "POSTs", b.sender.count(), 3)
			for i, p := range b.sender.posts {
				want(t, fmt.Sprintf("%s: body %d", encoding, i+1), string(p.request.Body), body)
			}
		})
	}
}

// C86: a replay that waits for its webhook is judged when it is sent, and not only when it was asked for.
func TestAReplayWhoseDeadLetterIsRewrittenMeanwhileIsNotSent(t *testing.T) {
	for name, rewrite := range map[string]func(d *tables.DeadLetter){
		"text":     func(d *tables.DeadLetter) { d.Text = []byte(`{"a":2}`) },
		"encoding": func(d *tables.DeadLetter) { d.Encoding = "none" },
		"webhook":  func(d *tables.DeadLetter) { d.WebhookID = "" },
		"no hash":  func(d *tables.DeadLetter) { d.BodyHash, d.Size = "", 3 },
		"nothing":  func(*tables.DeadLetter) {},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.sender.answer = statuses(400, 200)
				d, stop := b.start(nil)
				b.sendText([]byte(base64.StdEncoding.EncodeToString([]byte(`{"a":1}`))), queue.SendOptions{})
				time.Sleep(10 * time.Second)
				id := b.deadLetters()[0].ID
				b.setEnabled(d, false)
				b.replay(id, "token-1")
				time.Sleep(time.Minute)
				want(t, "POSTs while it waits", b.sender.count(), 1)
				row, err := b.db.GetDeadLetter(b.t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				rewrite(&row)
				if _, err := b.db.UpdateDeadLetter(b.t.Context(), row); err != nil {
					t.Fatal(err)
				}
				b.setEnabled(d, true)
				time.Sleep(20 * time.Minute)
				stop()
				posts, lines := 1, 1
				if name == "nothing" || name == "encoding" { // by its hash it is read as it was received
					posts, lines = 2, 0
				}
				want(t, "POSTs", b.sender.count(), posts)
				for _, p := range b.sender.posts {
					want(t, "body", string(p.request.Body), `{"a":1}`)
				}
				want(t, "lines that say so", strings.Count(b.log.String(), "a replay is not sent: another program has changed its dead letter"), lines)
				want(t, "messages left", b.total(testQueue), 0)
				now, err := b.db.GetDeadLetter(b.t.Context(), id)
				want(t, "its token is gone, so that it waits again", err == nil && now.ReplayToken == "", true)
				want(t, "its text", string(now.Text), string(row.Text))
			})
		})
	}
}

func TestReplayBeginsWithAllItsAttemptsAndNoBystanderAges(t *testing.T) {
	inBubble(t, func(b *bench) { // C09
		b.webhook.Policy.MaxAttempts = 1
		b.webhook = b.update(b.webhook)
		b.sender.answer = statuses(500, 200)
		_, stop := b.start(nil)
		b.send("x")
		time.Sleep(10 * time.Second)
		b.replay(b.deadLetters()[0].ID, "token-1")
		time.Sleep(10 * time.Second)
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "dead letters", len(b.deadLetters()), 1)
		want(t, "status", b.deadLetters()[0].Status, tables.Replayed)
	})
	inBubble(t, func(b *bench) {
		b.webhook.Policy.MaxAttempts = 3
		b.webhook = b.update(b.webhook)
		b.sender.answer = statuses(400, 500)
		_, stop := b.start(nil)
		for i := range 7 {
			b.send(fmt.Sprintf(`{"n":%d}`, i))
		}
		time.Sleep(10 * time.Second)
		list := b.deadLetters()
		want(t, "dead letters", len(list), 7)
		for i, dl := range list { // two at first, the others later
			if i == 2 {
				time.Sleep(time.Hour)
				want(t, "POSTs after two replays", b.sender.count(), 7+2*3)
			}
			b.replay(dl.ID, fmt.Sprintf("token-%d", i))
		}
		time.Sleep(time.Hour)
		stop()
		want(t, "POSTs", b.sender.count(), 7+7*3)
		replayed, waiting := 0, 0
		for _, dl := range b.deadLetters() {
			switch dl.Status {
			case tables.Replayed:
				replayed++
			case tables.Waiting:
				waiting++
				want(t, "attempts of the replay", dl.Attempts, 3)
				want(t, "reason", dl.Reason, policy.MaxDeliveryCountExceeded)
			}
		}
		want(t, "replayed", replayed, 7)
		want(t, "came back", waiting, 7)
	})
}

// waysOut are all ways to become a dead letter but that of a message that kills its
// process, which has its own tests.
var waysOut = []struct {
	name     string
	reason   policy.Reason
	text     string
	ttl      time.Duration
	answer   webhook.Result
	policy   func(*policy.Policy)
	meddle   func(b *bench) // after the first attempts
	encoding queue.Encoding
	wait     time.Duration
	status   int
	class    policy.ErrorClass
	attempts int
}{
	{name: "undecodable text", reason: policy.Undecodable, text: "!!!", encoding: queue.EncodingBase64},
	{name: "400", reason: policy.NonRetryableError, answer: webhook.Result{Status: 400}, status: 400, attempts: 1},
	{name: "attempts used up", reason: policy.MaxDeliveryCountExceeded, answer: webhook.Result{Status: 500}, status: 500, attempts: 3,
		policy: func(p *policy.Policy) { p.MaxAttempts = 3 }},
	{name: "no answer until the end", reason: policy.MaxDeliveryCountExceeded, answer: webhook.Result{ErrorClass: string(policy.ClassTimeout)}, class: policy.ClassTimeout, attempts: 2,
		policy: func(p *policy.Policy) { p.MaxAttempts = 2 }},
	{name: "too old", reason: policy.MaxAgeExceeded, answer: webhook.Result{Status: 500}, status: 500, attempts: 2,
		policy: func(p *policy.Policy) { p.MaxAge = policy.Duration(20 * time.Second) }},
	{name: "message expires", reason: policy.MessageExpiring, ttl: 30 * time.Second, answer: webhook.Result{Status: 500}, status: 500, attempts: 1},
	{name: "blocked address", reason: policy.BlockedAddress, answer: webhook.Result{ErrorClass: string(policy.ClassBlocked)}, class: policy.ClassBlocked, attempts: 1},
	{name: "410", reason: policy.WebhookGone, answer: webhook.Result{Status: 410}, status: 410, attempts: 1},
	{name: "the receiver asks", reason: policy.ReceiverAsked, answer: webhook.Result{Status: 500, Steering: "dead-letter"}, status: 500, attempts: 1,
		policy: func(p *policy.Policy) { p.AllowSteering = true }},
	{name: "webhook disabled until the message expires", reason: policy.WebhookDisabled, ttl: time.Hour, answer: webhook.Result{Status: 500}, status: 500, attempts: 1, wait: 2 * time.Hour,
		meddle: func(b *bench) { b.webhook.Enabled = false; b.webhook = b.update(b.webhook); b.other() }},
	{name: "webhook deleted until the message expires", reason: policy.WebhookDeleted, ttl: time.Hour, answer: webhook.Result{Status: 500}, wait: 2 * time.Hour,
		meddle: func(b *bench) {
			b.register("wh_other", taking("invoice.*")) // does not take it, and keeps the queue polled
			if err := b.db.DeleteWebhook(b.t.Context(), b.webhook.ID, ""); err != nil {
				b.t.Fatal(err)
			}
		}},
}

// other registers a webhook that keeps the queue polled; it came after the message.
func (b *bench) other() { b.register("wh_other", nil) }

func TestEveryWayToADeadLetterHasItsOwnReasonAndOneLogLine(t *testing.T) {
	for _, tt := range waysOut {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bench) { // C10, R5
				if tt.policy != nil {
					tt.policy(&b.webhook.Policy)
					b.webhook = b.update(b.webhook)
				}
				b.sender.answer = func(webhook.Request, int) webhook.Result { return tt.answer }
				reader := metric.NewManualReader()
				_, stop := b.start(func(o *Options) {
					o.Meter = metric.NewMeterProvider(metric.WithReader(reader)).Meter("")
					if tt.encoding != "" {
						o.Encoding = func(string) queue.Encoding { return tt.encoding }
					}
				})
				text := tt.text
				if text == "" {
					text = `{"a":1}`
				}
				b.sendText([]byte(text), queue.SendOptions{TTL: tt.ttl})
				if tt.meddle != nil {
					time.Sleep(2 * time.Second)
					tt.meddle(b)
				}
				time.Sleep(max(tt.wait, 5*time.Minute))
				stop()
				list := b.deadLetters()
				want(t, "dead letters", len(list), 1)
				d := list[0]
				want(t, "reason", d.Reason, tt.reason)
				want(t, "last status", d.LastStatus, tt.status)
				want(t, "last error class", d.LastErrorClass, tt.class)
				want(t, "attempts", d.Attempts, tt.attempts)
				want(t, "has the times of its attempts", !d.FirstAt.IsZero() && !d.LastAt.Before(d.FirstAt), tt.attempts > 0)
				want(t, "names its webhook", d.WebhookID != "", tt.reason != policy.Undecodable && tt.reason != policy.WebhookDeleted)
				want(t, "has a description of its own", d.Description != "" && d.Description != "The delivery was given up.", true)
				want(t, "messages left", b.total(testQueue), 0)
				wantOneLine(t, b.log.String(), d)
				want(t, "counted", counted(t, reader, "pushlease.messages.deadlettered", "reason", string(tt.reason)), 1)
			})
		})
	}
	seen := map[policy.Reason]string{policy.MaxDeliveryCountExceeded: "attempts used up"}
	for _, tt := range waysOut {
		if other := seen[tt.reason]; other != "" && !strings.HasPrefix(tt.name, "no answer") && other != tt.name {
			t.Errorf("%s and %s have the same reason", tt.name, other)
		}
		seen[tt.reason] = tt.name
	}
}

// wantOneLine wants exactly one warning about the dead letter, with what is known of it.
func wantOneLine(t *testing.T, log string, d tables.DeadLetter) {
	t.Helper()
	lines := 0
	for line := range strings.SplitSeq(log, "\n") {
		var got map[string]any
		if json.Unmarshal([]byte(line), &got) != nil || got["msg"] != "message dead-lettered" {
			continue
		}
		lines++
		for name, value := range map[string]any{
			"level": "WARN", "reason": string(d.Reason), "queue": d.Queue, "message": d.MessageID, "webhook": d.WebhookID, "attempts": float64(d.Attempts),
			"status": float64(d.LastStatus), "error_class": string(d.LastErrorClass), "delivery_count": float64(d.DequeueCount), "dead_letter": d.ID,
		} {
			want(t, "log: "+name, got[name], value)
		}
	}
	want(t, "log lines", lines, 1)
}

// counted sums a counter over the data points with this label.
func counted(t *testing.T, reader *metric.ManualReader, name, label, value string) (n int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if m.Name != name || !ok {
				continue
			}
			for _, p := range sum.DataPoints {
				if v, ok := p.Attributes.Value(attribute.Key(label)); ok && v.AsString() == value {
					n += p.Value
				}
			}
		}
	}
	return n
}

func TestADeadLetterSaysWhichRuleOrLimitMadeItOne(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		change func(*policy.Policy)
		says   []string
	}{
		"a rule": {418, func(p *policy.Policy) {
			p.Rules = []policy.Rule{{Match: "400", Action: "complete"}, {Match: "418", Action: "dead-letter"}}
		}, []string{"418", "rule 2"}},
		"the table":   {404, func(*policy.Policy) {}, []string{"404", "another one would not change the answer"}},
		"attempts":    {500, func(p *policy.Policy) { p.MaxAttempts = 2 }, []string{"500", "attempt 2 of 2", "used up"}},
		"the max age": {500, func(p *policy.Policy) { p.MaxAge = policy.Duration(time.Minute) }, []string{"500", "later than 1m after the first"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				tt.change(&b.webhook.Policy)
				b.update(b.webhook)
				b.sender.answer = statuses(tt.status)
				_, stop := b.start(nil)
				defer stop()
				b.send("x")
				time.Sleep(10 * time.Minute)
				list := b.deadLetters()
				want(t, "dead letters", len(list), 1)
				for _, text := range tt.says {
					if !strings.Contains(list[0].Description, text) {
						t.Errorf("no %q in %q", text, list[0].Description)
					}
				}
			})
		})
	}
}
