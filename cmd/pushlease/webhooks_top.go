package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	// topDepthEvery is how often the queues are counted at most: each count is two paid
	// storage transactions for each queue.
	topDepthEvery = 10 * time.Second
	minTopEvery   = 500 * time.Millisecond
	maxTopEvery   = time.Hour
	// topTexts is for how many webhooks in trouble the reason is printed.
	topTexts = 3
)

// webhookStatus is how a webhook fares in the instance that answered.
type webhookStatus struct {
	Instance      string    `json:"instance"`
	State         string    `json:"state"`
	Until         time.Time `json:"until,omitzero"`
	Text          string    `json:"text"`
	Window        int       `json:"window"`
	Concurrency   int       `json:"concurrency"`
	InFlight      int       `json:"in_flight"`
	Waiting       int       `json:"waiting"`
	RatePerSecond float64   `json:"rate_per_second"`
	LearnedRate   struct {
		PerSecond float64 `json:"per_second"`
		Leader    string  `json:"leader,omitempty"`
	} `json:"learned_rate"`
	Latency        string    `json:"latency,omitempty"`
	Delivered      int64     `json:"delivered"`
	Refused        int64     `json:"refused"`
	Failed         int64     `json:"failed"`
	Postponed      int64     `json:"postponed"`
	RecentPosts    int       `json:"recent_posts"`
	RecentRefused  int       `json:"recent_refused"`
	FailingSince   time.Time `json:"failing_since,omitzero"`
	FailedMessages int       `json:"failed_messages"`
}

// otherInstance is how a webhook fares as another instance has told last.
type otherInstance struct {
	Instance       string    `json:"instance"`
	State          string    `json:"state"`
	Until          time.Time `json:"until"`
	FailedMessages int       `json:"failed_messages"`
	AsOf           time.Time `json:"as_of"`
}

// elsewhere says how it fares in the other instances, a line for each.
func elsewhere(others []otherInstance) (pairs [][2]string) {
	for _, o := range others {
		text := o.State
		if !o.Until.IsZero() {
			text += " until " + clock(o.Until)
		}
		if o.FailedMessages > 0 {
			text += fmt.Sprintf(", %d messages have failed since the last success", o.FailedMessages)
		}
		pairs = append(pairs, [2]string{"in " + o.Instance, text + " (as of " + clock(o.AsOf) + ")"})
	}
	return pairs
}

// refuses reports whether at least half of what it was lately sent was refused, though it
// looks healthy otherwise.
func (s webhookStatus) refuses() bool {
	return (s.State == "healthy" || s.State == "busy") && s.RecentRefused > 0 && 2*s.RecentRefused >= s.RecentPosts
}

// fares is the state, and that most is refused in it.
func (s webhookStatus) fares() string {
	if s.refuses() {
		return s.State + ", but " + s.refusal()
	}
	return s.State
}

func (s webhookStatus) refusal() string {
	return fmt.Sprintf("refuses %d of %d", s.RecentRefused, s.RecentPosts)
}

// traffic is what is in flight, and how fast it goes.
func (s webhookStatus) traffic() string {
	text := fmt.Sprintf("%d in flight, %d may be (at most %d)", s.InFlight, s.Window, s.Concurrency)
	if s.RatePerSecond > 0 {
		text += fmt.Sprintf("; %v a second, each in %s", s.RatePerSecond, s.Latency)
	}
	return text
}

// topRow is one line of webhooks top.
type topRow struct {
	ID       string        `json:"id"`
	Name     string        `json:"name,omitempty"`
	Queue    string        `json:"queue"`
	Enabled  bool          `json:"enabled"`
	Disabled string        `json:"disabled_reason,omitempty"`
	Status   webhookStatus `json:"status"`
	// Depth is nil where the queue was not counted, or does not exist yet.
	Depth *topDepth `json:"depth,omitempty"`
}

type topDepth struct {
	Visible  int64 `json:"visible"`
	InFlight int64 `json:"in_flight"`
	Delayed  int64 `json:"delayed"`
}

// trouble orders rows: what an operator has to see comes first.
func (r topRow) trouble() int {
	switch {
	case r.Status.State == "disabled" && r.Disabled != "operator":
		return 0
	case r.Status.State == "failing", r.Status.State == "no_token":
		return 1
	case r.Status.State == "probing":
		return 2
	case r.Status.State == "paused":
		return 3
	case !r.Status.FailingSince.IsZero() || r.Status.refuses():
		return 4
	case r.Status.State == "limited":
		return 5
	case r.Status.State == "busy":
		return 6
	case r.Status.State == "disabled":
		return 7
	}
	return 8
}

func byTrouble(a, b topRow) int {
	return cmp.Or(cmp.Compare(a.trouble(), b.trouble()), cmp.Compare(b.Status.FailedMessages, a.Status.FailedMessages), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.ID, b.ID))
}

// webhooksTop is one run of webhooks top.
type webhooksTop struct {
	client
	queue string
	every time.Duration
	once  bool
	limit int

	depths    map[string]*topDepth
	countedAt time.Time
}

func newWebhooksTopCommand() *cobra.Command {
	c := &webhooksTop{}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch how all webhooks fare, trouble first",
		Long: `Shows a line for each webhook, those in trouble first, again and again until Ctrl-C:

  STATE      disabled, no_token (none can be had to show it), paused (it asked for it),
             failing (its breaker is open), probing
             (one POST finds out), limited (it has a limit; the rate that it is sent, as learned,
             stands beside it), busy (as much is in flight as it may get), healthy
  UNTIL      when the state ends by itself, UTC; of failing: the next probe, and of no_token
             the next request for one
  FLIGHT     POSTs in flight / its window / the most that may ever be
  RATE       POSTs a second that it took over the last minute, and how long one takes
  2XX, REFUSED, FAILED
             POSTs since the instance started; FAILED had no answer, 5xx or 429, and REFUSED any
             other, such as a 400, which mostly dead-letters the message. A STATE of refusing
             says that at least half of the last hour or two's were, and one of no 2xx that
             all of late failed
  QUEUE: VISIBLE what waits for a worker, WORK what is in work, DELAYED what waits for
             its time or is in work elsewhere; counted every 10 seconds at most,
             because each count of a queue costs two storage transactions on Azure

Below them it says of the worst ones why, what happens next and what to do. All but the
queues is the view of the instance that answers, named in the first line.`,
		Example: `  pushlease webhooks top
  pushlease webhooks top --queue orders --interval 5s
  pushlease webhooks top --once -o json | jq -r '.data[] | select(.status.state=="failing") | .id'`,
		Args: arguments(0, 0, ""),
		RunE: c.run,
	}
	cmd.Flags().StringVar(&c.queue, "queue", "", "only those of this queue")
	cmd.Flags().DurationVar(&c.every, "interval", 2*time.Second, "time between two looks, 500ms to 1h")
	cmd.Flags().BoolVar(&c.once, "once", false, "look once, and end")
	addLimit(cmd, &c.limit, 40)
	c.addFlags(cmd)
	return cmd
}

func (c *webhooksTop) run(cmd *cobra.Command, _ []string) error {
	if c.every < minTopEvery || c.every > maxTopEvery {
		return usagef("--interval %s: use %s to %s", c.every, minTopEvery, maxTopEvery)
	}
	if err := checkLimit(c.limit); err != nil {
		return err
	}
	rows, err := c.look(cmd.Context())
	if err != nil {
		return err
	}
	if c.once {
		return c.show(cmd, rows, nil)
	}
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for {
		if err := c.show(cmd, rows, err); err != nil {
			return err
		}
		select {
		case <-cmd.Context().Done(): // Ctrl-C is how it ends
			return nil
		case <-tick.C:
		}
		if rows, err = c.look(cmd.Context()); cmd.Context().Err() != nil {
			return nil
		}
		var refused *apiError
		if errors.As(err, &refused) && refused.exitCode() != exitFailed { // it stays so
			return err
		}
	}
}

// look reads the webhooks, and the queues when it is time to.
func (c *webhooksTop) look(ctx context.Context) ([]topRow, error) {
	query := url.Values{}
	if c.queue != "" {
		query.Set("queue", c.queue)
	}
	// All are read: which ones are in trouble shows only then.
	p, err := c.list(ctx, "/api/v1/webhooks", query, 100_000)
	if err != nil {
		return nil, err
	}
	all, err := rows[topRow](p)
	if err != nil {
		return nil, err
	}
	if c.depths == nil || time.Since(c.countedAt) >= topDepthEvery {
		if err := c.count(ctx); err != nil {
			return nil, err
		}
	}
	for i := range all {
		all[i].Depth = c.depths[all[i].Queue]
		if all[i].Status.State == "" { // the instance has not met it yet
			all[i].Status.State = "new"
		}
	}
	slices.SortFunc(all, byTrouble)
	return all, nil
}

// count reads the depths of the queues.
func (c *webhooksTop) count(ctx context.Context) error {
	type queueRow struct {
		Name  string    `json:"name"`
		Depth *topDepth `json:"depth"`
	}
	depths := map[string]*topDepth{}
	if c.queue != "" {
		var q queueRow
		a, err := c.do(ctx, request{method: http.MethodGet, path: "/api/v1/queues/" + url.PathEscape(c.queue)})
		if err != nil {
			return err
		}
		if err := a.into(&q); err != nil {
			return err
		}
		depths[q.Name] = q.Depth
	} else {
		p, err := c.list(ctx, "/api/v1/queues", url.Values{}, 100_000)
		if err != nil {
			return err
		}
		list, err := rows[queueRow](p)
		if err != nil {
			return err
		}
		for _, q := range list {
			depths[q.Name] = q.Depth
		}
	}
	c.depths, c.countedAt = depths, time.Now()
	return nil
}

// show prints what was seen, over what was before where a terminal shows it.
func (c *webhooksTop) show(cmd *cobra.Command, all []topRow, failed error) error {
	if c.json() {
		if failed != nil {
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "pushlease: "+clean(failed.Error())+"; trying again")
			return nil
		}
		shown := all[:min(len(all), c.limit)]
		if shown == nil {
			shown = []topRow{}
		}
		return c.value(cmd, map[string]any{"data": shown, "webhooks": len(all)})
	}
	var b strings.Builder
	switch {
	case failed != nil:
		b.WriteString(clean(failed.Error()) + "; trying again\n")
	default:
		if err := c.screen(&b, all); err != nil {
			return err
		}
	}
	text := b.String()
	if !c.once {
		if isTerminal(cmd.OutOrStdout()) { // what is written there can be written over
			text = "\x1b[H\x1b[2J" + text
		} else {
			text += "\n"
		}
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text)
	return err
}

// screen writes the lines for people.
func (c *webhooksTop) screen(w *strings.Builder, all []topRow) error {
	w.WriteString(oneLine(topSummary(all)) + "\n")
	var cells [][]string
	for _, r := range all[:min(len(all), c.limit)] {
		cells = append(cells, r.cells())
	}
	if len(cells) == 0 {
		w.WriteString("There are no webhooks. Register one with: pushlease webhooks create\n")
		return nil
	}
	heading := []string{"WEBHOOK", "QUEUE", "STATE", "UNTIL", "FLIGHT", "RATE", "LATENCY", "2XX", "REFUSED", "FAILED", "VISIBLE", "WORK", "DELAYED", "NAME"}
	if err := table(w, heading, cells); err != nil {
		return err
	}
	if more := len(all) - len(cells); more > 0 {
		fmt.Fprintf(w, "and %d more; --limit shows them\n", more)
	}
	for i, r := range all[:min(len(all), topTexts)] {
		if r.trouble() <= 4 && r.Status.Text != "" && i < c.limit {
			fmt.Fprintf(w, "\n%s: %s\n", oneLine(r.ID), oneLine(asCommands(r.Status.Text)))
		}
	}
	return nil
}

func topSummary(all []topRow) string {
	counts, instance := map[string]int{}, ""
	for _, r := range all {
		counts[r.health()]++
		instance = cmp.Or(instance, r.Status.Instance)
	}
	parts := []string{time.Now().UTC().Format("15:04:05Z")}
	if instance != "" {
		parts = append(parts, "seen by "+instance)
	}
	for _, state := range []string{"disabled", "no_token", "failing", "probing", "paused", "limited", "refusing", "without a 2xx", "busy", "healthy", "new"} {
		if n := counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, " · ")
}

// health is the state, or what is wrong though the state is a good one.
func (r topRow) health() string {
	switch {
	case r.Status.refuses():
		return "refusing"
	case r.Status.State == "healthy" && !r.Status.FailingSince.IsZero():
		return "without a 2xx"
	}
	return r.Status.State
}

func (r topRow) cells() []string {
	s := r.Status
	state := s.State
	switch {
	case state == "disabled" && r.Disabled != "":
		state += " (" + r.Disabled + ")"
	case state == "healthy" && !s.FailingSince.IsZero():
		state = "no 2xx"
	case state == "limited":
		state += fmt.Sprintf(" (%v/s", s.LearnedRate.PerSecond)
		if s.LearnedRate.Leader != "" {
			state += " by " + s.LearnedRate.Leader
		}
		state += ")"
	case s.refuses():
		state = r.health()
	}
	until, rate := "-", "-"
	if !s.Until.IsZero() {
		until = s.Until.UTC().Format("15:04:05Z")
	}
	if s.RatePerSecond > 0 {
		rate = strconv.FormatFloat(s.RatePerSecond, 'f', 1, 64) + "/s"
	}
	visible, work, delayed := "-", "-", "-"
	if r.Depth != nil {
		visible, work, delayed = strconv.FormatInt(r.Depth.Visible, 10), strconv.FormatInt(r.Depth.InFlight, 10), strconv.FormatInt(r.Depth.Delayed, 10)
	}
	latency := "-"
	if d, err := time.ParseDuration(s.Latency); err == nil && d > 0 {
		latency = d.Round(time.Millisecond).String()
	}
	return []string{
		r.ID, r.Queue, state, until, fmt.Sprintf("%d/%d/%d", s.InFlight, s.Window, s.Concurrency), rate, latency,
		strconv.FormatInt(s.Delivered, 10), strconv.FormatInt(s.Refused, 10), strconv.FormatInt(s.Failed, 10), visible, work, delayed, r.Name,
	}
}
