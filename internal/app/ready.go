package app

import (
	"context"
	"errors"
	"sort"
	"strings"
	"time"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook"
)

// ready makes the checks behind /readyz from what the dispatcher last saw: asking
// storage again for every probe would cost a transaction each.
func (a *App) ready(ctx context.Context) []api.Check {
	checks := []api.Check{{Name: "draining", OK: !a.draining.Load()}}
	if !checks[0].OK {
		checks[0].Detail = "the process is stopping"
	}
	if a.stores.clockAhead != nil {
		checks = append(checks, clockCheck(a.stores.clockAhead()))
	}
	checks = append(checks, storageCheck(ctx, a.stores.fault))
	if c := a.heartbeat.nameCheck(time.Now()); !c.OK {
		checks = append(checks, c)
	}
	if a.stores.partly != nil {
		if refused := a.stores.partly(); refused != "" {
			checks = append(checks, api.Check{Name: "queue writes", Degrades: true, Detail: refused})
		}
	}
	if a.stores.sasFaults != nil {
		if c := sasCheck(a.stores.sasFaults(time.Now())); !c.OK {
			checks = append(checks, c)
		}
	}
	checks = append(checks, a.stores.lostChecks(time.Now())...)
	if len(a.asText) > 0 {
		checks = append(checks, api.Check{
			Name: "triggers", Degrades: true,
			Detail: "messages with a brace wait on their queues until they expire, since the host passes them on as text: " + strings.Join(a.asText, ", ") +
				`; set "dataType": "binary" in each function.json, or package the app anew`,
		})
	}
	if len(a.takenAway) > 0 {
		checks = append(checks, api.Check{Name: "host", Degrades: true, Detail: strings.Join(a.takenAway, ". ")})
	}
	if len(a.idle) > 0 {
		checks = append(checks, api.Check{Name: "functions", Degrades: true, Detail: "the host does not call all functions: " + strings.Join(a.idle, "; ")})
	}
	if c := socketsCheck(a.shortage(), time.Now()); !c.OK {
		checks = append(checks, c)
	}
	checks = append(checks, healthChecks(a.dispatcher.Health())...)
	sort.Slice(checks, func(i, j int) bool { return checks[i].Name < checks[j].Name })
	return checks
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

// registrationsCheck is that of registrations that can't be read: every replica has them.
const registrationsCheck = "registrations"

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
