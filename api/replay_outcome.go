package api

import (
	"context"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/tables"
)

// replayOutcome is what became of the replays that a job has sent. Dead letters that were deleted, or
// replayed again, since then are not in it.
type replayOutcome struct {
	Delivered int `json:"delivered"`
	CameBack  int `json:"came_back"`
	UnderWay  int `json:"under_way"`
	// Waiting counts those that wait again, since their message came to nothing, or was never sent.
	Waiting int `json:"waiting"`
	// Exact is false where there are more than may be read, and these are lower bounds, or where others have replayed some of
	// the same dead letters while the job ran: those can't be told apart from its own.
	Exact bool `json:"exact"`
}

// outcomeFresh is how long the outcome of a job is shown as it was counted: each count may take dozens of lists, and a page asks
// every few seconds. What is not under way any more is counted once.
const outcomeFresh = time.Minute

// countedOutcome is an outcome and when it was counted.
type countedOutcome struct {
	replayOutcome
	at time.Time
}

// outcomes remembers what became of jobs that have ended, by their ids.
type outcomes struct {
	mu   sync.Mutex
	byID map[string]countedOutcome
}

func (o *outcomes) of(v *replayJobView) (*replayOutcome, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c, known := o.byID[v.ID]
	settled := c.UnderWay == 0 && c.Waiting == 0 && c.at.Sub(v.FinishedAt) > tables.ReplayReserved // nothing of it is being sent any more
	return &c.replayOutcome, known && (settled || time.Since(c.at) < outcomeFresh)
}

func (o *outcomes) note(id string, c replayOutcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil || len(o.byID) >= 2*keptJobs {
		o.byID = map[string]countedOutcome{}
	}
	o.byID[id] = countedOutcome{c, time.Now()}
}

// outcomeOf is what became of an ended job's replays.
func (a *API) outcomeOf(ctx context.Context, v replayJobView) (*replayOutcome, error) {
	if o, known := a.outcomes.of(&v); known {
		return o, nil
	}
	o, err := a.countOutcome(ctx, v)
	if err == nil {
		a.outcomes.note(v.ID, *o)
	}
	return o, err
}

// countOutcome counts it: a replay has come back where there is a dead letter of its generation, or of a later one.
func (a *API) countOutcome(ctx context.Context, v replayJobView) (*replayOutcome, error) {
	filter := bulkOf(v).filter
	back, whole, err := a.cameBack(ctx, v, filter)
	if err != nil {
		return nil, err
	}
	filter.Status = ""
	if until := v.StartedAt.Add(tables.ClocksApart); filter.Until.IsZero() || filter.Until.After(until) {
		filter.Until = until
	}
	o := &replayOutcome{}
	_, exact, err := tables.CountDeadLetters(ctx, a.DeadLetters, filter, maxCount, countCalls, func(d tables.DeadLetter) {
		switch last, there := back[replayedTo{d.Queue, d.MessageID, d.WebhookID}]; {
		case !v.replayed(d):
		case d.Status == tables.Waiting:
			o.Waiting++
		case d.Status == tables.Replaying:
			o.UnderWay++
		case there && last >= d.Generation+d.Replays:
			o.CameBack++
		case whole:
			o.Delivered++
		}
	})
	if err != nil {
		return nil, web.StorageFault("count what became of the replays", err)
	}
	most := v.Replayed + v.Failed
	o.Exact = whole && exact && o.Delivered+o.CameBack+o.UnderWay+o.Waiting <= most
	o.Delivered, o.CameBack, o.UnderWay, o.Waiting = min(o.Delivered, most), min(o.CameBack, most), min(o.UnderWay, most), min(o.Waiting, most)
	return o, nil
}

// replayed reports whether the job has asked for the last replay of d.
func (v *replayJobView) replayed(d tables.DeadLetter) bool {
	return d.Replays > 0 && !d.ReplayedAt.Before(v.firstReplay()) && !d.ReplayedAt.After(v.FinishedAt)
}

// replayedTo is the message and the webhook of a replay; every webhook where the message as a whole was replayed.
type replayedTo struct{ queue, message, webhook string }

// cameBack lists what was given up since a job began, with the last generation of each; whole is false where there is more than may be read.
func (a *API) cameBack(ctx context.Context, v replayJobView, f tables.DeadLetterFilter) (back map[replayedTo]int, whole bool, err error) {
	back = map[replayedTo]int{}
	since := tables.DeadLetterFilter{Queue: f.Queue, WebhookID: f.WebhookID, MessageID: f.MessageID, From: v.StartedAt.Add(-tables.ClocksApart)}
	_, whole, err = tables.CountDeadLetters(ctx, a.DeadLetters, since, maxCount, countCalls, func(d tables.DeadLetter) {
		if d.DeadLetteredAt.Before(v.StartedAt) && v.replayed(d) { // one of those that the job was about
			return
		}
		for _, webhook := range [...]string{d.WebhookID, ""} {
			to := replayedTo{d.Queue, d.MessageID, webhook}
			back[to] = max(back[to], d.Generation)
		}
	})
	if err != nil {
		return nil, false, web.StorageFault("list what came back from the replays", err)
	}
	return back, whole, nil
}
