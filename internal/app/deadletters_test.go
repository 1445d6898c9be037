package app

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/tables"
)

func TestDeadLettersAreRemovedByAge(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Now()
	rows := []struct {
		name             string
		status           tables.DeadLetterStatus
		age, replayedAgo time.Duration
	}{
		{"old", tables.Waiting, 31 * day, 0},
		{"young", tables.Waiting, 29 * day, 0},
		{"replayed", tables.Replayed, 31 * day, 9 * day},
		{"replayed-lately", tables.Replayed, 31 * day, day},
		{"replay-lost", tables.Replaying, 60 * day, 31 * day},
		{"replay-under-way", tables.Replaying, 60 * day, day},
	}
	tests := []struct {
		name   string
		others time.Duration
		left   string
	}{
		{"kept for ever without a setting", 0, "old replay-lost replay-under-way replayed-lately young"},
		{"30 days", 30 * day, "replay-lost replay-under-way replayed-lately young"},
		{"an hour", time.Hour, "replay-lost replay-under-way replayed-lately"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			db, err := sqlite.Open(t.Context(), filepath.Join(bubble.Folder(t), "t.db"), sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			for _, r := range rows {
				key, at := tables.MessageKey{Queue: "orders", MessageID: r.name, Day: now}, now.Add(-r.age)
				d := tables.DeadLetter{ID: tables.DeadLetterID(key, "wh", 0, at), MessageKey: key, WebhookID: "wh", Status: r.status, DeadLetteredAt: at}
				if r.replayedAgo > 0 {
					d.Replays, d.ReplayedAt = 1, now.Add(-r.replayedAgo)
				}
				if _, err := db.PutDeadLetter(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			counted := 0
			e := &deadLetterExpiry{store: db, replayed: 8 * day, others: tt.others, log: slog.New(slog.DiscardHandler), expired: func(_, _ string, n int) { counted += n }}
			e.run(t.Context(), now)
			left, _, err := db.ListDeadLetters(t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, d := range left {
				names = append(names, d.MessageID)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != tt.left {
				t.Errorf("left: %s, want %s", got, tt.left)
			}
			if counted != len(rows)-len(left) {
				t.Errorf("%d are counted, and %d of %d are left", counted, len(left), len(rows))
			}
		})
	}
}
