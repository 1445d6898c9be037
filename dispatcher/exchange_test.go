package dispatcher

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// TestSlowReceiverOverTheRealSenderAndTheRealStore walks a message through everything
// that production has, but for the network: net/http over pipes, simulated time.
func TestSlowReceiverOverTheRealSenderAndTheRealStore(t *testing.T) {
	inBubble(t, func(b *bench) {
		secret := webhook.NewSecret(time.Now())
		answers := 0
		receiver := webhooktest.NewReceiver(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			if err := webhook.Verify([]string{secret.Key}, r.Header, body, time.Now(), time.Minute); err != nil {
				t.Errorf("signature: %v", err)
			}
			time.Sleep(45 * time.Second) // longer than the lease
			if answers++; answers == 1 {
				w.Header().Set("Retry-After", "120")
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		defer receiver.Close()
		b.webhook.URL, b.webhook.Timeout, b.webhook.Secrets = "http://127.0.0.1/hook", time.Minute, []webhook.Secret{secret}
		b.update(b.webhook)
		sender, err := webhook.NewSender(webhook.Options{
			Version: "test", Guard: webhook.GuardOptions{AllowPrivate: true}, DialContext: receiver.Dial,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer sender.Close()
		_, stop := b.start(func(o *Options) { o.Sender = sender; o.Lease = 30 * time.Second })
		sent := b.send(`{"order":1}`)
		time.Sleep(10 * time.Minute)
		stop()
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		atts := b.attempts(sent)
		want(t, "attempts", len(atts), 2)
		want(t, "first decision", atts[0].Reason, policy.ReceiverBusy)
		if gap := atts[1].StartedAt.Sub(atts[0].StartedAt.Add(atts[0].Duration)); gap < 120*time.Second || gap > 125*time.Second {
			t.Errorf("second attempt %s after the first answer, want the two minutes that were asked for", gap)
		}
	})
}

// C89: a retry after a timeout dials anew: the connection on which nothing came may be dead.
func TestARetryAfterATimeoutAsksForANewConnection(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(_ webhook.Request, n int) webhook.Result {
			switch n {
			case 1:
				return webhook.Result{ErrorClass: string(policy.ClassTimeout)}
			case 2:
				return webhook.Result{Status: 503}
			}
			return webhook.Result{Status: 200}
		}
		_, stop := b.start(nil)
		b.send("x")
		time.Sleep(10 * time.Minute)
		stop()
		var fresh []bool
		for _, p := range b.sender.posts {
			fresh = append(fresh, p.request.Fresh)
		}
		want(t, "asked for a new connection", fmt.Sprint(fresh), "[false true false]")
	})
}
