package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"log" //nolint:depguard // net/http writes there
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

// Result is what one run came to.
type Result struct {
	Plan     *Plan
	Findings []Finding
	// Messages, Posts, Calls, Faults and Crashes are how many there were.
	Messages, Posts, Calls, Faults, Crashes int
	// Drawn are the faults that the rates made, by name.
	Drawn []string
	// Simulated is how long the run was in simulated time.
	Simulated time.Duration
	trace     []entry
}

// Trace are the lines of what happened.
func (r *Result) Trace() []string {
	lines := make([]string, len(r.trace))
	for i, e := range r.trace {
		lines[i] = fmt.Sprintf("%12s  %-10s %s", e.at.Round(100*time.Microsecond), e.who, e.what)
	}
	return lines
}

// Run carries a plan out, in a bubble of its own.
func Run(t *testing.T, p *Plan) *Result {
	t.Helper()
	_, r := run(t, p)
	return r
}

func run(t *testing.T, p *Plan) (w *world, r *Result) {
	t.Helper()
	folder, err := os.MkdirTemp(bubble.InMemory(), "sim")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	// One processor leaves the scheduler the fewest choices.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	defer log.SetOutput(log.Writer())
	log.SetOutput(io.Discard) // net/http says there what it thinks of receivers
	defer func() {
		if broken := recover(); broken != nil { // goroutines were left when all was over
			r = w.result()
			r.Findings = append(r.Findings, Finding{"leftover", fmt.Sprintf("%v\n%s", broken, leftover())})
		}
	}()
	bubble.Test(t, func(*testing.T) {
		if len(p.Clocks) > 0 {
			time.Sleep(12 * time.Hour) // no clock says another day: names of tables are not translated
		}
		w = newWorld(p, folder)
		w.run()
	})
	return w, w.result()
}

// leftover are the stacks of goroutines in bubbles.
func leftover() string {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	var left []string
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		if head, _, _ := strings.Cut(stack, "\n"); strings.Contains(head, "synctest bubble") {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}

func (w *world) result() *Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &Result{Plan: w.plan, Findings: w.found, Messages: len(w.messages), Posts: len(w.posts), Calls: len(w.calls), Drawn: w.faults.drawn, trace: w.trace}
	for _, c := range w.calls {
		if c.fault != well {
			r.Faults++
		}
	}
	for _, i := range w.all {
		if i.died > 0 {
			r.Crashes++
		}
	}
	if n := len(w.trace); n > 0 {
		r.Simulated = w.trace[n-1].at
	}
	return r
}

// run does everything that there is to do, and judges it.
func (w *world) run() {
	for slot := range w.slots {
		w.start(slot)
	}
	for _, spec := range w.plan.Webhooks {
		if !spec.Late {
			w.register(spec)
		}
	}
	if w.plan.Hosted {
		w.serving.Go(w.tick)
	}
	w.faults.begin(max(w.plan.Warm, w.now()))
	var steps sync.WaitGroup
	for _, s := range w.plan.Steps {
		if !w.plan.kept(s.ID) {
			continue
		}
		if wait := s.At - w.now(); wait > 0 {
			time.Sleep(wait)
		}
		w.note("plan", s.String())
		steps.Go(func() { w.do(s) })
	}
	if wait := w.plan.Calm - w.now(); wait > 0 {
		time.Sleep(wait)
	}
	w.faults.end(w.now())
	w.note("plan", "calm: no more faults")
	steps.Wait()
	w.heal()
	settled := w.settle()
	w.look(settled)
	w.end()
	w.judge()
}

// do is one step, however long it takes.
func (w *world) do(s Step) {
	switch s.Do {
	case doPublish:
		w.publishAll(s)
	case doPut:
		w.putAll(s)
	case doOutage:
		w.faults.add(outage{
			from: w.now(), until: w.now() + s.For, instance: s.Instance, service: s.Service, op: s.Op, kind: s.Kind,
			partition: s.Queue, hot: s.Hot, takes: s.Count,
		})
	case doMove:
		for _, spec := range w.plan.Webhooks {
			if spec.Name == s.Webhook {
				w.move(spec, s.ID)
			}
		}
	case doFilter:
		w.filter(s)
	case doTake:
		w.takeAll(s)
	case doCrash, doFreeze, doStop, doCount:
		w.trouble(s)
	case doRegister:
		w.registerAll(func(spec Webhook) bool { return spec.Name == s.Webhook })
	case doReplace:
		w.change(&change{webhook: s.Webhook, what: doDelete}, "")
		w.pause(s.For)
		w.registerAll(func(spec Webhook) bool { return spec.Name == s.Webhook })
	case doSweep:
		w.sweep(s.Queue)
		w.pause(s.For)
		w.registerAll(func(spec Webhook) bool { return spec.Queue == s.Queue })
	case doDisable, doEnable, doDelete:
		w.change(&change{webhook: s.Webhook, what: s.Do}, "")
	case doReplay:
		w.replayAll()
	case doPurge:
		w.purgeAll()
	case doEnd:
		w.endReplays()
	case doHeal:
		r := w.receivers[s.Webhook]
		r.mu.Lock()
		r.healed = true
		r.mu.Unlock()
	default:
		w.violate("plan", "no such step: "+s.Do)
	}
}

// trouble befalls the instance in a slot.
func (w *world) trouble(s Step) {
	w.mu.Lock()
	i := w.slots[s.Instance]
	w.mu.Unlock()
	if i == nil || !i.up() {
		return
	}
	switch s.Do {
	case doCount:
		i.gate.mu.Lock()
		i.gate.counted = true
		i.gate.mu.Unlock()
		return
	case doFreeze:
		freeze := func(at string) {
			w.note(i.name, fmt.Sprintf("stands still for %s at %s", s.For, at))
			i.gate.freeze(s.For)
			w.mu.Lock()
			i.frozen = append(i.frozen, span{w.now(), w.now() + s.For})
			w.mu.Unlock()
		}
		if s.Where > 0 {
			i.gate.arm(s.Where, freeze)
		} else {
			freeze("its leisure")
		}
		return
	case doStop:
		i.stop()
	case doCrash:
		i.gate.arm(s.Where, i.kill)
		t := time.NewTimer(10 * time.Second)
		select {
		case <-i.gate.dead:
		case <-t.C:
			i.kill("its leisure")
		}
		t.Stop()
	}
	if w.pause(s.For) {
		w.start(s.Instance)
	}
}

// heal makes everything well: processes run, receivers answer, webhooks are enabled.
func (w *world) heal() {
	for slot, i := range w.slots {
		if i == nil || !i.up() {
			w.start(slot)
		}
	}
	for _, r := range w.receivers {
		r.mu.Lock()
		r.healed = true
		r.mu.Unlock()
	}
	w.enableAll(func(spec Webhook) bool { return spec.Mix.Gone > 0 || w.did(spec.Name, doDisable, w.now()) })
	w.note("plan", "everything is well from here on")
	time.Sleep(40 * time.Second) // until then a POST may end that began before
	w.enableAll(func(spec Webhook) bool { return spec.Mix.Gone > 0 })
}

// enableAll enables some of the webhooks that are there.
func (w *world) enableAll(which func(Webhook) bool) {
	for _, spec := range w.plan.Webhooks {
		w.mu.Lock()
		r := w.webhooks[spec.Name]
		there := r != nil && !r.deleted
		w.mu.Unlock()
		if there && which(spec) {
			w.change(&change{webhook: spec.Name, what: doEnable}, "")
		}
	}
}

// did is whether an operator began to do something to a webhook before a time.
func (w *world) did(name, what string, before time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.changes, func(c *change) bool { return c.webhook == name && c.what == what && c.from <= before })
}

// settle waits until nothing is on a queue any more; it is false when that takes too long.
func (w *world) settle() bool {
	until := w.now() + w.plan.Settle
	for w.now() < until {
		if w.empty() {
			w.note("plan", "all queues are empty")
			return true
		}
		time.Sleep(5 * time.Second)
	}
	return false
}

// queues are those that something may be on.
func (w *world) queues() []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, spec := range w.plan.Webhooks {
		add(spec.Queue)
	}
	for _, s := range w.plan.Steps {
		add(s.Queue)
	}
	return names
}

// unwatched are the queues that nobody receives from.
func (w *world) unwatched() []string {
	return slices.DeleteFunc(w.queues(), func(name string) bool {
		return slices.ContainsFunc(w.plan.Webhooks, func(spec Webhook) bool { return spec.Queue == name })
	})
}

func (w *world) empty() bool {
	for _, name := range w.queues() {
		if w.account != nil {
			if len(w.account.Messages(name)) > 0 {
				return false
			}
			continue
		}
		i := w.somebody()
		if i == nil {
			return false
		}
		var q struct {
			Exists bool
			Depth  *struct{ Total int }
		}
		switch status, answer := i.ask(http.MethodGet, "/api/v1/queues/"+name, nil); {
		case status == http.StatusNotFound: // without a webhook and a message there is none
		case status != http.StatusOK || json.Unmarshal(answer, &q) != nil, q.Exists && (q.Depth == nil || q.Depth.Total > 0):
			return false
		}
	}
	return true
}

// end stops all instances, and lets those that died end too.
func (w *world) end() {
	close(w.over)
	w.ending = true
	var stops sync.WaitGroup
	for _, i := range w.slots {
		if i != nil && i.up() {
			stops.Go(i.stop)
		}
	}
	stops.Wait()
	for _, i := range w.all {
		if !i.gate.alive() {
			i.release()
		}
		i.client.CloseIdleConnections()
	}
	w.serving.Wait()
}
