package sim

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
)

// Path is one way that a message goes, for which every point of failure is tried.
type Path struct {
	Name string
	make func(p *Plan)
}

// Paths are all of them.
var Paths = []Path{
	{"deliver", func(p *Plan) { p.path(Mix{}, 1) }},
	{"fail", func(p *Plan) { p.path(Mix{FailFirst: true}, 1) }},
	{"dead-letter", func(p *Plan) { p.path(Mix{Final: 1}, 1) }},
	{"fan-out", func(p *Plan) { p.path(Mix{}, 2) }},
	{"replay", func(p *Plan) {
		p.path(Mix{FinalFirst: true}, 1)
		p.step(Step{At: pointsFrom, Do: doReplay})
		p.Steps[0].At = pointsFrom - 5*time.Second
	}},
	{"hosted", func(p *Plan) {
		p.path(Mix{}, 1)
		p.Hosted = true
	}},
	{"dedup", func(p *Plan) {
		p.path(Mix{}, 1)
		p.Settings["QUEUES"] = "queue0=auto:dedup=event-id"
		p.Steps[0].Event = "event"
		again := p.Steps[0]
		again.At += 100 * time.Millisecond
		p.step(again)
	}},
}

// pointsFrom is when the part of a path begins in which everything is tried.
const pointsFrom = 15 * time.Second

func (p *Plan) path(m Mix, webhooks int) {
	for i := range webhooks {
		p.Webhooks = append(p.Webhooks, Webhook{Name: fmt.Sprintf("w%d", i), Queue: "queue0", Mix: m, Timeout: 10 * time.Second, Attempts: 3})
	}
	// Not at a full minute, when instances look for jobs whose process is gone: what such a job does is seen.
	p.Calm, p.Brief = 150*time.Second, true
	p.step(Step{At: pointsFrom, Do: doPublish, Queue: "queue0", Count: 1})
}

// plan is a path without any fault.
func (f Path) plan(file bool, instances int) *Plan {
	p := &Plan{
		Profile: "points/" + f.Name, File: file, Instances: instances, Settings: map[string]string{"LEASE": "10s", "POLL_MAX": "1s"},
		Warm: time.Hour, Settle: 30 * time.Minute,
	}
	f.make(p)
	return p
}

// Point is one failure at one place of a path.
type Point struct {
	What string
	Plan *Plan
}

// Points are all failures of a path: at each gate the process dies, alone or beside another,
// or stands still for longer than its lease; each storage call is refused, lost, dropped, or
// hangs, the second and the last also beside another. A first run without any counts them.
func (f Path) Points(t *testing.T, file bool) []Point {
	t.Helper()
	count := f.plan(file, 1)
	count.step(Step{At: pointsFrom - time.Millisecond, Do: doCount})
	number(count)
	gates, calls := f.count(t, count)
	var all []Point
	add := func(what string, p *Plan) {
		number(p)
		all = append(all, Point{what, p})
	}
	for n, at := range gates {
		for _, way := range []struct {
			name, do  string
			instances int
			length    time.Duration
		}{{"dies, and starts again", doCrash, 1, 2 * time.Second}, {"dies beside another", doCrash, 2, 2 * time.Second}, {"stands still beside another", doFreeze, 2, 15 * time.Second}} {
			p := f.plan(file, way.instances)
			p.step(Step{At: pointsFrom - time.Millisecond, Do: way.do, Where: n + 1, For: way.length})
			add(fmt.Sprintf("%s at gate %d, %s", way.name, n, at), p)
		}
	}
	kinds := []string{refused, lost, dropped, hanging}
	if file {
		kinds = []string{refused}
	}
	for _, id := range calls {
		for _, kind := range kinds {
			p := f.plan(file, 1)
			p.Force = map[string]string{id: kind}
			add(id+" "+kind, p)
			if kind == lost || kind == hanging { // nobody knows whether it was done, and another one receives what comes back
				p := f.plan(file, 2)
				p.Force = map[string]string{id: kind}
				add(id+" "+kind+" beside another", p)
			}
		}
	}
	return all
}

// count runs a path and returns the gates and calls on its way.
func (f Path) count(t *testing.T, p *Plan) (gates, calls []string) {
	t.Helper()
	w, r := run(t, p)
	last := w.begin.Add(w.lastChange())
	for _, found := range r.Findings {
		t.Errorf("%s without a fault: %s", f.Name, found)
	}
	for _, c := range w.calls {
		if c.begin >= pointsFrom && !w.begin.Add(c.begin).After(last) {
			calls = append(calls, c.id())
		}
	}
	for _, g := range w.all[0].gate.passed {
		if !g.when.After(last) { // what comes later is of idle pollers
			gates = append(gates, g.at)
		}
	}
	return gates, calls
}

// lastChange is when the last message was settled, and a little later.
func (w *world) lastChange() (last time.Duration) {
	for _, p := range w.posts {
		last = max(last, p.answered)
	}
	for _, m := range w.messages {
		for _, e := range m.events {
			last = max(last, e.at)
		}
	}
	return last + 300*time.Millisecond
}

func number(p *Plan) {
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	for i := range p.Steps {
		p.Steps[i].ID = fmt.Sprintf("s%d", i)
	}
}
