package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/tables"
)

const (
	// jobBeat is how often a job is stored while it runs: how far it has come, that its
	// process lives, and whether a cancel was asked of another one.
	jobBeat = 3 * time.Second
	// jobLost is after how long without a beat a job's process is taken for dead: what it has reserved can then be
	// sent again.
	jobLost = tables.ReplayReserved + 2*jobBeat
	// jobLeft is after how long without a beat a process leaves its job to others: before any of them takes it for dead by a
	// clock that is ahead.
	jobLeft = jobLost - tables.ClocksApart - 2*jobBeat
	// jobCall bounds one call to storage about a job.
	jobCall = 10 * time.Second
	// endTries is how often the end of a job is written.
	endTries = 3
)

// errTakenOver ends a job here that another instance goes on with.
var errTakenOver = errors.New("another instance goes on with the job")

// live reports whether a process works on the job.
func live(j tables.Job, now time.Time) bool {
	return j.Instance != "" && tables.Heard(j.HeardAt, now, jobLost)
}

// storedView is a job as it is stored.
type storedView struct {
	replayJobView
	ReplaysFrom time.Time `json:"replays_from,omitzero"`
}

// viewOf reads a stored job. Of one that another program has changed, or whose filter a newer version wrote, nothing is known but
// its id: the process that works on it writes it anew at its next beat, and where none does it has ended.
func viewOf(j tables.Job) (v replayJobView, readable bool) {
	var s storedView
	if j.Damaged == nil && json.Unmarshal(j.State, &s) == nil {
		v = s.replayJobView
		v.replaysFrom = s.ReplaysFrom
		if v.ID == "" && v.Filter.hidden() {
			v.ID = j.ID
		}
		if v.ID == j.ID {
			return v, true
		}
	}
	return replayJobView{
		ID: j.ID, State: jobFailed, SkippedBecause: map[string]int{}, Order: oldestFirst,
		LastError: "Another program, or a newer version of pushlease, has written the job's row in storage: how far it has come is not known. Where no process works on it any more, begin it anew: what it has replayed is not waiting, and is not sent again.",
	}, false
}

// bulkOf is the request that a stored job came from.
func bulkOf(v replayJobView) bulk {
	f := v.Filter
	return bulk{
		filter: tables.DeadLetterFilter{
			Queue: f.Queue, WebhookID: f.Webhook, MessageID: f.Message, Reason: f.Reason, Answer: f.Answer, Cause: f.Cause, Status: f.Status, From: f.From, Until: f.Until,
		},
		all: f.All, force: v.Force, rate: v.Rate, limit: v.Limit, newest: v.Order == newestFirst,
	}
}

// UnmarshalJSON refuses a filter with a field that is not known: without that the job would be about more than was asked for.
func (f *filterView) UnmarshalJSON(text []byte) error {
	type fields filterView
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode((*fields)(f))
}

// hidden reports whether a job with this filter is stored without its id, so that versions which do not know these
// fields, and would leave them out, can't read it.
func (f *filterView) hidden() bool { return f.Answer != "" || f.Cause != "" }

// put stores v as the state of the job that is to be replaced. It outlives ctx, but not its deadline.
func (js *replayJobs) put(ctx context.Context, before tables.Job, v replayJobView, instance string) (tables.Job, error) {
	bound := jobCall
	if end, limited := ctx.Deadline(); limited {
		bound = min(bound, time.Until(end))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
	defer cancel()
	before.ID, before.Instance, before.HeardAt = v.ID, instance, time.Now().UTC().Truncate(time.Millisecond)
	shown := v
	if v.Filter.hidden() {
		v.ID = ""
	}
	var err error
	if before.State, err = json.Marshal(storedView{v, v.replaysFrom}); err != nil {
		return before, err
	}
	stored, err := js.store.PutJob(ctx, before)
	if err == nil {
		js.stored(shown)
	}
	return stored, err
}

// find returns the stored job.
func (js *replayJobs) find(ctx context.Context, id string) (tables.Job, replayJobView, error) {
	list, err := js.store.ListJobs(ctx)
	if err != nil {
		return tables.Job{}, replayJobView{}, web.StorageFault("read the replay jobs", err)
	}
	for _, j := range list {
		if j.ID != id {
			continue
		}
		v, readable := viewOf(j)
		if !readable && j.Damaged == nil {
			j.Damaged = tables.ErrDamaged
		}
		return j, v, nil
	}
	return tables.Job{}, replayJobView{}, noReplayJob
}

// keepStored stores the job at each beat until its walk has ended, and returns what came of that. A
// store that does not answer stops nothing, the next beat may be heard; when none was for so long that others
// may take the job over, it is left to them.
func (j *replayJob) keepStored(ctx context.Context, walked <-chan error) error {
	beat := time.NewTicker(jobBeat)
	defer beat.Stop()
	for {
		select {
		case err := <-walked:
			return err
		case <-beat.C:
			leave := j.stored.HeardAt.Add(jobLeft)
			beatCtx, cancel := context.WithDeadline(ctx, leave)
			j.beat(beatCtx)
			cancel()
			if leave = j.stored.HeardAt.Add(jobLeft); !time.Now().Before(leave) {
				j.cancel(errTakenOver)
			}
		}
	}
}

// beat stores how far the job has come, or takes in what others wrote. It ends with ctx.
func (j *replayJob) beat(ctx context.Context) {
	js := j.api.replays
	stored, err := js.put(ctx, j.stored, j.view(), js.instance)
	if err == nil {
		j.stored = stored
		return
	}
	now, _, err := js.find(ctx, j.id)
	switch {
	case errors.Is(err, noReplayJob):
		j.cancel(errCanceledByCaller) // somebody removed it
	case err != nil:
	case now.Damaged != nil:
		j.stored.ETag = now.ETag // the next beat writes it anew
	case now.Instance != js.instance:
		j.cancel(errTakenOver)
	default:
		j.stored = now
		if now.CancelAsked {
			j.cancelHere()
		}
	}
}

// storeEnd stores what stays of the job, and reports whether nothing is left to do about that. One that was let go by a
// process that stops belongs to nobody, and one that was taken over is another's, which a cancel ends there too.
func (j *replayJob) storeEnd() bool {
	js, v := j.api.replays, j.view()
	for range endTries {
		stored, err := js.put(context.Background(), j.stored, v, "")
		if err == nil {
			j.stored = stored
			return true
		}
		now, _, err := js.find(context.Background(), j.id)
		switch {
		case errors.Is(err, noReplayJob):
			return true
		case err == nil && now.Damaged == nil && now.Instance != js.instance:
			if v.State == jobCanceled {
				_, err = js.cancelStored(context.Background(), j.id)
			}
			return err == nil
		case err == nil:
			j.stored = now
		}
	}
	return v.State == jobRunning // another instance goes on with it
}

// storeEndLater stores the end of a job as soon as storage takes it. Until then the job is this process's, which else would
// take it over when it can be lost (jobLost), and go on with what was canceled or had failed.
func (j *replayJob) storeEndLater() {
	j.api.Logger.Warn("the end of a replay job could not be stored; it is tried again until storage takes it", "job", j.id)
	beat := time.NewTicker(jobBeat)
	defer beat.Stop()
	for stopping := false; !stopping; {
		select {
		case <-beat.C:
		case <-j.api.replays.stopping:
			stopping = true
		}
		if j.storeEnd() {
			return
		}
	}
}

// watch looks for jobs that nobody works on every minute, and as soon as one that it knows of may be such a one, until ctx ends.
func (js *replayJobs) watch(ctx context.Context, a *API) {
	for failing := false; ; {
		next, err := js.look(ctx, a)
		if err != nil && !failing && ctx.Err() == nil {
			a.Logger.Warn("replay jobs whose process is gone can't be looked for; trying again every minute", "error", err)
		}
		failing = err != nil
		pause := time.NewTimer(time.Until(next))
		waited := waitOn(ctx, pause.C)
		pause.Stop()
		if !waited {
			return
		}
	}
}

// adopt goes on with the jobs that nobody works on: their process is gone.
func (js *replayJobs) adopt(ctx context.Context, a *API) error {
	_, err := js.look(ctx, a)
	return err
}

// look is adopt, and says when to look again.
func (js *replayJobs) look(ctx context.Context, a *API) (next time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, jobCall)
	defer cancel()
	next = time.Now().Add(backlogEvery)
	list, err := js.store.ListJobs(ctx)
	if err != nil {
		return next, err
	}
	for _, stored := range list {
		v, readable := viewOf(stored)
		if lost := stored.HeardAt.Add(jobLost); v.State == jobRunning && live(stored, time.Now()) && lost.Before(next) {
			next = lost
		}
		if js.sees(stored.ID, readable) && js.own(stored.ID) == nil {
			a.Logger.Error("the row of a replay job was changed by another program, or written by a newer version; where no process works on it, it has ended", "job", stored.ID)
		}
		if v.State != jobRunning || live(stored, time.Now()) || js.own(stored.ID) != nil {
			continue
		}
		switch {
		case stored.CancelAsked:
			v.State, v.FinishedAt = jobCanceled, time.Now().UTC()
			_, err = js.put(ctx, stored, v, "")
		case js.room() == nil: // otherwise another instance has room, or this one later
			err = js.goOn(ctx, a, stored, v)
		}
		if err != nil && !errors.Is(err, tables.ErrConflict) && !errors.Is(err, tables.ErrNotFound) {
			return next, err
		}
	}
	return next, nil
}

// goOn takes a job over, for which room was kept. What is left is listed, and counted, again.
func (js *replayJobs) goOn(ctx context.Context, a *API, stored tables.Job, v replayJobView) error {
	v.Matched, v.Skipped, v.Failed, v.SkippedBecause = v.Replayed, 0, 0, map[string]int{}
	if now := time.Now().UTC().Truncate(time.Millisecond); now.Before(v.firstReplay()) {
		v.replaysFrom = now
	}
	taken, err := js.put(ctx, stored, v, js.runner())
	if err != nil {
		js.leave()
		return err
	}
	a.Logger.Info("replay by filter goes on here: its process is gone", "job", v.ID, "replayed", v.Replayed)
	js.begin(a, bulkOf(v), taken, v, true)
	return nil
}
