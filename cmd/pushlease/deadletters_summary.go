package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// deadLetterGroups are dead letters by what they have in common.
type deadLetterGroups struct {
	Total  int  `json:"total"`
	Exact  bool `json:"exact"`
	Others int  `json:"others"`
	Groups []struct {
		Key     string    `json:"key"`
		Count   int       `json:"count"`
		Oldest  time.Time `json:"oldest"`
		Newest  time.Time `json:"newest"`
		Example string    `json:"example"`
	} `json:"groups"`
}

func newDeadLettersSummaryCommand() *cobra.Command {
	c, since := &client{}, &sinceFlag{}
	var by string
	filters := [][2]string{{"queue", "only those of this queue"}, {"webhook", "only those of this webhook: its id or its name"}, {"answer", "only those whose last attempt gave this status or error class"}, {"cause", "only those with this cause"}, {"status", "only waiting, replaying or replayed ones, or all"}}
	cmd := &cobra.Command{
		Use:   "summary",
		Short: "Count dead letters by what they have in common, the most first",
		Long: `Where to begin when there are many: by reason, queue, webhook, answer (the status or
error class of the last attempt) or cause (the description, without what differs from
message to message). With the example's id, dead-letters get says more. Those that wait are
counted; --status all counts also those that were replayed, which are kept for a while.`,
		Example: "  pushlease dead-letters summary\n  pushlease dead-letters summary --by cause --queue orders --status all --since 24h",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{"group_by": {by}}
			for _, f := range filters {
				if v := cmd.Flags().Lookup(f[0]).Value.String(); v != "" && (f[0] != "status" || v != "all") {
					query.Set(f[0], v)
				}
			}
			if !since.from.IsZero() {
				query.Set("from", since.from.UTC().Format(time.RFC3339))
			}
			if err := c.nameInQuery(cmd.Context(), query); err != nil {
				return err
			}
			a, err := c.do(cmd.Context(), request{method: http.MethodGet, path: "/api/v1/dead-letters/summary", query: query})
			if err != nil || c.json() {
				if err == nil {
					err = c.raw(cmd, a)
				}
				return err
			}
			return showGroups(cmd, a, by)
		},
	}
	cmd.Flags().StringVar(&by, "by", "reason", "what to group by: reason, queue, webhook, answer or cause")
	for _, f := range filters {
		cmd.Flags().String(f[0], map[string]string{"status": "waiting"}[f[0]], f[1])
	}
	cmd.Flags().Var(since, "since", "only those of so long, such as 30m or 24h")
	c.addFlags(cmd)
	return cmd
}

func showGroups(cmd *cobra.Command, a answer, by string) error {
	var s deadLetterGroups
	if err := json.Unmarshal(a.body, &s); err != nil {
		return fmt.Errorf("the server's answer can't be read: %w", err)
	}
	var cells [][]string
	for _, g := range s.Groups {
		key := g.Key
		if key == "" {
			key = "(none)"
		}
		cells = append(cells, []string{strconv.Itoa(g.Count), key, clock(g.Oldest), clock(g.Newest), g.Example})
	}
	if s.Others > 0 {
		cells = append(cells, []string{strconv.Itoa(s.Others), "(smaller groups)", "", "", ""})
	}
	if len(cells) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "No dead letters match. Without --status all, only those that wait are counted.")
		return err
	}
	if err := table(cmd.OutOrStdout(), []string{"COUNT", strings.ToUpper(by), "OLDEST", "NEWEST", "EXAMPLE"}, cells); err != nil {
		return err
	}
	if !s.Exact {
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "There are more than the %d that were counted: narrow it with --queue, --webhook or --since.\n", s.Total)
		return err
	}
	return nil
}
