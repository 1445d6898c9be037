package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func TestAcceptedMessageIsPostedOnceRecordedAndDeleted(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, stop := b.start(nil)
		sent := b.send(`{"a":1}`)
		time.Sleep(5 * time.Second)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "messages left", b.total(testQueue), 0)
		del := b.delivery(sent, "wh_a")
		want(t, "state", del.State, tables.Delivered)
		want(t, "attempts", del.Attempts, 1)
		want(t, "body", string(b.sender.posts[0].request.Body), `{"a":1}`)
		want(t, "content type", b.sender.posts[0].request.ContentType, "application/json")
		if strings.Contains(b.log.String(), `"a":1`) {
			t.Error("the payload is in the log")
		}
	})
}

func TestFailedMessageIsTriedAgainAtTheTimeThatWasDecided(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(500, 503, 200)
		_, stop := b.start(nil)
		sent := b.send("x")
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 3)
		want(t, "messages left", b.total(testQueue), 0)
		atts := b.attempts(sent)
		want(t, "attempts recorded", len(atts), 3)
		for i, a := range atts[:2] {
			next := atts[i+1].StartedAt
			if late := next.Sub(a.NextAt); late < 0 || late > 3*time.Second {
				t.Errorf("attempt %d was due at %s and began at %s", i+2, a.NextAt, next)
			}
		}
		want(t, "first delay", atts[0].Delay, 5*time.Second)
		want(t, "second delay", atts[1].Delay, 20*time.Second)
	})
}

func TestLeaseAndDelayAreTwoThings(t *testing.T) {
	inBubble(t, func(b *bench) { // C03 (b)
		b.sender.answer = statuses(500, 200)
		_, stop := b.start(func(o *Options) { o.Lease = time.Minute })
		b.send("x")
		time.Sleep(30 * time.Second)
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		gap := b.sender.posts[1].at.Sub(b.sender.posts[0].at)
		if gap < 5*time.Second || gap > 8*time.Second {
			t.Errorf("second POST after %s, want about 5s", gap)
		}
	})
}

func TestRefusedMessageBecomesADeadLetterWithACopy(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400)
		_, stop := b.start(nil)
		sent := b.send(`{"a":1}`)
		time.Sleep(30 * time.Second)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "messages left", b.total(testQueue), 0)
		list := b.deadLetters()
		want(t, "dead letters", len(list), 1)
		row, err := b.db.GetDeadLetter(b.t.Context(), list[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "reason", row.Reason, policy.NonRetryableError)
		want(t, "webhook", row.WebhookID, "wh_a")
		want(t, "message", row.MessageID, sent.ID)
		want(t, "text", string(row.Text), `{"a":1}`)
		want(t, "last status", row.LastStatus, 400)
		want(t, "attempts", row.Attempts, 1)
		want(t, "copied to", row.CopiedToQueue, testQueue+"-poison")
		want(t, "state", b.delivery(sent, "wh_a").State, tables.DeadLettered)
		copies, err := b.queue(testQueue+"-poison").Receive(b.t.Context(), 32, time.Minute)
		if err != nil || len(copies) != 1 {
			t.Fatalf("copies: %d, %v", len(copies), err)
		}
		want(t, "copy", string(copies[0].Text), `{"a":1}`)
		want(t, "copy never expires", copies[0].ExpiresAt.IsZero(), true)
	})
}

func TestAttemptsRunOutExactlyAtTheMaximum(t *testing.T) {
	for _, limit := range []int{1, 3} {
		inBubble(t, func(b *bench) {
			b.webhook.Policy.MaxAttempts = limit
			b.update(b.webhook)
			b.sender.answer = statuses(500)
			_, stop := b.start(nil)
			b.send("x")
			time.Sleep(5 * time.Minute)
			stop()
			want(t, "POSTs", b.sender.count(), limit)
			list := b.deadLetters()
			want(t, "dead letters", len(list), 1)
			want(t, "reason", list[0].Reason, policy.MaxDeliveryCountExceeded)
			want(t, "attempts", list[0].Attempts, limit)
		})
	}
}

func TestEveryWebhookOfTheQueueGetsItsOwnDelivery(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", nil)
		b.register("wh_c", nil)
		b.sender.answer = statuses(200)
		byWebhook := map[string][]int{"wh_a": {200}, "wh_b": {503, 200}, "wh_c": {400}}
		s := &perWebhook{scripted: b.sender, statuses: byWebhook}
		_, stop := b.start(func(o *Options) { o.Sender = s })
		sent := b.send("x")
		time.Sleep(time.Minute)
		stop()
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "a", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "b", b.delivery(sent, "wh_b").State, tables.Delivered)
		want(t, "c", b.delivery(sent, "wh_c").State, tables.DeadLettered)
		want(t, "POSTs to a", s.posts("wh_a"), 1)
		want(t, "POSTs to b", s.posts("wh_b"), 2)
		want(t, "POSTs to c", s.posts("wh_c"), 1)
		want(t, "dead letters", len(b.deadLetters()), 1)
		want(t, "copies", b.total(testQueue+"-poison"), 1)
	})
}

func TestDeliveredMessageThatComesBackIsDeletedWithoutAPost(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.queues.on("complete", firstCalls(1000, failBefore)) // every delete fails until the lease lapses
		_, stop := b.start(func(o *Options) { o.Lease = 10 * time.Second; o.Drain = time.Second })
		sent := b.send("x")
		time.Sleep(5 * time.Second)
		stop()
		want(t, "messages left", b.total(testQueue), 1)
		want(t, "recorded before the delete", b.delivery(sent, "wh_a").State, tables.Delivered)

		b.queues.on("complete", nil)
		_, stop = b.start(nil)
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

func TestUndecodableMessageIsDeadLetteredAndDoesNotStopTheOthers(t *testing.T) {
	inBubble(t, func(b *bench) { // C14
		for _, text := range []string{"eyJhIjoxfQ==", `{"a":1}`, "!!!!", "", "eyJhIjoxfQ=="} {
			b.sendText([]byte(text), queue.SendOptions{})
		}
		_, stop := b.start(func(o *Options) {
			o.Encoding = func(string) queue.Encoding { return queue.EncodingBase64 }
		})
		time.Sleep(10 * time.Second)
		stop()
		want(t, "POSTs", b.sender.count(), 3) // two valid ones and the empty body
		want(t, "messages left", b.total(testQueue), 0)
		var texts []string
		for _, dl := range b.deadLetters() {
			want(t, "reason", dl.Reason, policy.Undecodable)
			row, err := b.db.GetDeadLetter(b.t.Context(), dl.ID)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(row.Text))
		}
		slices.Sort(texts)
		want(t, "texts kept", strings.Join(texts, " "), `!!!! {"a":1}`)
	})
}

// C53: what a newer version wrote waits for an instance that can read it, and is a dead
// letter before it would expire.
func TestMessageOfANewerVersionIsHeldAndNeverPosted(t *testing.T) {
	for _, text := range []string{`{"pushlease":99,"replay":{"dead_letter":"x","token":"t"}}`, `{"pushlease":1,"priority":7,"body":"aGk="}`} {
		inBubble(t, func(b *bench) {
			sent := b.sendText([]byte(text), queue.SendOptions{TTL: 2 * time.Hour})
			_, stop := b.start(nil)
			time.Sleep(10 * time.Second)
			del := b.delivery(sent, "")
			if del.State != tables.Held || del.Reason != policy.Undecodable || del.NextAt.Sub(del.UpdatedAt) > time.Minute {
				t.Errorf("%s: %+v, want it held", text, del)
			}
			time.Sleep(time.Hour)
			if del := b.delivery(sent, ""); del.State != tables.Held || del.Excused > 15 { // of a rolled back deployment there may be many
				t.Errorf("%s: %+v, want it held, and looked at ever more rarely", text, del)
			}
			want(t, "messages left", b.total(testQueue), 1)
			want(t, "in the log", strings.Contains(b.log.String(), "written by a newer version of pushlease"), true)
			time.Sleep(time.Hour)
			stop()
			want(t, "POSTs", b.sender.count(), 0)
			letters := b.deadLetters()
			if len(letters) != 1 || letters[0].Reason != policy.Undecodable || !strings.Contains(letters[0].Description, "newer version") {
				t.Fatalf("dead letters: %+v", letters)
			}
			row, err := b.db.GetDeadLetter(b.t.Context(), letters[0].ID)
			if err != nil || string(row.Text) != text {
				t.Errorf("text %q, %v", row.Text, err)
			}
		})
	}
}

func TestDequeueCountAloneIsNoAttempt(t *testing.T) {
	inBubble(t, func(b *bench) { // C12: maxAttempts 1, received before without a POST
		b.webhook.Policy.MaxAttempts = 1
		b.update(b.webhook)
		b.send("x")
		q := b.queue(testQueue)
		for range 5 {
			if _, err := q.Receive(b.t.Context(), 1, 2*time.Second); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
		}
		_, stop := b.start(nil)
		time.Sleep(10 * time.Second)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "dead letters", len(b.deadLetters()), 0)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

func TestGoneWebhookIsDisabledAndItsQueueIsNotPolledAnyMore(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(410)
		d, stop := b.start(nil)
		b.send("x")
		time.Sleep(10 * time.Second)
		r, err := b.db.GetWebhook(b.t.Context(), "wh_a")
		if err != nil {
			t.Fatal(err)
		}
		want(t, "enabled", r.Enabled, false)
		want(t, "why", r.DisabledReason, "gone")
		want(t, "polling", statusOf(d, testQueue).Polling, false)
		b.send("y")
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "messages left", b.total(testQueue), 1)
		want(t, "reason", b.deadLetters()[0].Reason, policy.WebhookGone)
	})
}

func TestDeliveryToADisabledWebhookIsHeldAndReleasedWhenItIsEnabled(t *testing.T) {
	inBubble(t, func(b *bench) { // C13, with another webhook that is healthy
		r := b.register("wh_b", func(r *tables.Registration) { r.Enabled = false })
		_, stop := b.start(nil)
		sent := b.send("x")
		time.Sleep(time.Hour)
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "held", b.delivery(sent, "wh_b").State, tables.Held)
		want(t, "messages left", b.total(testQueue), 1)
		r.Enabled = true
		b.update(r)
		time.Sleep(15 * time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "state", b.delivery(sent, "wh_b").State, tables.Delivered)
		want(t, "attempts charged", b.delivery(sent, "wh_b").Charged, 1)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "dead letters", len(b.deadLetters()), 0)
	})
}

func TestHeldMessageIsDeadLetteredBeforeItExpires(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", func(r *tables.Registration) { r.Enabled = false })
		_, stop := b.start(func(o *Options) { o.PollMax = 30 * time.Second })
		b.sendText([]byte("x"), queue.SendOptions{TTL: 2 * time.Hour})
		time.Sleep(3 * time.Hour)
		stop()
		list := b.deadLetters()
		want(t, "dead letters", len(list), 1)
		want(t, "reason", list[0].Reason, policy.WebhookDisabled)
		want(t, "webhook", list[0].WebhookID, "wh_b")
		want(t, "messages left", b.total(testQueue), 0)
	})
}

func TestPollersComeAndGoWithTheWebhooks(t *testing.T) {
	inBubble(t, func(b *bench) {
		if err := b.db.DeleteWebhook(b.t.Context(), "wh_a", ""); err != nil {
			t.Fatal(err)
		}
		d, stop := b.start(nil)
		b.send("x")
		time.Sleep(time.Minute)
		want(t, "receives without a webhook", b.queues.count("receive"), 0)
		b.register("wh_n", func(r *tables.Registration) { r.CreatedAt = time.Now() })
		d.RegistryChanged()
		time.Sleep(5 * time.Second)
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "polling", statusOf(d, testQueue).Polling, true)
		stop()
	})
}

func TestReplayIsANewGenerationUnderTheSameID(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400, 500, 200)
		_, stop := b.start(nil)
		sent := b.send("x")
		time.Sleep(10 * time.Second)
		dl := b.deadLetters()[0]
		b.replay(dl.ID, "token-1")
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 3)
		for _, p := range b.sender.posts {
			want(t, "id", p.request.MessageID, sent.ID)
		}
		want(t, "attempt of the replay", b.sender.posts[1].request.Attempt, 1)
		row, err := b.db.GetDeadLetter(b.t.Context(), dl.ID)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "status", row.Status, tables.Replayed)
		want(t, "dead letters", len(b.deadLetters()), 1)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

func TestReplayThatFailsAgainLeavesASecondDeadLetter(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400)
		_, stop := b.start(nil)
		b.send("x")
		time.Sleep(10 * time.Second)
		dl := b.deadLetters()[0]
		b.replay(dl.ID, "token-1")
		time.Sleep(time.Minute)
		stop()
		list := b.deadLetters()
		want(t, "dead letters", len(list), 2)
		want(t, "newest", list[0].Status, tables.Waiting)
		want(t, "newest generation", list[0].Generation, 1)
		want(t, "first", list[1].Status, tables.Replayed)
	})
}

func TestForgedReplayPointerSendsNothing(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400)
		_, stop := b.start(nil)
		b.send("x")
		time.Sleep(10 * time.Second)
		dl := b.deadLetters()[0]
		for _, r := range []queue.Replay{{DeadLetter: dl.ID, Token: ""}, {DeadLetter: dl.ID, Token: "guess"}, {DeadLetter: "other.0", Token: "x"}, {}} {
			text, err := queue.EncodeReplay(queue.EncodingNone, r)
			if err != nil {
				t.Fatal(err)
			}
			b.sendText(text, queue.SendOptions{})
		}
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// Who asks for a replay may die when its message is sent, and before the dead letter says
// that it is replaying.
func TestAReplayWhoseAskerDiedGoesOn(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400, 503, 200)
		_, stop := b.start(nil)
		b.send("x")
		time.Sleep(10 * time.Second)
		b.askForReplay(b.deadLetters()[0].ID, "token-1", tables.Waiting)
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 3)
		want(t, "dead letter", b.deadLetters()[0].Status, tables.Replayed)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

func TestAReplayThatWaitsSaysSoThoughItsAskerDied(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400, 503)
		_, stop := b.start(nil)
		defer stop()
		b.send("x")
		time.Sleep(10 * time.Second)
		b.askForReplay(b.deadLetters()[0].ID, "token-1", tables.Waiting)
		time.Sleep(2 * time.Minute)
		want(t, "dead letter", b.deadLetters()[0].Status, tables.Replaying)
	})
}

// C57: a POST of minutes is known as a replay under way, so that no other one is let past it and no purge takes its row,
// though whoever asked could not say so. Where the row can't be written there is no POST.
func TestAReplayIsMarkedBeforeItsPost(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400, 200)
		_, stop := b.start(nil)
		defer stop()
		b.send("x")
		time.Sleep(10 * time.Second)
		id := b.deadLetters()[0].ID
		b.sender.takes = 90 * time.Second
		b.store.on("update-dead-letter", always(failBefore))
		b.askForReplay(id, "token-1", tables.Waiting)
		time.Sleep(time.Minute)
		want(t, "POSTs while the row can't be marked", b.sender.count(), 1)
		b.store.on("update-dead-letter", nil)
		for b.sender.count() == 1 {
			time.Sleep(time.Second)
		}
		want(t, "dead letter during the POST", b.deadLetters()[0].Status, tables.Replaying)
		time.Sleep(5 * time.Minute)
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "dead letter", b.deadLetters()[0].Status, tables.Replayed)
	})
}

func (b *bench) replay(id, token string) {
	b.t.Helper()
	b.askForReplay(id, token, tables.Replaying)
}

// askForReplay reserves the dead letter and sends the pointer to it; the row has the status
// when that is done.
func (b *bench) askForReplay(id, token string, status tables.DeadLetterStatus) queue.Sent {
	b.t.Helper()
	row, err := b.db.GetDeadLetter(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	row.Status, row.ReplayToken, row.Replays, row.ReplayedAt = status, token, row.Replays+1, time.Now().UTC()
	if _, err := b.db.UpdateDeadLetter(b.t.Context(), row); err != nil {
		b.t.Fatal(err)
	}
	text, err := queue.EncodeReplay(queue.EncodingNone, queue.Replay{DeadLetter: id, Token: token})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.sendText(text, queue.SendOptions{})
}

// Two instances that gave up the same delivery wrote a dead letter each. Replayed on one
// day, and failing, both replays come to an end.
func TestTwoReplaysOfOneDeliveryEnd(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400, 503)
		_, stop := b.start(nil)
		defer stop()
		b.send("x")
		time.Sleep(10 * time.Second)
		twin := b.deadLetters()[0]
		twin.ID = tables.DeadLetterID(twin.MessageKey, twin.WebhookID, twin.Generation, twin.DeadLetteredAt.Add(time.Second))
		_, err := b.db.PutDeadLetter(b.t.Context(), twin)
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range b.deadLetters() {
			b.replay(row.ID, fmt.Sprint("token-", i))
			time.Sleep(7 * time.Second)
		}
		time.Sleep(8 * time.Hour)
		want(t, "messages left", b.total(testQueue), 0)
		if n := b.sender.count(); n > 1+2*b.webhook.Policy.MaxAttempts {
			t.Errorf("%d POSTs", n)
		}
		waiting := 0
		for _, row := range b.deadLetters() {
			if row.Status == tables.Waiting {
				waiting++
			}
		}
		want(t, "dead letters that wait", waiting, 1)
	})
}

// The replay of an old dead letter comes after those of newer ones, and fails.
func TestALateReplayOfAnOldDeadLetterEnds(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400, 400, 400, 400, 503)
		_, stop := b.start(nil)
		defer stop()
		b.send("x")
		time.Sleep(10 * time.Second)
		first := b.deadLetters()[0].ID
		for _, token := range []string{"t1", "t2", "t3"} {
			b.replay(b.deadLetters()[0].ID, token)
			time.Sleep(10 * time.Second)
		}
		b.replay(first, "t4")
		time.Sleep(8 * time.Hour)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "dead letters", len(b.deadLetters()), 5)
		want(t, "reason", b.deadLetters()[0].Reason, policy.MaxDeliveryCountExceeded)
		if n, most := b.sender.count(), 4+b.webhook.Policy.MaxAttempts+1; n > most {
			t.Errorf("%d POSTs, want at most %d", n, most)
		}
	})
}

// perWebhook answers by webhook: one status after the other, the last again.
type perWebhook struct {
	*scripted
	statuses map[string][]int
}

func (s *perWebhook) Send(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
	res := s.scripted.Send(ctx, w, r)
	list := s.statuses[w.ID]
	res.Status = list[min(s.posts(w.ID), len(list))-1]
	return res
}

func (s *perWebhook) posts(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range s.scripted.posts {
		if p.webhook == id {
			n++
		}
	}
	return n
}

func TestPanicDuringAnAttemptGivesTheMessageBack(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(_ webhook.Request, n int) webhook.Result {
			if n == 1 {
				panic("boom " + "payload")
			}
			return webhook.Result{Status: 200}
		}
		_, stop := b.start(nil)
		sent := b.send("x")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "charged", b.delivery(sent, "wh_a").Charged, 1)
	})
}

func TestWebhookThatIsNewerThanThePublishedMessageStillGetsItAfterACrash(t *testing.T) {
	inBubble(t, func(b *bench) {
		sent := b.send("x")
		published := tables.Delivery{
			MessageKey: tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: sent.InsertedAt}, State: tables.Published,
		}
		if err := b.db.Record(b.t.Context(), tables.Record{Deliveries: []tables.Delivery{published}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := b.db.DeleteWebhook(b.t.Context(), "wh_a", ""); err != nil {
			t.Fatal(err)
		}
		b.register("wh_new", nil)
		// The first receiver dies without a trace.
		if _, err := b.queue(testQueue).Receive(b.t.Context(), 1, 2*time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		_, stop := b.start(nil)
		time.Sleep(10 * time.Second)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "state", b.delivery(sent, "wh_new").State, tables.Delivered)
	})
}

func TestWebhookRegisteredLaterDoesNotGetWhatOthersAreBusyWith(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(500, 200)
		d, stop := b.start(nil)
		sent := b.send("x")
		time.Sleep(2 * time.Second)
		b.register("wh_late", nil)
		d.RegistryChanged()
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "late webhook", b.delivery(sent, "wh_late").State, "")
	})
}

func TestReplaySendsTheSameBytesWhateverTheQueueIsSetToByNow(t *testing.T) {
	tests := []struct {
		before, after queue.Encoding
		text, want    string
	}{
		{queue.EncodingNone, queue.EncodingAuto, "eyJhIjoxfQ==", "eyJhIjoxfQ=="},
		{queue.EncodingAuto, queue.EncodingNone, "eyJhIjoxfQ==", `{"a":1}`},
		{queue.EncodingBase64, queue.EncodingNone, "plain", "plain"}, // undecodable before
	}
	for _, tt := range tests {
		inBubble(t, func(b *bench) {
			b.sender.answer = statuses(400, 200)
			if tt.before == queue.EncodingBase64 {
				b.sender.answer = statuses(200)
			}
			setting := func(e queue.Encoding) func(*Options) {
				return func(o *Options) { o.Encoding = func(string) queue.Encoding { return e } }
			}
			_, stop := b.start(setting(tt.before))
			b.sendText([]byte(tt.text), queue.SendOptions{})
			time.Sleep(10 * time.Second)
			stop()
			_, stop = b.start(setting(tt.after))
			b.replay(b.deadLetters()[0].ID, "token-1")
			time.Sleep(10 * time.Second)
			stop()
			posts := b.sender.posts
			want(t, "body", string(posts[len(posts)-1].request.Body), tt.want)
			want(t, "messages left", b.total(testQueue), 0)
		})
	}
}

func TestPanicLeavesTheMessageDueToAWebhookNewerThanIt(t *testing.T) {
	inBubble(t, func(b *bench) {
		sent := b.send("x")
		time.Sleep(time.Minute)
		b.register("wh_new", nil)
		s := &perWebhook{scripted: b.sender, statuses: map[string][]int{"wh_a": {200}, "wh_new": {200}}}
		panicked := false
		_, stop := b.start(func(o *Options) {
			o.Sender = anySender(func(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
				if w.ID == "wh_new" && !panicked {
					panicked = true
					panic("boom")
				}
				return s.Send(ctx, w, r)
			})
		})
		time.Sleep(time.Minute)
		stop()
		want(t, "state", b.delivery(sent, "wh_new").State, tables.Delivered)
		want(t, "POSTs to the other", s.posts("wh_a"), 1)
	})
}

// anySender makes a Sender of a function.
type anySender func(context.Context, *webhook.Webhook, webhook.Request) webhook.Result

func (f anySender) Send(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
	return f(ctx, w, r)
}

func TestReplayOfAnOlderDeadLetterIsNotMistakenForANewerOne(t *testing.T) {
	inBubble(t, func(b *bench) { // I1: the second replay of row 0 comes after those of rows 1 and 2
		b.sender.answer = statuses(400, 400, 400, 400, 500, 200)
		_, stop := b.start(nil)
		b.send("x")
		time.Sleep(10 * time.Second)
		first := b.deadLetters()[0].ID
		for _, token := range []string{"t1", "t2", "t3"} {
			b.replay(b.deadLetters()[0].ID, token)
			time.Sleep(10 * time.Second)
		}
		stop()
		want(t, "POSTs", b.sender.count(), 4)
		b.replay(first, "t4")
		if got, err := b.queue(testQueue).Receive(b.t.Context(), 1, 2*time.Second); err != nil || len(got) != 1 {
			t.Fatalf("received %d, %v", len(got), err) // and its answer is lost
		}
		time.Sleep(3 * time.Second)
		_, stop = b.start(nil)
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 6)
		want(t, "messages left", b.total(testQueue), 0)
	})
}
