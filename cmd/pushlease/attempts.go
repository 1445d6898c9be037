package main

import (
	"net/url"
	"strconv"
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
	Explanation string    `json:"explanation"`
}

// outcome is the answer's status, or why there was none.
func (t attemptRow) outcome() string {
	if t.Status != 0 {
		return strconv.Itoa(t.Status)
	}
	return t.ErrorClass
}

// attemptFilters are the flags that narrow the list, and their help.
var attemptFilters = [][2]string{
	{"queue", "only those of this queue"},
	{"message", "only those of this message id"},
	{"status", "only those with this status, such as 503, or class, such as 5xx"},
	{"error-class", "only those without an answer: timeout, connect, dns, tls, reset, protocol, blocked, request or canceled"},
	{"action", "only those that were decided so: complete, abandon, dead-letter or no-verdict"},
	{"reason", "only those with this reason, such as RetryableError"},
	{"from", "only those from this time on, such as 2026-01-31T15:04:05Z"},
	{"until", "only those before this time"},
}

func newAttemptsCommand() *cobra.Command {
	c := &client{}
	var limit int
	cmd := &cobra.Command{
		Use:     "attempts [WEBHOOK-ID]",
		Aliases: []string{"attempt"},
		Short:   "List attempts: what a webhook answered, and what was decided",
		Long: `Lists attempts, newest first: those of one webhook, or of all. Each line tells what the
receiver answered, how long it took, what was decided for the message and why, and when
it is tried again. With -o json there is more: the beginning of the answer's body, the
Retry-After that came, and the explanation of the decision.

What happened to one message, in order, is told by pushlease messages show.`,
		Example: `  pushlease attempts wh_abc
  pushlease attempts wh_abc --status 5xx --from 2026-01-31T15:00:00Z
  pushlease attempts --error-class timeout --queue orders
  pushlease attempts wh_abc -o json | jq -r '.data[] | [.status, .snippet] | @tsv'`,
		Args: arguments(0, 1, "the id of one webhook, or none (pushlease webhooks list shows them)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			query := url.Values{}
			if len(args) == 1 {
				query.Set("webhook", args[0])
			}
			for _, f := range attemptFilters {
				if v := cmd.Flags().Lookup(f[0]).Value.String(); v != "" {
					query.Set(parameter(f[0]), v)
				}
			}
			return c.listAttempts(cmd, query, limit)
		},
	}
	for _, f := range attemptFilters {
		cmd.Flags().String(f[0], "", f[1])
	}
	addLimit(cmd, &limit, 50)
	c.addFlags(cmd)
	return cmd
}

// parameter is the API's name of a flag.
func parameter(flag string) string {
	if flag == "error-class" {
		return "error_class"
	}
	return flag
}

func (c *client) listAttempts(cmd *cobra.Command, query url.Values, limit int) error {
	p, err := c.list(cmd.Context(), "/api/v1/attempts", query, limit)
	if err != nil {
		return err
	}
	if c.json() {
		return c.value(cmd, p)
	}
	list, err := rows[attemptRow](p)
	if err != nil {
		return err
	}
	var cells [][]string
	for _, t := range list {
		cells = append(cells, []string{
			clock(t.StartedAt), t.WebhookID, t.MessageID, strconv.Itoa(t.Number), t.outcome(), milliseconds(t.Duration), t.Action, t.Reason, clock(t.NextAt),
		})
	}
	more(cmd, p)
	return table(cmd.OutOrStdout(), []string{"TIME", "WEBHOOK", "MESSAGE", "ATTEMPT", "ANSWER", "TOOK", "DECISION", "REASON", "NEXT"}, cells)
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
