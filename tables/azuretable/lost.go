package azuretable

import (
	"sync"
	"time"
)

// watch knows which tables this process has used, to tell one that is not there yet from one that
// another program has dropped, with what it held. That of the webhooks is tables.Census's.
type watch struct {
	lost func(table string)
	mu   sync.Mutex
	used map[string]bool
}

// saw takes in what a request about a table ended with.
func (s *Store) saw(table string, err error) {
	missing := tableMissing(err)
	if err != nil && !missing || !s.watches(table, time.Now()) {
		return
	}
	s.watch.mu.Lock()
	lost := missing && s.watch.used[table]
	if s.watch.used == nil {
		s.watch.used = map[string]bool{}
	}
	s.watch.used[table] = !missing
	s.watch.mu.Unlock()
	if !lost {
		return
	}
	s.queues.Clear()
	s.listing.forget()
	if s.watch.lost != nil {
		s.watch.lost(table)
	}
}

// watches reports whether nobody drops a table by right: those of earlier days go when their
// retention has passed, which other instances see to, and the index is made of what others hold.
func (s *Store) watches(table string, now time.Time) bool {
	if day, ok := cutDay(table, s.logTable("")); ok {
		return day >= now.UTC().Format(dayLayout)
	}
	if b, ok := cutBucket(table, s.prefix+"Claims"); ok {
		return b >= bucketOf(now.Add(-claimSkew))
	}
	return table == s.healthTable() || table == s.deadLettersTable()
}
