package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	apiclient "github.com/pushlease/pushlease/api/client"
)

func newQueuesPeekCommand() *cobra.Command {
	c := &client{}
	body := false
	cmd := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Look at the messages that wait on a queue, without receiving them",
		Long: `Shows the first 32 messages that can be received now: neither those at work, nor those that wait for
their time, which "pushlease messages list" tells of. No message is changed by it.`,
		Example: "  pushlease queues peek orders\n  pushlease queues peek orders --body",
		Args:    arguments(1, 1, "the name of one queue (pushlease queues list shows them)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := request{method: http.MethodGet, path: "/api/v1/queues/" + url.PathEscape(args[0]) + "/messages"}
			if body {
				r.query = url.Values{"body": {"true"}}
			}
			a, err := c.do(cmd.Context(), r)
			if err != nil {
				return err
			}
			return c.showPeeked(cmd, a)
		},
	}
	cmd.Flags().BoolVar(&body, "body", false, "their bodies too")
	c.addFlags(cmd)
	return cmd
}

// maxPeeked is how many messages a look shows at most.
const maxPeeked = 32

// showPeeked prints a line for each message, and its body below it where that was asked for.
func (c *client) showPeeked(cmd *cobra.Command, a answer) error {
	if c.json() {
		return c.raw(cmd, a)
	}
	var list apiclient.WaitingList
	if err := a.into(&list); err != nil {
		return err
	}
	var cells [][]string
	withBody := false
	for _, m := range list.Data {
		cells = append(cells, []string{m.MessageId, clock(m.InsertedAt), clock(value(m.ExpiresAt)), strconv.Itoa(m.Size)})
		withBody = withBody || m.Body != nil
	}
	heading := []string{"MESSAGE", "INSERTED", "EXPIRES", "BYTES"}
	if len(list.Data) == maxPeeked {
		defer func() { _, _ = fmt.Fprintln(cmd.ErrOrStderr(), "There may be more; a look shows no more than these.") }()
	}
	if !withBody {
		return table(cmd.OutOrStdout(), heading, cells)
	}
	for i, m := range list.Data {
		text := oneLine(strings.TrimSpace(strings.Join(cells[i], "  "))) + "\n"
		if m.Body != nil {
			text += "    " + strings.ReplaceAll(prettyBody(m.Body.Base64), "\n", "\n    ") + "\n"
		}
		if _, err := fmt.Fprint(cmd.OutOrStdout(), text); err != nil {
			return err
		}
	}
	return nil
}
