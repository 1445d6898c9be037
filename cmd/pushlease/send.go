package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// maxBodyBytes is the most that a queue message can have.
const maxBodyBytes = 64 << 10

type sendCommand struct {
	client
	contentType string
	delay, ttl  string
	count       int
}

func newSendCommand() *cobra.Command {
	c := &sendCommand{}
	cmd := &cobra.Command{
		Use:   "send QUEUE [BODY | @FILE | -]",
		Short: "Send a message to a queue",
		Long: `Sends a message through the server's API. The body is the argument, a file (@FILE),
or standard input (-, and when there is no argument). At most 65,536 bytes; about
48,000 when it is binary or has a content type of its own.

Nothing is retried: after a failure whose effect is not known, sending again can
make a second message.`,
		Example: `  pushlease send orders '{"order": 1}'
  pushlease send orders @order.json --delay 10m --ttl 24h
  jq -c .order big.json | pushlease send orders -o json
  pushlease send orders hello --content-type text/plain --count 100`,
		Args: arguments(1, 2, "a queue, and a body: pushlease send QUEUE [BODY | @FILE | -]"),
		RunE: c.run,
	}
	cmd.Flags().StringVar(&c.contentType, "content-type", "", "content type that webhooks get (default: by the body)")
	cmd.Flags().StringVar(&c.delay, "delay", "", "hide the message for so long at first, such as 30s; up to 168h")
	cmd.Flags().StringVar(&c.ttl, "ttl", "", "life of the message, such as 24h, or never (default 168h)")
	cmd.Flags().IntVar(&c.count, "count", 1, "send it so many times, 1 to 100000")
	c.addFlags(cmd)
	return cmd
}

func (c *sendCommand) run(cmd *cobra.Command, args []string) error {
	if c.count < 1 || c.count > 100_000 {
		return usagef("--count %d: use 1 to 100000", c.count)
	}
	if args[0] == "" {
		return usagef("the queue's name is empty; name the queue to send to, such as orders")
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
	if c.contentType != "" {
		r.header = map[string]string{"Content-Type": c.contentType}
	}
	for i := range c.count {
		if err := c.sendOne(cmd, r); err != nil {
			if i > 0 {
				return fmt.Errorf("after %d of %d messages: %w", i, c.count, err)
			}
			return err
		}
	}
	return nil
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
	}
	if err := a.into(&sent); err != nil {
		return err
	}
	if c.json() {
		return c.raw(cmd, a)
	}
	line := fmt.Sprintf("sent %s to %s", sent.MessageID, sent.Queue)
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
	body, err := io.ReadAll(io.LimitReader(in, maxBodyBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the body: %w", err)
	case len(body) > maxBodyBytes:
		return nil, usagef("the body is over %d bytes, the most that a queue message can have; put larger payloads into a blob and send its address", maxBodyBytes)
	case len(body) == 0:
		return nil, usagef("the body is empty; for a message without content send {}")
	}
	return body, nil
}

// isTerminal reports whether r is where someone types.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// isTerminalWriter reports whether someone reads what is written to w.
func isTerminalWriter(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTerminal(f)
}
