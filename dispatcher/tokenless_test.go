package dispatcher

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// issuer is a receiver that takes what comes with a token, of which it gives none while it is down; as the sender does,
// it is asked again after 1 s to a minute.
type issuer struct {
	down, refuses  atomic.Bool
	mu             sync.Mutex
	again          time.Time
	fails          int
	asked, refused int // requests for tokens, and POSTs that had the wrong one
}

const noToken = "the token endpoint answered 401 invalid_client: set auth.oauth2.client_secret"

func (i *issuer) answer(webhook.Request, int) webhook.Result {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	if !i.down.Load() {
		i.fails = 0
		return webhook.Result{StartedAt: now, Status: 200}
	}
	if !i.again.After(now) {
		i.asked++
		i.again = now.Add(min(time.Second<<i.fails, time.Minute))
		i.fails = min(i.fails+1, 6)
	}
	if i.refuses.Load() {
		i.refused++
		return webhook.Result{StartedAt: now, ErrorClass: string(policy.ClassToken), Error: "answered 401 by the receiver, and then " + noToken, TokenAt: i.again}
	}
	return webhook.Result{StartedAt: now, ErrorClass: string(policy.ClassToken), Error: noToken, NotBegun: true, TokenAt: i.again}
}

// While no token can be had nothing is received but one message at a time that tries it, no attempt is made, and no age begins; then all
// are sent at once. The webhook's status says why.
func TestAWebhookWithoutATokenIsHeldAndOneMessageAtATimeTriesIt(t *testing.T) {
	inBubble(t, func(b *bench) {
		const messages = 1000
		b.webhook.Flow = policy.DefaultFlow()
		b.webhook.Policy.MaxAge = policy.Duration(time.Hour)
		b.update(b.webhook)
		i := &issuer{}
		i.down.Store(true)
		b.sender.answer = i.answer
		all := b.sendNumbered(messages)
		d, stop := b.start(nil)
		defer stop()
		time.Sleep(10 * time.Second)
		s, _ := d.Webhook("wh_a")
		want(t, "state", s.State, status.NoToken)
		want(t, "why", strings.HasPrefix(s.Why, noToken+", at 20"), true)
		want(t, "until is told", s.Until.After(time.Now().Add(-time.Second)), true)
		time.Sleep(12 * time.Hour)
		receives, records := b.queues.count("receive"), b.store.count("record")
		if receives > 1200 || records > 3000 {
			t.Errorf("%d receives and %d records in 12 hours, of which each minute has one try", receives, records)
		}
		if i.asked < 600 || i.asked > 750 {
			t.Errorf("a token was asked for %d times in 12 hours, want one each minute", i.asked)
		}
		want(t, "dead letters", len(b.deadLetters()), 0)
		attempts := 0
		for _, sent := range all {
			attempts += len(b.attempts(sent))
		}
		want(t, "attempts", attempts, 0)
		want(t, "the log says why", strings.Contains(b.log.String(), noToken), true)
		i.down.Store(false)
		time.Sleep(2 * time.Minute)
		want(t, "messages left", b.total(testQueue), 0)
		for _, sent := range all {
			want(t, "charged", b.delivery(sent, "wh_a").Charged, 1)
		}
		s, _ = d.Webhook("wh_a")
		want(t, "state", s.State, status.Healthy)
		want(t, "why", s.Why, "")
		wantAtRest(t, d)
	})
}

// A POST that was answered 401, and for which no fresh token can be had, is on record, uncharged; then the webhook is held.
func TestA401WithoutAFreshTokenIsOnRecord(t *testing.T) {
	inBubble(t, func(b *bench) {
		i := &issuer{}
		i.down.Store(true)
		i.refuses.Store(true)
		b.sender.answer = i.answer
		d, stop := b.start(nil)
		defer stop()
		sent := b.send("x")
		time.Sleep(time.Hour)
		all := b.attempts(sent)
		want(t, "attempts", len(all), i.refused)
		if len(all) < 55 || len(all) > 75 {
			t.Errorf("%d attempts in an hour, want one each minute", len(all))
		}
		first := all[0]
		want(t, "charged", first.Charged, false)
		want(t, "action", first.Action, policy.Hold)
		want(t, "reason", first.Reason, policy.NoToken)
		want(t, "the explanation says why", strings.Contains(first.Explanation, noToken), true)
		want(t, "delivery", b.delivery(sent, "wh_a").State, tables.Held)
		s, _ := d.Webhook("wh_a")
		want(t, "state", s.State, status.NoToken)
		i.down.Store(false)
		time.Sleep(90 * time.Second)
		want(t, "delivery", b.delivery(sent, "wh_a").State, tables.Delivered)
	})
}

// A message that would expire while no token can be had is a dead letter that says so.
func TestAMessageExpiresWithoutAToken(t *testing.T) {
	inBubble(t, func(b *bench) {
		i := &issuer{}
		i.down.Store(true)
		b.sender.answer = i.answer
		_, stop := b.start(nil)
		defer stop()
		b.sendMany(20, queue.SendOptions{TTL: time.Hour})
		time.Sleep(2 * time.Hour)
		b.wantDeadLetters(20, policy.NoToken)
	})
}

// A changed registration is tried at once: it may be the one that mends it.
func TestAChangeOfTheWebhookTriesForATokenAtOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		i := &issuer{}
		i.down.Store(true)
		b.sender.answer = i.answer
		d, stop := b.start(nil)
		defer stop()
		sent := b.send("x")
		time.Sleep(time.Hour)
		for s, _ := d.Webhook("wh_a"); time.Until(s.Until) < 50*time.Second; s, _ = d.Webhook("wh_a") {
			time.Sleep(time.Second)
		}
		i.down.Store(false)
		b.webhook.UpdatedAt = time.Now().UTC()
		b.webhook = b.update(b.webhook)
		time.Sleep(7 * time.Second) // the registrations are read each 5 s
		want(t, "delivery", b.delivery(sent, "wh_a").State, tables.Delivered)
	})
}

// Who gets a token's 401 asks the policy before a POST is made again.
func TestWhatA401MeansIsAskedOfThePolicy(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Auth = &webhook.Auth{OAuth2: &webhook.OAuth2{}}
		b.webhook.Policy.AllowSteering = true
		b.update(b.webhook)
		var meant []bool
		b.sender.answer = func(r webhook.Request, _ int) webhook.Result {
			for _, says := range []string{"", "complete"} {
				meant = append(meant, r.Meant(&webhook.Result{Status: 401, Steering: says}))
			}
			return webhook.Result{Status: 200}
		}
		_, stop := b.start(nil)
		b.send("x")
		time.Sleep(time.Second)
		stop()
		if !slices.Equal(meant, []bool{false, true}) {
			t.Errorf("the policy says %v", meant)
		}
	})
}

// The age of a delivery begins with the first POST for which there was a token, and who was registered in between
// is due nothing.
func TestAgeBeginsWhenATokenIsThere(t *testing.T) {
	inBubble(t, func(b *bench) {
		var mended atomic.Bool
		refused := 0
		b.webhook.Policy.MaxAge = policy.Duration(time.Hour)
		b.update(b.webhook)
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			if !mended.Load() {
				return webhook.Result{ErrorClass: string(policy.ClassToken), Error: "no token", NotBegun: true, TokenAt: time.Now().Add(time.Minute)}
			}
			if refused++; refused == 1 {
				return webhook.Result{Status: 503}
			}
			return webhook.Result{Status: 200}
		}
		_, stop := b.start(nil)
		defer stop()
		sent := b.send(`{"a":1}`)
		time.Sleep(time.Hour)
		b.register("wh_late", nil)
		time.Sleep(time.Hour)
		mended.Store(true)
		time.Sleep(20 * time.Minute)
		del := b.delivery(sent, "wh_a")
		want(t, "state", del.State, tables.Delivered)
		want(t, "charged", del.Charged, 2)
		want(t, "dead letters", len(b.deadLetters()), 0)
		want(t, "POSTs after it was mended", refused, 2)
	})
}
