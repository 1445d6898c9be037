package api

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	// purgeTime bounds one request's deleting; what is left is for the next one.
	purgeTime = 15 * time.Second
	// purgePage is how many rows are deleted between two looks at the clock.
	purgePage = 100
)

// purgeView is what one request deleted; of a dry run, what it would.
type purgeView struct {
	DryRun bool `json:"dry_run"`
	// Matched and Exact are those of a dry run.
	Matched int   `json:"matched,omitempty"`
	Exact   *bool `json:"exact,omitempty"`
	// Until is what a dry run has counted to.
	Until  time.Time `json:"until,omitzero"`
	Purged int       `json:"purged"`
	// Kept counts what matched and was spared, because a replay is under way, it is still being
	// made (which a dry run does not look at), or it was changed meanwhile.
	Kept int `json:"kept"`
	// NeverReplayed counts those of what was deleted, or would be, that nobody ever replayed.
	NeverReplayed int `json:"never_replayed"`
	// CopiesLeft counts those of what was deleted, or would be, whose copy was put on a poison
	// queue: it may be there still, with the whole text.
	CopiesLeft int `json:"copies_left"`
	// NextCursor is where the next request goes on; null when all is done.
	NextCursor *tables.Cursor `json:"next_cursor"`
}

// purgeLooksBack is how long ago a dead letter was made, at most, of which a purge looks whether it is still being made: its
// message lives as long by default.
const purgeLooksBack = queue.DefaultTTL

// spared reports whether a purge leaves a dead letter: its replay has not ended, or it is still being made
// and would be written again.
func (a *API) spared(ctx context.Context, d tables.DeadLetter) bool {
	if d.ReplayToCome(queue.ReplayLife) {
		return true
	}
	if time.Since(d.DeadLetteredAt) > purgeLooksBack {
		return false
	}
	making, err := tables.InTheMaking(ctx, a.Deliveries, &d)
	return err != nil || len(making) > 0
}

// purgeDeadLetters deletes what the filter matches: nothing is kept of these messages here.
// One request deletes for a bounded time; the next goes on at next_cursor.
func (a *API) purgeDeadLetters(w http.ResponseWriter, r *http.Request) error {
	b, err := readBulk(w, r, purgeFields)
	if err != nil {
		return err
	}
	if b.dryRun {
		never, copies := 0, 0
		c, err := a.count(r, b, func(d tables.DeadLetter) string {
			if d.ReplayToCome(queue.ReplayLife) { // whether they are still being made would take a look at each
				return skipUnderWay
			}
			if d.NeverReplayed() {
				never++
			}
			if d.CopiedToQueue != "" {
				copies++
			}
			return ""
		})
		if err != nil {
			return err
		}
		return web.WriteJSON(w, http.StatusOK, purgeView{DryRun: true, Matched: c.matched, Exact: &c.exact, Until: c.until, Kept: c.skipped, NeverReplayed: never, CopiesLeft: copies})
	}
	if b.all && !b.executes {
		return web.Invalid(web.Wrong("dry_run", "is missing, and this would delete every dead letter", `send "dry_run": true to see how many there are, then "dry_run": false to delete them`))
	}
	if err := patience(w, purgeTime+testMargin); err != nil {
		return err
	}
	view, start := purgeView{}, time.Now()
	page := tables.Page{Limit: purgePage, After: b.cursor}
	for {
		if b.limit > 0 {
			page.Limit = min(purgePage, b.limit-view.Purged)
		}
		p, err := tables.PurgeDeadLetters(r.Context(), a.DeadLetters, b.filter, page,
			func(d tables.DeadLetter) bool { return a.spared(r.Context(), d) })
		for name, n := range p.Deleted {
			a.backlog.forget(name)
			a.purged.Add(r.Context(), int64(n), metric.WithAttributes(attribute.String("queue", name)))
		}
		view.Purged, view.Kept, page.After = view.Purged+p.Total(), view.Kept+p.Kept, p.Next
		view.NeverReplayed, view.CopiesLeft = view.NeverReplayed+p.NeverReplayed, view.CopiesLeft+p.Copied
		if err != nil && view.Purged == 0 {
			return web.ListFault("purge the dead letters", err)
		}
		if err != nil || page.After == "" || time.Since(start) > purgeTime || b.limit > 0 && view.Purged >= b.limit {
			if err != nil || page.After != "" {
				view.NextCursor = &page.After
			}
			if view.Purged > 0 {
				a.audit(r, tables.Audit{Action: tables.DeadLettersPurged, Queue: b.filter.Queue, WebhookID: b.filter.WebhookID, Count: int64(view.Purged), Filter: b.view().encoded()})
			}
			a.Logger.Info("dead letters purged by filter", "purged", view.Purged, "kept", view.Kept, "never_replayed", view.NeverReplayed, "api_key", web.NoteOf(r).Key, "filter", b.view())
			return web.WriteJSON(w, http.StatusOK, view)
		}
	}
}
