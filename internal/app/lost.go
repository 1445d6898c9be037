package app

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api"
)

// losses keeps in mind what another program has taken out of storage, for as long as somebody may look. Safe for
// concurrent use.
type losses struct {
	mu sync.Mutex
	at map[string]time.Time
}

// lost is what another program has taken out of storage.
type lost struct {
	tables, webhooks losses
	// removed is told of registrations as tables.Traces.Removed is; nil where nothing is received.
	removed func(webhookID, queue string)
}

// lostFor is for how long it is told.
const lostFor = time.Hour

// note notes that something was found gone.
func (l *losses) note(name string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = map[string]time.Time{}
	}
	l.at[name] = now
}

// told names what was found gone within the last hour; empty when nothing was.
func (l *losses) told(now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for name, at := range l.at {
		if now.Sub(at) < lostFor {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// registrationsCheck is that of registrations that can't be read: every replica has them.
const registrationsCheck = "registrations"

// lostCheck says what another program has taken out of storage. Requests are served as well as elsewhere.
func lostCheck(name string, l *losses, now time.Time, what, means string) api.Check {
	c := api.Check{Name: name, OK: true}
	if names := l.told(now); names != "" {
		c.OK, c.Degrades = false, true
		c.Detail = "another program has " + what + " " + names + " within the last hour: " + means
	}
	return c
}

// checks are those that fail.
func (l *lost) checks(now time.Time) (failing []api.Check) {
	for _, c := range []api.Check{
		lostCheck("tables", &l.tables, now, "dropped", "what was there is lost, and messages that were received before may be POSTed again"),
		lostCheck(registrationsCheck+" removed", &l.webhooks, now, "deleted the registration of", "that is taken for a deletion, and nothing more is sent there; register it again if it was none"),
	} {
		if !c.OK {
			failing = append(failing, c)
		}
	}
	return failing
}
