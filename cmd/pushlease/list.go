package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// listing is a list of the API as a command shows it.
type listing[T any] struct {
	path string
	// limit is how many rows are shown unless --limit says otherwise.
	limit int
	// argument is the parameter that the command's argument stands for; empty without one.
	argument string
	// filters are flags that narrow the list, and their help; each stands for the
	// parameter of its name.
	filters [][2]string
	heading []string
	cells   func(T) []string
	// wideHeading and wideCells are the further columns of -o wide.
	wideHeading []string
	wideCells   func(T) []string
}

// newListCommand makes cmd print the list: a row for each, or the JSON of all.
func newListCommand[T any](cmd *cobra.Command, l listing[T]) *cobra.Command {
	c, limit := &client{}, 0
	since := &sinceFlag{}
	for _, f := range l.filters {
		cmd.Flags().String(f[0], "", f[1])
		if f[0] == "from" {
			cmd.Flags().Var(since, "since", "only those of so long, such as 30m or 24h; instead of --from")
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkLimit(limit); err != nil {
			return err
		}
		query := url.Values{}
		if len(args) > 0 {
			query.Set(l.argument, args[0])
		}
		for _, f := range l.filters {
			if v := cmd.Flags().Lookup(f[0]).Value.String(); v != "" {
				query.Set(strings.ReplaceAll(f[0], "-", "_"), v)
			}
		}
		if !since.from.IsZero() {
			if query.Has("from") {
				return usagef("--from and --since say the same; use one of them")
			}
			query.Set("from", since.from.UTC().Format(time.RFC3339))
		}
		if err := c.nameInQuery(cmd.Context(), query); err != nil {
			return err
		}
		p, err := c.list(cmd.Context(), l.path, query, limit)
		if err != nil {
			return err
		}
		if c.json() {
			return c.value(cmd, p)
		}
		list, err := rows[T](p)
		if err != nil {
			return err
		}
		heading, cellsOf := l.heading, l.cells
		if c.wide() && l.wideCells != nil {
			heading = slices.Concat(l.heading, l.wideHeading)
			cellsOf = func(row T) []string { return slices.Concat(l.cells(row), l.wideCells(row)) }
		}
		var cells [][]string
		for _, row := range list {
			cells = append(cells, cellsOf(row))
		}
		more(cmd, p)
		return table(cmd.OutOrStdout(), heading, cells)
	}
	addLimit(cmd, &limit, l.limit)
	c.addFlags(cmd)
	return cmd
}

// sinceFlag is a time that is given as how long ago it was.
type sinceFlag struct {
	text string
	from time.Time
}

// String is what was given.
func (s *sinceFlag) String() string { return s.text }

// Type is shown in the help.
func (s *sinceFlag) Type() string { return "duration" }

// Set takes a positive duration.
func (s *sinceFlag) Set(text string) error {
	ago, err := time.ParseDuration(text)
	if err != nil || ago <= 0 {
		return fmt.Errorf("not a positive duration")
	}
	s.text, s.from = text, time.Now().Add(-ago)
	return nil
}
