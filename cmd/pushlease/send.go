package main

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/queue"
)

// The most bytes that a queue message can have, and a batch of events.
const (
	maxBodyBytes  = 64 << 10
	maxBatchBytes = 1 << 20
)

type sendCommand struct {
	client
	contentType string
	delay, ttl  string
	count       int
	key         string
	event       eventFlags
	warned      string // what the server said last
}

// eventFlags are the attributes of an event to send.
type eventFlags struct {
	kind, id, source, subject string
}

// defaultSource is the source of events that name none.
const defaultSource = "/pushlease/send"

func newSendCommand() *cobra.Command {
	c := &sendCommand{}
	cmd := &cobra.Command{
		Use:   "send QUEUE [BODY | @FILE | -]",
		Short: "Send a message to a queue",
		Long: `Sends a message through the server's API. The body is the argument, a file (@FILE),
or standard input (-, and when there is no argument). At most 65,536 bytes; about
48,000 when it is binary or has a content type of its own.

With --type the message is a CloudEvents 1.0 event, with the body as its data: JSON as
it is, anything else as text or base64. Its id is what --id says, or the --idempotency-key,
or a new random one.
To send an event that is whole already, give it as the body with
--content-type application/cloudevents+json, or several as a JSON list with
--content-type application/cloudevents-batch+json.

Nothing is retried. After a failure whose effect is not known, sending again can make a
second message, unless both have the same --idempotency-key: then the second one is
answered as the first one was, for 7 days.`,
		Example: `  pushlease send orders '{"order": 1}'
  pushlease send orders @order.json --delay 10m --ttl 24h
  jq -c .order big.json | pushlease send orders -o json
  pushlease send orders hello --content-type text/plain --count 100
  pushlease send orders '{"order": 1}' --idempotency-key order-1
  pushlease send orders '{"order": 1}' --type order.paid --source /shop --id order-1-paid`,
		Args: arguments(1, 2, "a queue, and a body: pushlease send QUEUE [BODY | @FILE | -]"),
		RunE: c.run,
	}
	cmd.Flags().StringVar(&c.delay, "delay", "", "hide the message for so long at first, such as 30s; up to 168h")
	cmd.Flags().StringVar(&c.ttl, "ttl", "", "life of the message, such as 24h, or never (default 168h)")
	cmd.Flags().IntVar(&c.count, "count", 1, "send it so many times, 1 to 100000")
	cmd.Flags().StringVar(&c.key, "idempotency-key", "", "name of this message, 1 to 255 printable ASCII characters: sending it again sends nothing")
	c.addMessageFlags(cmd)
	c.addFlags(cmd)
	return cmd
}

// addMessageFlags adds the flags that say what the body is.
func (c *sendCommand) addMessageFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.contentType, "content-type", "", "content type that webhooks get (default: by the body)")
	cmd.Flags().StringVar(&c.event.kind, "type", "", "make it an event of this type, such as com.example.order.paid")
	cmd.Flags().StringVar(&c.event.source, "source", defaultSource, "where the event comes from, such as /shop; with --type")
	cmd.Flags().StringVar(&c.event.id, "id", "", "the event's id (default: a new one; of send, the --idempotency-key); with --type")
	cmd.Flags().StringVar(&c.event.subject, "subject", "", "what the event is about; with --type")
}

func (c *sendCommand) run(cmd *cobra.Command, args []string) error {
	if c.count < 1 || c.count > 100_000 {
		return usagef("--count %d: use 1 to 100000", c.count)
	}
	if args[0] == "" {
		return usagef("the queue's name is empty; name the queue to send to, such as orders")
	}
	if err := c.checkFlags(cmd); err != nil {
		return err
	}
	body, err := c.body(cmd, args[1:])
	if err != nil {
		return err
	}
	r := request{method: http.MethodPost, path: "/api/v1/queues/" + url.PathEscape(args[0]) + "/messages", query: url.Values{}, body: body}
	for name, value := range map[string]string{"delay": c.delay, "ttl": c.ttl} {
		if value != "" {
			r.query.Set(name, value)
		}
	}
	for i := range c.count {
		r.header = c.headers()
		if err := c.sendOne(cmd, r); err != nil {
			if i > 0 {
				return fmt.Errorf("after %d of %d messages: %w", i, c.count, err)
			}
			return err
		}
	}
	return nil
}

// checkFlags refuses flags that contradict each other.
func (c *sendCommand) checkFlags(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	for _, name := range []string{"source", "id", "subject"} {
		if given(name) && c.event.kind == "" {
			return usagef("--%s is about an event; name its type with --type", name)
		}
	}
	for _, name := range []string{"type", "source", "id", "subject", "idempotency-key"} {
		if given(name) && cmd.Flag(name).Value.String() == "" {
			return usagef("--%s is empty; give it a value, or leave it out", name)
		}
	}
	odd := func(r rune) bool { return r < ' ' || r > '~' }
	switch {
	case strings.ContainsFunc(c.key, odd) || len(c.key) > queue.MaxIdempotencyKey:
		return usagef("--idempotency-key has 1 to %d printable ASCII characters, such as a UUID", queue.MaxIdempotencyKey)
	case c.event.kind != "" && strings.HasPrefix(strings.ToLower(c.contentType), "application/cloudevents"):
		return usagef("--type makes an event of the body, and --content-type says that it is one already; use one of them")
	case c.count > 1 && (c.key != "" || c.event.id != ""):
		return usagef("--count %d with --idempotency-key or --id would send one message and repeat it; leave one of them out", c.count)
	}
	return nil
}

// headers are those of one message; an event is sent in binary mode.
func (c *sendCommand) headers() map[string]string {
	h := map[string]string{}
	if c.contentType != "" {
		h["Content-Type"] = c.contentType
	}
	if c.key != "" {
		h["Idempotency-Key"] = quoteKey(c.key)
	}
	if c.event.kind == "" {
		return h
	}
	// With a key the command may be repeated, and has to send the same event again.
	id := cmp.Or(c.event.id, c.key, strings.ToLower(rand.Text()))
	for name, value := range map[string]string{"specversion": "1.0", "id": id, "source": c.event.source, "type": c.event.kind, "subject": c.event.subject} {
		if value != "" {
			h["ce-"+name] = percentEncode(value)
		}
	}
	return h
}

// quoteKey writes a key as a string of RFC 8941.
func quoteKey(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

// percentEncode: CloudEvents HTTP protocol binding 1.0.2, section 3.1.3.2.
func percentEncode(value string) string {
	var b strings.Builder
	for i := range len(value) {
		if c := value[i]; c <= ' ' || c == '"' || c == '%' || c > '~' {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(value[i])
	}
	return b.String()
}

// sendOne makes one message and prints its id.
func (c *sendCommand) sendOne(cmd *cobra.Command, r request) error {
	a, err := c.do(cmd.Context(), r)
	if err != nil {
		return err
	}
	var sent struct {
		MessageID string    `json:"message_id"`
		Queue     string    `json:"queue"`
		VisibleAt time.Time `json:"visible_at"`
		Events    []struct {
			ID        string `json:"id"`
			MessageID string `json:"message_id"`
		} `json:"events"`
		Warnings []string `json:"warnings"`
	}
	if err := a.into(&sent); err != nil {
		return err
	}
	for _, text := range sent.Warnings {
		if c.warned == text { // the same for each of many
			continue
		}
		c.warned = text
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+oneLine(text)); err != nil {
			return err
		}
	}
	if c.json() {
		return c.raw(cmd, a)
	}
	if len(sent.Events) > 0 {
		for _, e := range sent.Events {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), clean(fmt.Sprintf("sent %s to %s: event %s", e.MessageID, sent.Queue, e.ID))); err != nil {
				return err
			}
		}
		return nil
	}
	line := fmt.Sprintf("sent %s to %s", sent.MessageID, sent.Queue)
	if a.header.Get("Idempotency-Replayed") == "true" {
		line += " before, under the same key"
	}
	if time.Until(sent.VisibleAt) > time.Second {
		line += ", visible at " + clock(sent.VisibleAt)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), clean(line))
	return err
}

func (c *sendCommand) body(cmd *cobra.Command, args []string) ([]byte, error) {
	in := cmd.InOrStdin()
	switch {
	case len(args) == 0 && isTerminal(in):
		return nil, usagef("there is no body; give it as an argument, as @FILE, or on standard input")
	case len(args) == 1 && strings.HasPrefix(args[0], "@"):
		f, err := os.Open(args[0][1:])
		if err != nil {
			return nil, usagef("can't read the body: %s", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	case len(args) == 1 && args[0] != "-":
		in = strings.NewReader(args[0])
	}
	limit := maxBodyBytes
	if strings.HasPrefix(strings.ToLower(c.contentType), "application/cloudevents-batch") {
		limit = maxBatchBytes
	}
	body, err := io.ReadAll(io.LimitReader(in, int64(limit)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the body: %w", err)
	case len(body) > limit:
		return nil, usagef("the body is over %d bytes, the most that can be sent at once; put larger payloads into a blob and send its address", limit)
	case len(body) == 0 && c.event.kind == "":
		return nil, usagef("the body is empty; for a message without content send {}")
	}
	return body, nil
}
