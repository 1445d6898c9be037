package main

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// attemptRow is what is shown of an attempt.
type attemptRow struct {
	MessageID   string    `json:"message_id"`
	Queue       string    `json:"queue"`
	WebhookID   string    `json:"webhook_id"`
	Number      int       `json:"number"`
	StartedAt   time.Time `json:"started_at"`
	Duration    string    `json:"duration"`
	Status      int       `json:"status"`
	ErrorClass  string    `json:"error_class"`
	Action      string    `json:"action"`
	Reason      string    `json:"reason"`
	NextAt      time.Time `json:"next_at"`
	Snippet     string    `json:"snippet"`
	Error       string    `json:"error"`
	Redirect    string    `json:"redirect_host"`
	Explanation string    `json:"explanation"`
	Damaged     string    `json:"damaged"`
}

// How much of an answer's body is shown.
const (
	saidInTable = 60
	saidInFull  = 300
)

// said is the beginning of an answer's body on one line, cut to so many characters.
func said(snippet string, most int) string {
	text := []rune(strings.Join(strings.Fields(snippet), " "))
	if len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(text)
}

// outcome is the answer's status, or why there was none.
func (t attemptRow) outcome() string {
	switch {
	case t.Status != 0:
		return strconv.Itoa(t.Status)
	case t.ErrorClass == "" && t.Damaged != "":
		return "damaged"
	}
	return t.ErrorClass
}

// tells is what the receiver said, why there was no answer, or what of the row can't be read.
func (t attemptRow) tells() string {
	if t.Damaged != "" {
		return "not to be read, since another program has changed it: " + t.Damaged
	}
	if t.Redirect != "" {
		return "redirects are not followed: this one points to " + t.Redirect
	}
	return cmp.Or(said(t.Snippet, saidInTable), said(t.Error, saidInFull)) // a cause ends with what can be done
}

func newAttemptsCommand() *cobra.Command {
	return newListCommand(&cobra.Command{
		Use:     "attempts [WEBHOOK-ID]",
		Aliases: []string{"attempt"},
		Short:   "List attempts: what a webhook answered, and what was decided",
		Long: `Lists attempts, newest first: those of one webhook, or of all. Each line tells what the
receiver answered, how long it took, what was decided for the message and why, and when
it is tried again, and how the answer's body begins, or why there was no answer. With -o json there is more: the
Retry-After that came, and the explanation of the decision.

What happened to one message, in order, is told by pushlease messages show.`,
		Example: `  pushlease attempts wh_abc
  pushlease attempts wh_abc --status 5xx --from 2026-01-31T15:00:00Z
  pushlease attempts --error-class timeout --queue orders
  pushlease attempts wh_abc -o json | jq -r '.data[] | [.status, .snippet] | @tsv'`,
		Args: arguments(0, 1, "the id or the name of one webhook, or none (pushlease webhooks list shows them)"),
	}, listing[attemptRow]{
		path: "/api/v1/attempts", limit: 50, argument: "webhook",
		filters: [][2]string{
			{"queue", "only those of this queue"}, {"message", "only those of this message id"},
			{"status", "only those with this status, such as 503, or class, such as 5xx"},
			{"error-class", "only those without an answer: timeout, connect, dns, tls, reset, protocol, blocked, request, token or canceled"},
			{"action", "only those that were decided so: complete, abandon, dead-letter or no-verdict"},
			{"reason", "only those with this reason, such as RetryableError"},
			{"from", "only those from this time on, such as 2026-01-31T15:04:05Z"}, {"until", "only those before this time"},
		},
		heading: []string{"TIME", "WEBHOOK", "MESSAGE", "ATTEMPT", "ANSWER", "TOOK", "DECISION", "REASON", "NEXT", "SAID"},
		cells: func(t attemptRow) []string {
			return []string{
				instant(t.StartedAt), t.WebhookID, t.MessageID, strconv.Itoa(t.Number), t.outcome(), milliseconds(t.Duration), t.Action, t.Reason, clock(t.NextAt), t.tells(),
			}
		},
	})
}

// milliseconds is a duration as people read it: below a millisecond it says so much only.
func milliseconds(text string) string {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return text
	case d > 0 && d < time.Millisecond:
		return "<1ms"
	}
	return d.Round(time.Millisecond).String()
}
