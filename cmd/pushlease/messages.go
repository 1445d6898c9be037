package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// timeline is what happened to a message and what happens next.
type timeline struct {
	MessageID string          `json:"message_id"`
	Queue     string          `json:"queue"`
	Size      int             `json:"size"`
	Events    []timelineEvent `json:"events"`
	Next      []timelineNext  `json:"next"`
}

type timelineEvent struct {
	At           time.Time `json:"at"`
	Event        string    `json:"event"`
	WebhookID    string    `json:"webhook_id"`
	Text         string    `json:"text"`
	DeadLetterID string    `json:"dead_letter_id"`
	Attempt      struct {
		Snippet string `json:"snippet"`
	} `json:"attempt,omitzero"`
}

type timelineNext struct {
	WebhookID    string `json:"webhook_id"`
	State        string `json:"state"`
	Text         string `json:"text"`
	DeadLetterID string `json:"dead_letter_id"`
}

// settled reports whether nothing more happens by itself. A message that was
// published and not received yet has more to come, and so has one that is being
// replayed: its state is that of before until the replay is received.
func (t timeline) settled() bool {
	if n := len(t.Events); n > 0 && t.Events[n-1].Event == "replayed" && !t.lost(t.Events[n-1].WebhookID) {
		return false
	}
	for _, n := range t.Next {
		if !slices.Contains([]string{"delivered", "dead_lettered", "unmatched", "duplicate", "withdrawn", "lost"}, n.State) {
			return false
		}
	}
	return len(t.Next) > 0
}

// lost reports whether what is on its way to a webhook, or to any where none is named, is lost: a replay
// can be, too.
func (t timeline) lost(webhookID string) bool {
	return slices.ContainsFunc(t.Next, func(n timelineNext) bool {
		return n.State == "lost" && (webhookID == "" || n.WebhookID == webhookID)
	})
}

// failed reports whether a webhook did not get the message.
func (t timeline) failed() bool {
	for _, n := range t.Next {
		if n.State == "dead_lettered" || n.State == "lost" {
			return true
		}
	}
	return false
}

func newMessagesCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "messages",
		Aliases: []string{"message"},
		Short:   "See what happened to a message, and what happens next",
		Example: "  pushlease messages show MESSAGE-ID\n  pushlease messages show MESSAGE-ID --watch\n  pushlease messages list --state held",
	})
	cmd.AddCommand(newMessagesShowCommand(), newMessagesListCommand())
	return cmd
}

// messagesShow is one run of messages show.
type messagesShow struct {
	client
	queue string
	watch bool
	every time.Duration
}

// messageRow is where a message stands with a webhook.
type messageRow struct {
	MessageID  string    `json:"message_id"`
	Queue      string    `json:"queue"`
	WebhookID  string    `json:"webhook_id"`
	State      string    `json:"state"`
	Reason     string    `json:"reason"`
	Attempts   int       `json:"attempts"`
	LastStatus int       `json:"last_status"`
	LastError  string    `json:"last_error_class"`
	InsertedAt time.Time `json:"inserted_at"`
	NextAt     time.Time `json:"next_at"`
}

func newMessagesListCommand() *cobra.Command {
	return newListCommand(&cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List where messages stand: what is held, what waits, what was delivered",
		Long: `Lists a line for each message and webhook, as it stands now; those that were put on their queue on the newest
day first. Look for what is held or waits with --state, and for what is old with --until.

What happened to one message, in order, is told by pushlease messages show.`,
		Example: "  pushlease messages list --state held --queue orders\n  pushlease messages list --webhook wh_abc --state pending --since 1h",
		Args:    arguments(0, 0, ""),
	}, listing[messageRow]{
		path: "/api/v1/messages", limit: 50,
		filters: [][2]string{
			{"queue", "only those of this queue"}, {"webhook", "only those for this webhook"},
			{"state", "only those in this state: pending, held, delivered, dead_lettering, dead_lettered, published, unmatched, duplicate or withdrawn"},
			{"from", "only those that were put on their queue from this time on, such as 2026-01-31T15:04:05Z"}, {"until", "only those that were put there before this time"},
		},
		heading: []string{"ON THE QUEUE SINCE", "QUEUE", "MESSAGE", "WEBHOOK", "STATE", "REASON", "ATTEMPTS", "LAST ANSWER", "NEXT"},
		cells: func(m messageRow) []string {
			last := m.LastError
			if m.LastStatus != 0 {
				last = strconv.Itoa(m.LastStatus)
			}
			return []string{instant(m.InsertedAt), m.Queue, m.MessageID, m.WebhookID, m.State, m.Reason, strconv.Itoa(m.Attempts), last, clock(m.NextAt)}
		},
	})
}

func newMessagesShowCommand() *cobra.Command {
	c := &messagesShow{every: time.Second}
	cmd := &cobra.Command{
		Use:   "show MESSAGE-ID",
		Short: "Show the timeline of a message",
		Long: `Shows what happened to a message and what happens next. With --watch it goes on
until the message is delivered or dead-lettered for every webhook, or is lost: somebody else
took it, or its life is over. It then exits with 0 when all were delivered, and with 1 when
one was dead-lettered or lost.`,
		Example: "  pushlease messages show 0b5f…\n  pushlease messages show 0b5f… --watch -o json",
		Args:    arguments(1, 1, "the id of one message (pushlease send prints it)"),
		RunE:    c.run,
	}
	cmd.Flags().StringVar(&c.queue, "queue", "", "queue that the message came from; makes the search shorter")
	cmd.Flags().BoolVar(&c.watch, "watch", false, "go on until nothing more happens by itself")
	c.addFlags(cmd)
	return cmd
}

func (c *messagesShow) run(cmd *cobra.Command, args []string) error {
	if !c.watch {
		a, t, err := c.read(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if c.json() {
			return c.raw(cmd, a)
		}
		if err := writeHeading(cmd.OutOrStdout(), t); err != nil {
			return err
		}
		if err := writeEvents(cmd.OutOrStdout(), t.Events); err != nil {
			return err
		}
		return writeNext(cmd.OutOrStdout(), t.Next)
	}
	return c.follow(cmd, args[0])
}

func (c *messagesShow) read(ctx context.Context, id string) (answer, timeline, error) {
	r := request{method: http.MethodGet, path: "/api/v1/messages/" + url.PathEscape(id)}
	if c.queue != "" {
		r.query = url.Values{"queue": {c.queue}}
	}
	a, err := c.do(ctx, r)
	if err != nil {
		return a, timeline{}, err
	}
	var t timeline
	err = a.into(&t)
	return a, t, err
}

// follow prints what is new until the message is settled. Reading is harmless, so
// a server that is away for a moment is asked again.
func (c *messagesShow) follow(cmd *cobra.Command, id string) error {
	seen := map[timelineEvent]bool{}
	shown, next := false, ""
	for ctx := cmd.Context(); ; {
		_, t, err := c.read(ctx, id)
		switch {
		case err != nil && (!shown || !temporary(err)):
			return err
		case err == nil:
			if !shown && !c.json() {
				if err := writeHeading(cmd.OutOrStdout(), t); err != nil {
					return err
				}
			}
			shown = true
			if next, err = c.printNew(cmd, t, seen, next); err != nil {
				return err
			}
			if t.settled() && t.failed() {
				return silentError{}
			}
			if t.settled() {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil // Ctrl-C is how one stops watching
		case <-time.After(c.every):
		}
	}
}

// temporary reports whether asking again may help.
func temporary(err error) bool {
	var api *apiError
	return !errors.As(err, &api) || api.Status/100 == 5 || api.Status == http.StatusTooManyRequests
}

// printNew prints the events that were not there before, and what is next if that
// has changed; it returns what is next.
func (c *messagesShow) printNew(cmd *cobra.Command, t timeline, seen map[timelineEvent]bool, before string) (string, error) {
	var fresh []timelineEvent
	for _, e := range t.Events {
		if !seen[e] {
			seen[e] = true
			fresh = append(fresh, e)
		}
	}
	next := fmt.Sprint(t.Next)
	if c.json() {
		for _, e := range fresh {
			if err := c.value(cmd, e); err != nil {
				return next, err
			}
		}
		return next, nil
	}
	if err := writeEvents(cmd.OutOrStdout(), fresh); err != nil {
		return next, err
	}
	if next != before {
		return next, writeNext(cmd.OutOrStdout(), t.Next)
	}
	return next, nil
}

func writeHeading(w io.Writer, t timeline) error {
	_, err := fmt.Fprintf(w, "message %s  queue %s  %d bytes\n", oneLine(t.MessageID), oneLine(t.Queue), t.Size)
	return err
}

func writeEvents(w io.Writer, events []timelineEvent) error {
	for _, e := range events {
		line := strings.Join([]string{instant(e.At), fmt.Sprintf("%-13s", e.Event), e.WebhookID, e.Text}, "  ")
		if text := said(e.Attempt.Snippet, saidInFull); text != "" {
			line += "  It said: " + text
		}
		if e.DeadLetterID != "" {
			line += "  (dead letter " + e.DeadLetterID + ")"
		}
		if _, err := fmt.Fprintln(w, oneLine(line)); err != nil {
			return err
		}
	}
	return nil
}

func writeNext(w io.Writer, next []timelineNext) error {
	for _, n := range next {
		who := n.WebhookID
		if who == "" {
			who = "message"
		}
		if _, err := fmt.Fprintln(w, oneLine("→ "+who+": "+n.State+". "+asCommands(n.Text))); err != nil {
			return err
		}
	}
	return nil
}
