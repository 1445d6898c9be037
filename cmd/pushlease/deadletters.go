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

// deadLetterRow is what is shown of a dead letter.
type deadLetterRow struct {
	ID             string    `json:"id"`
	Queue          string    `json:"queue"`
	MessageID      string    `json:"message_id"`
	WebhookID      string    `json:"webhook_id"`
	Status         string    `json:"status"`
	Reason         string    `json:"reason"`
	Description    string    `json:"description"`
	Attempts       int       `json:"attempts"`
	LastStatus     int       `json:"last_status"`
	LastErrorClass string    `json:"last_error_class"`
	DeadLetteredAt time.Time `json:"dead_lettered_at"`
	InsertedAt     time.Time `json:"inserted_at"`
	Size           int       `json:"size"`
	CopiedToQueue  string    `json:"copied_to_queue"`
	Replays        int       `json:"replays"`
	ReplayedAt     time.Time `json:"replayed_at"`
	Warnings       []string  `json:"warnings"`
}

// last says how the last attempt ended.
func (d deadLetterRow) last() string {
	if d.LastStatus != 0 {
		return strconv.Itoa(d.LastStatus)
	}
	return d.LastErrorClass
}

func newDeadLettersCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "dead-letters",
		Aliases: []string{"dead-letter"},
		Short:   "Look at messages that were given up, and send them again",
		Example: `  pushlease dead-letters summary --by cause
  pushlease dead-letters list --queue orders --status waiting
  pushlease dead-letters get DEAD-LETTER-ID --body
  pushlease dead-letters replay DEAD-LETTER-ID
  pushlease dead-letters replay --queue orders --watch`,
	})
	cmd.AddCommand(
		newDeadLettersListCommand(),
		newDeadLettersSummaryCommand(),
		newDeadLettersGetCommand(),
		newDeadLettersReplayCommand(),
		newDeadLettersJobsCommand(),
		newDeadLettersDeleteCommand(),
		newDeadLettersPurgeCommand(),
	)
	return cmd
}

func deadLetterPath(id string) string { return "/api/v1/dead-letters/" + url.PathEscape(id) }

var (
	oneDeadLetter   = arguments(1, 1, "the id of one dead letter (pushlease dead-letters list shows them)")
	someDeadLetters = arguments(1, maxArguments, "the ids of dead letters (pushlease dead-letters list shows them)")
)

func newDeadLettersListCommand() *cobra.Command {
	return newListCommand(&cobra.Command{
		Use:     "list",
		Short:   "List dead letters, newest first, without their bodies",
		Example: "  pushlease dead-letters list --status waiting\n  pushlease dead-letters list --reason NonRetryableError --from 2026-01-31T00:00:00Z -o json",
		Args:    arguments(0, 0, ""),
	}, listing[deadLetterRow]{
		path: "/api/v1/dead-letters", limit: 50,
		filters: [][2]string{
			{"queue", "only those of this queue"}, {"webhook", "only those of this webhook: its id or its name"}, {"message", "only those of this message id"},
			{"reason", "only those with this reason, such as NonRetryableError"}, {"answer", "only those whose last attempt gave this status or error class"},
			{"cause", "only those with this cause, as dead-letters summary --by cause shows it"}, {"status", "only waiting, replaying or replayed ones"},
			{"from", "only those from this time on, such as 2026-01-31T15:04:05Z"}, {"until", "only those before this time"},
		},
		heading: []string{"TIME", "QUEUE", "STATUS", "REASON", "ANSWER", "MESSAGE", "ID"},
		cells: func(d deadLetterRow) []string {
			return []string{clock(d.DeadLetteredAt), d.Queue, d.Status, d.Reason, d.last(), d.MessageID, d.ID}
		},
		wideHeading: []string{"WEBHOOK", "ATTEMPTS", "BYTES", "REPLAYS", "DESCRIPTION"},
		wideCells: func(d deadLetterRow) []string {
			return []string{d.WebhookID, strconv.Itoa(d.Attempts), strconv.Itoa(d.Size), strconv.Itoa(d.Replays), d.Description}
		},
	})
}

func newDeadLettersGetCommand() *cobra.Command {
	c := &client{}
	var body, force bool
	cmd := &cobra.Command{
		Use:   "get DEAD-LETTER-ID",
		Short: "Show a dead letter, or its body",
		Long: `Shows a dead letter. With --body it prints the message's bytes and nothing else, as
they were received; with -o json too, the body is part of the JSON.`,
		Example: "  pushlease dead-letters get ID\n  pushlease dead-letters get ID --body > message.json",
		Args:    oneDeadLetter,
		RunE: func(cmd *cobra.Command, args []string) error {
			r := request{method: http.MethodGet, path: deadLetterPath(args[0])}
			switch {
			case body && c.json():
				r.query = url.Values{"body": {"true"}}
			case body:
				r.path += "/body"
			}
			if force {
				if !body {
					return usagef("--force is about the body: it goes with --body")
				}
				if r.query == nil {
					r.query = url.Values{}
				}
				r.query.Set("force", "true")
			}
			a, err := c.do(cmd.Context(), r)
			if err != nil {
				return err
			}
			if body && !c.json() {
				return c.writeBody(cmd, a.body)
			}
			return c.showDeadLetter(cmd, a)
		},
	}
	cmd.Flags().BoolVar(&body, "body", false, "the message's body")
	cmd.Flags().BoolVar(&force, "force", false, "with --body: what the row has now, although another program has changed it")
	c.addFlags(cmd)
	return cmd
}

// writeBody prints the exact bytes, but for a person at a terminal what could
// steer it is taken out.
func (c *client) writeBody(cmd *cobra.Command, body []byte) error {
	out := cmd.OutOrStdout()
	if isTerminal(out) {
		body = []byte(clean(string(body)) + "\n")
	}
	_, err := out.Write(body)
	return err
}

func newDeadLettersReplayCommand() *cobra.Command {
	c, f := &client{}, &deadLetterFilter{}
	var force, watch bool
	var rate float64
	cmd := &cobra.Command{
		Use:   "replay [DEAD-LETTER-ID...]",
		Short: "Send a dead letter, or all that a filter matches, to its webhook again",
		Long: `Sends one dead letter again. With a filter instead of an id it starts a job in the server that replays all
that wait and match, the oldest messages first, at --rate; --dry-run says how many there are. The job goes on when
this command ends: pushlease dead-letters jobs follows or cancels it.`,
		Example: `  pushlease dead-letters replay ID
  pushlease dead-letters replay --queue orders --reason MaxDeliveryCountExceeded --dry-run
  pushlease dead-letters replay --queue orders --reason MaxDeliveryCountExceeded --rate 20 --watch`,
		Args: arguments(0, maxArguments, "the ids of dead letters, or a filter such as --queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			many := f.given() || watch || cmd.Flags().Changed("rate") || cmd.Flags().Changed("order")
			switch {
			case len(args) > 0 && many:
				return usagef("an id stands alone: --force and --output are all that goes with it")
			case len(args) == 0 && !many:
				return usagef("%s needs the id of one dead letter, or a filter such as --queue (see %s --help)", cmd.CommandPath(), cmd.CommandPath())
			case len(args) == 0:
				if err := f.byName(cmd.Context(), c); err != nil {
					return err
				}
				return c.replayMany(cmd, f, rate, force, watch)
			}
			return each(cmd, args, func(id string) error {
				r := request{method: http.MethodPost, path: deadLetterPath(id) + "/replay"}
				if force {
					r.query = url.Values{"force": {"true"}}
				}
				a, err := c.do(cmd.Context(), r)
				if err != nil {
					return err
				}
				return c.showDeadLetter(cmd, a)
			})
		},
	}
	f.addFlags(cmd, "replay")
	cmd.Flags().Float64Var(&rate, "rate", 10, "the most replays a second, 0.01 to 1000")
	cmd.Flags().String("order", "oldest", "the messages that are sent first: oldest or newest")
	cmd.Flags().BoolVar(&watch, "watch", false, "print the job's progress until it ends")
	cmd.Flags().BoolVar(&force, "force", false, "one: even while a replay is under way, so that the webhook may get it twice, or although another program has changed its row; many: also those that were replayed 10 times and came back")
	c.addFlags(cmd)
	return cmd
}

func newDeadLettersDeleteCommand() *cobra.Command {
	c := &client{}
	var ifMatch string
	cmd := &cobra.Command{
		Use:     "delete DEAD-LETTER-ID...",
		Short:   "Delete a dead letter; a copy on the poison queue stays",
		Example: "  pushlease dead-letters delete ID",
		Args:    someDeadLetters,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := onlyOne(args, ifMatch); err != nil {
				return err
			}
			return each(cmd, args, func(id string) error {
				r := request{method: http.MethodDelete, path: deadLetterPath(id)}
				if ifMatch != "" {
					r.header = map[string]string{"If-Match": ifMatch}
				}
				a, err := c.do(cmd.Context(), r)
				if err != nil {
					return err
				}
				return c.showDeleted(cmd, id, a)
			})
		},
	}
	addIfMatch(cmd, &ifMatch)
	c.addFlags(cmd)
	return cmd
}

func (c *client) showDeadLetter(cmd *cobra.Command, a answer) error {
	if c.json() {
		return c.raw(cmd, a)
	}
	var d deadLetterRow
	if err := a.into(&d); err != nil {
		return err
	}
	replayed := ""
	if d.Replays > 0 {
		replayed = fmt.Sprintf("%d, last at %s", d.Replays, clock(d.ReplayedAt))
	}
	return fields(cmd.OutOrStdout(), [][2]string{
		{"id", d.ID}, {"queue", d.Queue}, {"message", d.MessageID}, {"webhook", d.WebhookID}, {"status", d.Status},
		{"reason", strings.TrimSuffix(d.Reason+": "+d.Description, ": ")}, {"attempts", strconv.Itoa(d.Attempts)}, {"last answer", d.last()},
		{"inserted", clock(d.InsertedAt)}, {"dead-lettered", clock(d.DeadLetteredAt)}, {"size", strconv.Itoa(d.Size) + " bytes"},
		{"copied to", d.CopiedToQueue}, {"replays", replayed}, {"note", strings.Join(d.Warnings, " ")},
	})
}
