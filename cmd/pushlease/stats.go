package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/spf13/cobra"
)

// statsCounts are the counts of one step, or of all steps of a group.
type statsCounts struct {
	Attempts    map[string]int64 `json:"attempts"`
	Delivered   int64            `json:"delivered"`
	Held        int64            `json:"held"`
	DeadLetters int64            `json:"dead_letters"`
	Took        *struct {
		P50 policy.Duration `json:"p50"`
		P95 policy.Duration `json:"p95"`
	} `json:"took"`
	Depth *struct {
		Visible int64           `json:"visible"`
		Hidden  int64           `json:"hidden"`
		Oldest  policy.Duration `json:"oldest"`
	} `json:"depth"`
}

// history is the server's answer.
type history struct {
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
	Step   string    `json:"step"`
	Others int       `json:"others"`
	Groups []struct {
		Key    string      `json:"key"`
		Total  statsCounts `json:"total"`
		Points []struct {
			At time.Time `json:"at"`
			statsCounts
		} `json:"points"`
	} `json:"groups"`
}

func (c statsCounts) attempts() (n int64) {
	for _, of := range c.Attempts {
		n += of
	}
	return n
}

// cells are what is shown of the counts under statsHeading.
func (c statsCounts) cells() []string {
	n := c.attempts()
	cells := []string{digits(n), digits(c.Delivered), digits(n - c.Delivered), digits(c.Held), digits(c.DeadLetters), "", "", "", "", ""}
	if t := c.Took; t != nil {
		cells[5], cells[6] = short(time.Duration(t.P50)), short(time.Duration(t.P95))
	}
	if d := c.Depth; d != nil {
		cells[7], cells[8], cells[9] = digits(d.Visible), digits(d.Hidden), short(time.Duration(d.Oldest))
	}
	return cells
}

var statsHeading = []string{"ATTEMPTS", "DELIVERED", "FAILED", "HELD", "DEAD LETTERS", "P50", "P95", "VISIBLE", "HIDDEN", "OLDEST"}

func digits(n int64) string { return strconv.FormatInt(n, 10) }

// short is a duration with three digits that say something; from a minute on in seconds, from an hour on in minutes.
func short(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

func newStatsCommand() *cobra.Command {
	c, since := &client{}, &sinceFlag{}
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count attempts, deliveries and dead letters over time, of all instances",
		Long: `One line for each step of the last hour, or of --since, oldest first; steps in which nothing was counted
are left out. With --by one line for each queue, webhook, outcome or status class, the most first.

FAILED are attempts that were no success. HELD counts deliveries each time that they had to wait for their webhook.
P50 and P95 are how long attempts took. VISIBLE, HIDDEN and OLDEST are the most that was on the queues within the
step, with --by within the whole time; on Azure only where somebody read an instance's metrics then. Minutes are kept for 48 hours, hours for 90 days.`,
		Example: `  pushlease stats
  pushlease stats --since 24h --step 1h --queue orders
  pushlease stats --by webhook --since 168h
  pushlease stats -o json`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{}
			for flag, name := range map[string]string{"queue": "queue", "webhook": "webhook", "step": "step", "by": "group_by"} {
				if v := cmd.Flags().Lookup(flag).Value.String(); v != "" {
					query.Set(name, v)
				}
			}
			if !since.from.IsZero() {
				query.Set("from", since.from.UTC().Format(time.RFC3339))
			}
			if err := c.nameInQuery(cmd.Context(), query); err != nil {
				return err
			}
			a, err := c.do(cmd.Context(), request{method: http.MethodGet, path: "/api/v1/stats", query: query})
			if err != nil {
				return err
			}
			if c.json() {
				return c.raw(cmd, a)
			}
			var h history
			if err := json.Unmarshal(a.body, &h); err != nil {
				return fmt.Errorf("the server's answer can't be read: %w", err)
			}
			return h.show(cmd.OutOrStdout(), query.Get("group_by"))
		},
	}
	cmd.Flags().String("by", "", "a line for each of these instead of for each step: queue, webhook, outcome or status_class")
	cmd.Flags().String("step", "", "how long a step is: 1m, 5m, 15m, 1h, 6h or 24h; without it the shortest that makes 200 lines at most")
	cmd.Flags().String("queue", "", "only this queue")
	cmd.Flags().String("webhook", "", "only this webhook: its id or its name")
	cmd.Flags().Var(since, "since", "how far back, such as 30m or 168h; without it an hour")
	c.addFlags(cmd)
	return cmd
}

// show prints the steps, or the groups where they were asked for.
func (h history) show(w io.Writer, by string) error {
	heading, rows := append([]string{"FROM"}, statsHeading...), [][]string(nil)
	if by != "" {
		heading[0] = strings.ToUpper(strings.ReplaceAll(by, "_", " "))
	}
	for _, g := range h.Groups {
		if by != "" {
			key := g.Key
			if key == "" {
				key = "(none)"
			}
			rows = append(rows, append([]string{key}, g.Total.cells()...))
			continue
		}
		for _, p := range g.Points {
			rows = append(rows, append([]string{clock(p.At)}, p.cells()...))
		}
	}
	if by == "outcome" || by == "status_class" { // the other counts are of no one outcome
		for i := range rows {
			rows[i] = rows[i][:2]
		}
		heading = heading[:2]
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintf(w, "Nothing was counted from %s until %s. What an instance counts is told within two minutes.\n", clock(h.From), clock(h.Until))
		return err
	}
	if h.Others > 0 {
		rows = append(rows, []string{fmt.Sprintf("(%d with less)", h.Others)})
	}
	return table(w, heading, rows)
}
