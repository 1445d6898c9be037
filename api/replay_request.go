package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/tables"
)

// replaysPath leads to the replays by filter.
const replaysPath = "/api/v1/replays/"

// Why a replay by filter leaves a dead letter out.
const (
	skipUnderWay = "replaying"       // a replay was asked for less than 10 minutes ago
	skipOften    = "replayed_often"  // maxGenerations replays have come back already
	skipWebhook  = "webhook_deleted" // there is nobody to send it to
	skipChanged  = "changed"         // it was replayed or deleted since it was listed
	// skipSameEvent: the job has sent the webhook another dead letter of the same event.
	skipSameEvent = "same_event"
)

// skipError is why a dead letter that was listed is left out after all.
type skipError string

func (e skipError) Error() string { return string(e) }

// skipReason says why err is no failure; empty when it is one.
func skipReason(err error) string {
	var skipped skipError
	var p *web.Problem
	switch {
	case errors.As(err, &skipped):
		return string(skipped)
	case !errors.As(err, &p):
		return ""
	case p.Status == http.StatusNotFound:
		return skipChanged
	case p.Of(web.WebhookDeleted):
		return skipWebhook
	case p.Status == http.StatusConflict:
		return skipUnderWay
	}
	return ""
}

// startReplayJob answers a dry run, or starts a job that replays what the filter
// matches.
func (a *API) startReplayJob(w http.ResponseWriter, r *http.Request) error {
	b, err := readBulk(w, r, replayFields)
	if err != nil {
		return err
	}
	switch b.filter.Status {
	case "":
		b.filter.Status = tables.Waiting
	case tables.Replayed:
		return web.Invalid(web.Wrong("status", "is replayed, and those were sent already", "use waiting (the default), or replaying for replays that never came; replay single ones at /api/v1/dead-letters/{id}/replay"))
	}
	if b.dryRun {
		skip, err := a.foreseeSkip(r.Context(), b)
		if err != nil {
			return err
		}
		c, err := a.count(r, b, skip)
		if err != nil {
			return err
		}
		return web.WriteJSON(w, http.StatusOK, dryRunView(b, c))
	}
	job, err := a.replays.start(r.Context(), a, b)
	if err != nil {
		return err
	}
	a.Logger.Info("replay by filter started", "job", job.id, "rate", b.rate, "limit", b.limit, "force", b.force, "filter", b.view(), "api_key", web.NoteOf(r).Key)
	a.audit(r, tables.Audit{Action: tables.ReplayStarted, Queue: b.filter.Queue, WebhookID: b.filter.WebhookID, ReplayID: job.id, Filter: b.view().encoded()})
	w.Header().Set("Location", replaysPath+job.id)
	return web.WriteJSON(w, http.StatusAccepted, job.view())
}

// foreseeSkip says what a job would leave out, as far as can be told beforehand.
func (a *API) foreseeSkip(ctx context.Context, b bulk) (func(tables.DeadLetter) string, error) {
	all, _, err := a.Webhooks.ListWebhooks(ctx)
	if err != nil {
		return nil, web.StorageFault("read the webhooks", err)
	}
	there := map[string]bool{"": true}
	for _, reg := range all {
		there[reg.ID] = true
	}
	return func(d tables.DeadLetter) string {
		if why := b.skip(d); why != "" || there[d.WebhookID] {
			return why
		}
		return skipWebhook
	}, nil
}

// skip says why the request leaves a dead letter out; empty when it does not.
func (b bulk) skip(d tables.DeadLetter) string {
	switch {
	case d.ReplayEndsIn() > 0:
		return skipUnderWay
	case d.Status != b.filter.Status:
		return skipChanged
	case !b.force && d.Generation+d.Replays >= maxGenerations:
		return skipOften
	}
	return ""
}

func (a *API) listReplayJobs(w http.ResponseWriter, r *http.Request) error {
	if err := web.ReadQuery(r).Err(); err != nil {
		return err
	}
	views, err := a.replays.list(r.Context())
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, web.NewList(views, ""))
}

func (a *API) getReplayJob(w http.ResponseWriter, r *http.Request) error {
	if err := web.ReadQuery(r).Err(); err != nil {
		return err
	}
	job, err := a.replays.get(r.Context(), web.PathParam(r, "id"))
	if err != nil {
		return err
	}
	if !job.FinishedAt.IsZero() {
		if job.Outcome, err = a.outcomeOf(r.Context(), job); err != nil { // the job itself is known
			a.Logger.Warn("what became of a job's replays could not be counted; it is left out", "job", job.ID, "error", err)
		}
	}
	return web.WriteJSON(w, http.StatusOK, job)
}

func (a *API) cancelReplayJob(w http.ResponseWriter, r *http.Request) error {
	if err := web.ReadQuery(r).Err(); err != nil {
		return err
	}
	job, err := a.replays.cancel(r.Context(), web.PathParam(r, "id"))
	if job.asked && (job.State == jobCanceled || job.State == jobRunning) { // which ends in a moment, here or in another instance
		a.audit(r, tables.Audit{Action: tables.ReplayCanceled, Queue: job.Filter.Queue, WebhookID: job.Filter.Webhook, ReplayID: job.ID})
	}
	if err != nil {
		return err
	}
	a.Logger.Info("replay by filter canceled", "job", job.ID, "state", job.State, "api_key", web.NoteOf(r).Key)
	return web.WriteJSON(w, http.StatusOK, job.replayJobView)
}

var noReplayJob = web.Missing("No replay job has that id. Of those that have ended the last 50 are kept.", "id", "take an id from GET /api/v1/replays")

// canceledHereOnly says that a job has ended in this process, and that storage may not know.
func canceledHereOnly(err error) error {
	p := web.StorageFault("store that the replay job is canceled", err)
	p.Detail += " This process sends no other replay of it. Were it to end before storage answers, another one would go on with the job."
	return p
}

func tooManyJobs() *web.Problem {
	return web.NewProblem(web.TooManyReplayJobs,
		fmt.Sprintf("This process runs at most %d replay jobs at once.", maxJobs),
		web.Wrong("request", "would start one job too many", "wait until one has ended, or cancel one: GET /api/v1/replays lists them"))
}
