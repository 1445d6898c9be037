package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shown is what the API says at the end.
type shown struct {
	timelines   map[int]*timeline // by message
	deadLetters []deadLetter
	// lost are the records that the instances say that they lost.
	lost int
	// expired are the messages of a queue that the instances say that they know to have expired.
	expired map[string]int
}

type timeline struct {
	Events []struct {
		Event      string
		WebhookID  string `json:"webhook_id"`
		Generation int
		Attempt    *attempt
	}
	Next []next
}

type next struct {
	WebhookID  string `json:"webhook_id"`
	State      string
	Reason     string
	Generation int
	Attempts   int
	Charged    int
	Text       string
}

type attempt struct {
	Number     int
	StartedAt  time.Time `json:"started_at"`
	Duration   string
	Status     int
	ErrorClass string `json:"error_class"`
	Redials    int
	Charged    bool
	Action     string
	Reason     string
	Instance   string

	used       int // POSTs that it stands for
	generation int
	of         *message // in whose timeline it stands
}

type deadLetter struct {
	ID        string
	Queue     string
	MessageID string `json:"message_id"`
	WebhookID string `json:"webhook_id"`
	Status    string
	Reason    string
	Attempts  int
	Replays   int

	Generation     int
	DeadLetteredAt time.Time `json:"dead_lettered_at"`
}

// get reads what an instance shows.
func (w *world) get(i *instance, path string, into any) bool {
	status, answer := i.ask(http.MethodGet, path, nil)
	if status != http.StatusOK && status != http.StatusNotFound {
		w.note("operator", fmt.Sprintf("asks %s for %s: %d %.300s", i.name, path, status, answer))
	}
	return status == http.StatusOK && json.Unmarshal(answer, into) == nil
}

// look lets the instances idle, and asks one of them what became of everything.
func (w *world) look(settled bool) {
	if !settled {
		w.unsettled()
	}
	if settled && !w.plan.Brief {
		w.idle()
	}
	if len(w.sweeps) > 0 || w.taken { // a replay whose message is gone waits again after a round of housekeeping
		time.Sleep(75 * time.Minute)
	}
	i := w.somebody()
	if i == nil {
		w.violate("plan", "nobody is up at the end")
		return
	}
	for _, each := range w.slots {
		if settled && each != nil && each.up() {
			w.leftIn(each)
		}
	}
	s := &shown{timelines: map[int]*timeline{}, expired: map[string]int{}}
	var ok bool
	if s.deadLetters, ok = w.listDeadLetters(i); !ok {
		w.violate("shown", "the dead letters can't be listed")
	}
	for _, m := range w.messages {
		if m.id == "" {
			continue
		}
		t := &timeline{}
		if !w.get(i, "/api/v1/messages/"+m.id+"?queue="+m.queue, t) {
			continue
		}
		s.timelines[m.n] = t
		for _, id := range m.again {
			var more timeline
			if w.get(i, "/api/v1/messages/"+id+"?queue="+m.queue, &more) {
				t.Events, t.Next = append(t.Events, more.Events...), append(t.Next, more.Next...)
			}
		}
	}
	for _, i := range w.slots {
		s.lost += w.metric(i, "pushlease_records_lost_total")
		for _, name := range w.unwatched() {
			var q struct{ Expired int }
			if w.get(i, "/api/v1/queues/"+name, &q) {
				s.expired[name] += q.Expired
			}
		}
	}
	w.note("plan", fmt.Sprintf("the metric of lost records says %d", s.lost))
	w.shown = s
}

// leftIn looks for places that an instance holds though there is nothing to do.
func (w *world) leftIn(i *instance) {
	w.placesLeft(i)
	for _, name := range w.queues() {
		var q struct {
			Poller *struct {
				InFlight int `json:"in_flight"`
			}
		}
		if w.get(i, "/api/v1/queues/"+name, &q) && q.Poller != nil && q.Poller.InFlight > 0 {
			w.violate("leftover", fmt.Sprintf("%s has %d messages of %s in work, which is empty", i.name, q.Poller.InFlight, name))
		}
	}
	for name, r := range w.webhooks {
		var hook struct {
			Status *struct {
				InFlight int `json:"in_flight"`
				Waiting  int
			}
		}
		if w.get(i, "/api/v1/webhooks/"+r.id, &hook) && hook.Status != nil && hook.Status.InFlight+hook.Status.Waiting > 0 {
			w.violate("leftover", fmt.Sprintf("%s has %d POSTs to %s under way and %d that wait, and nothing to do", i.name, hook.Status.InFlight, name, hook.Status.Waiting))
		}
	}
}

// placesLeft looks for places that an instance has taken for good: a receive that finds nothing takes some for a moment.
func (w *world) placesLeft(i *instance) {
	const looks, apart = 20, 1700 * time.Millisecond
	var taken map[string]int
	for range looks {
		taken = w.series(i, "pushlease_places_taken")
		maps.DeleteFunc(taken, func(_ string, n int) bool { return n == 0 })
		if len(taken) == 0 {
			return
		}
		time.Sleep(apart)
	}
	w.violate("leftover", fmt.Sprintf("%s has taken %v, and there is nothing to do", i.name, taken))
}

// listDeadLetters is false where an instance does not answer.
func (w *world) listDeadLetters(i *instance) (all []deadLetter, ok bool) {
	for cursor := ""; ; {
		var page struct {
			Data       []deadLetter
			NextCursor *string `json:"next_cursor"`
		}
		if !w.get(i, "/api/v1/dead-letters?limit=500"+cursor, &page) {
			return all, false
		}
		all = append(all, page.Data...)
		if page.NextCursor == nil || *page.NextCursor == "" {
			return all, true
		}
		cursor = "&cursor=" + url.QueryEscape(*page.NextCursor)
	}
}

// metric is the sum of a metric's series.
func (w *world) metric(i *instance, name string) (sum int) {
	for _, n := range w.series(i, name) {
		sum += n
	}
	return sum
}

// series are those of a metric, by their labels; there must be some.
func (w *world) series(i *instance, name string) map[string]int {
	status, text := i.ask(http.MethodGet, "/metrics", nil)
	all := map[string]int{}
	for line := range strings.SplitSeq(string(text), "\n") {
		rest, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		end := strings.LastIndexByte(rest, ' ')
		if value, err := strconv.ParseFloat(rest[end+1:], 64); err == nil {
			all[rest[:end]] = int(value)
		}
	}
	if status == http.StatusOK && len(all) == 0 {
		w.violate("plan", fmt.Sprintf("%s has no metric %s", i.name, name))
	}
	return all
}

// unsettled says which messages have not come to their end.
func (w *world) unsettled() {
	count := 0
	for _, name := range w.queues() {
		if w.account == nil {
			continue
		}
		for _, e := range w.account.Messages(name) {
			if count++; count <= 5 {
				w.violate("settle", fmt.Sprintf("m%d is still on %s, hidden until %s, %s after the last fault", w.number(e.ID), name, w.sinceBegin(e.Visible), w.plan.Settle))
			}
		}
	}
	if count == 0 {
		w.violate("settle", fmt.Sprintf("the queues are not empty %s after the last fault", w.plan.Settle))
	}
}

// idle counts what an instance asks of storage when there is nothing to do.
func (w *world) idle() {
	const length = 10 * time.Minute
	time.Sleep(2 * time.Minute) // what is written late is written
	if w.plan.File || w.plan.Settings["POLL_MAX"] != "" {
		return // a file is not billed
	}
	w.mu.Lock()
	before := len(w.calls)
	w.mu.Unlock()
	time.Sleep(length)
	w.mu.Lock()
	calls := len(w.calls) - before
	w.mu.Unlock()
	// A receive every 5 s or so for each queue, by all instances together. By each instance one at each time for
	// which a message was given back, unless it came back before; webhooks are read every 15 s, their
	// health, and who else is there, once a minute; and a little for what is done by the hour.
	bound := len(w.queues())*140 + w.plan.Instances*(len(w.queues())*25+120)
	if calls > bound {
		w.violate("idle", fmt.Sprintf("%d storage calls in %s without anything to do, more than %d: %s", calls, length, bound, w.tally(before)))
	}
}

// tally counts the storage calls since the first so many, by kind.
func (w *world) tally(before int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := map[string]int{}
	for _, c := range w.calls[before:] {
		count[c.service+"."+c.op]++
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d %s", count[name], name))
	}
	return strings.Join(parts, ", ")
}
