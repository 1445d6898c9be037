package azuretable

import (
	"sync"
	"time"
)

// watch knows which tables this process has used, to tell one that is not there yet from one that
// another program has dropped, with what it held. What becomes of the webhooks in it is tables.Census's.
type watch struct {
	// kept reports whether nobody drops a table by right.
	kept func(table string, now time.Time) bool
	// missing tells that a table that was there is not; what was known of tables is forgotten then.
	missing func()
	lost    func(table string)

	mu   sync.Mutex
	used map[string]time.Time // since when a table is known to be there
}

// settling is for how long the service may take a table that was just made for missing.
const settling = 10 * time.Second

// saw takes in whether a table was missing for a request, and when that began.
func (w *watch) saw(table string, began time.Time, missing bool) {
	if !w.kept(table, time.Now()) {
		return
	}
	if !missing {
		w.found(table, time.Now())
		return
	}
	known, lost := w.missed(table, began)
	if known {
		w.missing()
	}
	if lost && w.lost != nil {
		w.lost(table)
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
