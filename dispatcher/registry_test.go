package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

func TestWebhookGetsWhatIsPublishedRightAfterItsRegistration(t *testing.T) {
	for _, early := range []time.Duration{0, 100 * time.Millisecond} { // before or during a reading
		inBubble(t, func(b *bench) { // I1
			d, stop := b.start(func(o *Options) { o.Store = slowList{b.store} })
			time.Sleep(5300*time.Millisecond - early)
			b.register("wh_b", nil)
			d.RegistryChanged()
			time.Sleep(5 * time.Millisecond)
			sent := b.send("x")
			d.Wake(testQueue)
			time.Sleep(10 * time.Second)
			stop()
			want(t, "POSTs", b.sender.count(), 2)
			want(t, "state", b.delivery(sent, "wh_b").State, tables.Delivered)
		})
	}
}

// A webhook whose registration was told of and can't be read yet is due the message all the same: the others get it
// at once, and it waits.
func TestAWebhookThatCanNotBeReadYetGetsWhatIsPublishedRightAfterItsRegistration(t *testing.T) { // I1
	for name, status := range map[string]int{"the other one takes it": 200, "the other one refuses it": 400} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				var away atomic.Bool
				rs := receivers{}
				for id, status := range map[string]int{"wh_a": status, "wh_b": 200} {
					rs[id] = &receiver{takes: after(time.Millisecond), answer: func(time.Time) webhook.Result { return webhook.Result{Status: status} }}
				}
				d, stop := b.start(func(o *Options) { o.Store, o.Sender = awayList{b.store, &away}, rs })
				time.Sleep(5300 * time.Millisecond)
				b.register("wh_b", nil)
				d.RegistryChanged()
				away.Store(true)
				sent := b.send("x")
				d.Wake(testQueue)
				time.Sleep(10 * time.Minute)
				want(t, "messages left", b.total(testQueue), 1)
				want(t, "POSTs to the other one meanwhile", len(rs["wh_a"].at), 1)
				away.Store(false)
				time.Sleep(10 * time.Minute) // the backoff of what is put off because of us
				stop()
				want(t, "state", b.delivery(sent, "wh_b").State, tables.Delivered)
				want(t, "messages left then", b.total(testQueue), 0)
				want(t, "POSTs to the other one", len(rs["wh_a"].at), 1)
				want(t, "taken for one that kills its process", strings.Contains(b.log.String(), "without an outcome"), false)
			})
		})
	}
}

// awayList is a list of webhooks that can't be read while it is away.
type awayList struct {
	Store
	away *atomic.Bool
}

func (s awayList) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	if s.away.Load() {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	return s.Store.ListWebhooks(ctx)
}

// slowList takes its time after it has read.
type slowList struct{ Store }

func (s slowList) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	list, bad, err := s.Store.ListWebhooks(ctx)
	time.Sleep(300 * time.Millisecond)
	return list, bad, err
}

// Rows that somebody wrote by hand neither end the process nor keep the others from their
// messages.
func TestRowsWithInvalidNamesStopNobodyElse(t *testing.T) {
	inBubble(t, func(b *bench) {
		for i, name := range []string{"", "A", "No Queue!", "../..", "$logs", "\x00", strings.Repeat("q", 5000), "größe"} {
			b.register(fmt.Sprint("wh_bad", i), func(r *tables.Registration) { r.Queue, r.Enabled = name, i%2 == 0 })
			if err := b.db.PutLeftQueue(b.t.Context(), tables.LeftQueue{Queue: name + "?", At: time.Now()}); err != nil {
				t.Fatal(err)
			}
		}
		b.register("", nil)
		b.register("wh/\x00\u202e#?", nil)
		_, stop := b.start(nil)
		sent := b.send("x")
		time.Sleep(time.Hour)
		stop()
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "panics", strings.Contains(b.log.String(), "panic"), false)
	})
}
