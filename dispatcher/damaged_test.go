package dispatcher

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// damagedRows is a store with registrations whose rows another program has damaged.
type damagedRows struct {
	*faultyStore
	mu    sync.Mutex
	queue map[string]string // by webhook: its queue, as far as the row tells
}

func (s *damagedRows) damage(id, queueName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = map[string]string{id: queueName}
}

func (s *damagedRows) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = nil
}

func (s *damagedRows) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	all, bad, err := s.faultyStore.ListWebhooks(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	all = slices.DeleteFunc(all, func(r tables.Registration) bool {
		name, damaged := s.queue[r.ID]
		if damaged {
			bad = append(bad, tables.RowError{ID: r.ID, Queue: name, Err: tables.ErrDamaged})
		}
		return damaged
	})
	return all, bad, err
}

// C86, C98: a webhook whose row is damaged while the process runs gets its messages as before,
// also where it is its queue's only one.
func TestAWebhookWhoseRowIsDamagedGoesOnAsItWasLastKnown(t *testing.T) {
	for _, only := range []bool{false, true} {
		inBubble(t, func(b *bench) { // I1
			if !only {
				b.register("wh_b", nil)
			}
			rows := &damagedRows{faultyStore: b.store}
			d, stop := b.start(func(o *Options) { o.Store = rows })
			time.Sleep(time.Minute)
			rows.damage("wh_a", "")
			time.Sleep(time.Minute)
			sent := b.send("x")
			time.Sleep(time.Minute)
			want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
			want(t, "messages left", b.total(testQueue), 0)
			if err := d.Health()["registrations"]; err == nil || !strings.Contains(err.Error(), "wh_a") || !strings.Contains(err.Error(), "as it was known") {
				t.Errorf("health says %v of the damaged row", err)
			}
			want(t, "registrations can be read", d.Health()["webhooks"], nil)
			notes, err := b.db.ListLeftQueues(b.t.Context())
			if err != nil || len(notes) > 0 {
				t.Errorf("left queues %v, %v: nobody has deleted a webhook", notes, err)
			}
			rows.mend()
			time.Sleep(time.Minute)
			want(t, "health when it is mended", d.Health()["registrations"], nil)
			stop()
		})
	}
}

// C86, C98: a process that knows nothing of a webhook, since its row was damaged before the
// start, POSTs to the others and completes nothing without it.
func TestNoMessageIsCompletedWithoutAWebhookOfWhichNothingIsKnown(t *testing.T) {
	mended := func(_ *bench, rows *damagedRows) { rows.mend() }
	for name, tt := range map[string]struct {
		queue string // as far as the row tells
		cure  func(*bench, *damagedRows)
		posts int // to wh_b
		state tables.State
	}{
		"the row is put back":             {testQueue, mended, 1, tables.Delivered},
		"the row does not tell its queue": {"", mended, 1, tables.Delivered},
		"its filter does not take messages": {testQueue, func(b *bench, rows *damagedRows) {
			reg, err := b.db.GetWebhook(b.t.Context(), "wh_b")
			if err != nil {
				b.t.Fatal(err)
			}
			reg.Filter.Types = []string{"never"}
			b.update(reg)
			rows.mend()
		}, 0, tables.Withdrawn},
		"the webhook is deleted": {testQueue, func(b *bench, rows *damagedRows) {
			if err := b.db.DeleteWebhook(b.t.Context(), "wh_b", ""); err != nil {
				b.t.Fatal(err)
			}
		}, 0, tables.Withdrawn},
		"the webhook is registered anew": {testQueue, func(b *bench, rows *damagedRows) {
			if err := b.db.DeleteWebhook(b.t.Context(), "wh_b", ""); err != nil {
				b.t.Fatal(err)
			}
			b.register("wh_b", nil)
			rows.mend()
		}, 1, tables.Delivered},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) { // I1
				b.register("wh_b", nil)
				rows := &damagedRows{faultyStore: b.store}
				rows.damage("wh_b", tt.queue)
				d, stop := b.start(func(o *Options) { o.Store = rows })
				sent := b.send(paid)
				time.Sleep(time.Minute + 300*time.Millisecond) // nothing is read at this moment: the cure may take two steps
				want(t, "the other one", b.delivery(sent, "wh_a").State, tables.Delivered)
				want(t, "state", b.delivery(sent, "wh_b").State, tables.Pending)
				want(t, "reason", b.delivery(sent, "wh_b").Reason, policy.StorageFault)
				want(t, "messages left", b.total(testQueue), 1)
				if err := d.Health()["registrations"]; err == nil || !strings.Contains(err.Error(), "wh_b") || !strings.Contains(err.Error(), "wait for it") {
					t.Errorf("health says %v of the damaged row", err)
				}
				tt.cure(b, rows)
				time.Sleep(15 * time.Minute)
				stop()
				want(t, "state afterwards", b.delivery(sent, "wh_b").State, tt.state)
				want(t, "messages left afterwards", b.total(testQueue), 0)
				want(t, "POSTs", b.sender.count(), 1+tt.posts)
				want(t, "dead letters", len(b.deadLetters()), 0)
			})
		})
	}
}

func TestADamagedRowOfAnotherQueueHoldsNothingUp(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", func(r *tables.Registration) { r.Queue = "refunds" })
		rows := &damagedRows{faultyStore: b.store}
		rows.damage("wh_b", "refunds")
		_, stop := b.start(func(o *Options) { o.Store = rows })
		b.send("x")
		time.Sleep(time.Minute)
		stop()
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "POSTs", b.sender.count(), 1)
	})
}

// C85, C86: the only webhook of a queue, of which nothing is known: what comes is neither lost at
// the end of its life, nor nobody's.
func TestAQueueWhoseOnlyRegistrationIsDamagedIsGuarded(t *testing.T) {
	inBubble(t, func(b *bench) { // I1
		rows := &damagedRows{faultyStore: b.store}
		rows.damage("wh_a", testQueue)
		_, stop := b.start(func(o *Options) { o.Store = rows })
		if err := b.db.PutLeftQueue(b.t.Context(), tables.LeftQueue{Queue: testQueue, At: time.Now().Add(-time.Hour)}); err != nil {
			t.Fatal(err) // another webhook was deleted there some time ago
		}
		time.Sleep(time.Hour)
		b.sendText([]byte("short"), queue.SendOptions{TTL: 2 * time.Hour})
		long := b.sendText([]byte("long"), queue.SendOptions{TTL: 48 * time.Hour})
		time.Sleep(3 * time.Hour)
		want(t, "dead letters of the one that has expired", len(b.deadLetters()), 1)
		want(t, "POSTs", b.sender.count(), 0)
		want(t, "messages left", b.total(testQueue), 1)
		rows.mend()
		time.Sleep(15 * time.Minute)
		stop()
		want(t, "state of the other", b.delivery(long, "wh_a").State, tables.Delivered)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// C86: what was known of a registration that another program has damaged stays in force, and where
// nothing was known its messages wait for it: they were deleted when the others had them.
func TestAMessageIsNotDoneWhileARegistrationThatMayWantItCanNotBeRead(t *testing.T) {
	for name, restart := range map[string]bool{"known before": false, "never read": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				other := b.register("wh_b", nil)
				b.sender.answer = statuses(200)
				d, stop := b.start(nil)
				time.Sleep(time.Minute)
				if restart {
					stop()
				}
				good := other.Policy
				other.Policy = policy.Policy{}
				other = b.update(other)
				if restart {
					d, stop = b.start(nil)
				}
				d.RegistryChanged()
				time.Sleep(time.Minute)
				if err := d.Health()["registrations"]; err == nil {
					t.Error("nobody is told")
				}
				sent := b.send("x")
				time.Sleep(time.Minute)
				waits := tables.Pending
				if !restart {
					waits = tables.Delivered
				}
				want(t, "of the one", b.delivery(sent, "wh_a").State, tables.Delivered)
				want(t, "of the damaged one", b.delivery(sent, "wh_b").State, waits)
				other.Policy = good
				b.update(other)
				d.RegistryChanged()
				time.Sleep(20 * time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), 2)
				want(t, "of the one that is mended", b.delivery(sent, "wh_b").State, tables.Delivered)
				want(t, "dead letters", len(b.deadLetters()), 0)
			})
		})
	}
}

// C86: a damaged registration that is its queue's only one is not taken for one that was deleted: what comes
// later is guarded, too.
func TestAQueueWhoseOnlyRegistrationCanNotBeReadIsGuarded(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Policy.MaxAttempts = 0
		b.webhook = b.update(b.webhook)
		_, stop := b.start(nil)
		time.Sleep(time.Minute)
		b.sendText([]byte("x"), queue.SendOptions{TTL: time.Hour})
		time.Sleep(2 * time.Hour)
		stop()
		want(t, "POSTs", b.sender.count(), 0)
		want(t, "dead letters", len(b.deadLetters()), 1)
		want(t, "notes that it was left", b.notes(), 0)
	})
}
