package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

const purgePath = "/api/v1/dead-letters/purge"

func newDeadLettersPurgeCommand() *cobra.Command {
	c, f := &client{}, &deadLetterFilter{}
	var yes bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete all dead letters that a filter matches; copies on poison queues stay",
		Long: `Deletes all dead letters that the filter matches. At least one of --queue, --webhook, --message, --reason,
--answer, --cause, --from and --until is needed, or --status replayed, or --all. A dead letter whose replay has not ended is kept:
its message would be lost with it. On a terminal it says how many there are and asks; elsewhere it needs --yes.`,
		Example: "  pushlease dead-letters purge --queue orders --until 2026-01-31T00:00:00Z --dry-run\n  pushlease dead-letters purge --status replayed --yes",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.byName(cmd.Context(), c); err != nil {
				return err
			}
			if f.dryRun {
				body, err := f.body(map[string]any{})
				if err != nil {
					return err
				}
				a, err := c.postJSON(cmd.Context(), purgePath, body)
				if err != nil {
					return err
				}
				return c.showDryRun(cmd, a, "deleted")
			}
			if !yes {
				if err := c.confirmPurge(cmd, f); err != nil {
					return err
				}
			}
			return c.purge(cmd, f)
		},
	}
	f.addFlags(cmd, "delete")
	cmd.Flags().BoolVar(&yes, "yes", false, "delete without a question")
	c.addFlags(cmd)
	return cmd
}

// purged is what requests have deleted.
type purged struct {
	Purged        int     `json:"purged"`
	Kept          int     `json:"kept"`
	NeverReplayed int     `json:"never_replayed"`
	CopiesLeft    int     `json:"copies_left"`
	NextCursor    *string `json:"next_cursor"`
}

// purge repeats the request until all is done: each deletes for a bounded time.
func (c *client) purge(cmd *cobra.Command, f *deadLetterFilter) error {
	var total purged
	limit, left := f.limit, *f
	more := map[string]any{"dry_run": false}
	for {
		body, err := left.body(more)
		if err != nil {
			return err
		}
		a, err := c.postJSON(cmd.Context(), purgePath, body)
		var step purged
		if err == nil {
			err = a.into(&step)
		}
		if err != nil && total.Purged > 0 {
			return fmt.Errorf("%d were deleted before this went wrong: %w", total.Purged, err)
		}
		if err != nil {
			return err
		}
		total.Purged, total.Kept, total.NextCursor = total.Purged+step.Purged, total.Kept+step.Kept, step.NextCursor
		total.NeverReplayed, total.CopiesLeft = total.NeverReplayed+step.NeverReplayed, total.CopiesLeft+step.CopiesLeft
		if step.NextCursor == nil || limit > 0 && total.Purged >= limit {
			break
		}
		if limit > 0 {
			left.limit = limit - total.Purged
		}
		more = map[string]any{"dry_run": false, "cursor": *step.NextCursor}
	}
	if c.json() {
		return c.value(cmd, total)
	}
	kept := ""
	if total.Kept > 0 {
		kept = fmt.Sprintf(" %d were kept: a replay is under way, or they changed meanwhile.", total.Kept)
	}
	if total.CopiesLeft > 0 {
		kept += fmt.Sprintf(" The copies of %d stay on their poison queues, with the whole text.", total.CopiesLeft)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d dead letters deleted, %d of them never replayed.%s\n", total.Purged, total.NeverReplayed, kept)
	return err
}

// confirmPurge says what a purge would delete, and asks whether it may: who types a filter
// that is too wide finds out before the messages are gone.
func (c *client) confirmPurge(cmd *cobra.Command, f *deadLetterFilter) error {
	counting := *f
	counting.dryRun = true
	body, err := counting.body(map[string]any{})
	if err != nil {
		return err
	}
	if !isTerminal(cmd.InOrStdin()) {
		return usagef("this deletes messages for good, and there is no terminal to ask on; look with --dry-run, then say --yes")
	}
	a, err := c.postJSON(cmd.Context(), purgePath, body)
	if err != nil {
		return err
	}
	var d struct {
		Matched       int  `json:"matched"`
		Exact         bool `json:"exact"`
		Kept          int  `json:"kept"`
		NeverReplayed int  `json:"never_replayed"`
	}
	if err := a.into(&d); err != nil {
		return err
	}
	least, n := "", d.Matched-d.Kept
	if !d.Exact {
		least = "at least "
	}
	if f.limit > 0 && n > f.limit {
		least, n = "of "+least+fmt.Sprint(n)+", ", f.limit
	}
	return confirm(cmd, fmt.Sprintf("This deletes %s%d dead letters for good; of all that match, %d were never replayed. Delete them?", least, n, d.NeverReplayed), "Nothing was deleted.")
}
