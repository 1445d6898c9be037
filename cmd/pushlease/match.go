package main

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// matchAnswer says what would become of a message.
type matchAnswer struct {
	Event *struct {
		ID     string `json:"id"`
		Source string `json:"source"`
		Type   string `json:"type"`
	} `json:"event"`
	Outcome  string `json:"outcome"`
	Text     string `json:"text"`
	Webhooks []struct {
		WebhookID string `json:"webhook_id"`
		Name      string `json:"name"`
		Enabled   bool   `json:"enabled"`
		Takes     bool   `json:"takes"`
		Reason    string `json:"reason"`
	} `json:"webhooks"`
}

func newMatchCommand() *cobra.Command {
	c := &sendCommand{}
	cmd := &cobra.Command{
		Use:   "match QUEUE [BODY | @FILE | -]",
		Short: "Say which webhooks would take a message; nothing is sent",
		Long: `Asks the server which webhooks of the queue would take a message, and why the others
would not: a dry run of their filters. The body is given as to pushlease send; with
--type it is the data of an event. Nothing is sent, queued or recorded.`,
		Example: `  pushlease match orders '{"order": {"total": 700}}'
  pushlease match orders @order.json --type order.paid --source /shop
  pushlease match orders @event.json --content-type application/cloudevents+json -o json`,
		Args: arguments(1, 2, "a queue, and a body: pushlease match QUEUE [BODY | @FILE | -]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.checkFlags(cmd); err != nil {
				return err
			}
			body, err := c.body(cmd, args[1:])
			if err != nil {
				return err
			}
			a, err := c.do(cmd.Context(), request{
				method: http.MethodPost, path: "/api/v1/queues/" + url.PathEscape(args[0]) + "/match", header: c.headers(), body: body,
			})
			if err != nil {
				return err
			}
			return c.showMatch(cmd, a)
		},
	}
	c.addMessageFlags(cmd)
	c.addFlags(cmd)
	return cmd
}

func (c *client) showMatch(cmd *cobra.Command, a answer) error {
	if c.json() {
		return c.raw(cmd, a)
	}
	var m matchAnswer
	if err := a.into(&m); err != nil {
		return err
	}
	event := "none: event filters see no type, source or subject"
	if e := m.Event; e != nil {
		event = "type " + e.Type + ", source " + e.Source + ", id " + e.ID
	}
	if err := fields(cmd.OutOrStdout(), [][2]string{{"event", event}, {"outcome", strings.TrimSpace(m.Outcome + ": " + m.Text)}}); err != nil {
		return err
	}
	if len(m.Webhooks) == 0 {
		return nil
	}
	var cells [][]string
	for _, w := range m.Webhooks {
		takes, state := "no", "enabled"
		if w.Takes {
			takes = "yes"
		}
		if !w.Enabled {
			state = "disabled"
		}
		cells = append(cells, []string{w.WebhookID, takes, state, w.Reason, w.Name})
	}
	return table(cmd.OutOrStdout(), []string{"WEBHOOK", "TAKES", "STATE", "WHY", "NAME"}, cells)
}
