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
	used map[string]time.Time // since when a table is known to be there
}

// settling is for how long the service may take a table that was just made for missing.
const settling = 10 * time.Second

// saw takes in what a request about a table ended with, and when it began.
func (s *Store) saw(table string, began time.Time, err error) {
	missing := tableMissing(err)
	if err != nil && !missing || !s.watches(table, time.Now()) {
		return
	}
	if !missing {
		s.watch.found(table, time.Now())
		return
	}
	known, lost := s.watch.missed(table, began)
	if known {
		s.queues.Clear()
		s.listing.forget()
	}
	if lost && s.watch.lost != nil {
		s.watch.lost(table)
	}
}

// found notes that a table was there.
func (w *watch) found(table string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.used == nil {
		w.used = map[string]time.Time{}
	}
	if _, known := w.used[table]; !known {
		w.used[table] = now
	}
}

// missed reports whether a table that is known was missing for a request that began then, and
// whether that tells that it was dropped. A request of before the table was known may have come
// before it was made: its answer tells nothing, however late it is.
func (w *watch) missed(table string, began time.Time) (known, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, known := w.used[table]
	if !known || began.Sub(since) < settling {
		return known, false
	}
	delete(w.used, table)
	return true, true
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
