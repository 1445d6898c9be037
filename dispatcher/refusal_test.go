package dispatcher

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// C103: an application that is swapped answers 404 for five seconds, under load.
func TestARedeploymentThatAnswers404MakesNoDeadLetters(t *testing.T) {
	inBubble(t, func(b *bench) {
		began := time.Now()
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			if now := time.Since(began); now > 2*time.Second && now < 7*time.Second {
				return webhook.Result{Status: 404}
			}
			return webhook.Result{Status: 200}
		}
		_, stop := b.start(nil)
		for range 300 {
			b.send(`{"n":1}`)
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		stop()
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "dead letters", len(b.deadLetters()), 0)
		if posts := b.sender.count(); posts < 400 {
			t.Errorf("%d POSTs: hardly any of the 300 messages met the 404", posts)
		}
	})
}

// The same while pushlease itself is deployed anew, or a further instance begins, or the webhook is
// enabled once more: what it took before counts.
func TestARedeploymentThatAnswers404MakesNoDeadLettersAfterARestart(t *testing.T) {
	for name, instance := range map[string]string{"the same instance": "test", "another one": "other"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.sender.answer = func(webhook.Request, int) webhook.Result { return webhook.Result{Status: 200} }
				_, stop := b.start(nil)
				for range 30 { // it took messages an hour after the first one too
					b.send(`{"n":1}`)
					time.Sleep(2 * time.Minute)
				}
				stop()
				began := time.Now()
				b.sender.answer = func(webhook.Request, int) webhook.Result {
					if time.Since(began) < 30*time.Second {
						return webhook.Result{Status: 404}
					}
					return webhook.Result{Status: 200}
				}
				late := b.send(`{"n":2}`)
				_, stop = b.start(func(o *Options) { o.Instance = instance })
				time.Sleep(10 * time.Minute)
				stop()
				want(t, "dead letters", len(b.deadLetters()), 0)
				want(t, "messages left", b.total(testQueue), 0)
				want(t, "was answered 404", b.attempts(late)[0].Status, 404)
			})
		})
	}
}

func TestEnablingAWebhookDoesNotForgetThatItTookMessages(t *testing.T) {
	inBubble(t, func(b *bench) {
		var missing atomic.Bool
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			if missing.Load() {
				return webhook.Result{Status: 404}
			}
			return webhook.Result{Status: 200}
		}
		d, stop := b.start(nil)
		b.send(`{"n":1}`)
		time.Sleep(time.Second)
		b.webhook.ResetAt = time.Now().UTC()
		b.webhook = b.update(b.webhook)
		d.RegistryChanged()
		time.Sleep(time.Second)
		missing.Store(true)
		b.send(`{"n":2}`)
		time.Sleep(5 * time.Second)
		missing.Store(false)
		time.Sleep(time.Minute)
		want(t, "dead letters", len(b.deadLetters()), 0)
		b.webhook.URL = "https://example.com/elsewhere"
		b.webhook = b.update(b.webhook)
		d.RegistryChanged()
		time.Sleep(time.Second)
		missing.Store(true)
		b.send(`{"n":3}`)
		time.Sleep(5 * time.Second)
		want(t, "dead letters of a URL that never took a message", len(b.deadLetters()), 1)
		stop()
	})
}

// One message that is refused among others that are taken ends within ten minutes; where no
// message was ever taken, it ends at once.
func TestAMessageThatAloneIsAnswered404IsADeadLetterWithinTenMinutes(t *testing.T) {
	for _, taken := range []bool{true, false} {
		inBubble(t, func(b *bench) {
			b.sender.answer = func(r webhook.Request, _ int) webhook.Result {
				if string(r.Body) == "bad" {
					return webhook.Result{Status: 404}
				}
				return webhook.Result{Status: 200}
			}
			_, stop := b.start(nil)
			if taken {
				b.send("good")
				time.Sleep(time.Second)
			}
			bad := b.send("bad")
			for range 10 {
				time.Sleep(time.Minute)
				if taken {
					b.send("good")
				}
			}
			stop()
			attempts := map[bool]int{true: 3, false: 1}[taken]
			want(t, "attempts", len(b.attempts(bad)), attempts)
			letters := b.deadLetters()
			if len(letters) != 1 || letters[0].Reason != policy.NonRetryableError || letters[0].LastStatus != 404 {
				t.Errorf("dead letters %+v", letters)
			}
		})
	}
}

// C52: a receiver that asks for a thousand days gets its messages when it is well again.
func TestAnAbsurdRetryAfterEndsNoMessage(t *testing.T) {
	for _, ask := range []string{"86400000", "999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		inBubble(t, func(b *bench) {
			began := time.Now()
			b.sender.answer = func(webhook.Request, int) webhook.Result {
				if time.Since(began) < time.Minute {
					return webhook.Result{Status: 503, RetryAfter: ask}
				}
				return webhook.Result{Status: 200}
			}
			_, stop := b.start(rarely)
			first := b.send("first")
			time.Sleep(2 * time.Minute)
			second := b.send("second")
			time.Sleep(16 * time.Minute)
			want(t, "another message of the webhook", b.delivery(second, "wh_a").State, tables.Delivered)
			time.Sleep(8 * time.Hour)
			stop()
			want(t, "the message that was answered", b.delivery(first, "wh_a").State, tables.Delivered)
			want(t, "dead letters", len(b.deadLetters()), 0)
		})
	}
}

// resolver answers what it is set to.
type resolver struct {
	mu   sync.Mutex
	addr string
}

func (r *resolver) set(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addr = addr
}

func (r *resolver) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return []netip.Addr{netip.MustParseAddr(r.addr)}, nil
}

// inwards is a bench whose webhook stands on a name, with the real sender and its guard.
func inwards(b *bench, change func(*tables.Registration)) (*resolver, *webhooktest.Receiver, func(*Options)) {
	receiver := webhooktest.NewReceiver(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.t.Cleanup(receiver.Close)
	names := &resolver{addr: "0.0.0.0"}
	sender, err := webhook.NewSender(webhook.Options{
		Version: "test", Resolver: names, DialContext: receiver.Dial, Guard: webhook.GuardOptions{
			AllowPrivate: true, DenyCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, // http is what the pipe speaks
		},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(sender.Close)
	b.webhook.URL, b.webhook.Secrets = "http://receiver.example/hook", []webhook.Secret{webhook.NewSecret(time.Now())}
	b.webhook.Flow = policy.DefaultFlow()
	if change != nil {
		change(&b.webhook)
	}
	b.webhook = b.update(b.webhook)
	return names, receiver, func(o *Options) { o.Sender = sender }
}

// C42: the DNS gives a wrong answer for 20 seconds.
func TestANameThatPointsInwardsForAWhileLosesNoMessage(t *testing.T) {
	inBubble(t, func(b *bench) {
		names, receiver, options := inwards(b, nil)
		d, stop := b.start(options)
		for range 100 {
			b.send("x")
			time.Sleep(200 * time.Millisecond)
		}
		if st, ok := d.Webhook("wh_a"); !ok || st.State != status.Failing && st.State != status.Probing || st.Failed < 10 {
			t.Errorf("meanwhile: %+v, want one that fails", st)
		}
		want(t, "sockets", len(receiver.Dialed()), 0)
		names.set("93.184.216.34")
		time.Sleep(30 * time.Minute)
		stop()
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "dead letters", len(b.deadLetters()), 0)
		want(t, "delivered", len(receiver.Received()), 100)
	})
}

func TestANameThatPointsInwardsForEverEndsAsBlockedAddress(t *testing.T) {
	inBubble(t, func(b *bench) {
		names, receiver, options := inwards(b, func(r *tables.Registration) { r.Policy.MaxAttempts = 3 })
		names.set("10.0.0.1")
		reader := sdkmetric.NewManualReader()
		_, stop := b.start(func(o *Options) {
			options(o)
			o.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("")
		})
		sent := b.send("x")
		time.Sleep(time.Hour)
		stop()
		want(t, "refusals counted", counted(t, reader, "pushlease.webhook.blocked", "webhook", "wh_a"), 3)
		want(t, "attempts", len(b.attempts(sent)), 3)
		want(t, "sockets", len(receiver.Dialed()), 0)
		if letters := b.deadLetters(); len(letters) != 1 || letters[0].Reason != policy.BlockedAddress {
			t.Errorf("dead letters %+v", letters)
		}
	})
}

// What the URL itself says can't heal.
func TestALiteralAddressThatIsBlockedIsADeadLetterAtOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, receiver, options := inwards(b, func(r *tables.Registration) { r.URL = "http://10.0.0.1/" })
		_, stop := b.start(options)
		sent := b.send("x")
		time.Sleep(time.Minute)
		stop()
		want(t, "attempts", len(b.attempts(sent)), 1)
		want(t, "sockets", len(receiver.Dialed()), 0)
		if letters := b.deadLetters(); len(letters) != 1 || letters[0].Reason != policy.BlockedAddress {
			t.Errorf("dead letters %+v", letters)
		}
	})
}
