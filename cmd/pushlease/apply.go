package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// applyFlags say what to make of the files.
type applyFlags struct {
	files                           []string
	prune, dryRun, yes, exitChanged bool
}

// appliedWebhook is what became, or would become, of one webhook.
type appliedWebhook struct {
	ID       string          `json:"id"`
	Queue    string          `json:"queue"`
	Action   string          `json:"action"` // create, replace, nothing or delete
	Changes  []appliedChange `json:"changes,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`

	etag     string
	declared *declaredWebhook // nil of one that is deleted
}

type appliedChange struct {
	Field string          `json:"field"`
	From  json.RawMessage `json:"from,omitempty"`
	To    json.RawMessage `json:"to,omitempty"`
}

func newApplyCommand() *cobra.Command {
	c, f := &client{}, &applyFlags{}
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Make the server's webhooks what files declare",
		Long: `Makes the server's webhooks what YAML files declare: what is not there is registered, what
differs is replaced, and what is the same stays untouched. A setting that a file does not
name has its default, but for the secret and whether the webhook is enabled, which stay.
Everything is checked before the first webhook is written.

  webhooks:
    - id: billing                    # a name of your own
      queue: orders
      url: https://example.com/hook
      secret: {env: BILLING_SECRET}  # or {file: billing.secret}; left out, one is made
      headers:
        X-Api-Key: {env: BILLING_KEY}
      timeout: 10s
      policy: {preset: realtime}

Secrets stay outside: url, secret, signing_key, each header and what is in signatures, auth and tls may be {env: NAME} or {file: PATH}, a path
from the folder of the file. They are never printed. A secret that a webhook does not have
is refused: webhooks rotate-secret lets the old one sign for a while.`,
		Example: `  pushlease export > exported.yaml
  pushlease apply -f webhooks.yaml --dry-run
  pushlease apply -f webhooks.yaml
  pushlease apply -f orders.yaml -f refunds.yaml --prune --yes`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.apply(cmd, f) },
	}
	cmd.Flags().StringArrayVarP(&f.files, "file", "f", nil, "YAML or JSON file with webhooks, - for standard input (repeatable)")
	cmd.Flags().BoolVar(&f.prune, "prune", false, "delete the webhooks that no file names; on a terminal it asks, elsewhere it needs --yes")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only say what would be done")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "delete without asking")
	cmd.Flags().BoolVar(&f.exitChanged, "detailed-exitcode", false, "exit with 5 where something was changed, or would be")
	c.addFlags(cmd)
	return cmd
}

func (c *client) apply(cmd *cobra.Command, f *applyFlags) error {
	if len(f.files) == 0 {
		return usagef("name a file: pushlease apply -f webhooks.yaml (pushlease export writes one)")
	}
	declared, err := readDeclared(cmd, f.files)
	if err != nil {
		return err
	}
	plan, err := c.plan(cmd, declared)
	if err == nil && f.prune {
		plan, err = c.planDeletions(cmd, plan)
	}
	if err != nil {
		return err
	}
	if !f.dryRun {
		if err := mayDelete(cmd, f, plan); err != nil {
			return err
		}
		for i := range plan {
			if err := c.applyOne(cmd, &plan[i]); err != nil {
				_ = c.showApplied(cmd, f, plan[:i]) // the failure below is what counts
				var refusal *apiError
				if errors.As(err, &refusal) && refusal.Status == http.StatusPreconditionFailed {
					err = refusedError{"somebody has changed it since it was checked", refusal}
				}
				return fmt.Errorf("%s: %w; %d of %d were done before it: run the command again for the rest", plan[i].ID, err, i, len(plan))
			}
		}
	}
	if err := c.showApplied(cmd, f, plan); err != nil {
		return err
	}
	if f.exitChanged && counts(plan)["nothing"] < len(plan) {
		return changedError{}
	}
	return nil
}

// plan asks what would be done of each, and gathers everything that is refused.
func (c *client) plan(cmd *cobra.Command, declared []declaredWebhook) ([]appliedWebhook, error) {
	var plan []appliedWebhook
	var refused []string
	var first *apiError
	refusedHooks := 0
	for i := range declared {
		d := &declared[i]
		a, err := c.putDeclared(cmd, d, url.Values{"dry_run": {"true"}}, nil)
		var refusal *apiError
		switch {
		case errors.As(err, &refusal) && refusal.exitCode() == exitRefused && refusal.Status != http.StatusUnauthorized && refusal.Status != http.StatusForbidden:
			if first == nil {
				first = refusal
			}
			refused = append(refused, refusedAt(d, refusal)...)
			refusedHooks++
			continue
		case err != nil:
			return nil, err
		}
		var answered struct {
			Queue    string   `json:"queue"`
			Warnings []string `json:"warnings"`
			Plan     *struct {
				Action  string          `json:"action"`
				Changes []appliedChange `json:"changes"`
			} `json:"plan"`
		}
		if err := a.into(&answered); err != nil {
			return nil, err
		}
		if answered.Plan == nil {
			return nil, errors.New("the server is of a version that knows no dry run, and has written " + d.id + "; update it")
		}
		plan = append(plan, appliedWebhook{
			ID: d.id, Queue: answered.Queue, Action: answered.Plan.Action, Changes: answered.Plan.Changes,
			Warnings: answered.Warnings, etag: a.etag(), declared: d,
		})
	}
	if len(refused) > 0 {
		return nil, refusedError{fmt.Sprintf("nothing was written, since the server refuses %d of %d webhooks:\n  %s", refusedHooks, len(declared), strings.Join(refused, "\n  ")), first}
	}
	return plan, nil
}

// refusedAt says what the server refuses of a webhook, and where that stands in its file.
func refusedAt(d *declaredWebhook, refusal *apiError) (lines []string) {
	for _, e := range refusal.Errors {
		lines = append(lines, fmt.Sprintf("%s: %s%s\n    → %s", d.at(e.Field), d.named(e.Field), e.Problem, asCommands(e.Cure)))
	}
	if len(lines) == 0 {
		lines = append(lines, d.at("id")+": "+d.named("")+refusal.Error())
	}
	return lines
}

// refusedError is several refusals of the server as one.
type refusedError struct {
	text  string
	first *apiError
}

func (e refusedError) Error() string { return e.text }
func (e refusedError) Unwrap() error { return e.first }

// planDeletions adds what no file names.
func (c *client) planDeletions(cmd *cobra.Command, plan []appliedWebhook) ([]appliedWebhook, error) {
	named := map[string]bool{}
	for _, p := range plan {
		named[p.ID] = true
	}
	all, err := c.list(cmd.Context(), "/api/v1/webhooks", url.Values{}, maxWebhooks)
	if err != nil {
		return nil, err
	}
	more(cmd, all)
	list, err := rows[webhookRow](all)
	if err != nil {
		return nil, err
	}
	for _, w := range list {
		if named[w.ID] {
			continue
		}
		a, err := c.do(cmd.Context(), request{method: http.MethodGet, path: webhookPath(w.ID)})
		switch {
		case isGone(err): // since it was listed
		case err != nil:
			return nil, err
		default:
			plan = append(plan, appliedWebhook{ID: w.ID, Queue: w.Queue, Action: "delete", etag: a.etag()})
		}
	}
	return plan, nil
}

// isGone reports whether the webhook that was asked for is not there any more.
func isGone(err error) bool {
	var refusal *apiError
	return errors.As(err, &refusal) && refusal.exitCode() == exitNotFound
}

// maxWebhooks is more than a server has.
const maxWebhooks = 100_000

// mayDelete asks before webhooks are deleted.
func mayDelete(cmd *cobra.Command, f *applyFlags, plan []appliedWebhook) error {
	var ids []string
	for _, p := range plan {
		if p.Action == "delete" {
			ids = append(ids, oneLine(p.ID))
		}
	}
	switch {
	case len(ids) == 0 || f.yes:
		return nil
	case !isTerminal(cmd.InOrStdin()):
		return usagef("nothing was written: --prune would delete %s, and there is no terminal to ask on; look with --dry-run, then say --yes", ofMany(int64(len(ids)), "webhook"))
	}
	return confirm(cmd, fmt.Sprintf("This deletes %s: %s. What waits for them alone is held. Go on?", ofMany(int64(len(ids)), "webhook"), strings.Join(ids, ", ")), "Nothing was written.")
}

// applyOne does what the plan says of one webhook, unless somebody else has changed it since.
func (c *client) applyOne(cmd *cobra.Command, p *appliedWebhook) error {
	switch p.Action {
	case "create":
		_, err := c.putDeclared(cmd, p.declared, nil, map[string]string{"If-None-Match": "*"})
		if _, named := p.declared.body["secret"]; err == nil && !named {
			p.Warnings = append(p.Warnings, "A signing secret was made for it, which is not shown here: pushlease webhooks rotate-secret "+p.ID+" --overlap 0s shows a new one.")
		}
		return err
	case "replace":
		_, err := c.putDeclared(cmd, p.declared, nil, map[string]string{"If-Match": p.etag})
		return err
	case "delete":
		_, err := c.do(cmd.Context(), request{method: http.MethodDelete, path: webhookPath(p.ID), header: map[string]string{"If-Match": p.etag}})
		if isGone(err) {
			return nil
		}
		return err
	}
	return nil
}

func (c *client) putDeclared(cmd *cobra.Command, d *declaredWebhook, query url.Values, header map[string]string) (answer, error) {
	return c.send(cmd, request{method: http.MethodPut, path: webhookPath(d.id), query: query, header: header}, d.body)
}

func counts(plan []appliedWebhook) map[string]int {
	n := map[string]int{}
	for _, p := range plan {
		n[p.Action]++
	}
	return n
}

// showApplied lists what was done, or would be.
func (c *client) showApplied(cmd *cobra.Command, f *applyFlags, plan []appliedWebhook) error {
	if c.json() {
		if plan == nil {
			plan = []appliedWebhook{}
		}
		return c.value(cmd, map[string]any{"dry_run": f.dryRun, "webhooks": plan})
	}
	out := cmd.OutOrStdout()
	for _, p := range plan {
		if p.Action != "nothing" {
			_, _ = fmt.Fprintf(out, "%-8s %s (%s)\n", p.Action, oneLine(p.ID), oneLine(p.Queue)) // the last line's error counts
		}
		for _, change := range p.Changes {
			_, _ = fmt.Fprintf(out, "           %s: %s\n", oneLine(change.Field), change.text())
		}
		for _, warning := range p.Warnings {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", oneLine(p.ID), oneLine(warning))
		}
	}
	n := counts(plan)
	text := "%d created, %d replaced, %d deleted, %d unchanged.\n"
	if f.dryRun {
		text = "To create %d, to replace %d, to delete %d, unchanged %d. It was a dry run: nothing was written.\n"
	}
	_, err := fmt.Fprintf(out, text, n["create"], n["replace"], n["delete"], n["nothing"])
	return err
}

// text is what becomes of the value. One that is hidden on both sides has changed all the same.
func (c appliedChange) text() string {
	if from, to := shownValue(c.From), shownValue(c.To); from != to {
		return from + " → " + to
	}
	return "changed, not shown"
}

func shownValue(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "(none)"
	}
	return oneLine(string(raw))
}
