package dispatcher

import (
	"fmt"
	"io"
	"maps"
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

// C44, C61: of the wait that an answer names each part reaches the decision.
func TestAWaitThatAReceiverNamesIsKept(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		header func() http.Header
		wait   time.Duration
	}{
		"403, seconds":   {403, func() http.Header { return http.Header{"Retry-After": {"60"}} }, time.Minute},
		"413, seconds":   {413, func() http.Header { return http.Header{"Retry-After": {"30"}} }, 30 * time.Second},
		"401, its limit": {401, func() http.Header { return http.Header{"Ratelimit": {`"p";r=0;t=60`}} }, time.Minute},
		"503, two lines": {503, func() http.Header { return http.Header{"Retry-After": {"10", "60"}} }, time.Minute},
		"503, by a clock that is an hour ahead": {503, func() http.Header {
			ahead := time.Now().Add(time.Hour).UTC()
			return http.Header{"Date": {ahead.Format(http.TimeFormat)}, "Retry-After": {ahead.Add(90 * time.Second).Format(http.TimeFormat)}}
		}, 90 * time.Second},
		"403, by a clock that is an hour behind": {403, func() http.Header {
			behind := time.Now().Add(-time.Hour).UTC()
			return http.Header{"Date": {behind.Format(http.TimeFormat)}, "Retry-After": {behind.Add(90 * time.Second).Format(http.TimeFormat)}}
		}, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				answers := 0
				receiver := webhooktest.NewReceiver(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if answers++; answers == 1 {
						maps.Copy(w.Header(), tt.header())
						w.WriteHeader(tt.status)
					}
				}))
				defer receiver.Close()
				b.webhook.URL, b.webhook.Timeout, b.webhook.Secrets = "http://127.0.0.1/hook", time.Minute, []webhook.Secret{webhook.NewSecret(time.Now())}
				b.update(b.webhook)
				sender, err := webhook.NewSender(webhook.Options{
					Version: "test", Guard: webhook.GuardOptions{AllowPrivate: true}, DialContext: receiver.Dial,
				})
				if err != nil {
					t.Fatal(err)
				}
				defer sender.Close()
				_, stop := b.start(func(o *Options) { o.Sender = sender })
				sent := b.send("x")
				time.Sleep(10 * time.Minute)
				stop()
				want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
				atts := b.attempts(sent)
				if len(atts) != 2 {
					t.Fatalf("%d attempts: %+v", len(atts), atts)
				}
				if gap := atts[1].StartedAt.Sub(atts[0].StartedAt); gap < tt.wait || gap > tt.wait*13/10+5*time.Second {
					t.Errorf("the second attempt came after %s, and %s were asked for", gap, tt.wait)
				}
			})
		})
	}
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
