package azuretable

import (
	"context"
	"slices"
	"sync"
	"time"
)

// listing caches which tables by day exist, so that nothing is asked of tables
// that don't.
type listing struct {
	client *client
	names  names

	mu   sync.Mutex
	at   time.Time
	days days
	// version grows with forget, so that an answer from before is not kept.
	version int
}

// listingAge is how long tables that other processes made may stay unseen.
const listingAge = 10 * time.Second

// days are the days that have tables, newest first.
type days struct {
	log, recent []string
}

func (l *listing) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = time.Time{}
	l.version++
}

// existing returns the days that have tables, not older than maxAge.
func (l *listing) existing(ctx context.Context, maxAge time.Duration) (days, error) {
	l.mu.Lock()
	cached, version, fresh := l.days, l.version, time.Since(l.at) <= maxAge
	l.mu.Unlock()
	if fresh {
		return cached, nil
	}
	at := time.Now()
	found, err := l.listDays(ctx)
	if err != nil {
		return days{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.version == version {
		l.at, l.days = at, found
	}
	return found, nil
}

func (l *listing) listDays(ctx context.Context) (days, error) {
	// Log… to Recent…; what else lies between is sorted out below.
	found, err := l.client.tableNames(ctx, l.names.logTable(""), l.names.recentTable("a"))
	if err != nil {
		return days{}, err
	}
	var d days
	for _, name := range found {
		if day, ok := cutDay(name, l.names.logTable("")); ok {
			d.log = append(d.log, day)
		} else if day, ok := cutDay(name, l.names.recentTable("")); ok {
			d.recent = append(d.recent, day)
		}
	}
	for _, list := range [][]string{d.log, d.recent} {
		slices.Sort(list)
		slices.Reverse(list)
	}
	return d, nil
}
