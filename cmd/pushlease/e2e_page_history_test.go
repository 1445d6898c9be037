package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/tables"
)

// dayOf writes what an instance counted of a webhook in a day: quiet at night, with an hour in which
// the receiver was away.
func dayOf(t *testing.T, path, queueName, webhookID string) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	var rows []tables.Rollup
	now := time.Now().UTC()
	put := func(length time.Duration, at time.Time, scale int64) {
		n := scale * int64(20+10*(at.Hour()%12)+at.Minute()%7)
		away := now.Sub(at) > 5*time.Hour && now.Sub(at) < 6*time.Hour
		tally := tables.Tally{Queue: queueName, WebhookID: webhookID, Attempts: map[string]int64{"2xx": n, "4xx": n / 40, "timeout": n / 60}, Delivered: n}
		if away {
			tally.Attempts, tally.Delivered, tally.Held = map[string]int64{"2xx": n / 4, "5xx": n / 2, "timeout": n / 5}, n/4, n
		}
		for i := range 20 {
			tally.Took.Add(time.Duration(30+i*i) * time.Millisecond)
			tally.Delay.Add(time.Duration(60+i*i*3) * time.Millisecond)
		}
		visible := n / 4
		if away {
			visible = n * 3
		}
		depth := tables.Tally{Queue: queueName, Depth: &tables.Depth{Visible: visible, Hidden: 3, Oldest: time.Duration(visible) * time.Second}}
		rows = append(rows, tables.Rollup{Length: length, At: at, Instance: "pod-1", StartedAt: now.Add(-24 * time.Hour), Tallies: []tables.Tally{tally, depth}})
	}
	for m := range 24 * 60 {
		put(tables.MinuteRollup, now.Truncate(time.Minute).Add(-time.Duration(m+1)*time.Minute), 1)
	}
	for hour := range 24 {
		put(tables.HourRollup, now.Truncate(time.Hour).Add(-time.Duration(hour)*time.Hour), 60)
	}
	if err := db.PutRollups(t.Context(), rows...); err != nil {
		t.Fatal(err)
	}
}

// The page draws what happened before it was opened, as long ago as somebody asks.
func TestThePageDrawsWhatHappenedBeforeItWasOpened(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	path := filepath.Join(t.TempDir(), "page.db")
	s := (&store{name: "sqlite", env: []string{"PUSHLEASE_STORAGE=sqlite:" + path}}).start(t)
	const queueName = "orders"
	hook, other := s.register(queueName, receiver.URL, map[string]any{"name": "billing"}), s.register(queueName, receiver.URL, map[string]any{"name": "search"})
	message := s.publish(queueName, `{}`)
	s.waitState(30*time.Second, queueName, message, hook.ID, "delivered")
	s.waitState(30*time.Second, queueName, message, other.ID, "delivered")
	s.call(http.MethodPost, "/api/v1/webhooks/"+hook.ID+"/rotate-secret", `{"overlap":"24h"}`, http.StatusOK, nil)
	dayOf(t, path, queueName, hook.ID)
	b := newBrowser(t, s.url)
	for _, p := range []struct {
		name, hash string
		shows      []string
	}{
		{"history-overview", "#/?span=24h", []string{"What happened", "Delivered", "Not taken", "in 15 min", "Messages on the queues"}},
		{"history-queue", "#/queues/" + queueName + "?span=6h", []string{"Messages on it", "Age of the oldest", "in 5 min"}},
		{"history-webhook", "#/webhooks/" + hook.ID, []string{"What happened", "How long POSTs took", "in a minute", "rotated the secret, this machine", "signs until in 24 h"}},
		{"lanes", "#/messages/" + message, []string{"published", "billing", "search", "The webhook has taken the message"}},
		{"history-webhooks", "#/webhooks", []string{"24 h", "%"}},
	} {
		b.open(p.hash)
		b.see(p.shows...)
		b.fits(p.name)
		b.quiet()
	}
	b.open("#/webhooks/" + hook.ID)
	b.see("What happened")
	if many := b.eval(`document.querySelectorAll('.over-time .bar.ok').length > 50`); many != "true" {
		t.Error("few minutes of an hour in which messages came all the time have a bar")
	}
	if marks := b.eval(`document.querySelectorAll('.over-time')[0].querySelectorAll('line.mark').length`); marks != "2" {
		t.Errorf("the attempts have %s marks, want those of the registration and of the new secret", marks)
	}
	b.open("#/messages/" + message)
	b.see("What happened")
	// Of both: published, the attempt, delivered. Each webhook's are in its own lane.
	if marks := b.eval(`[0, 1].map((n) => document.querySelectorAll('.lane' + n + ' .mark').length + document.querySelector('.legend .lane' + n).nextSibling.textContent).sort().join()`); marks != "3billing,3search" {
		t.Errorf("the lanes have %s", marks)
	}
	b.open("#/messages?as=states&state=delivered")
	b.see("billing", "search", "200")
	b.eval(`(() => { const from = document.querySelector('[name=from]'); from.value = '2099-01-01T10:30'; from.dispatchEvent(new Event('change', { bubbles: true })); return ''; })()`)
	b.see("No message is like that")
	if at := b.eval(`new Date(new URLSearchParams(location.hash.split('?')[1]).get('from')).getTime() === new Date('2099-01-01T10:30').getTime() && document.querySelector('[name=from]').value`); at != "2099-01-01T10:30" {
		t.Errorf("%s: the address has %s", at, b.eval(`location.hash`))
	}
	b.open("#/webhooks/" + hook.ID)
	b.see("What happened")
	b.do("go further back", chromedp.Click(`//a[normalize-space()="90 days"]`))
	b.see("in a day")
	if shown := b.eval(`location.hash`); shown != "#/webhooks/"+hook.ID+"?span=90d" {
		t.Errorf("the address is %s, and does not hold the time that is shown", shown)
	}
	b.open("#/messages/50%") // as somebody typed it
	b.see("50%", "Nothing is recorded about that message")
	b.open("#/webhooks/" + hook.ID)
	b.see("What happened")
	b.do("open the table", chromedp.Click(`.history summary`))
	b.see("Dead letters", "p95")
	b.quiet()
}
