package dispatcher

import (
	"errors"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// refusedByA has a message delivered to wh_b and dead-lettered for wh_a, which is asked for again
// with a replay that nobody has received. It returns the replay's key.
func (b *bench) refusedByA(statusOfB int) (key tables.MessageKey, s *perWebhook) {
	b.t.Helper()
	b.register("wh_b", often)
	s = &perWebhook{scripted: b.sender, statuses: map[string][]int{"wh_a": {400}, "wh_b": {statusOfB}}}
	_, stop := b.start(func(o *Options) { o.Sender = s })
	sent := b.send("x")
	time.Sleep(2 * time.Second)
	stop()
	list := b.deadLetters()
	if len(list) != 1 || list[0].WebhookID != "wh_a" {
		b.t.Fatalf("dead letters are %+v", list)
	}
	pointer := b.askForReplay(list[0].ID, "t", tables.Replaying)
	return tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: pointer.InsertedAt}, s
}

// wantOfA wants the replay to have ended as a dead letter of wh_a alone.
func (b *bench) wantOfA(reason policy.Reason) {
	b.t.Helper()
	list := b.deadLetters()
	want(b.t, "dead letters", len(list), 2)
	for _, dl := range list {
		want(b.t, "webhook", dl.WebhookID, "wh_a")
		if dl.Generation > 0 {
			want(b.t, "reason", dl.Reason, reason)
			want(b.t, "status", dl.Status, tables.Waiting)
		} else {
			want(b.t, "status of the first", dl.Status, tables.Replayed)
		}
	}
	want(b.t, "messages left", b.total(testQueue), 0)
}

// A replay that was asked for one webhook is about that one, whatever becomes of it: a dead letter
// of the message as a whole would be replayed to those that have it.
func TestWhatBecomesOfAReplayOfOneWebhookIsAboutThatOne(t *testing.T) {
	t.Run("its webhook is deleted", func(t *testing.T) {
		inBubble(t, func(b *bench) {
			_, s := b.refusedByA(200)
			b.deleteWebhook(nil)
			time.Sleep(7*day - 20*time.Minute) // the pointer's life ends
			_, stop := b.start(func(o *Options) { o.Sender = s })
			time.Sleep(25 * time.Minute)
			stop()
			b.wantOfA(policy.WebhookDeleted)
			want(t, "POSTs to the one that has it", s.posts("wh_b"), 1)
		})
	})
	t.Run("it kills its process", func(t *testing.T) {
		inBubble(t, func(b *bench) {
			key, s := b.refusedByA(200)
			for range 8 + poisonMargin + 2 {
				b.receiveAndGiveBack()
			}
			if err := b.db.Record(b.t.Context(), tables.Record{Deliveries: []tables.Delivery{{
				MessageKey: key, WebhookID: "wh_a", Generation: 1, State: tables.Pending, MissingRecords: poisonProofs, UpdatedAt: time.Now().UTC(),
			}}}); err != nil {
				t.Fatal(err)
			}
			_, stop := b.start(func(o *Options) { o.Sender = s })
			time.Sleep(time.Minute)
			stop()
			b.wantOfA(policy.PoisonMessage)
			want(t, "POSTs to the one that died", s.posts("wh_a"), 1)
		})
	})
}

// The message itself goes on for its other webhooks while a replay of it is held.
func TestAReplayThatIsHeldEndsNothingForTheOtherWebhooks(t *testing.T) {
	inBubble(t, func(b *bench) {
		key, s := b.refusedByA(500)
		b.deleteWebhook(nil)
		_, stop := b.start(func(o *Options) { o.Sender = s })
		time.Sleep(3 * time.Minute)
		s.mu.Lock()
		s.statuses["wh_b"] = []int{200}
		s.mu.Unlock()
		time.Sleep(3 * time.Minute)
		stop()
		all, err := b.db.Load(b.t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		states := map[string]tables.State{}
		for _, del := range all {
			states[del.WebhookID] = del.State
		}
		want(t, "state of the replay", states["wh_a"], tables.Held)
		want(t, "state of the other one", states["wh_b"], tables.Delivered)
		want(t, "messages left: the replay", b.total(testQueue), 1)
	})
}

// Two replays of a message that were asked for at once, for two webhooks, are told apart by these alone:
// that of a webhook which is deleted is not ended by the other one.
func TestReplaysOfOneSecondForTwoWebhooksAreApart(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", often)
		s := &perWebhook{scripted: b.sender, statuses: map[string][]int{"wh_a": {400, 200}, "wh_b": {400, 200}}}
		_, stop := b.start(func(o *Options) { o.Sender = s })
		sent := b.send("x")
		time.Sleep(2 * time.Second)
		stop()
		for _, dl := range b.deadLetters() {
			pointer := b.askForReplay(dl.ID, "t", tables.Replaying)
			if err := b.db.Record(b.t.Context(), tables.Record{Deliveries: []tables.Delivery{{
				MessageKey: tables.MessageKey{Queue: testQueue, MessageID: sent.ID, Day: pointer.InsertedAt}, WebhookID: dl.WebhookID,
				Generation: 1, State: tables.Pending, UpdatedAt: time.Now().UTC(),
			}}}); err != nil {
				t.Fatal(err)
			}
		}
		b.deleteWebhook(nil)
		_, stop = b.start(func(o *Options) { o.Sender = s })
		time.Sleep(30 * time.Minute) // what is held is looked at again
		want(t, "POSTs to the one that is there", s.posts("wh_b"), 2)
		b.register("wh_a", often)
		time.Sleep(time.Hour)
		stop()
		want(t, "POSTs to the one that was deleted meanwhile", s.posts("wh_a"), 2)
		for _, dl := range b.deadLetters() {
			want(t, "status of "+dl.WebhookID, dl.Status, tables.Replayed)
		}
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// C57: a dead letter that is deleted during the first POST of its replay has no record yet that the deletion could end.
func TestAReplayEndsWithItsPostWhereItsDeadLetterWasDeleted(t *testing.T) {
	for name, answer := range map[string]int{"tried again else": 503, "given up else": 400, "taken": 200} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.sender.answer = statuses(400, answer)
				_, stop := b.start(nil)
				sent := b.send("x")
				time.Sleep(10 * time.Second)
				letter := b.deadLetters()[0]
				b.sender.takes = 20 * time.Second
				b.replay(letter.ID, "token-1")
				for b.sender.count() == 1 {
					time.Sleep(time.Second)
				}
				letter = b.deadLetters()[0]
				if err := errors.Join(b.db.DeleteDeadLetter(b.t.Context(), letter.ID, ""), tables.EndReplay(b.t.Context(), b.db, b.db, &letter)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), 2)
				want(t, "dead letters", len(b.deadLetters()), 0)
				want(t, "messages left", b.total(testQueue), 0)
				deliveries, attempts, err := b.db.Message(b.t.Context(), testQueue, sent.ID)
				if err != nil {
					t.Fatal(err)
				}
				last := deliveries[len(deliveries)-1]
				if answer == 200 {
					want(t, "state of the replay", last.State, tables.Delivered)
					return
				}
				want(t, "generation", last.Generation, 1)
				want(t, "state of the replay", last.State, tables.DeadLettered)
				want(t, "reason", last.Reason, policy.ReplayEnded)
				want(t, "dead letter", last.DeadLetterID, letter.ID)
				want(t, "next time", last.NextAt.IsZero() && attempts[len(attempts)-1].NextAt.IsZero(), true)
			})
		})
	}
}
