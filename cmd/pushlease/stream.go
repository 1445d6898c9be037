package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	// streamSilence is after how long without a word the connection is taken for dead: the server
	// says something every 15 seconds.
	streamSilence = 45 * time.Second
	// streamAgain is the pause before the stream is opened again, unless the server names another.
	streamAgain = 2 * time.Second
	// maxStreamLine bounds a line of the stream.
	maxStreamLine = 1 << 20
)

// streamEvent is one event, as the server sends it and as it is printed for programs.
type streamEvent struct {
	ID    string          `json:"id"`
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

func newStreamCommand() *cobra.Command {
	c := &client{}
	query := url.Values{}
	cmd := &cobra.Command{
		Use:   "stream",
		Short: "Follow attempts, dead letters and states of webhooks as they happen",
		Long: `Prints a line for each attempt, each dead letter, each webhook whose state changes, each
count of a queue and each step of a replay job in the instance that answers, until it is
stopped with Ctrl-C. With -o json each line is a JSON object with id, event and data.

When the connection ends it is opened again and goes on where it was; what is missing is told
in a line of its own. Bodies of messages are never in it.`,
		Example: `  pushlease stream
  pushlease stream --queue orders --type attempt,dead_letter
  pushlease stream -o json | jq -r 'select(.event == "dead_letter") | .data.id'`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"queue", "webhook", "type"} {
				if v := cmd.Flags().Lookup(name).Value.String(); v != "" {
					query.Set(name, v)
				}
			}
			if err := c.nameInQuery(cmd.Context(), query); err != nil {
				return err
			}
			return c.stream(cmd, query)
		},
	}
	cmd.Flags().String("queue", "", "only what is of this queue")
	cmd.Flags().String("webhook", "", "only what is of this webhook: its id or its name")
	cmd.Flags().String("type", "", "only these types, separated by commas: attempt, dead_letter, webhook, depth, job")
	c.addFlags(cmd)
	return cmd
}

// stream follows until it is stopped. Once something came, a stream that ends is opened again.
func (c *client) stream(cmd *cobra.Command, query url.Values) error {
	ctx, at, told := cmd.Context(), streamPlace{again: streamAgain}, false
	for {
		before := at.last
		err := c.streamOnce(ctx, query, &at, func(e streamEvent) error { return c.printEvent(cmd.OutOrStdout(), e) })
		var refused *apiError
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // Ctrl-C is how it ends
		case errors.Is(err, errOutput), errors.As(err, &refused) && refused.Status/100 == 4, err != nil && at.last == "":
			return err
		case at.last == "":
			return errors.New("the answer is not what a pushlease server sends; is --server right?")
		}
		told = told && before == at.last
		if err != nil && !told {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "The stream was cut off; it is opened again as soon as the server can be reached: %s\n", oneLine(err.Error()))
			told = true
		}
		again := time.NewTimer(at.again)
		select {
		case <-ctx.Done():
			again.Stop()
			return nil
		case <-again.C:
		}
	}
}

// errOutput says that nobody takes what is printed.
var errOutput = errors.New("print an event")

// streamPlace is where a stream goes on: behind the event with the id last, after a pause.
type streamPlace struct {
	last  string
	again time.Duration
}

// streamOnce follows one connection to its end.
func (c *client) streamOnce(ctx context.Context, query url.Values, at *streamPlace, print func(streamEvent) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(streamSilence, func() { cancel(fmt.Errorf("nothing came for %s", streamSilence)) })
	defer silence.Stop()
	r := request{method: http.MethodGet, path: "/api/v1/stream", query: query}
	if at.last != "" {
		r.header = map[string]string{"Last-Event-ID": at.last}
	}
	resp, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxStreamLine)
	var e streamEvent
	for lines.Scan() {
		silence.Reset(streamSilence)
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(name) {
		case "id":
			e.ID = string(value)
		case "event":
			e.Event = string(value)
		case "data":
			e.Data = bytes.Clone(value)
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 20); err == nil {
				at.again = time.Duration(ms) * time.Millisecond
			}
		case "": // the event is whole
			if e.ID != "" {
				at.last = e.ID
			}
			if e.Event != "" {
				if err := print(e); err != nil {
					return fmt.Errorf("%w: %w", errOutput, err)
				}
			}
			e = streamEvent{}
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return lines.Err()
}

// printEvent prints one event on one line.
func (c *client) printEvent(w io.Writer, e streamEvent) error {
	if c.json() {
		return c.print(w, e)
	}
	at, text := e.text()
	_, err := fmt.Fprintln(w, oneLine(strings.TrimRight(fmt.Sprintf("%-24s  %-11s  %s", instant(at), e.Event, text), " ")))
	return err
}

// streamData is what the data of an event may have, but for attempts and dead letters.
type streamData struct {
	Queue     string    `json:"queue"`
	WebhookID string    `json:"webhook_id"`
	State     string    `json:"state"`
	Was       string    `json:"was"`
	At        time.Time `json:"at"`
	Visible   int64     `json:"visible"`
	Hidden    int64     `json:"hidden"`
	Oldest    string    `json:"oldest"`
	ID        string    `json:"id"`
	Matched   int       `json:"matched"`
	Replayed  int       `json:"replayed"`
	Skipped   int       `json:"skipped"`
	Failed    int       `json:"failed"`
	Instance  string    `json:"instance"`
	Version   string    `json:"version"`
	Text      string    `json:"text"`
	Missed    int64     `json:"missed"`
}

// text is what a person reads of an event, and when it happened.
func (e streamEvent) text() (at time.Time, text string) {
	var err error
	switch e.Event {
	case "attempt":
		var a attemptRow
		err = json.Unmarshal(e.Data, &a)
		at, text = a.StartedAt, fmt.Sprintf("%s  %s  %s  attempt %d: %s in %s, %s (%s)  %s", a.Queue, a.WebhookID, a.MessageID,
			a.Number, a.outcome(), milliseconds(a.Duration), a.Action, a.Reason, a.tells())
	case "dead_letter":
		var d deadLetterRow
		err = json.Unmarshal(e.Data, &d)
		at, text = d.DeadLetteredAt, fmt.Sprintf("%s  %s  %s  %s: %s after %d attempts, the last one %s", d.Queue, d.WebhookID, d.MessageID,
			d.ID, d.Reason, d.Attempts, cmp.Or(d.last(), "none"))
	default:
		var d streamData
		err = json.Unmarshal(e.Data, &d)
		at, text = d.At, d.text(e.Event)
	}
	if err != nil || text == "" { // of a newer server
		return time.Time{}, string(e.Data)
	}
	return at, text
}

func (d streamData) text(event string) string {
	switch event {
	case "webhook":
		return fmt.Sprintf("%s  %s  %s, was %s", d.Queue, d.WebhookID, d.State, cmp.Or(d.Was, "not known"))
	case "depth":
		return fmt.Sprintf("%s  %d visible, %d hidden, oldest %s", d.Queue, d.Visible, d.Hidden, d.Oldest)
	case "job":
		return fmt.Sprintf("%s  %s: %d matched, %d replayed, %d skipped, %d failed", d.ID, d.State, d.Matched, d.Replayed, d.Skipped, d.Failed)
	case "hello":
		return fmt.Sprintf("following %s, pushlease %s", d.Instance, d.Version)
	case "gap":
		if d.Missed == 0 {
			return "Events may be missing. " + d.Text
		}
		return fmt.Sprintf("%d events are missing. %s", d.Missed, d.Text)
	}
	return ""
}
