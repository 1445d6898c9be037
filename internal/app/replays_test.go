package app

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/azurestandin"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/queue/azurequeue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable"
)

// onBothStores runs a test on a file, and on what answers as Azure does.
func onBothStores(t *testing.T, test func(t *testing.T, store tables.Store, queues queue.Service)) {
	t.Helper()
	t.Run("file", func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "t.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		test(t, db, db.Queues())
	})
	t.Run("account", func(t *testing.T) {
		s, err := azurestandin.Start(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		cfg, err := azureconn.Parse(s.ConnectionString())
		if err != nil {
			t.Fatal(err)
		}
		queues, err := azurequeue.Open(cfg, azurequeue.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer queues.Close()
		store, err := azuretable.Open(cfg, azuretable.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close(t.Context()) }()
		test(t, store, queues)
	})
}

// A replay whose message somebody took away has no outcome, and its dead letter would say for ever
// that it is replaying, in no count and in no replay by a filter.
func TestDeadLettersWhoseReplayWasLostWaitAgain(t *testing.T) { // C57
	onBothStores(t, func(t *testing.T, store tables.Store, queues queue.Service) {
		now := time.Now().UTC()
		for _, name := range []string{"full", "cleared"} {
			q, err := queues.Queue(name)
			if err != nil {
				t.Fatal(err)
			}
			sent, err := q.Send(t.Context(), []byte("a"), queue.SendOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if name == "cleared" { // and "deleted" never was
				got, err := q.Receive(t.Context(), 1, time.Minute)
				if err != nil || len(got) != 1 || got[0].ID != sent.ID {
					t.Fatal(len(got), err)
				}
				if err := q.Complete(t.Context(), got[0]); err != nil {
					t.Fatal(err)
				}
			}
		}
		rows := map[string]struct {
			queue  string
			status tables.DeadLetterStatus
			ago    time.Duration
			waits  bool
		}{
			"its message may be there": {"full", tables.Replaying, 24 * time.Hour, false},
			"its life is over":         {"full", tables.Replaying, queue.ReplayLife + time.Hour, true},
			"asked for lately":         {"cleared", tables.Replaying, replayQuiet - time.Minute, false},
			"its queue was cleared":    {"cleared", tables.Replaying, time.Hour, true},
			"its queue was deleted":    {"deleted", tables.Replaying, time.Hour, true},
			"it has ended":             {"cleared", tables.Replayed, time.Hour, false},
			"its message was refused":  {"full", tables.Replaying, time.Hour, true},
		}
		ids := map[string]string{}
		for name, r := range rows {
			key := tables.MessageKey{Queue: r.queue, MessageID: name, Day: now.Add(-r.ago - time.Hour)}
			d := tables.DeadLetter{
				ID: tables.DeadLetterID(key, "wh", 0, key.Day), MessageKey: key, WebhookID: "wh", Status: r.status, DeadLetteredAt: key.Day,
				Replays: 1, ReplayedAt: now.Add(-r.ago), ReplayToken: "token", Text: []byte("a"), Encoding: "auto",
			}
			if name == "its message was refused" {
				d.ReplayToken = ""
			}
			if _, err := store.PutDeadLetter(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			key.Day = d.ReplayedAt
			if err := store.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{
				{MessageKey: key, WebhookID: "wh", Generation: 1, State: tables.Held, Reason: policy.WebhookDisabled, UpdatedAt: key.Day},
				{MessageKey: key, WebhookID: "other", Generation: 0, State: tables.Pending, UpdatedAt: key.Day},
			}}); err != nil {
				t.Fatal(err)
			}
			ids[name] = d.ID
		}
		lost := &lostReplays{store: store, queues: queues, log: slog.New(slog.DiscardHandler)}
		for range 2 { // the second round finds nothing more
			lost.run(t.Context(), time.Now())
		}
		for name, r := range rows {
			d, err := store.GetDeadLetter(t.Context(), ids[name])
			if err != nil {
				t.Fatal(err)
			}
			if waits := d.Status == tables.Waiting && d.ReplayToken == ""; waits != r.waits || !waits && d.Status != r.status || string(d.Text) != "a" {
				t.Errorf("%s: %s with the token %q and the text %q", name, d.Status, d.ReplayToken, d.Text)
			}
			states, err := store.Load(t.Context(), tables.MessageKey{Queue: r.queue, MessageID: name, Day: d.ReplayedAt})
			if err != nil && !errors.Is(err, tables.ErrNotFound) {
				t.Fatal(err)
			}
			for _, del := range states {
				if ended := r.waits && del.WebhookID == "wh"; ended != del.State.Terminal() || ended && del.DeadLetterID != d.ID {
					t.Errorf("%s: the record of %s is %s", name, del.WebhookID, del.State)
				}
			}
			if len(states) != 2 {
				t.Errorf("%s: %d records", name, len(states))
			}
		}
	})
}

// oneRefused is a service that may not be asked about one queue.
type oneRefused struct {
	queue.Service
	name string
}

func (s oneRefused) Queue(name string) (queue.Queue, error) {
	if name == s.name {
		return nil, errors.New("refused")
	}
	return s.Service.Queue(name)
}

func TestAReplayThatCanNotBeHealedKeepsNoOtherOneBack(t *testing.T) { // C57
	onBothStores(t, func(t *testing.T, store tables.Store, queues queue.Service) {
		now := time.Now().UTC()
		ids := map[string]string{}
		for i, name := range []string{"newest", "gone", "older"} { // listed newest first
			key := tables.MessageKey{Queue: name, MessageID: "m", Day: now.Add(-time.Duration(i+1) * time.Hour)}
			d := tables.DeadLetter{
				ID: tables.DeadLetterID(key, "wh", 0, key.Day), MessageKey: key, WebhookID: "wh", Status: tables.Replaying, DeadLetteredAt: key.Day,
				Replays: 1, ReplayedAt: now.Add(-time.Hour), ReplayToken: "token", Text: []byte("a"), Encoding: "auto",
			}
			d, err := store.PutDeadLetter(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			ids[name] = d.ID
		}
		var log strings.Builder
		lost := &lostReplays{store: store, queues: oneRefused{queues, "newest"}, log: slog.New(slog.NewTextHandler(&log, nil))}
		lost.run(t.Context(), now)
		for name, want := range map[string]tables.DeadLetterStatus{"newest": tables.Replaying, "gone": tables.Waiting, "older": tables.Waiting} {
			if d, err := store.GetDeadLetter(t.Context(), ids[name]); err != nil || d.Status != want {
				t.Errorf("%s: %s, %v", name, d.Status, err)
			}
		}
		if !strings.Contains(log.String(), "dead_letter="+ids["newest"]) {
			t.Errorf("the log does not name it: %s", log.String())
		}
	})
}

// A job replays the dead letters of one message for two webhooks in the same second. Where both are lost,
// both records end.
func TestReplaysOfOneMessageInTheSameSecondEndTheirOwnRecords(t *testing.T) {
	onBothStores(t, func(t *testing.T, store tables.Store, queues queue.Service) {
		now := time.Now().UTC()
		key := tables.MessageKey{Queue: "deleted", MessageID: "one", Day: now.Add(-2 * time.Hour)}
		asked := now.Add(-time.Hour).Truncate(time.Second).Add(100 * time.Millisecond)
		replayed := tables.MessageKey{Queue: key.Queue, MessageID: key.MessageID, Day: asked}
		for i, id := range []string{"wh_a", "wh_b"} {
			d := tables.DeadLetter{
				ID: tables.DeadLetterID(key, id, 0, key.Day), MessageKey: key, WebhookID: id, Status: tables.Replaying, DeadLetteredAt: key.Day,
				Replays: 1, ReplayedAt: asked.Add(time.Duration(i) * 300 * time.Millisecond), ReplayToken: "token", Text: []byte("a"), Encoding: "auto",
			}
			if _, err := store.PutDeadLetter(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if err := store.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{
				{MessageKey: replayed, WebhookID: id, Generation: 1, State: tables.Pending, UpdatedAt: asked},
			}}); err != nil {
				t.Fatal(err)
			}
		}
		(&lostReplays{store, queues, slog.New(slog.DiscardHandler)}).run(t.Context(), now)
		records, err := store.Load(t.Context(), replayed)
		if err != nil || len(records) != 2 {
			t.Fatalf("%+v, %v", records, err)
		}
		for _, r := range records {
			if r.State != tables.DeadLettered || r.Reason != policy.ReplayEnded {
				t.Errorf("the record of %s is %s %s", r.WebhookID, r.State, r.Reason)
			}
		}
	})
}
