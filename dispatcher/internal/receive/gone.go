package receive

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// past is what is on record of a queue that is not there: it tells one that somebody deleted, also before this
// process began, from one that is not there yet.
type past struct {
	known   bool
	usedAt  time.Time // when the last attempt of one of its messages began; zero when there was none
	pending int       // how many of these messages waited for another attempt; some may have ended without one
	more    bool      // there are older attempts, which were not looked at
	// after is where the next look goes on, while nothing was found.
	after tables.Cursor
}

// pastPages and pastTimeout bound one look at what is on record.
const (
	pastPages   = 10
	pastTimeout = 10 * time.Second
)

// lookBack reads what is on record of the queue, once for each time that it is missed.
func (p *poller) lookBack(ctx context.Context, err error) past {
	p.mu.Lock()
	known := p.poll.past
	p.mu.Unlock()
	if !errors.Is(err, queue.ErrQueueNotFound) || known.known {
		return known
	}
	callCtx, cancel := context.WithTimeout(ctx, pastTimeout)
	defer cancel()
	filter := tables.AttemptFilter{Queue: p.q.Name(), From: time.Now().Add(-queue.MaxDelay)}
	page := tables.Page{Limit: tables.MaxPage, After: known.after}
	var all []tables.Attempt
	for range pastPages {
		attempts, next, err := p.Attempts.Attempts(callCtx, filter, page)
		if err != nil && len(all) == 0 {
			return p.unread(ctx, page.After, err)
		}
		if err != nil { // what was read is judged
			break
		}
		all = append(all, attempts...)
		if page.After = next; next == "" {
			break
		}
	}
	if len(all) == 0 && page.After != "" {
		return past{after: page.After}
	}
	found := pastOf(all)
	found.more = page.After != ""
	return found
}

// unread is what is known when nothing was found before a page that can't be read: where the next look goes on.
func (p *poller) unread(ctx context.Context, after tables.Cursor, err error) past {
	if errors.Is(err, tables.ErrBadCursor) { // it ended with its table
		return past{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); ctx.Err() == nil && now.Sub(p.pastTold) >= errorLogEvery {
		p.pastTold = now
		p.Log.Warn("whether a queue that is not there was in use can't be told now; trying again", "queue", p.q.Name(), "error", err)
	}
	return past{after: after}
}

// pastOf judges attempts, the newest of which is the first.
func pastOf(attempts []tables.Attempt) past {
	found := past{known: true}
	type delivery struct{ message, webhook string }
	decided, pending := map[delivery]bool{}, map[string]bool{}
	for _, a := range attempts {
		if found.usedAt.IsZero() {
			found.usedAt = a.StartedAt
		}
		of := delivery{a.MessageID, a.WebhookID}
		if !decided[of] && a.Action == policy.Abandon {
			pending[a.MessageID] = true
		}
		decided[of] = true
	}
	found.pending = len(pending)
	return found
}

// count says how many messages may have waited.
func (p past) count() string {
	switch {
	case !p.known:
		return "an unknown number of messages"
	case p.more:
		return strconv.Itoa(p.pending) + " messages or more"
	}
	return "up to " + strconv.Itoa(p.pending) + " messages"
}
