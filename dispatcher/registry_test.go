package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
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
