package app

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/pushlease/pushlease/tables"
)

const (
	// rollupTimeout bounds one write.
	rollupTimeout = 15 * time.Second
	// rollupSlack keeps a timer that comes early from ending a minute twice.
	rollupSlack = 50 * time.Millisecond
	// rollupsKept bounds the rows that wait for a store that takes none; the oldest are dropped.
	rollupsKept = 60
	// rollupsAtOnce are written in one transaction, of which Azure takes 4 MiB.
	rollupsAtOnce = 4
)

// rollups writes once a minute, in one transaction, what this process counted in that minute and so far
// in its hour. A minute in which nothing happened is not written. A process that is killed loses what it
// has not written: at most the last minute.
type rollups struct {
	store tables.Rollups
	// take returns what was counted since the last call, and depths what is on the queues.
	take   func() []tables.Tally
	depths func() map[string]tables.Depth
	log    *slog.Logger

	instance string
	// startedAt tells its rows from those of another process, and from its own of before the clock went back.
	startedAt time.Time
	last      time.Time                 // minute that was counted
	hour      map[tallyOf]*tables.Tally // what was counted since hourAt
	hourAt    time.Time
	waiting   []tables.Rollup
	failing   bool
}

type tallyOf struct{ queue, webhook string }

// run writes at the end of each minute until ctx ends.
func (r *rollups) run(ctx context.Context) {
	for {
		now := time.Now()
		minute := now.Truncate(tables.MinuteRollup)
		end := time.NewTimer(minute.Add(tables.MinuteRollup + rollupSlack).Sub(now))
		select {
		case <-ctx.Done():
			end.Stop()
			return
		case <-end.C:
			r.count(minute)
			r.write(ctx)
		}
	}
}

// lastWrite bounds the write of flush: what else is closed at a stop has the rest of closeBound.
const lastWrite = 2 * time.Second

// flush writes what was counted since the last minute's end. It comes when nothing is counted any more.
func (r *rollups) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lastWrite)
	defer cancel()
	r.count(time.Now().Truncate(tables.MinuteRollup))
	r.write(ctx)
	return nil
}

// count takes what was counted in the minute that began at that time.
func (r *rollups) count(minute time.Time) {
	minute = minute.UTC()
	tallies, queued := r.take(), false
	for name, d := range r.depths() {
		queued = queued || d.Visible+d.Hidden > 0
		tallies = append(tallies, tables.Tally{Queue: name, Depth: &d})
	}
	if !queued && !anyCounted(tallies) {
		return
	}
	if !minute.After(r.last) { // the clock went back: the rows of that time stay as they are
		r.startedAt, r.hourAt = time.Now(), time.Time{}
	}
	r.last = minute
	if hour := minute.Truncate(tables.HourRollup); !hour.Equal(r.hourAt) {
		r.hour, r.hourAt = map[tallyOf]*tables.Tally{}, hour
	}
	for _, t := range tallies {
		r.addToHour(t)
	}
	r.keep(tables.Rollup{Length: tables.MinuteRollup, At: minute, Tallies: tallies})
	all := tables.Rollup{Length: tables.HourRollup, At: r.hourAt}
	for _, t := range r.hour {
		all.Tallies = append(all.Tallies, *t)
	}
	r.keep(all)
}

// anyCounted reports whether anything but depths was counted.
func anyCounted(tallies []tables.Tally) bool {
	for _, t := range tallies {
		if t.Depth == nil {
			return true
		}
	}
	return false
}

// maxHourTallies bounds what is counted apart in one hour: webhooks may take turns. Further ones are
// counted with the other webhooks of their queue.
const maxHourTallies = 600

func (r *rollups) addToHour(t tables.Tally) {
	k := tallyOf{t.Queue, t.WebhookID}
	if r.hour[k] == nil && len(r.hour) >= maxHourTallies {
		k.webhook = tables.OtherWebhooks
	}
	if r.hour[k] == nil {
		r.hour[k] = &tables.Tally{Queue: k.queue, WebhookID: k.webhook}
	}
	r.hour[k].Add(t)
}

// keep has a row wait for the next write. One of the hour holds what an earlier one of it did.
func (r *rollups) keep(row tables.Rollup) {
	row.Instance, row.StartedAt = r.instance, r.startedAt
	same := func(o tables.Rollup) bool {
		return o.Length == row.Length && o.At.Equal(row.At) && o.StartedAt.Equal(row.StartedAt)
	}
	if i := slices.IndexFunc(r.waiting, same); i >= 0 {
		r.waiting[i] = row
		return
	}
	r.waiting = append(r.waiting, row)
	if len(r.waiting) > rollupsKept {
		// The oldest minute goes, or the oldest hour where there are hours alone.
		oldest := max(slices.IndexFunc(r.waiting, func(o tables.Rollup) bool { return o.Length == tables.MinuteRollup }), 0)
		r.waiting = slices.Delete(r.waiting, oldest, oldest+1)
	}
}

// write writes what waits. What the store does not take waits for the next minute.
func (r *rollups) write(ctx context.Context) {
	if len(r.waiting) == 0 {
		return
	}
	call, cancel := context.WithTimeout(ctx, rollupTimeout)
	defer cancel()
	var err error
	for err == nil && len(r.waiting) > 0 {
		n := min(rollupsAtOnce, len(r.waiting))
		if err = r.store.PutRollups(call, r.waiting[:n]...); err == nil {
			r.waiting = slices.Delete(r.waiting, 0, n)
		}
	}
	if err == nil {
		r.failing = false
		return
	}
	if !r.failing && ctx.Err() == nil {
		r.log.Warn("what was counted can't be written for the history; the last hour of it is kept and tried again every minute", "error", err)
	}
	r.failing = true
}

// expireRollups removes what is over its retention.
func expireRollups(ctx context.Context, store tables.Rollups, now time.Time) error {
	_, err := store.ExpireRollups(ctx, tables.MinuteRollup, now.Add(-tables.MinutesRetention))
	if err == nil {
		_, err = store.ExpireRollups(ctx, tables.HourRollup, now.Add(-tables.HoursRetention))
	}
	return err
}
