package main

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// auditRow is what is shown of a change.
type auditRow struct {
	At           time.Time `json:"at"`
	Action       string    `json:"action"`
	Key          string    `json:"key"`
	Reason       string    `json:"reason"`
	Instance     string    `json:"instance"`
	RequestID    string    `json:"request_id"`
	Queue        string    `json:"queue"`
	WebhookID    string    `json:"webhook_id"`
	DeadLetterID string    `json:"dead_letter_id"`
	ReplayID     string    `json:"replay_id"`
	Fields       []string  `json:"fields"`
	Count        int       `json:"count"`
}

// by is who asked for it.
func (c auditRow) by() string {
	if c.RequestID == "" {
		return "pushlease (" + c.Reason + ")"
	}
	return c.Key
}

// what says more about it.
func (c auditRow) what() string {
	if c.Count > 0 {
		return strconv.Itoa(c.Count)
	}
	return cmp.Or(strings.Join(c.Fields, " "), c.DeadLetterID, c.ReplayID)
}

func newAuditCommand() *cobra.Command {
	return newListCommand(&cobra.Command{
		Use:   "audit",
		Short: "List who changed what: webhooks, queues, dead letters, replays",
		Long: `Lists what was changed through the API in the last 90 days, newest first: by which API key, and which settings
of a webhook. BY is empty where no keys are set. What pushlease disabled by itself is there too. WHAT are the
settings that changed, the dead letter or the replay, or how many dead letters or messages it was about.`,
		Example: `  pushlease audit --since 24h
  pushlease audit --webhook wh_abc
  pushlease audit --action dead_letters.purged -o json`,
		Args: arguments(0, 0, ""),
	}, listing[auditRow]{
		path: "/api/v1/audit", limit: 50,
		filters: [][2]string{
			{"queue", "only what was about this queue"}, {"webhook", "only what was about this webhook"},
			{"action", "only these: webhook.created, .changed, .enabled, .disabled or .deleted, queue.deleted, dead_letter.deleted or .replayed, dead_letters.purged, replay.started or .canceled"},
			{"key", "only what this API key did, by its name"},
			{"from", "only those from this time on, such as 2026-01-31T15:04:05Z"}, {"until", "only those before this time"},
		},
		heading: []string{"TIME", "BY", "ACTION", "QUEUE", "WEBHOOK", "WHAT", "INSTANCE", "REQUEST"},
		cells: func(c auditRow) []string {
			return []string{instant(c.At), c.by(), c.Action, c.Queue, c.WebhookID, c.what(), c.Instance, c.RequestID}
		},
	})
}
