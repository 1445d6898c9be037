package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/webhook"
)

func TestQueueTellsWhatShareWasDeadLetteredLately(t *testing.T) {
	inBubble(t, func(b *bench) { // R4
		b.sender.answer = statuses(400)
		d, stop := b.start(rarely)
		defer stop()
		status := func(what string, handled, deadLettered int) {
			t.Helper()
			s := statusOf(d, testQueue)
			want(t, what+": handled", s.Handled, handled)
			want(t, what+": dead-lettered", s.DeadLettered, deadLettered)
		}
		status("at first", 0, 0)
		b.send("x")
		time.Sleep(2 * time.Minute)
		status("one refused", 1, 1)
		b.sender.answer = statuses(200)
		time.Sleep(time.Hour)
		b.send("x")
		b.send("y")
		time.Sleep(2 * time.Minute)
		status("two delivered in the next hour", 3, 1)
		time.Sleep(time.Hour)
		status("an hour later", 2, 0)
		time.Sleep(3 * time.Hour)
		status("much later", 0, 0)
	})
}

func TestWebhookTellsWhatItRefusedLately(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(r webhook.Request, _ int) webhook.Result {
			if string(r.Body) == "taken" {
				return webhook.Result{Status: 200}
			}
			return webhook.Result{Status: 400}
		}
		d, stop := b.start(rarely)
		defer stop()
		status := func(what string, posts, refused int, inAll int64) {
			t.Helper()
			s, _ := d.Webhook(b.webhook.ID)
			want(t, what+": posts", s.RecentPosts, posts)
			want(t, what+": refused", s.RecentRefused, refused)
			want(t, what+": refused in all", s.Refused, inAll)
		}
		b.send("refused")
		b.send("taken")
		time.Sleep(2 * time.Minute)
		status("at first", 2, 1, 1)
		time.Sleep(time.Hour)
		status("in the next hour", 2, 1, 1)
		time.Sleep(2 * time.Hour)
		status("much later", 0, 0, 1)
	})
}
