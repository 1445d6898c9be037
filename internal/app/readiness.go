package app

import (
	"context"
	"errors"
	"log/slog"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook"
)

// readiness is how this process is: the checks behind /readyz, which the log and the metrics tell too.
type readiness struct {
	draining atomic.Bool
	stores   *stores // which say what keeps storage from being used
	// name fails while another process goes by the same name.
	name     func(now time.Time) api.Check
	shortage func() webhook.Shortage // of the sender
	health   func() map[string]error // as the dispatcher has last seen it
	log      *slog.Logger

	// What a Functions host does otherwise than it should.
	asText    []string // the queues of which it passes messages on as text
	takenAway []string // why it moves messages away unseen
	idle      []string // what is not done, or late, since it does not call a function
}

// checks are made of what was last seen: asking storage again for every probe would cost a transaction each.
func (r *readiness) checks(ctx context.Context) []api.Check {
	checks := []api.Check{{Name: "draining", OK: !r.draining.Load()}}
	if !checks[0].OK {
		checks[0].Detail = "the process is stopping"
	}
	if r.stores.clockAhead != nil {
		checks = append(checks, clockCheck(r.stores.clockAhead()))
	}
	checks = append(checks, storageCheck(ctx, r.stores.fault))
	if c := r.name(time.Now()); !c.OK {
		checks = append(checks, c)
	}
	if r.stores.partly != nil {
		if refused := r.stores.partly(); refused != "" {
			checks = append(checks, api.Check{Name: "queue writes", Degrades: true, Detail: refused})
		}
	}
	if r.stores.sasFaults != nil {
		if c := sasCheck(r.stores.sasFaults(time.Now())); !c.OK {
			checks = append(checks, c)
		}
	}
	checks = append(checks, r.stores.lost.checks(time.Now())...)
	if len(r.asText) > 0 {
		checks = append(checks, api.Check{
			Name: "triggers", Degrades: true,
			Detail: "messages with a brace wait on their queues until they expire, since the host passes them on as text: " + strings.Join(r.asText, ", ") +
				`; set "dataType": "binary" in each function.json, or package the app anew`,
		})
	}
	if len(r.takenAway) > 0 {
		checks = append(checks, api.Check{Name: "host", Degrades: true, Detail: strings.Join(r.takenAway, ". ")})
	}
	if len(r.idle) > 0 {
		checks = append(checks, api.Check{Name: "functions", Degrades: true, Detail: "the host does not call all functions: " + strings.Join(r.idle, "; ")})
	}
	if c := socketsCheck(r.shortage(), time.Now()); !c.OK {
		checks = append(checks, c)
	}
	checks = append(checks, healthChecks(r.health())...)
	sort.Slice(checks, func(i, j int) bool { return checks[i].Name < checks[j].Name })
	return checks
}

// readinessEvery is how often the checks of /readyz are looked at for the log.
const readinessEvery = 5 * time.Second

// tell logs each check that begins to fail, with what it says to do, and that it
// passes again: not everybody asks /readyz. It costs no storage transaction.
func (r *readiness) tell(ctx context.Context) {
	tick := time.NewTicker(readinessEvery)
	defer tick.Stop()
	told := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !r.draining.Load() {
				tellChecks(r.log, r.checks(ctx), told)
			}
		}
	}
}

// tellChecks logs what has changed; told are the names of those that failed before.
func tellChecks(log *slog.Logger, checks []api.Check, told map[string]bool) {
	failing := map[string]bool{}
	for _, c := range checks {
		if c.OK {
			continue
		}
		if failing[c.Name] = true; !told[c.Name] {
			log.Warn("a check fails", "check", c.Name, "detail", c.Detail, "degraded_only", c.Degrades)
		}
		told[c.Name] = true
	}
	for name := range told {
		if !failing[name] {
			delete(told, name)
			log.Info("a check passes again", "check", name)
		}
	}
}

// shortFor is how long a shortage of this machine's is told.
const shortFor = time.Minute

// socketsCheck fails while POSTs lately could not be made because this machine lacks sockets,
// ports or memory. Its API is served all the same.
func socketsCheck(last webhook.Shortage, now time.Time) api.Check {
	c := api.Check{Name: "sockets", OK: last.At.IsZero() || now.Sub(last.At) > shortFor}
	if !c.OK {
		c.Degrades = true
		c.Detail = "POSTs wait, and nobody is charged: " + last.Text
	}
	return c
}

// queueCheck begins the name of the check of a queue.
const queueCheck = "queue "

// healthChecks are the checks of what the dispatcher saw. A queue that can't be received
// from degrades the process, since its API is served all the same: the lack is most often
// the queue's own, and every replica has it. Only when that is so of every queue does
// storage as a whole seem to be away. One that somebody deleted says nothing of storage.
func healthChecks(health map[string]error) []api.Check {
	var checks []api.Check
	queues, failing, deleted := 0, 0, map[string]bool{}
	for name, err := range health {
		c := api.Check{Name: name, OK: err == nil}
		switch {
		case errors.Is(err, queue.ErrQueueNotFound):
			c.Degrades = true
			deleted[name] = true
		case strings.HasPrefix(name, queueCheck):
			queues++
			c.Degrades = err != nil
			if err != nil {
				failing++
			}
		}
		if err != nil {
			c.Detail = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		checks = append(checks, c)
	}
	for i := range checks {
		name := checks[i].Name
		checks[i].Degrades = checks[i].Degrades && (failing < queues || deleted[name]) || name == registrationsCheck && !checks[i].OK
	}
	return checks
}
