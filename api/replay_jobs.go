package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/tables"
)

const (
	// maxJobs bounds the replay jobs that run at once in one process.
	maxJobs = 4
	// keptJobs is how many jobs that have ended are still shown.
	keptJobs = 50
	// cancelWait is how long an answer to a cancel waits for the job's end, and cancelLook how
	// often it looks whether another process has ended it.
	cancelWait = 5 * time.Second
	cancelLook = 500 * time.Millisecond
	// stopWait is how long stopping waits for replays that are being sent.
	stopWait = 10 * time.Second
)

// The causes with which a job's context ends.
var (
	errCanceledByCaller = errors.New("canceled by a request")
	errStopping         = errors.New("the process stopped")
)

// replayJobs are the replay jobs. They are stored: every instance tells of them, and one whose
// process is gone goes on in another.
type replayJobs struct {
	store    tables.Jobs
	instance string
	most     int // maxCandidates
	// stored is told of each job that was stored.
	stored func(replayJobView)

	mu       sync.Mutex
	jobs     map[string]*replayJob // that run here
	begun    int                   // are being stored, and run here next
	damaged  map[string]time.Time  // since when, as far as this process has seen, a row can't be read
	stopped  bool
	stopping chan struct{} // closed when it is
	running  sync.WaitGroup
}

// start stores a job and runs it in the background. Where this process stops another instance, or the next
// process, runs it.
func (js *replayJobs) start(ctx context.Context, a *API, b bulk) (*replayJob, error) {
	if err := js.room(); err != nil {
		return nil, err
	}
	v := replayJobView{
		ID: "rpl_" + strings.ToLower(rand.Text()), State: jobRunning, SkippedBecause: map[string]int{},
		StartedAt: time.Now().UTC().Truncate(time.Millisecond), Rate: b.rate, Limit: b.limit, Force: b.force, Order: b.order(), Filter: b.view(),
	}
	stored, err := js.put(ctx, tables.Job{}, v, js.runner())
	if err != nil {
		js.leave()
		return nil, js.takeBack(ctx, v, err)
	}
	js.forgetOld(ctx, a)
	return js.begin(a, b, stored, v, false), nil
}

// takeBack cancels a job whose start is refused because of err: storage may have taken it all the same, or take it late, and
// whoever finds it would go on with it. A canceled row in its place can't be laid over.
func (js *replayJobs) takeBack(ctx context.Context, v replayJobView, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), jobCall)
	defer cancel()
	p, id := web.StorageFault("store the replay job", err), v.ID
	v.State, v.FinishedAt = jobCanceled, time.Now().UTC()
	_, backErr := js.put(ctx, tables.Job{}, v, "")
	if errors.Is(backErr, tables.ErrExists) {
		_, backErr = js.cancelStored(ctx, id)
	}
	if backErr != nil {
		p.Cause = errors.Join(err, backErr)
		p.Detail += fmt.Sprintf(" Whether storage has taken it all the same is not known: it would begin within two minutes. Look at %s%s before you repeat the request; DELETE there cancels it.", replaysPath, id)
	}
	return p
}

// room keeps a place for one more job, which begin or leave gives up, or says why none may run here.
func (js *replayJobs) room() error {
	js.mu.Lock()
	defer js.mu.Unlock()
	if len(js.jobs)+js.begun >= maxJobs {
		return tooManyJobs()
	}
	js.begun++
	return nil
}

// runner names the process that is to run a job that is stored: this one or, where it stops, none as yet.
func (js *replayJobs) runner() string {
	js.mu.Lock()
	defer js.mu.Unlock()
	if js.stopped {
		return ""
	}
	return js.instance
}

// sees notes whether the row of a job can be read, and reports whether it is seen for the first time that it can't.
func (js *replayJobs) sees(id string, readable bool) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	_, known := js.damaged[id]
	switch {
	case readable:
		delete(js.damaged, id)
	case js.damaged == nil:
		js.damaged = map[string]time.Time{id: time.Now()}
	case !known:
		js.damaged[id] = time.Now()
	}
	return !readable && !known
}

// mayRun reports whether a process may be at work on a job that can't be read: it writes the row anew at its next beat.
func (js *replayJobs) mayRun(stored tables.Job) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	since, known := js.damaged[stored.ID]
	return !known || time.Since(since) < jobLost || live(stored, time.Now())
}

func (js *replayJobs) leave() {
	js.mu.Lock()
	js.begun--
	js.mu.Unlock()
}

// begin runs a stored job of this process, which another one may have begun.
func (js *replayJobs) begin(a *API, b bulk, stored tables.Job, v replayJobView, adopted bool) *replayJob {
	ctx, cancel := context.WithCancelCause(context.Background())
	j := &replayJob{
		adopted: adopted, api: a, bulk: b, id: v.ID, cancel: cancel, done: make(chan struct{}), stored: stored,
		startedAt: v.StartedAt, replaysFrom: v.replaysFrom, state: jobRunning, because: map[string]int{}, matched: v.Matched, replayed: v.Replayed,
	}
	js.mu.Lock()
	defer js.mu.Unlock()
	js.begun--
	if js.stopped { // nobody waits for it here any more: another instance goes on with it
		cancel(errStopping)
		close(j.done)
		return j
	}
	js.jobs[j.id] = j
	js.running.Go(func() {
		j.run(ctx)
		js.mu.Lock()
		delete(js.jobs, j.id)
		js.mu.Unlock()
	})
	return j
}

// own is a job that runs here; nil for any other.
func (js *replayJobs) own(id string) *replayJob {
	js.mu.Lock()
	defer js.mu.Unlock()
	return js.jobs[id]
}

// get returns a job as it is shown.
func (js *replayJobs) get(ctx context.Context, id string) (replayJobView, error) {
	if j := js.own(id); j != nil {
		return j.view(), nil
	}
	_, v, err := js.find(ctx, id)
	return v, err
}

// list returns all jobs, the newest first.
func (js *replayJobs) list(ctx context.Context) ([]replayJobView, error) {
	stored, err := js.store.ListJobs(ctx)
	if err != nil {
		return nil, web.StorageFault("read the replay jobs", err)
	}
	views := []replayJobView{}
	for _, s := range stored {
		v, readable := viewOf(s)
		v.mayRun = !readable && js.mayRun(s)
		if j := js.own(s.ID); j != nil {
			v = j.view()
		}
		views = append(views, v)
	}
	slices.SortFunc(views, func(a, b replayJobView) int {
		return cmp.Or(b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.ID, b.ID))
	})
	return views, nil
}

// forgetOld removes all but the newest keptJobs of the jobs that have ended. What can't be
// removed now is removed after a later start.
func (js *replayJobs) forgetOld(ctx context.Context, a *API) {
	views, err := js.list(ctx)
	ended := 0
	for _, v := range views {
		if v.State == jobRunning || v.mayRun {
			continue
		}
		if ended++; ended > keptJobs && err == nil {
			err = js.store.DropJob(ctx, v.ID)
		}
	}
	if err != nil {
		a.Logger.Warn("old replay jobs could not be removed", "error", err)
	}
}

// canceled is what came of asking for the end of a job.
type canceled struct {
	replayJobView
	// asked: it was asked for now, and again: somebody had asked for it before.
	asked, again bool
	// damaged: the job's row can't be read.
	damaged bool
}

// cancel ends a job wherever it runs, and waits a moment for it, so that the answer usually has
// its last numbers. One that has ended stays as it is. It is in the job's row before it is answered: whoever
// goes on with the job ends it.
func (js *replayJobs) cancel(ctx context.Context, id string) (c canceled, err error) {
	waitCtx, stop := context.WithTimeout(ctx, cancelWait)
	defer stop()
	var ended <-chan struct{}
	j, asked, first := js.own(id), false, true
	if j != nil {
		asked, ended = j.cancelHere(), j.done
	}
	look := time.NewTicker(cancelLook)
	defer look.Stop()
	for {
		c, err = js.cancelStored(ctx, id)
		if j != nil && (err != nil || c.damaged) {
			c.replayJobView = j.view()
		}
		if err != nil && j != nil && !errors.Is(err, noReplayJob) {
			err = canceledHereOnly(err)
		}
		switch {
		case j == nil:
			asked = asked || c.asked
		case first:
			asked, first = asked && !c.again, false
		}
		c.asked = asked
		if err != nil || c.State != jobRunning {
			return c, err
		}
		select {
		case <-ended:
			ended = nil // it is looked for once, without a pause
		case <-look.C:
		case <-waitCtx.Done():
			return c, nil
		}
	}
}

// cancelStored asks the process that has the job to end it, or ends it where there is none.
func (js *replayJobs) cancelStored(ctx context.Context, id string) (c canceled, err error) {
	for range web.MaxTries {
		var stored tables.Job
		stored, c.replayJobView, err = js.find(ctx, id)
		c.damaged, c.again = stored.Damaged != nil, stored.CancelAsked
		if err != nil || c.State != jobRunning {
			return c, err
		}
		instance := stored.Instance
		switch {
		case !live(stored, time.Now()):
			instance, c.State, c.FinishedAt = "", jobCanceled, time.Now().UTC()
		case stored.CancelAsked:
			return c, nil
		}
		stored.CancelAsked = true
		if _, err = js.put(ctx, stored, c.replayJobView, instance); !errors.Is(err, tables.ErrConflict) {
			c.asked = err == nil && !c.again
			break
		}
	}
	if err != nil {
		return c, web.StorageFault("cancel the replay job", err)
	}
	return c, nil
}

// stop ends all jobs here, lets no new one begin, and waits for them, though not longer
// than stopWait. Another instance, or the next process, goes on with them.
func (js *replayJobs) stop() {
	js.mu.Lock()
	if !js.stopped {
		js.stopped = true
		close(js.stopping)
	}
	for _, j := range js.jobs {
		j.cancel(errStopping)
	}
	js.mu.Unlock()
	ended := make(chan struct{})
	go func() { js.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(stopWait):
	}
}
