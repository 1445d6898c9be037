package sqlite

import (
	"errors"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// C80: whoever enables a webhook releases what any process, a dead one too, had given back
// for it; and nothing else.
func TestEnablingAWebhookReleasesWhatWaitedForIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		q := mustQueue(t, db)
		reg, err := db.PutWebhook(t.Context(), tables.Registration{Webhook: webhook.Webhook{ID: "w", Queue: "orders"}})
		must(t, err)
		held := map[string]policy.Reason{
			"disabled": policy.WebhookDisabled, "deleted": policy.WebhookDeleted, "nobody": policy.NoWebhook, "leased": policy.WebhookDisabled,
			"busy": policy.WebhookBusy, "failing": policy.WebhookFailing, "paused": policy.WebhookPaused, "no token": policy.NoToken, "other's": policy.WebhookFailing,
		}
		for text := range held {
			mustSend(t, q, text, queue.SendOptions{})
		}
		mustSend(t, q, "delayed", queue.SendOptions{Delay: 5 * time.Minute})
		for _, m := range receiveAll(t, q) {
			text := string(m.Text)
			d := tables.Delivery{MessageKey: messageKeyOf(q, m), WebhookID: "w", State: tables.Held, Reason: held[text]}
			if text == "other's" {
				d.WebhookID = "v"
			}
			must(t, db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{d}}))
			if text == "leased" {
				must(t, q.Renew(t.Context(), m, 10*time.Minute))
				continue
			}
			must(t, q.Abandon(t.Context(), m, 10*time.Minute))
			if err := q.Complete(t.Context(), m); !errors.Is(err, queue.ErrLeaseLost) {
				t.Errorf("Complete of what was given back = %v", err)
			}
		}
		change := func(enabled bool) {
			reg.Enabled = enabled
			reg, err = db.PutWebhook(t.Context(), reg)
			must(t, err)
		}
		change(false)
		wantVisible(t, q, "while it is disabled", 0)
		change(true)
		released := func(when string) {
			t.Helper()
			for _, m := range wantVisible(t, q, when, 7) {
				if text := string(m.Text); held[text] == "" || text == "leased" || text == "other's" {
					t.Errorf("%s: %s is released", when, text)
				}
				must(t, q.Abandon(t.Context(), m, 10*time.Minute))
			}
		}
		released("when it is enabled")
		change(true)
		wantVisible(t, q, "when nothing has changed", 0)
		reg.ResetAt = time.Now()
		change(true)
		released("when it is enabled anew")
	})
}

// A replay's records have the id of the original message, not that of the message on the queue.
func TestEnablingAWebhookReleasesReplaysThatWaitedForIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		q := mustQueue(t, db)
		original := tables.MessageKey{Queue: "orders", MessageID: "original", Day: time.Now().UTC()}
		letter, err := db.PutDeadLetter(t.Context(), tables.DeadLetter{ID: tables.DeadLetterID(original, "w", 0, time.Now()), MessageKey: original, WebhookID: "w", Status: tables.Waiting, Text: []byte("kept")})
		must(t, err)
		letter.Status, letter.Replays = tables.Replaying, 1
		_, err = db.UpdateDeadLetter(t.Context(), letter)
		must(t, err)
		time.Sleep(time.Hour)
		mustSend(t, q, "pointer", queue.SendOptions{})
		pointer := receiveAll(t, q)[0]
		must(t, db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{{
			MessageKey: tables.MessageKey{Queue: "orders", MessageID: "original", Day: pointer.InsertedAt}, WebhookID: "w", Generation: 1,
			State: tables.Held, Reason: policy.WebhookFailing,
		}}}))
		must(t, q.Abandon(t.Context(), pointer, 10*time.Minute))
		mustSend(t, q, "delayed", queue.SendOptions{Delay: 5 * time.Minute})
		_, err = db.PutWebhook(t.Context(), tables.Registration{Webhook: webhook.Webhook{ID: "w", Queue: "orders"}, Enabled: true})
		must(t, err)
		if m := wantVisible(t, q, "when it is enabled", 1); string(m[0].Text) != "pointer" {
			t.Errorf("released was %q", m[0].Text)
		}
	})
}

// C57: a replay is asked for and on its queue, or neither.
func TestAReplayIsMarkedAndSentInOneTransaction(t *testing.T) {
	db := openNew(t)
	q := mustQueue(t, db)
	key := tables.MessageKey{Queue: "orders", MessageID: "m", Day: time.Now()}
	d, err := db.PutDeadLetter(t.Context(), tables.DeadLetter{ID: tables.DeadLetterID(key, "w", 0, time.Now()), MessageKey: key, Status: tables.Waiting, Text: []byte("kept")})
	must(t, err)
	mustSend(t, q, "first", queue.SendOptions{})
	d.Status = tables.Replaying
	stale := d
	stale.ETag = "stale"
	for want, bad := range map[error]tables.DeadLetter{tables.ErrConflict: stale, tables.ErrNotFound: {ID: tables.DeadLetterID(key, "x", 0, time.Now())}} {
		if _, err := db.Queues().SendReplay(t.Context(), bad, []byte("pointer")); !errors.Is(err, want) {
			t.Errorf("SendReplay = %v, want %v", err, want)
		}
	}
	if _, err := db.Queues().SendReplay(t.Context(), d, []byte("\x00")); !errors.Is(err, queue.ErrUnsendable) {
		t.Errorf("SendReplay = %v, want ErrUnsendable", err)
	}
	if now, err := db.GetDeadLetter(t.Context(), d.ID); err != nil || now.Status != tables.Waiting {
		t.Errorf("it is %s, %v after sends that failed", now.Status, err)
	}
	wantTotal(t, q, 1)
	marked, err := db.Queues().SendReplay(t.Context(), d, []byte("pointer"))
	must(t, err)
	if now, err := db.GetDeadLetter(t.Context(), d.ID); err != nil || now.Status != tables.Replaying || now.ETag != marked.ETag || string(now.Text) != "kept" {
		t.Errorf("it is %+v, %v", now, err)
	}
	wantTotal(t, q, 2)
}
