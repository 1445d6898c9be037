package main

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/pushlease/pushlease/api/client"
)

// changedBy is who asked for a change.
func changedBy(c apiclient.Audit) string {
	if c.RequestId == nil {
		return "pushlease (" + value(c.Reason) + ")"
	}
	return value(c.Key)
}

// changedWhat says more about it.
func changedWhat(c apiclient.Audit) string {
	if n := value(c.Count); n > 0 {
		return strconv.Itoa(n)
	}
	return cmp.Or(strings.Join(c.Fields, " "), value(c.DeadLetterId), value(c.ReplayId))
}

// value is what a pointer of the client points to; the zero value where the server left it out.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
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
	}, listing[apiclient.Audit]{
		path: "/api/v1/audit", limit: 50,
		filters: [][2]string{
			{"queue", "only what was about this queue"}, {"webhook", "only what was about this webhook"},
			{"action", "only these: webhook.created, .changed, .enabled, .disabled or .deleted, queue.deleted, dead_letter.deleted or .replayed, dead_letters.purged, replay.started or .canceled"},
			{"key", "only what this API key did, by its name"},
			{"from", "only those from this time on, such as 2026-01-31T15:04:05Z"}, {"until", "only those before this time"},
		},
		heading: []string{"TIME", "BY", "ACTION", "QUEUE", "WEBHOOK", "WHAT", "INSTANCE", "REQUEST"},
		cells: func(c apiclient.Audit) []string {
			return []string{instant(c.At), changedBy(c), string(c.Action), value(c.Queue), value(c.WebhookId), changedWhat(c), value(c.Instance), value(c.RequestId)}
		},
	})
}
