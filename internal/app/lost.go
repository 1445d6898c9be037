package app

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api"
)

// lostTables keeps in mind which tables were dropped, for as long as somebody may look. Safe for
// concurrent use.
type lostTables struct {
	mu sync.Mutex
	at map[string]time.Time
}

// lostFor is for how long it is told.
const lostFor = time.Hour

// note notes that a table was found dropped.
func (l *lostTables) note(table string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = map[string]time.Time{}
	}
	l.at[table] = now
}

// told names the tables that were dropped within the last hour; empty when none was.
func (l *lostTables) told(now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for table, at := range l.at {
		if now.Sub(at) < lostFor {
			names = append(names, table)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// check says which tables were dropped by another program. Requests are served as well as elsewhere.
func (l *lostTables) check(now time.Time) api.Check {
	c := api.Check{Name: "tables", OK: true}
	if names := l.told(now); names != "" {
		c.OK, c.Degrades = false, true
		c.Detail = "another program has dropped " + names + " within the last hour: what it held is lost, and messages that were received before may be POSTed again"
	}
	return c
}
