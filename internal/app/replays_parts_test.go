package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// failsOnce is a store that does not answer when it has written the second dead letter.
type failsOnce struct {
	tables.Store
	puts int
}

func (s *failsOnce) PutDeadLetter(ctx context.Context, d tables.DeadLetter) (tables.DeadLetter, error) {
	saved, err := s.Store.PutDeadLetter(ctx, d)
	if s.puts++; s.puts == 2 {
		return saved, errors.New("no answer")
	}
	return saved, err
}

// A replay of a dead letter about a message as a whole goes to all webhooks. Where its message is gone, and one has it, another replay of the
// whole would go there again: each of the others has a dead letter of its own.
func TestAReplayThatReachedSomeLeavesADeadLetterForEachOther(t *testing.T) { // C57
	asked := time.Now().UTC().Add(-time.Hour).Truncate(time.Millisecond)
	for name, tt := range map[string]struct {
		of      string // webhook of the dead letter
		records map[string]tables.State
		later   string // webhook whose own dead letter of this replay was replayed since, which has the record of the day
		status  tables.DeadLetterStatus
		left    []string // webhooks of the dead letters that wait beside it
	}{
		"nobody has it":                      {"", map[string]tables.State{"w1": tables.Pending, "w2": tables.Held}, "", tables.Waiting, nil},
		"one has it":                         {"", map[string]tables.State{"w1": tables.Delivered, "w2": tables.Held}, "", tables.Replayed, []string{"w2", "w3"}},
		"one had its own replay since":       {"", map[string]tables.State{"w1": tables.Delivered, "w2": tables.Held}, "w3", tables.Replayed, []string{"w2"}},
		"only one had, its own":              {"", map[string]tables.State{"w1": tables.Pending}, "w3", tables.Replayed, []string{"w1", "w2"}},
		"one was just being given up":        {"", map[string]tables.State{"w1": tables.Delivered, "w2": tables.DeadLettering, "w3": tables.Delivered}, "", tables.Replayed, []string{"w2"}},
		"all have it":                        {"", map[string]tables.State{"w1": tables.Delivered, "w2": tables.Delivered, "w3": tables.Delivered}, "", tables.Replayed, nil},
		"its webhook has it":                 {"w1", map[string]tables.State{"w1": tables.Delivered}, "", tables.Replayed, nil},
		"its webhook waits, and another has": {"w2", map[string]tables.State{"w1": tables.Delivered, "w2": tables.Held}, "", tables.Waiting, nil},
	} {
		t.Run(name, func(t *testing.T) {
			onBothStores(t, func(t *testing.T, store tables.Store, queues queue.Service) {
				for i, id := range []string{"w1", "w2", "w3", "picky", "late", "elsewhere"} {
					r := tables.Registration{Webhook: webhook.Webhook{ID: id, Queue: "orders"}, CreatedAt: asked.Add(-time.Hour)}
					switch {
					case id == "picky":
						r.Filter.Types = []string{"something.else"}
					case id == "late":
						r.CreatedAt = asked.Add(time.Minute)
					case i == 5:
						r.Queue = "others"
					}
					if _, err := store.PutWebhook(t.Context(), r); err != nil {
						t.Fatal(err)
					}
				}
				key := tables.MessageKey{Queue: "orders", MessageID: "m", Day: asked.Add(-time.Hour)}
				d := tables.DeadLetter{
					ID: tables.DeadLetterID(key, tt.of, 0, key.Day), MessageKey: key, WebhookID: tt.of, Status: tables.Replaying, DeadLetteredAt: key.Day,
					Replays: 1, ReplayedAt: asked, ReplayToken: "token", Text: []byte(`{"n":1}`), Encoding: "auto",
				}
				if _, err := store.PutDeadLetter(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				key.Day = asked
				for id, state := range tt.records {
					r := tables.Delivery{MessageKey: key, WebhookID: id, Generation: 1, State: state, UpdatedAt: asked}
					if state == tables.DeadLettering {
						r.DeadLetterID = tables.DeadLetterID(key, id, 1, asked)
					}
					if err := store.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{r}}); err != nil {
						t.Fatal(err)
					}
				}
				single := tables.DeadLetter{
					ID: tables.DeadLetterID(key, tt.later, 1, asked), MessageKey: key, WebhookID: tt.later, Status: tables.Replayed, DeadLetteredAt: asked,
					Generation: 1, Replays: 1, ReplayedAt: asked.Add(10 * time.Second), Text: []byte(`{"n":1}`), Encoding: "auto",
				}
				if tt.later != "" {
					if _, err := store.PutDeadLetter(t.Context(), single); err != nil {
						t.Fatal(err)
					}
					r := tables.Delivery{MessageKey: key, WebhookID: tt.later, Generation: 2, State: tables.Delivered, UpdatedAt: single.ReplayedAt}
					r.Day = single.ReplayedAt
					if err := store.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{r}}); err != nil {
						t.Fatal(err)
					}
				}
				lost := &lostReplays{store: &failsOnce{Store: store}, queues: queues, log: slog.New(slog.DiscardHandler)}
				for range 3 { // the first may be cut, and the last finds nothing more
					lost.run(t.Context(), time.Now())
				}
				all, _, err := store.ListDeadLetters(t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: 100})
				if err != nil {
					t.Fatal(err)
				}
				var left []string
				for _, l := range all {
					full, err := store.GetDeadLetter(t.Context(), l.ID)
					switch {
					case err != nil:
						t.Fatal(err)
					case l.ID == d.ID && (full.Status != tt.status || full.ReplayToken != ""):
						t.Errorf("it is %s with the token %q, want %s", full.Status, full.ReplayToken, tt.status)
					case l.ID == d.ID, tt.later != "" && l.ID == single.ID:
						continue
					}
					left = append(left, l.WebhookID)
					if full.Status != tables.Waiting || string(full.Text) != `{"n":1}` || full.Generation != 1 || full.Reason != policy.Expired || full.Misnamed() {
						t.Errorf("what is left for %s is %+v", l.WebhookID, full)
					}
				}
				if slices.Sort(left); !slices.Equal(left, tt.left) {
					t.Errorf("dead letters are left for %q, want %q", left, tt.left)
				}
				records, err := store.Load(t.Context(), key)
				for _, r := range records {
					if !r.State.Terminal() || r.State == tables.DeadLettering {
						t.Errorf("the record of %s is %s", r.WebhookID, r.State)
					}
				}
				if err != nil || len(records) < len(tt.records) {
					t.Error(fmt.Sprint(len(records), " records"), err)
				}
			})
		})
	}
}
