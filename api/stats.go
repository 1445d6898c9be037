package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

const (
	// statsTime bounds how long one request reads the history.
	statsTime = 10 * time.Second
	// statsPoints is how many points the default step makes at most, and statsMost how many may be asked for.
	statsPoints, statsMost = 200, 1500
	// statsGroups bounds the groups that are told.
	statsGroups = 100
	// statsSpan is how far back from until the default from is.
	statsSpan = time.Hour
)

// statsSteps are the steps of the history. Those of an hour and more are made of the hours that are kept.
var statsSteps = []string{"1m", "5m", "15m", "1h", "6h", "24h"}

// statsKeys are what the history may be grouped by, and which part of a tally is in which group.
var statsKeys = map[string]func(tables.Tally) map[string]tables.Tally{
	"":             func(t tables.Tally) map[string]tables.Tally { return map[string]tables.Tally{"": t} },
	"queue":        func(t tables.Tally) map[string]tables.Tally { return map[string]tables.Tally{t.Queue: t} },
	"webhook":      func(t tables.Tally) map[string]tables.Tally { return map[string]tables.Tally{t.WebhookID: t} },
	"outcome":      func(t tables.Tally) map[string]tables.Tally { return byOutcome(t, func(o string) string { return o }) },
	"status_class": func(t tables.Tally) map[string]tables.Tally { return byOutcome(t, classOf) },
}

// classOf is the status class of an outcome, "none" for an attempt that had no answer.
func classOf(outcome string) string {
	if strings.HasSuffix(outcome, "xx") {
		return outcome
	}
	return "none"
}

func byOutcome(t tables.Tally, key func(outcome string) string) map[string]tables.Tally {
	parts := map[string]tables.Tally{}
	for outcome, n := range t.Attempts {
		part := parts[key(outcome)]
		part.Add(tables.Tally{Attempts: map[string]int64{outcome: n}})
		parts[key(outcome)] = part
	}
	return parts
}

// statsView is the history of all instances.
type statsView struct {
	From    time.Time       `json:"from"`
	Until   time.Time       `json:"until"`
	Step    policy.Duration `json:"step"`
	GroupBy string          `json:"group_by,omitempty"`
	Groups  []statsGroup    `json:"groups"`
	// Others is how many groups are not shown, those with the least.
	Others int `json:"others"`
}

type statsGroup struct {
	Key    string      `json:"key"`
	Total  statsCounts `json:"total"`
	Points []statsAt   `json:"points"`
}

// statsAt are the counts of one step; steps in which nothing was counted are left out.
type statsAt struct {
	At time.Time `json:"at"`
	statsCounts
}

type statsCounts struct {
	Attempts    map[string]int64 `json:"attempts"`
	Delivered   int64            `json:"delivered"`
	Held        int64            `json:"held"`
	DeadLetters int64            `json:"dead_letters"`
	Took        *statsSpread     `json:"took,omitempty"`
	Delay       *statsSpread     `json:"delay,omitempty"`
	Depth       *statsDepth      `json:"depth,omitempty"`
}

type statsSpread struct {
	P50 policy.Duration `json:"p50"`
	P95 policy.Duration `json:"p95"`
	P99 policy.Duration `json:"p99"`
}

type statsDepth struct {
	Visible int64           `json:"visible"`
	Hidden  int64           `json:"hidden"`
	Oldest  policy.Duration `json:"oldest"`
}

// statsQuery is what is asked for.
type statsQuery struct {
	from, until    time.Time
	step           time.Duration
	by             string
	queue, webhook string
}

// stats tells what all instances counted, step by step.
func (a *API) stats(w http.ResponseWriter, r *http.Request) error {
	q, err := readStatsQuery(r, time.Now())
	if err != nil {
		return err
	}
	length := tables.MinuteRollup
	if q.step >= tables.HourRollup {
		length = tables.HourRollup
	}
	ctx, cancel := context.WithTimeout(r.Context(), statsTime)
	defer cancel()
	h := newHistory(q)
	if err := a.Rollups.EachRollup(ctx, length, q.from, q.until, h.add); err != nil {
		return web.StorageFault("read the history", err)
	}
	return web.WriteJSON(w, http.StatusOK, h.view())
}

func readStatsQuery(r *http.Request, now time.Time) (statsQuery, error) {
	q := web.ReadQuery(r, "from", "until", "step", "group_by", "queue", "webhook")
	s := statsQuery{by: web.OneOf(q, "group_by", []string{"queue", "webhook", "outcome", "status_class"}), queue: q.Queue(), webhook: q.Text("webhook")}
	s.from, s.until = q.Span()
	step := web.OneOf(q, "step", statsSteps)
	if err := q.Err(); err != nil {
		return s, err
	}
	if s.until.IsZero() {
		s.until = now
	}
	if s.from.IsZero() {
		s.from = s.until.Add(-statsSpan)
	}
	if step == "" {
		step = defaultStep(s.from, s.until, now)
	}
	s.step, _ = time.ParseDuration(step) // one of statsSteps
	minutesGone := !minutesKept(s.step, s.from, s.until, now)
	kept := now.Add(-tables.HoursRetention)
	if s.step < tables.HourRollup && !minutesGone {
		kept = now.Add(-tables.MinutesRetention)
	}
	if s.from.Before(kept) && s.until.After(kept) {
		s.from = kept // the answer says so
	}
	s.from = s.from.UTC().Truncate(s.step)
	s.until = s.until.UTC()
	switch most := s.mostPoints(); {
	case minutesGone:
		q.Fail("step", "is shorter than what is kept of that time", "give 1h or more: minutes are kept for 48 hours, hours for 90 days")
	case now.Sub(s.until) > tables.HoursRetention:
		q.Fail("until", "is more than 90 days ago, and nothing is kept of that time", "give a later from and until")
	case s.from.After(now):
		q.Fail("from", "is in the future", "give the time at which to begin, or leave it out for the hour before until")
	case !s.from.Before(s.until):
		q.Fail("until", "is not after from", "give a later until, or leave it out for now")
	case s.until.Sub(s.from) > time.Duration(most)*s.step:
		q.Fail("step", fmt.Sprintf("makes more than %d points", most), "give a longer step, or a shorter time between from and until")
	}
	return s, q.Err()
}

// mostPoints is how many points may be asked for: of one by one webhook or queue fewer, since each has its own.
func (q *statsQuery) mostPoints() int {
	if q.by == "webhook" || q.by == "queue" {
		return statsPoints
	}
	return statsMost
}

// minutesKept reports whether the minutes that a step is made of are kept, but for those of one step: a clock or a rounding is that far apart.
func minutesKept(step time.Duration, from, until, now time.Time) bool {
	oldest := now.Add(-tables.MinutesRetention)
	return step >= tables.HourRollup || oldest.Sub(from) <= step && until.After(oldest)
}

// defaultStep is the shortest one that makes few enough points and whose figures are still kept.
func defaultStep(from, until, now time.Time) string {
	for _, step := range statsSteps {
		d, _ := time.ParseDuration(step)
		if minutesKept(d, from, until, now) && until.Sub(from) <= statsPoints*d {
			return step
		}
	}
	return statsSteps[len(statsSteps)-1]
}

// history adds up rollups.
type history struct {
	q      statsQuery
	counts map[string]map[time.Time]*tables.Tally // by group and step
	// depths are by step and queue: those of several queues are added up, those of one are not.
	depths map[time.Time]map[string]*tables.Tally
}

func newHistory(q statsQuery) *history {
	return &history{q: q, counts: map[string]map[time.Time]*tables.Tally{}, depths: map[time.Time]map[string]*tables.Tally{}}
}

func (h *history) add(r tables.Rollup) {
	at := r.At.Truncate(h.q.step)
	for _, t := range r.Tallies {
		if h.q.queue != "" && t.Queue != h.q.queue || h.q.webhook != "" && t.WebhookID != h.q.webhook {
			continue
		}
		if t.Depth != nil {
			add(h.depths, at, t.Queue, tables.Tally{Depth: t.Depth})
			t.Depth = nil
		}
		if len(t.Attempts) == 0 && t.Held+t.DeadLetters == 0 {
			continue
		}
		for key, part := range statsKeys[h.q.by](t) {
			add(h.counts, key, at, part)
		}
	}
}

// add adds t to what is under two keys.
func add[A, B comparable](sums map[A]map[B]*tables.Tally, a A, b B, t tables.Tally) {
	if sums[a] == nil {
		sums[a] = map[B]*tables.Tally{}
	}
	if sums[a][b] == nil {
		sums[a][b] = &tables.Tally{}
	}
	sums[a][b].Add(t)
}

// placeDepths puts the depths into the groups that have one: each queue, or all of them.
func (h *history) placeDepths() {
	for at, queues := range h.depths {
		sum := tables.Depth{}
		for name, t := range queues {
			if h.q.by == "queue" {
				add(h.counts, name, at, *t)
			}
			sum = tables.Depth{Visible: sum.Visible + t.Depth.Visible, Hidden: sum.Hidden + t.Depth.Hidden, Oldest: max(sum.Oldest, t.Depth.Oldest)}
		}
		if h.q.by == "" {
			add(h.counts, "", at, tables.Tally{Depth: &sum})
		}
	}
}

func (h *history) view() statsView {
	h.placeDepths()
	v := statsView{From: h.q.from, Until: h.q.until, Step: policy.Duration(h.q.step), GroupBy: h.q.by, Groups: []statsGroup{}}
	for key, steps := range h.counts {
		g, total := statsGroup{Key: key, Points: []statsAt{}}, tables.Tally{}
		for at, t := range steps {
			total.Add(*t)
			g.Points = append(g.Points, statsAt{at, newStatsCounts(*t)})
		}
		slices.SortFunc(g.Points, func(a, b statsAt) int { return a.At.Compare(b.At) })
		g.Total = newStatsCounts(total)
		v.Groups = append(v.Groups, g)
	}
	slices.SortFunc(v.Groups, func(a, b statsGroup) int {
		return cmp.Or(cmp.Compare(b.Total.size(), a.Total.size()), cmp.Compare(a.Key, b.Key))
	})
	v.Others = max(len(v.Groups)-statsGroups, 0)
	v.Groups = v.Groups[:min(len(v.Groups), statsGroups)]
	return v
}

func newStatsCounts(t tables.Tally) statsCounts {
	c := statsCounts{Attempts: t.Attempts, Delivered: t.Delivered, Held: t.Held, DeadLetters: t.DeadLetters, Took: newStatsSpread(t.Took), Delay: newStatsSpread(t.Delay)}
	if c.Attempts == nil {
		c.Attempts = map[string]int64{}
	}
	if d := t.Depth; d != nil {
		c.Depth = &statsDepth{d.Visible, d.Hidden, policy.Duration(d.Oldest)}
	}
	return c
}

func newStatsSpread(s policy.Spread) *statsSpread {
	if len(s) == 0 {
		return nil
	}
	return &statsSpread{policy.Duration(s.Quantile(0.5)), policy.Duration(s.Quantile(0.95)), policy.Duration(s.Quantile(0.99))}
}

// size is by how much groups are put in order.
func (c statsCounts) size() (n int64) {
	for _, attempts := range c.Attempts {
		n += attempts
	}
	return n + c.Held + c.DeadLetters
}
