package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// queueRow is what is shown of a queue.
type queueRow struct {
	Name   string `json:"name"`
	Exists bool   `json:"exists"`
	Depth  *struct {
		Total    int64 `json:"total"`
		Visible  int64 `json:"visible"`
		InFlight int64 `json:"in_flight"`
		Delayed  int64 `json:"delayed"`
		Exact    bool  `json:"exact"`
	} `json:"depth"`
	Encoding    string `json:"encoding"`
	Lease       string `json:"lease"`
	LeaseMode   string `json:"lease_mode"`
	DeadLetters *struct {
		Waiting      int    `json:"waiting"`
		Exact        bool   `json:"exact"`
		Level        string `json:"level"`
		Reason       string `json:"reason"`
		Text         string `json:"text"`
		Handled      int    `json:"handled"`
		DeadLettered int    `json:"dead_lettered"`

		CountedAt time.Time `json:"counted_at"`
	} `json:"dead_letters"`
	Recommendation *struct {
		Lease     string `json:"lease"`
		Reasoning string `json:"reasoning"`
	} `json:"recommendation"`
	Processing *struct {
		Samples int    `json:"samples"`
		P50     string `json:"p50"`
		P95     string `json:"p95"`
		P99     string `json:"p99"`
	} `json:"processing"`
	Deletions *struct {
		Successful int64 `json:"successful"`
		Failed     int64 `json:"failed"`
		Unverified int64 `json:"unverified"`
	} `json:"deletions"`
	Poller *struct {
		Polling     bool      `json:"polling"`
		Hosted      bool      `json:"hosted"`
		LastPollAt  time.Time `json:"last_poll_at"`
		LastError   string    `json:"last_error"`
		LastErrorAt time.Time `json:"last_error_at"`
	} `json:"poller"`
	Held *struct {
		Reason string    `json:"reason"`
		Since  time.Time `json:"since"`
	} `json:"held"`
	Webhooks []struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Enabled bool   `json:"enabled"`
	} `json:"webhooks"`
}

// ofMany is so many things in words.
func ofMany(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// count is n as a cell; what storage only estimates has a ~ before it.
func count(n int64, exact bool) string {
	if exact {
		return strconv.FormatInt(n, 10)
	}
	return "~" + strconv.FormatInt(n, 10)
}

// depth is how many messages there are, in three cells.
func (q queueRow) depth() (visible, inFlight, delayed string) {
	if q.Depth == nil {
		return "-", "-", "-"
	}
	return count(q.Depth.Visible, q.Depth.Exact), strconv.FormatInt(q.Depth.InFlight, 10), count(q.Depth.Delayed, q.Depth.Exact)
}

// deadLetters is how many wait, and how bad that is; where that is not for their number,
// what it is for.
func (q queueRow) deadLetters() string {
	if q.DeadLetters == nil {
		return "-"
	}
	text := strconv.Itoa(q.DeadLetters.Waiting)
	if !q.DeadLetters.Exact {
		text = "over " + text
	}
	switch d := q.DeadLetters; {
	case d.Level == "" || d.Level == "ok":
	case d.Reason == "share":
		text += fmt.Sprintf(" (%s: %d of %d lately)", d.Level, d.DeadLettered, d.Handled)
	default:
		text += " (" + d.Level + ")"
	}
	return text
}

// counted says when the dead letters were: newer ones are not among them.
func (q queueRow) counted() string {
	if q.DeadLetters == nil || q.DeadLetters.CountedAt.IsZero() {
		return ""
	}
	return ", counted at " + clock(q.DeadLetters.CountedAt)
}

// alert says why the dead letters are not ok.
func (q queueRow) alert() string {
	if q.DeadLetters == nil {
		return ""
	}
	return q.DeadLetters.Text
}

// state says who looks after the queue.
func (q queueRow) state() string {
	enabled := 0
	for _, w := range q.Webhooks {
		if w.Enabled {
			enabled++
		}
	}
	switch {
	case q.Held != nil:
		return "held (" + q.Held.Reason + ")"
	case len(q.Webhooks) == 0:
		return "no webhook"
	case enabled == 0:
		return "all webhooks disabled"
	case !q.Exists:
		return "no message yet"
	case q.Poller != nil && q.Poller.LastErrorAt.After(q.Poller.LastPollAt):
		return "failing"
	case q.Poller != nil && q.Poller.Polling:
		return "polled"
	case q.Poller != nil && q.Poller.Hosted:
		return "by the Functions host"
	}
	return "not polled here"
}

func newQueuesCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "queues",
		Aliases: []string{"queue"},
		Short:   "See the queues: how much waits, how long it takes, what is wrong; look into one, delete one",
		Example: "  pushlease queues list\n  pushlease queues show orders\n  pushlease queues peek orders --body\n  pushlease queues delete ordrs",
	})
	cmd.AddCommand(newQueuesListCommand(), newQueuesShowCommand(), newQueuesPeekCommand(), newQueuesDeleteCommand())
	return cmd
}

func newQueuesDeleteCommand() *cobra.Command {
	c := &client{}
	force := false
	cmd := &cobra.Command{
		Use:   "delete QUEUE",
		Short: "Delete a queue that has no webhooks and no messages",
		Long: `Deletes a queue from storage, for every program that uses it. A queue with webhooks is
refused, and so is one with messages, unless --force says that they are deleted with it.
Dead letters and records stay, and so does the queue's poison queue.`,
		Example: "  pushlease queues delete ordrs\n  pushlease queues delete ordrs --force",
		Args:    arguments(1, 1, "the name of one queue (pushlease queues list shows them)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := request{method: http.MethodDelete, path: "/api/v1/queues/" + url.PathEscape(args[0])}
			if force {
				r.query = url.Values{"force": {"true"}}
			}
			a, err := c.do(cmd.Context(), r)
			if err != nil {
				return err
			}
			return c.showDeletedQueue(cmd, a)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "delete the messages on it, too")
	c.addFlags(cmd)
	return cmd
}

func (c *client) showDeletedQueue(cmd *cobra.Command, a answer) error {
	if c.json() {
		return c.raw(cmd, a)
	}
	var d struct {
		Queue       string `json:"queue"`
		Messages    int64  `json:"messages"`
		DeadLetters *int   `json:"dead_letters"`
	}
	if err := a.into(&d); err != nil {
		return err
	}
	text := fmt.Sprintf("deleted %s, with %s", clean(d.Queue), ofMany(d.Messages, "message"))
	purge := fmt.Sprintf(" (pushlease dead-letters purge --queue %s deletes them)", clean(d.Queue))
	switch {
	case d.DeadLetters == nil:
		text += "; how many dead letters of it wait still could not be counted" + purge
	case *d.DeadLetters > 0:
		text += "; dead letters of it that wait still: " + strconv.Itoa(*d.DeadLetters) + purge
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

func newQueuesListCommand() *cobra.Command {
	return newListCommand(&cobra.Command{
		Use:   "list",
		Short: "List the queues of the storage, and those that have webhooks",
		Long: `Lists the queues of the storage, and those that webhooks are registered for.

VISIBLE waits to be received, IN FLIGHT is at work in the instance that answers, and
DELAYED waits for its time or is at work elsewhere; a ~ marks what storage only estimates.
DEAD LETTERS are those that wait, counted at most two minutes ago; (critical: 30 of 40 lately)
where over a tenth of the last hour or two's messages were dead-lettered, though none may
wait any more. On Azure each queue is counted with two storage transactions (an empty one
with one), and its dead letters with one more where that was not done lately.`,
		Example: "  pushlease queues list\n  pushlease queues list -o json | jq -r '.data[] | select(.depth.visible > 100) | .name'",
		Args:    arguments(0, 0, ""),
	}, listing[queueRow]{
		path: "/api/v1/queues", limit: 1000,
		filters: [][2]string{{"contains", "only those with this text in their name"}},
		heading: []string{"QUEUE", "VISIBLE", "IN FLIGHT", "DELAYED", "DEAD LETTERS", "WEBHOOKS", "STATE"},
		cells: func(q queueRow) []string {
			visible, inFlight, delayed := q.depth()
			return []string{q.Name, visible, inFlight, delayed, q.deadLetters(), strconv.Itoa(len(q.Webhooks)), q.state()}
		},
		wideHeading: []string{"ENCODING", "LEASE", "MODE"},
		wideCells:   func(q queueRow) []string { return []string{q.Encoding, q.Lease, q.LeaseMode} },
	})
}

func newQueuesShowCommand() *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{
		Use:     "show QUEUE",
		Aliases: []string{"get"},
		Short:   "Show a queue: depth, dead letters, lease, times, poller, webhooks",
		Long: `Shows how much waits on a queue, how long its messages take and what lease fits them,
what its poller met last, how its deletes went, and which webhooks it has. Times, deletes
and poller are those of the instance that answers, since its start.`,
		Example: "  pushlease queues show orders\n  pushlease queues show orders -o json | jq .recommendation",
		Args:    arguments(1, 1, "the name of one queue (pushlease queues list shows them)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := c.do(cmd.Context(), request{method: http.MethodGet, path: "/api/v1/queues/" + url.PathEscape(args[0])})
			if err != nil {
				return err
			}
			if c.json() {
				return c.raw(cmd, a)
			}
			var q queueRow
			if err := a.into(&q); err != nil {
				return err
			}
			return fields(cmd.OutOrStdout(), q.pairs())
		},
	}
	c.addFlags(cmd)
	return cmd
}

// pairs are the queue's fields for a person.
func (q queueRow) pairs() [][2]string {
	visible, inFlight, delayed := q.depth()
	messages := "the queue is made by its first message"
	if q.Depth != nil {
		messages = fmt.Sprintf("%s visible, %s in flight, %s delayed or at work elsewhere", visible, inFlight, delayed)
	}
	pairs := [][2]string{
		{"queue", q.Name}, {"state", q.state()}, {"messages", messages}, {"dead letters", q.deadLetters() + q.counted()}, {"alert", q.alert()}, {"encoding", q.Encoding},
		{"lease", strings.TrimSpace(q.Lease + " " + q.LeaseMode)},
	}
	if h := q.Held; h != nil {
		pairs = append(pairs, [2]string{"held since", clock(h.Since)})
	}
	if r := q.Recommendation; r != nil {
		pairs = append(pairs, [2]string{"recommended", r.Lease + ": " + r.Reasoning})
	}
	if p := q.Processing; p != nil && p.Samples > 0 {
		pairs = append(pairs, [2]string{"a message takes", fmt.Sprintf("%s (median), %s (95 %%), %s (99 %%) of %d", p.P50, p.P95, p.P99, p.Samples)})
	}
	if d := q.Deletions; d != nil {
		pairs = append(pairs, [2]string{"deletes", fmt.Sprintf("%d done, %d failed, %d came back after their delivery", d.Successful, d.Failed, d.Unverified)})
	}
	if p := q.Poller; p != nil {
		pairs = append(pairs, [2]string{"last poll", clock(p.LastPollAt)})
		if p.LastError != "" {
			pairs = append(pairs, [2]string{"last error", clock(p.LastErrorAt) + " " + p.LastError})
		}
	}
	for _, w := range q.Webhooks {
		state := "enabled"
		if !w.Enabled {
			state = "disabled"
		}
		pairs = append(pairs, [2]string{"webhook", strings.TrimSpace(w.ID + " " + state + " " + w.Name)})
	}
	return pairs
}
