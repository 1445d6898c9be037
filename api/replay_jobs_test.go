package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	replayPath = "/api/v1/replays"
	purgePath  = "/api/v1/dead-letters/purge"
)

// withJobs ends the jobs with the test, as the process would.
func withJobs(t *testing.T, change ...func(*Options)) *harness {
	t.Helper()
	h := newHarness(t, change...)
	t.Cleanup(h.api.replays.stop)
	return h
}

// putMany puts n dead letters of a queue, a second apart; change may alter each.
func (h *harness) putMany(queueName string, n int, change func(i int, d *tables.DeadLetter)) (ids []string) {
	h.Helper()
	for i := range n {
		d := dead(fmt.Sprintf("m%d", i), "", "payload")
		d.Queue, d.DeadLetteredAt = queueName, testTime.Add(time.Duration(i)*time.Second-24*time.Hour)
		if change != nil {
			change(i, &d)
		}
		ids = append(ids, h.putDeadLetter(d).ID)
	}
	return ids
}

// await reads a job until it has ended.
func (h *harness) await(id string) answer {
	h.Helper()
	if job := h.api.replays.own(id); job != nil {
		select {
		case <-job.done:
		case <-time.After(10 * time.Second):
			h.Fatalf("job is still %+v", job.view())
		}
	}
	return h.do(http.StatusOK, "GET", replayPath+"/"+id, "")
}

// wantJob compares a job's state and numbers.
func (a answer) wantJob(state string, matched, replayed, skipped, failed int) {
	a.Helper()
	got := fmt.Sprint(a.text("state"), a.get("matched"), a.get("replayed"), a.get("skipped"), a.get("failed"))
	if want := fmt.Sprint(state, matched, replayed, skipped, failed); got != want {
		a.Errorf("job %s, want %s: %s", got, want, a.body)
	}
}

func (h *harness) depth(name string) int64 {
	h.Helper()
	q, err := h.db.Queues().Queue(name)
	if err != nil {
		h.Fatal(err)
	}
	d, err := q.Depth(h.Context())
	if err != nil && !errors.Is(err, queue.ErrQueueNotFound) {
		h.Fatal(err)
	}
	return d.Total
}

func TestReplayByFilterSendsWhatMatchesAndARepeatedJobSendsNothing(t *testing.T) {
	h := withJobs(t)
	ids := h.putMany("orders", 7, func(i int, d *tables.DeadLetter) {
		if i == 3 {
			d.Reason = policy.NonRetryableError
		}
	})
	h.putMany("refunds", 2, nil)
	const filter = `{"queue":"orders","reason":"MaxDeliveryCountExceeded","rate":1000}`
	a := h.do(http.StatusAccepted, "POST", replayPath, filter)
	id := a.text("id")
	if a.header.Get("Location") != replayPath+"/"+id || a.text("filter", "queue") != "orders" || a.text("filter", "status") != "waiting" {
		t.Errorf("started: %s", a.body)
	}
	h.await(id).wantJob("done", 6, 6, 0, 0)
	if n := h.depth("orders"); n != 6 {
		t.Errorf("%d messages were sent, want 6", n)
	}
	for i, id := range ids {
		row := h.loadDead(id)
		if asked := i != 3; (row.Status == tables.Replaying) != asked || (row.Replays == 1) != asked || string(row.Text) != "payload" {
			t.Errorf("m%d is %s, %d replays, text %q", i, row.Status, row.Replays, row.Text)
		}
	}
	h.await(h.do(http.StatusAccepted, "POST", replayPath, filter).text("id")).wantJob("done", 0, 0, 0, 0)
	if orders, refunds := h.depth("orders"), h.depth("refunds"); orders != 6 || refunds != 0 {
		t.Errorf("%d and %d messages after the second job", orders, refunds)
	}
	if n := len(h.do(http.StatusOK, "GET", replayPath, "").get("data").([]any)); n != 2 {
		t.Errorf("%d jobs are listed, want 2", n)
	}
}

// Receivers that keep the last state that they were told end with the newest one. A job that is begun again goes on with
// the oldest that waits.
func TestReplayByFilterBeginsWithTheOldestMessages(t *testing.T) { // C47
	const n, each = 150, 10
	dead := func(i int) int { return 7 * i % n } // in which turn a message was dead-lettered: in another one than it was inserted
	for order, first := range map[string]func(i, many int) bool{
		"":                  func(i, many int) bool { return i < many },
		`,"order":"oldest"`: func(i, many int) bool { return i < many },
		`,"order":"newest"`: func(i, many int) bool { return dead(i) >= n-many },
	} {
		h := withJobs(t)
		ids := h.putMany("orders", n, func(i int, d *tables.DeadLetter) {
			d.InsertedAt, d.DeadLetteredAt = testTime.Add(time.Duration(i)*time.Second), testTime.Add(time.Duration(dead(i))*time.Minute-24*time.Hour)
		})
		for many := each; many <= 2*each; many += each {
			h.await(h.do(http.StatusAccepted, "POST", replayPath, fmt.Sprintf(`{"queue":"orders","rate":1000,"limit":%d%s}`, each, order)).text("id"))
			for i, id := range ids {
				want := tables.Waiting
				if first(i, many) {
					want = tables.Replaying
				}
				if got := h.loadDead(id).Status; got != want {
					t.Errorf("%s: m%d is %s after %d, want %s", order, i, got, many, want)
				}
			}
		}
	}
	h := newHarness(t)
	h.do(http.StatusBadRequest, "POST", replayPath, `{"queue":"orders","order":"random"}`).wantProblem("order")
}

// What is dead-lettered while a job runs is not part of it, once it is later than the clocks of two instances may be apart.
func TestAJobLeavesOutWhatIsDeadLetteredAfterItsStart(t *testing.T) {
	h := withJobs(t)
	late := h.putMany("orders", 2, func(i int, d *tables.DeadLetter) {
		if i == 1 {
			d.DeadLetteredAt = time.Now().Add(2 * tables.ClocksApart)
		}
	})[1]
	h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","rate":1000}`).text("id")).wantJob("done", 1, 1, 0, 0)
	if d := h.loadDead(late); d.Status != tables.Waiting {
		t.Errorf("it is %s", d.Status)
	}
}

func TestBulkRequestsNeedAFilter(t *testing.T) {
	h := withJobs(t)
	h.putMany("orders", 3, nil)
	for _, tt := range []struct{ path, body, field string }{
		{replayPath, `{}`, "filter"},
		{replayPath, ``, "filter"},
		{replayPath, `{"status":"waiting"}`, "filter"},
		{replayPath, `{"dry_run":true}`, "filter"},
		{replayPath, `{"all":true,"queue":"orders"}`, "all"},
		{replayPath, `{"quue":"orders"}`, "quue"},
		{replayPath, `{"queue":"Orders"}`, "queue"},
		{replayPath, `{"queue":""}`, "queue"},
		{replayPath, `{"reason":"Bored"}`, "reason"},
		{replayPath, `{"webhook":""}`, "webhook"},
		{replayPath, `{"queue":"orders","status":"replayed"}`, "status"},
		{replayPath, `{"from":"yesterday"}`, "from"},
		{replayPath, `{"from":"2026-02-01T00:00:00Z","until":"2026-01-01T00:00:00Z"}`, "until"},
		{replayPath, `{"queue":"orders","rate":0}`, "rate"},
		{replayPath, `{"queue":"orders","rate":1001}`, "rate"},
		{replayPath, `{"queue":"orders","rate":"fast"}`, "rate"},
		{replayPath, `{"queue":"orders","limit":0}`, "limit"},
		{replayPath, `{"queue":"orders","cursor":"x"}`, "cursor"},
		{purgePath, `{}`, "filter"},
		{purgePath, `{"status":"waiting"}`, "filter"},
		{purgePath, `{"queue":"orders","rate":5}`, "rate"},
		{purgePath, `{"queue":"orders","cursor":"nonsense!"}`, "cursor"},
	} {
		h.do(http.StatusBadRequest, "POST", tt.path, tt.body).wantProblem(tt.field)
	}
	if n := h.depth("orders"); n != 0 {
		t.Errorf("%d messages were sent by refused requests", n)
	}
	h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"all":true,"rate":1000}`).text("id")).wantJob("done", 3, 3, 0, 0)
}

func TestDryRunCountsAndChangesNothing(t *testing.T) {
	h := withJobs(t)
	id := h.register(hook).text("id")
	ids := h.putMany("orders", 4, func(i int, d *tables.DeadLetter) {
		d.WebhookID = map[int]string{0: id, 1: "wh_deleted"}[i]
		if i == 2 {
			d.Generation = maxGenerations
		}
	})
	for _, path := range []string{replayPath, purgePath} {
		a := h.do(http.StatusOK, "POST", path, `{"queue":"orders","dry_run":true}`)
		if a.get("matched") != 4.0 || a.get("exact") != true {
			t.Errorf("%s: %s", path, a.body)
		}
		until, err := time.Parse(time.RFC3339Nano, a.text("until"))
		if last := h.loadDead(ids[3]).DeadLetteredAt; err != nil || !until.After(last) || time.Until(until).Abs() > time.Minute {
			t.Errorf("%s counted to %s (%v), the last one is of %s", path, until, err, last)
		}
		if path == replayPath && (a.get("skipped") != 2.0 || a.get("skipped_because", "webhook_deleted") != 1.0 || a.get("skipped_because", "replayed_often") != 1.0) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	for _, id := range ids {
		if d := h.loadDead(id); d.Status != tables.Waiting || d.Replays != 0 {
			t.Errorf("%s is %s", id, d.Status)
		}
	}
	if n := h.depth("orders"); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
}

// endless answers every page with a full one and more to come.
type endless struct{ tables.DeadLetters }

func (endless) ListDeadLetters(_ context.Context, f tables.DeadLetterFilter, page tables.Page) ([]tables.DeadLetter, tables.Cursor, error) {
	return make([]tables.DeadLetter, page.Limit), "more", nil
}

func TestDryRunOverVeryManyIsALowerBound(t *testing.T) {
	h := withJobs(t, func(o *Options) { o.DeadLetters = endless{o.DeadLetters} })
	a := h.do(http.StatusOK, "POST", purgePath, `{"all":true,"dry_run":true}`)
	if a.get("matched") != float64(maxCount) || a.get("exact") != false {
		t.Errorf("dry run: %s", a.body)
	}
}

func TestReplayByFilterLeavesOutWhatGoesInCircles(t *testing.T) {
	h := withJobs(t)
	ids := h.putMany("orders", 3, func(i int, d *tables.DeadLetter) {
		switch i {
		case 1:
			d.Generation = maxGenerations - 1
		case 2:
			d.Generation, d.Replays = maxGenerations-3, 3
		}
	})
	a := h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","rate":1000}`).text("id"))
	a.wantJob("done", 3, 2, 1, 0)
	if a.get("skipped_because", "replayed_often") != 1.0 || h.loadDead(ids[2]).Status != tables.Waiting {
		t.Errorf("job: %s", a.body)
	}
	b := h.do(http.StatusAccepted, "POST", "/api/v1/dead-letters/"+ids[2]+"/replay", "")
	if !strings.Contains(b.text("warnings", 0), "replay 11") {
		t.Errorf("the single replay does not warn: %s", b.body)
	}
	h.putMany("refunds", 1, func(_ int, d *tables.DeadLetter) { d.Generation = 30 })
	h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"refunds","force":true}`).text("id")).wantJob("done", 1, 1, 0, 0)
}

func TestReplayByFilterLeavesOutWhatHasNobodyToGoTo(t *testing.T) {
	h := withJobs(t)
	h.putMany("orders", 2, func(i int, d *tables.DeadLetter) { d.WebhookID = map[int]string{0: "wh_deleted"}[i] })
	a := h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","rate":1000}`).text("id"))
	a.wantJob("done", 2, 1, 1, 0)
	if a.get("skipped_because", "webhook_deleted") != 1.0 {
		t.Errorf("job: %s", a.body)
	}
}

func TestReplaysThatNeverCameAreReplayedOnlyWhenAskedFor(t *testing.T) {
	h := withJobs(t)
	ids := h.putMany("orders", 2, func(i int, d *tables.DeadLetter) {
		d.Status, d.ReplayToken, d.Replays, d.ReplayedAt = tables.Replaying, "old", 1, time.Now().Add(-time.Duration(i)*tables.ReplayPatience)
	})
	h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","rate":1000}`).text("id")).wantJob("done", 0, 0, 0, 0)
	h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","status":"replaying","rate":1000}`).text("id")).wantJob("done", 2, 1, 1, 0)
	if young, old := h.loadDead(ids[0]), h.loadDead(ids[1]); young.ReplayToken != "old" || old.ReplayToken == "old" {
		t.Errorf("tokens %q and %q", young.ReplayToken, old.ReplayToken)
	}
}

func TestReplayJobKeepsToItsRateAndLimitAndIsCanceledAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := withJobs(t)
		h.putMany("orders", 50, beforeNow)
		h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","rate":1000,"limit":5}`).text("id")).wantJob("done", 50, 5, 0, 0)

		id := h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","rate":0.01}`).text("id")
		start := time.Now()
		a := h.do(http.StatusOK, "DELETE", replayPath+"/"+id, "")
		if a.text("state") != "canceled" || time.Since(start) > 2*time.Second || a.get("replayed").(float64) > 1 || a.text("finished_at") == "" {
			t.Errorf("canceled after %s: %s", time.Since(start), a.body)
		}

		rows, _, err := h.db.ListDeadLetters(t.Context(), tables.DeadLetterFilter{Status: tables.Waiting}, tables.Page{Limit: 100})
		if err != nil || len(rows) < 44 {
			t.Errorf("%d still wait, %v", len(rows), err)
		}
		if again := h.do(http.StatusOK, "DELETE", replayPath+"/"+id, ""); again.text("finished_at") != a.text("finished_at") {
			t.Errorf("a second cancel changed the job: %s", again.body)
		}
		h.do(http.StatusNotFound, "DELETE", replayPath+"/rpl_none", "").wantProblem("id")
		h.do(http.StatusNotFound, "GET", replayPath+"/rpl_none", "").wantProblem("id")
	})
}

func TestReplayJobsAreBoundedInNumberAndEndWithTheProcess(t *testing.T) {
	h := withJobs(t)
	h.putMany("orders", 20, nil)
	const slow = `{"queue":"orders","rate":0.01}`
	var ids []string
	for range maxJobs {
		ids = append(ids, h.do(http.StatusAccepted, "POST", replayPath, slow).text("id"))
	}
	full := h.do(http.StatusConflict, "POST", replayPath, slow)
	if full.wantProblem("request"); full.header.Get("Retry-After") != "30" {
		t.Errorf("Retry-After = %q", full.header.Get("Retry-After"))
	}

	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { h.api.Run(ctx); close(done) }()
	end()
	<-done
	for _, id := range ids { // another instance, or the next process, goes on with it
		if a := h.do(http.StatusOK, "GET", replayPath+"/"+id, ""); a.text("state") != "running" || a.get("finished_at") != nil {
			t.Errorf("job: %s", a.body)
		}
	}
	last := h.do(http.StatusAccepted, "POST", replayPath, slow).text("id") // and begins it
	if h.api.replays.own(last) != nil {
		t.Error("a job runs in a process that stops")
	}
}

func TestEndedJobsAreForgottenInTheEnd(t *testing.T) {
	h := withJobs(t)
	var first string
	for i := range keptJobs + 3 {
		id := h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders"}`).text("id")
		h.await(id)
		if i == 0 {
			first = id
		}
	}
	if n := len(h.do(http.StatusOK, "GET", replayPath, "").get("data").([]any)); n > keptJobs+1 {
		t.Errorf("%d jobs are kept", n)
	}
	h.do(http.StatusNotFound, "GET", replayPath+"/"+first, "")
}

// A job over storage that does not take messages gives up instead of going through
// the whole list, and leaves the dead letters as they were.
func TestReplayJobGivesUpWhenNothingSucceeds(t *testing.T) {
	h := withJobs(t, func(o *Options) { o.Queues = failingSends{o.Queues, queue.ErrBusy} })
	h.putMany("orders", 60, nil)
	a := h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","rate":1000}`).text("id"))
	if a.text("state") != "failed" || a.get("failed").(float64) < maxFaults || a.get("failed").(float64) > maxFaults+replaysAtOnce || a.text("last_error") == "" {
		t.Errorf("job: %s", a.body)
	}
	rows, _, err := h.db.ListDeadLetters(t.Context(), tables.DeadLetterFilter{Status: tables.Waiting}, tables.Page{Limit: 100})
	if err != nil || len(rows) != 60 {
		t.Errorf("%d still wait, %v", len(rows), err)
	}
}

// Jobs of two processes over the same dead letters send each of them once.
func TestConcurrentReplayJobsSendEachOnce(t *testing.T) {
	h := withJobs(t)
	other, err := New(h.api.Options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.replays.stop)
	h.putMany("orders", 40, nil)
	jobs := make([]*replayJob, 0, 2)
	for _, a := range []*API{h.api, other} {
		j, err := a.replays.start(t.Context(), a, bulk{filter: tables.DeadLetterFilter{Queue: "orders", Status: tables.Waiting}, rate: maxRate})
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j)
	}
	replayed := 0
	for _, j := range jobs {
		<-j.done
		v := j.view()
		replayed += v.Replayed
		if v.State != jobDone || v.Failed != 0 {
			t.Errorf("job: %+v", v)
		}
	}
	if n := h.depth("orders"); replayed != 40 || n != 40 {
		t.Errorf("%d replays, %d messages, want 40 of each", replayed, n)
	}
}

// flaky fails the first calls of the list, and the first reads.
type flaky struct {
	tables.DeadLetters
	left, reads atomic.Int32
}

func (f *flaky) GetDeadLetter(ctx context.Context, id string) (tables.DeadLetter, error) {
	if f.reads.Add(-1) >= 0 {
		return tables.DeadLetter{}, errors.New("no answer")
	}
	return f.DeadLetters.GetDeadLetter(ctx, id)
}

func (f *flaky) ListDeadLetters(ctx context.Context, filter tables.DeadLetterFilter, page tables.Page) ([]tables.DeadLetter, tables.Cursor, error) {
	if f.left.Add(-1) >= 0 {
		return nil, "", errors.New("no answer")
	}
	return f.DeadLetters.ListDeadLetters(ctx, filter, page)
}

func TestReplayJobAsksForAPageAgain(t *testing.T) {
	f := &flaky{}
	f.left.Store(1)
	h := withJobs(t, func(o *Options) { f.DeadLetters, o.DeadLetters = o.DeadLetters, f })
	h.putMany("orders", 2, nil)
	h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","rate":1000}`).text("id")).wantJob("done", 2, 2, 0, 0)
}

// panickingOnce panics when a dead letter is read.
type panickingOnce struct {
	tables.DeadLetters
	once sync.Once
}

func (p *panickingOnce) GetDeadLetter(ctx context.Context, id string) (tables.DeadLetter, error) {
	p.once.Do(func() { panic("boom: payload") })
	return p.DeadLetters.GetDeadLetter(ctx, id)
}

func TestAPanicInAJobIsAFailedReplay(t *testing.T) {
	p := &panickingOnce{}
	h := withJobs(t, func(o *Options) { p.DeadLetters, o.DeadLetters = o.DeadLetters, p })
	h.putMany("orders", 3, nil)
	h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","rate":1000}`).text("id")).wantJob("done", 3, 2, 0, 1)
	if strings.Contains(h.log.String(), "boom") {
		t.Error("the panic's words are in the log")
	}
}
