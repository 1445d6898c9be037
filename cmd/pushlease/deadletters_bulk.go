package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	replayJobsPath = "/api/v1/replays"
	// watchJobEvery is how often a job that is watched is asked after.
	watchJobEvery = time.Second
)

// replayJob is what is shown of a replay job.
type replayJob struct {
	ID             string         `json:"id"`
	State          string         `json:"state"`
	Matched        int            `json:"matched"`
	Replayed       int            `json:"replayed"`
	Skipped        int            `json:"skipped"`
	SkippedBecause map[string]int `json:"skipped_because"`
	Failed         int            `json:"failed"`
	StartedAt      time.Time      `json:"started_at"`
	FinishedAt     time.Time      `json:"finished_at"`
	Rate           float64        `json:"rate"`
	LastError      string         `json:"last_error"`
	Outcome        *replayOutcome `json:"outcome"`
}

// replayOutcome is what became of the replays of a job that has ended.
type replayOutcome struct {
	Delivered int  `json:"delivered"`
	CameBack  int  `json:"came_back"`
	UnderWay  int  `json:"under_way"`
	Waiting   int  `json:"waiting"`
	Exact     bool `json:"exact"`
}

func (o *replayOutcome) String() string {
	if o == nil {
		return ""
	}
	text := fmt.Sprintf("%d delivered, %d came back, %d under way, %d waiting", o.Delivered, o.CameBack, o.UnderWay, o.Waiting)
	if !o.Exact {
		text += " (at least: there are more than were counted)"
	}
	return text
}

func (j replayJob) progress() string {
	return fmt.Sprintf("%s: %d matched, %d replayed, %d skipped%s, %d failed", j.State, j.Matched, j.Replayed, j.Skipped, because(j.SkippedBecause), j.Failed)
}

// because lists why some were left out.
func because(counts map[string]int) string {
	if len(counts) == 0 {
		return ""
	}
	var parts []string
	for why, n := range counts {
		parts = append(parts, fmt.Sprintf("%s %d", why, n))
	}
	slices.Sort(parts)
	return " (" + strings.Join(parts, ", ") + ")"
}

// deadLetterFilter are the flags that say which dead letters are meant.
type deadLetterFilter struct {
	values map[string]*string
	all    bool
	dryRun bool
	limit  int
}

var deadLetterFilterHelp = [][2]string{
	{"queue", "those of this queue"}, {"webhook", "those of this webhook: its id or its name"}, {"message", "those of this message id"},
	{"reason", "those with this reason, such as MaxDeliveryCountExceeded"}, {"answer", "those whose last attempt gave this status or error class"},
	{"cause", "those with this cause, as dead-letters summary --by cause shows it"}, {"status", "those with this status: waiting, replaying or replayed"},
	{"from", "those from this time on, such as 2026-01-31T15:04:05Z"}, {"until", "those before this time"},
}

func (f *deadLetterFilter) addFlags(cmd *cobra.Command, what string) {
	f.values = map[string]*string{}
	for _, row := range deadLetterFilterHelp {
		f.values[row[0]] = cmd.Flags().String(row[0], "", row[1])
	}
	cmd.Flags().BoolVar(&f.all, "all", false, "all of them; instead of a filter")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "say how many there are, and do nothing")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "the most to "+what+"; 0 means no limit")
}

// given reports whether any of the flags was used.
func (f *deadLetterFilter) given() bool {
	for _, v := range f.values {
		if *v != "" {
			return true
		}
	}
	return f.all || f.dryRun || f.limit != 0
}

// byName puts the id of a webhook where its name was given.
func (f *deadLetterFilter) byName(ctx context.Context, c *client) error {
	named := url.Values{"webhook": {*f.values["webhook"]}}
	err := c.nameInQuery(ctx, named)
	*f.values["webhook"] = named.Get("webhook")
	return err
}

// body is the request that the flags make, with more in it.
func (f *deadLetterFilter) body(more map[string]any) ([]byte, error) {
	if f.limit < 0 {
		return nil, usagef("--limit %d: use a number from 1 on, or 0 for no limit", f.limit)
	}
	filtered := f.all
	for name, v := range f.values {
		if *v != "" {
			more[name], filtered = *v, true
		}
	}
	if !filtered {
		return nil, usagef("this would be about every dead letter; say which with --queue, --webhook, --message, --reason, --answer, --cause, --from or --until, or say --all")
	}
	if f.all {
		more["all"] = true
	}
	if f.dryRun {
		more["dry_run"] = true
	}
	if f.limit > 0 {
		more["limit"] = f.limit
	}
	body, err := json.Marshal(more)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	return body, nil
}

func (c *client) postJSON(ctx context.Context, path string, body []byte) (answer, error) {
	return c.do(ctx, request{method: http.MethodPost, path: path, body: body, header: map[string]string{"Content-Type": "application/json"}})
}

// showDryRun prints what a request would be about.
func (c *client) showDryRun(cmd *cobra.Command, a answer, verb string) error {
	if c.json() {
		return c.raw(cmd, a)
	}
	var d struct {
		Matched        int            `json:"matched"`
		Exact          bool           `json:"exact"`
		Skipped        int            `json:"skipped"`
		SkippedBecause map[string]int `json:"skipped_because"`
		Kept           int            `json:"kept"`
		NeverReplayed  int            `json:"never_replayed"`
	}
	if err := a.into(&d); err != nil {
		return err
	}
	least := ""
	if !d.Exact {
		least = "at least "
	}
	d.Skipped += d.Kept // a purge keeps, a replay skips
	never := ""
	if d.NeverReplayed > 0 {
		never = fmt.Sprintf(" %s%d of them were never replayed.", least, d.NeverReplayed)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s%d matched; of these, %d would be %s and %d skipped%s.%s Nothing was done.\n",
		least, d.Matched, d.Matched-d.Skipped, verb, d.Skipped, because(d.SkippedBecause), never)
	return err
}

// replayMany starts a replay job, and follows it when asked.
func (c *client) replayMany(cmd *cobra.Command, f *deadLetterFilter, rate float64, force, watch bool) error {
	more := map[string]any{}
	if order := cmd.Flags().Lookup("order"); order.Changed {
		more["order"] = order.Value.String()
	}
	if cmd.Flags().Changed("rate") {
		more["rate"] = rate
	}
	if force {
		more["force"] = true
	}
	body, err := f.body(more)
	if err != nil {
		return err
	}
	a, err := c.postJSON(cmd.Context(), replayJobsPath, body)
	if err != nil {
		return err
	}
	if f.dryRun {
		return c.showDryRun(cmd, a, "replayed")
	}
	if watch {
		return c.watchJob(cmd, a)
	}
	return c.showJob(cmd, a)
}

func (c *client) showJob(cmd *cobra.Command, a answer) error {
	if c.json() {
		return c.raw(cmd, a)
	}
	var j replayJob
	if err := a.into(&j); err != nil {
		return err
	}
	return fields(cmd.OutOrStdout(), [][2]string{
		{"job", j.ID}, {"state", j.State}, {"matched", strconv.Itoa(j.Matched)}, {"replayed", strconv.Itoa(j.Replayed)},
		{"skipped", strconv.Itoa(j.Skipped) + because(j.SkippedBecause)}, {"failed", strconv.Itoa(j.Failed)},
		{"rate", strconv.FormatFloat(j.Rate, 'g', -1, 64) + " a second"}, {"started", clock(j.StartedAt)}, {"ended", clock(j.FinishedAt)},
		{"outcome", j.Outcome.String()}, {"note", j.LastError},
	})
}

// watchJob prints a job's progress until it ends. It fails when the job does.
// Interrupting it leaves the job alone.
func (c *client) watchJob(cmd *cobra.Command, a answer) error {
	tick := time.NewTicker(watchJobEvery)
	defer tick.Stop()
	last := ""
	for {
		var j replayJob
		if err := a.into(&j); err != nil {
			return err
		}
		if line := j.progress(); line != last && !c.json() {
			_, _ = fmt.Fprintln(cmd.OutOrStdout(), oneLine(line)) // the last line reports a broken pipe
			last = line
		}
		if j.State != "running" {
			if err := c.endOfJob(cmd, a, j); err != nil {
				return err
			}
			break
		}
		select {
		case <-cmd.Context().Done():
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "The job goes on: pushlease dead-letters jobs %s, and --cancel ends it.\n", oneLine(j.ID))
			return nil
		case <-tick.C:
		}
		next, err := c.do(cmd.Context(), request{method: http.MethodGet, path: replayJobsPath + "/" + url.PathEscape(j.ID)})
		switch {
		case err == nil:
			a = next
		case cmd.Context().Err() == nil:
			return fmt.Errorf("the job was started, but can't be followed: %w", err)
		}
	}
	return nil
}

// endOfJob says how a job ended, and fails unless it is done.
func (c *client) endOfJob(cmd *cobra.Command, a answer, j replayJob) error {
	if c.json() {
		if err := c.raw(cmd, a); err != nil {
			return err
		}
	} else {
		c.endingOf(cmd, j)
	}
	if j.State != "done" || j.Failed > 0 {
		return silentError{}
	}
	return nil
}

// endingOf prints what became of the replays so far, and why the job ended where it failed.
func (c *client) endingOf(cmd *cobra.Command, j replayJob) {
	if j.Outcome != nil {
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), oneLine(j.Outcome.String()))
	}
	if j.LastError != "" {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), oneLine(j.LastError))
	}
}

func newDeadLettersJobsCommand() *cobra.Command {
	c := &client{}
	var cancel, watch bool
	cmd := &cobra.Command{
		Use:   "jobs [JOB-ID]",
		Short: "List the replays by filter, or show, follow or cancel one",
		Long: `Lists the replay jobs, newest first, or shows one of them. When the process that works on a job is gone,
another one goes on with it within two minutes.`,
		Example: "  pushlease dead-letters jobs\n  pushlease dead-letters jobs JOB-ID --watch\n  pushlease dead-letters jobs JOB-ID --cancel",
		Args:    arguments(0, 1, "at most the id of one job"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && (cancel || watch):
				return usagef("--cancel and --watch need the id of a job (pushlease dead-letters jobs shows them)")
			case cancel && watch:
				return usagef("--cancel and --watch contradict each other")
			case len(args) == 0:
				return c.listJobs(cmd)
			}
			r := request{method: http.MethodGet, path: replayJobsPath + "/" + url.PathEscape(args[0])}
			if cancel {
				r.method = http.MethodDelete
			}
			a, err := c.do(cmd.Context(), r)
			if err != nil {
				return err
			}
			if watch {
				return c.watchJob(cmd, a)
			}
			return c.showJob(cmd, a)
		},
	}
	cmd.Flags().BoolVar(&cancel, "cancel", false, "end the job; what it has not replayed stays waiting")
	cmd.Flags().BoolVar(&watch, "watch", false, "print its progress until it ends")
	c.addFlags(cmd)
	return cmd
}

func (c *client) listJobs(cmd *cobra.Command) error {
	a, err := c.do(cmd.Context(), request{method: http.MethodGet, path: replayJobsPath})
	if err != nil {
		return err
	}
	if c.json() {
		return c.raw(cmd, a)
	}
	var p page
	if err := a.into(&p); err != nil {
		return err
	}
	jobs, err := rows[replayJob](p)
	if err != nil {
		return err
	}
	var cells [][]string
	for _, j := range jobs {
		cells = append(cells, []string{clock(j.StartedAt), j.State, strconv.Itoa(j.Matched), strconv.Itoa(j.Replayed), strconv.Itoa(j.Skipped), strconv.Itoa(j.Failed), j.ID})
	}
	return table(cmd.OutOrStdout(), []string{"STARTED", "STATE", "MATCHED", "REPLAYED", "SKIPPED", "FAILED", "ID"}, cells)
}
