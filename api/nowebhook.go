package api

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/tables"
)

// registeredFresh is how old the list of queues with webhooks may be where a publish is
// told that its queue has none: many may be sent to such a queue.
const registeredFresh = time.Second

// hookedQueues are the queues that have webhooks, as they were read last.
type hookedQueues struct {
	mu      sync.Mutex
	at      time.Time
	queues  []string
	changes int // that this process made: what was read before one is not kept
}

// registryChanged tells who has to know that this process changed a registration.
func (a *API) registryChanged() {
	a.hooked.mu.Lock()
	a.hooked.at = time.Time{}
	a.hooked.changes++
	a.hooked.mu.Unlock()
	a.publicKeys.forget()
	a.Dispatcher.RegistryChanged()
}

// queuesWithWebhooks lists them in ascending order, as they were read within registeredFresh.
func (a *API) queuesWithWebhooks(ctx context.Context) ([]string, error) {
	r := &a.hooked
	r.mu.Lock()
	known, age, changes := r.queues, time.Since(r.at), r.changes
	r.mu.Unlock()
	if age < registeredFresh {
		return known, nil
	}
	begun := time.Now()
	all, err := a.webhooksByQueue(ctx)
	if err != nil {
		return nil, err
	}
	read := slices.Sorted(maps.Keys(all))
	r.mu.Lock()
	defer r.mu.Unlock()
	if changes == r.changes {
		r.at, r.queues = begun, read
	}
	return read, nil
}

// warningTimeout bounds how long a publish waits to learn whether its queue has a webhook: its
// message is stored by then, and a warning is worth no more.
const warningTimeout = 500 * time.Millisecond

// publishWarnings says so when nothing receives what was published: the usual cause is a
// misspelt name. It never fails a publish, and holds it up for a moment at most.
func (a *API) publishWarnings(ctx context.Context, name string) []string {
	if s, ok := a.Dispatcher.Queue(name); ok && s.Webhooks > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), warningTimeout)
	defer cancel()
	queues, err := a.queuesWithWebhooks(ctx)
	if err != nil || slices.Contains(queues, name) {
		return nil
	}
	return []string{"The queue " + name + " has no webhook, so nothing receives the message until one is registered." + didYouMean(name, queues)}
}

// didYouMean names the queue with a webhook that may have been meant, in a sentence.
func didYouMean(name string, queues []string) string {
	if like := nearest(name, queues); like != "" {
		return " Did you mean the queue " + like + "?"
	}
	return ""
}

// tellThatNobodyTakes corrects what is next of a message on a queue that has no webhook:
// nothing receives it.
func (a *API) tellThatNobodyTakes(ctx context.Context, name string, n *nextView, expires time.Time) {
	if n.State != tables.Published || !expires.IsZero() && time.Since(expires) > tables.LifeMargin { // it is gone, and that is told
		return
	}
	queues, err := a.queuesWithWebhooks(ctx)
	if err != nil || slices.Contains(queues, name) {
		return // the general text stays true
	}
	n.Text = "On the queue, and nothing receives it: the queue " + name + " has no webhook. It is received once one is registered (POST /api/v1/webhooks)"
	if !expires.IsZero() {
		n.Text += ", and is gone at " + web.Stamp(expires) + " otherwise"
	}
	n.Text += "." + didYouMean(name, queues)
}

// nearest is the name that differs from name least, by two letters at most; empty without one.
func nearest(name string, names []string) string {
	best, least := "", 3
	for _, other := range names {
		if n := edits(name, other); n < least {
			best, least = other, n
		}
	}
	return best
}

// edits is how many letters must be put in, taken out or replaced to make b of a.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := corner
			if a[i] != b[j] {
				replaced++
			}
			corner = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
