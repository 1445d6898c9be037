package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/tables"
)

const (
	// replayPage is how many dead letters a job lists at once.
	replayPage = 100
	// replaysAtOnce bounds the replays of one job that are being sent at the same
	// time: one after the other, storage would set the pace rather than the rate.
	replaysAtOnce = 16
	// maxFaults is how many replays in a row may fail before a job gives up: then
	// storage is the problem, and the rest would fail too.
	maxFaults = 10
	// maxCandidates bounds the dead letters whose turn is remembered, about 100 bytes each.
	maxCandidates = 100_000
	// readTries is how often a job asks for a page, or for what was sent.
	readTries = 4
	// readTimeout bounds one answer to that.
	readTimeout = 30 * time.Second
)

// jobState says how a job fares.
type jobState string

const (
	jobDryRun   jobState = "dry_run" // it only counted
	jobRunning  jobState = "running"
	jobDone     jobState = "done"
	jobCanceled jobState = "canceled"
	jobFailed   jobState = "failed"
)

// replayJob replays what a filter matches, at a bounded rate. Each replay is the
// same step as a single one, with its token and ETag, so that it does not matter
// where a job ends or how many run over the same dead letters.
type replayJob struct {
	api       *API
	bulk      bulk
	id        string
	startedAt time.Time
	// replaysFrom is the earliest time that its replays bear, where that is before startedAt: those of a process whose clock is
	// behind that of the one that began the job.
	replaysFrom time.Time
	cancel      context.CancelCauseFunc
	done        chan struct{} // closed when it has ended, and that is stored as far as it can be
	stored      tables.Job    // only its own goroutine's
	adopted     bool          // another process began it
	events      sentEvents
	sentAs      sentEvents // what its first replays come back as
	// What was dead-lettered before from has had its turn, and so has what atFrom names. Only the walk's.
	from   time.Time
	atFrom map[string]bool

	mu    sync.Mutex
	state jobState
	// lastLearned is the latest replay of the processes that had the job before, by their clocks.
	lastLearned time.Time
	canceled    bool // its end was asked for, here or in its row
	finishedAt  time.Time
	matched     int
	replayed    int
	skipped     int
	failed      int
	faults      int // failures in a row
	because     map[string]int
	lastError   string
}

// replayJobView is a job as it is shown.
type replayJobView struct {
	// ID is left out of a dry run, which is no job.
	ID    string   `json:"id,omitempty"`
	State jobState `json:"state"`
	// Matched counts the dead letters that the filter matched so far; of a dry run, a
	// lower bound unless Exact.
	Matched        int            `json:"matched"`
	Exact          *bool          `json:"exact,omitempty"`
	Until          time.Time      `json:"until,omitzero"` // what a dry run has counted to
	Replayed       int            `json:"replayed"`
	Skipped        int            `json:"skipped"`
	SkippedBecause map[string]int `json:"skipped_because"`
	Failed         int            `json:"failed"`
	StartedAt      time.Time      `json:"started_at"`
	FinishedAt     time.Time      `json:"finished_at,omitzero"`
	Rate           float64        `json:"rate"`
	Limit          int            `json:"limit,omitempty"`
	Force          bool           `json:"force"`
	Order          replayOrder    `json:"order"`
	Filter         filterView     `json:"filter"`
	LastError      string         `json:"last_error,omitempty"`
	// Outcome is shown of one job that has ended, and not stored.
	Outcome *replayOutcome `json:"outcome,omitempty"`

	replaysFrom time.Time // as the job's
	mayRun      bool      // its row can't be read, and a process may be at work on it
}

func (j *replayJob) view() replayJobView {
	j.mu.Lock()
	defer j.mu.Unlock()
	because := make(map[string]int, len(j.because))
	for why, n := range j.because {
		because[why] = n
	}
	return replayJobView{
		ID: j.id, State: j.state, Matched: j.matched, Replayed: j.replayed, Skipped: j.skipped, SkippedBecause: because, Failed: j.failed,
		StartedAt: j.startedAt, FinishedAt: j.finishedAt, Rate: j.bulk.rate, Limit: j.bulk.limit, Force: j.bulk.force, Order: j.bulk.order(),
		Filter: j.bulk.view(), LastError: j.lastError, replaysFrom: j.replaysFrom,
	}
}

// firstReplay is the earliest time that a replay of the job bears.
func (v *replayJobView) firstReplay() time.Time {
	if v.replaysFrom.IsZero() {
		return v.StartedAt
	}
	return v.replaysFrom
}

// dryRunView is what a job would be about, in the form of one.
func dryRunView(b bulk, c counted) replayJobView {
	now := time.Now().UTC()
	return replayJobView{
		State: jobDryRun, Matched: c.matched, Exact: &c.exact, Until: c.until, Skipped: c.skipped, SkippedBecause: c.because,
		StartedAt: now, FinishedAt: now, Rate: b.rate, Limit: b.limit, Force: b.force, Order: b.order(), Filter: b.view(),
	}
}

// run works until the list ends, ctx ends, or nothing succeeds any more. Beside that it
// stores how far it has come.
func (j *replayJob) run(ctx context.Context) {
	var sending sync.WaitGroup
	walked := make(chan error, 1)
	go func() {
		err := j.guard(func() error { return j.walk(ctx, &sending) })
		sending.Wait()
		walked <- err
	}()
	err := j.keepStored(ctx, walked)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	j.finish(err)
	j.cancel(nil)
	ended := j.storeEnd()
	close(j.done)
	if !ended {
		j.storeEndLater()
	}
}

// cancelHere ends the job in this process, and reports whether nobody has asked for its end before, as far as is known here.
func (j *replayJob) cancelHere() (asked bool) {
	j.note(func() {
		asked = j.state == jobRunning && !j.canceled
		j.canceled = true
	})
	j.cancel(errCanceledByCaller)
	return asked
}

// finish sets the state that stays.
func (j *replayJob) finish(err error) {
	j.mu.Lock()
	if j.finishedAt = time.Now().UTC(); j.finishedAt.Before(j.lastLearned) {
		j.finishedAt = j.lastLearned
	}
	switch {
	case (err == nil || errors.Is(err, errLimit)) && j.faults < maxFaults:
		j.state = jobDone
	case errors.Is(err, errCanceledByCaller):
		j.state = jobCanceled
	case errors.Is(err, errStopping), errors.Is(err, errTakenOver): // another instance goes on
		j.finishedAt = time.Time{}
	default:
		j.state = jobFailed
		if err != nil && !errors.Is(err, errTooManyFaults) {
			j.lastError = detailOf(err)
		}
	}
	j.mu.Unlock()
	v, what := j.view(), "replay by filter ended"
	if v.State == jobRunning {
		what = "replay by filter is left to another process"
	}
	j.api.Logger.Info(what, "job", j.id, "state", v.State, "matched", v.Matched, "replayed", v.Replayed,
		"skipped", v.Skipped, "skipped_because", v.SkippedBecause, "failed", v.Failed, "last_error", v.LastError)
}

var errTooManyFaults = errors.New("too many replays in a row failed")

// walk goes through the list, the oldest messages first unless the newest were asked for:
// receivers that keep the last state that they were told must not end with an old one.
// What is dead-lettered from the job's start on is not part of it, and a job never meets
// what came back from its own replays.
func (j *replayJob) walk(ctx context.Context, sending *sync.WaitGroup) error {
	if j.adopted {
		if err := j.learn(ctx); err != nil {
			return err
		}
	}
	send, stop := j.sender(ctx, sending)
	defer stop()
	if j.bulk.newest {
		return j.each(ctx, false, func(d tables.DeadLetter) error { return send(d.ID) })
	}
	for again := false; ; again = true {
		oldest, more, err := j.oldest(ctx, again)
		if err != nil {
			return err
		}
		for _, c := range oldest {
			if err := send(c.id); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		sending.Wait()
		j.had(oldest)
	}
}

// errLimit ends a job that has replayed as many as it may.
var errLimit = errors.New("the limit is reached")

// sender makes the function that begins one replay after the other, at the job's rate.
func (j *replayJob) sender(ctx context.Context, sending *sync.WaitGroup) (send func(id string) error, stop func()) {
	asked, before := 0, j.view().Replayed
	pace := time.NewTicker(time.Duration(float64(time.Second) / j.bulk.rate))
	slots := make(chan struct{}, replaysAtOnce)
	return func(id string) error {
		if j.bulk.limit > 0 && before+asked >= j.bulk.limit {
			return errLimit
		}
		if asked > 0 && !waitOn(ctx, pace.C) || !acquire(ctx, slots) {
			return context.Cause(ctx)
		}
		if j.gaveUp() {
			return errTooManyFaults
		}
		asked++
		sending.Go(func() {
			defer func() { <-slots }()
			j.replay(ctx, id)
		})
		return nil
	}, pace.Stop
}

// candidate is a dead letter whose turn comes.
type candidate struct {
	id             string
	inserted, dead int64 // in milliseconds
}

// had notes that these had their turn, which were the oldest: the list ends before them from now on.
func (j *replayJob) had(list []candidate) {
	last := int64(0)
	for _, c := range list {
		last = max(last, c.dead)
	}
	if from := time.UnixMilli(last); !from.Equal(j.from) {
		j.from, j.atFrom = from, map[string]bool{}
	}
	for _, c := range list {
		if c.dead == last {
			j.atFrom[c.id] = true
		}
	}
}

// oldest lists all that match, and returns the last maxCandidates of the list, which goes
// from the newest to the oldest, in the order in which the messages were inserted. more
// says that there are others, for which the list has to be read again.
func (j *replayJob) oldest(ctx context.Context, again bool) (found []candidate, more bool, err error) {
	err = j.each(ctx, again, func(d tables.DeadLetter) error {
		if j.atFrom[d.ID] {
			return nil
		}
		if most := j.api.replays.most; len(found) == most {
			more = true
			found = append(found[:0], found[most/2:]...)
		}
		found = append(found, candidate{d.ID, d.InsertedAt.UnixMilli(), d.DeadLetteredAt.UnixMilli()})
		return nil
	})
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.inserted, b.inserted), cmp.Compare(a.dead, b.dead), cmp.Compare(a.id, b.id))
	})
	return found, more, err
}

// each calls f for each dead letter that is to be replayed, newest first. What is listed
// again is not counted again.
func (j *replayJob) each(ctx context.Context, again bool, f func(tables.DeadLetter) error) error {
	page := tables.Page{Limit: replayPage}
	for {
		rows, next, err := j.list(ctx, j.bulk.filter, page)
		if err != nil {
			return err
		}
		for _, d := range rows {
			if j.isItsOwn(d) {
				continue
			}
			why := j.bulk.skip(d)
			j.note(func() {
				if !again {
					j.matched++
					j.skip(why)
				}
			})
			if why != "" {
				continue
			}
			if err := f(d); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		page.After = next
	}
}

// list asks for a page of what was there at the job's start, by whatever clock that is dated.
func (j *replayJob) list(ctx context.Context, filter tables.DeadLetterFilter, page tables.Page) (rows []tables.DeadLetter, next tables.Cursor, err error) {
	if until := j.startedAt.Add(tables.ClocksApart); filter.Until.IsZero() || filter.Until.After(until) {
		filter.Until = until
	}
	if filter.From.Before(j.from) {
		filter.From = j.from
	}
	err = patiently(ctx, func(ctx context.Context) (err error) {
		rows, next, err = j.api.DeadLetters.ListDeadLetters(ctx, filter, page)
		return err
	})
	if err != nil {
		return nil, "", web.StorageFault("list the dead letters", err)
	}
	return rows, next, nil
}

// patiently calls f until it succeeds or what it reads is not there, a few times with growing pauses when storage does not answer.
func patiently(ctx context.Context, f func(context.Context) error) error {
	for try := 1; ; try++ {
		callCtx, cancel := context.WithTimeout(ctx, readTimeout)
		err := f(callCtx)
		cancel()
		if err == nil || errors.Is(err, tables.ErrNotFound) || try == readTries {
			return err
		}
		pause := time.NewTimer(time.Duration(try*try) * time.Second)
		waited := waitOn(ctx, pause.C)
		pause.Stop()
		if !waited {
			return err
		}
	}
}

// replay makes one replay and counts what came of it.
func (j *replayJob) replay(ctx context.Context, id string) {
	turn := eventTurn{of: &j.events, id: id}
	err := j.guard(func() error {
		_, err := j.api.replayOne(ctx, id, func(ctx context.Context, d tables.DeadLetter) error {
			if why := j.bulk.skip(d); why != "" {
				return skipError(why)
			}
			if !turn.first(j.api.eventOf(d)) {
				return skipError(skipSameEvent)
			}
			j.noteSent(d, d.Replays+1, time.Now())
			return j.api.intact(ctx, d)
		})
		return err
	})
	if err != nil && !errors.As(err, new(maybeSentError)) {
		turn.forget()
	}
	why := skipReason(err)
	j.note(func() {
		switch {
		case err == nil:
			j.replayed++
			j.faults = 0
		case why != "":
			j.skip(why)
		default:
			j.failed++
			j.faults++
			j.lastError = detailOf(err)
		}
	})
	if err != nil && why == "" {
		j.api.Logger.Warn("a dead letter could not be replayed", "job", j.id, "dead_letter", id, "error", err)
	}
}

// detailOf is what is said of an error to a caller: what a problem says, without its
// cause, which is for the log.
func detailOf(err error) string {
	var p *web.Problem
	if errors.As(err, &p) {
		return p.Detail
	}
	return "Something went wrong in pushlease; the log says more."
}

func (j *replayJob) note(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
}

// skip counts one that is left out; why is empty when it is not. j.mu is held.
func (j *replayJob) skip(why string) {
	if why != "" {
		j.skipped++
		j.because[why]++
	}
}

func (j *replayJob) gaveUp() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.faults >= maxFaults
}

// guard turns a panic into an error: a job must not end the process.
func (j *replayJob) guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p := &panicError{value: v, stack: debug.Stack()}
			j.api.Logger.Error("panic in a replay job", "job", j.id, "error", p, "stack", string(p.stack))
			err = fmt.Errorf("replay: %w", p)
		}
	}()
	return f()
}

// waitOn waits for c, and reports whether it came before ctx ended.
func waitOn(ctx context.Context, c <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c:
		return ctx.Err() == nil
	}
}

func acquire(ctx context.Context, slots chan<- struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case slots <- struct{}{}:
		return true
	}
}
