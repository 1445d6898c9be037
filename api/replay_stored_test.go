package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// another is an API of another process on the same store.
func (h *harness) another(instance string, change ...func(*Options)) *harness {
	h.Helper()
	opts := h.api.Options
	opts.Instance = instance
	for _, f := range change {
		f(&opts)
	}
	other := *h
	var err error
	if other.api, err = New(opts); err != nil {
		h.Fatal(err)
	}
	h.Cleanup(other.api.replays.stop)
	return &other
}

// storedJob puts a job as a process left it that was killed.
func (h *harness) storedJob(v replayJobView, heard time.Time) {
	h.Helper()
	j, err := (&replayJobs{store: h.db, stored: func(replayJobView) {}}).put(h.Context(), tables.Job{}, v, "killed")
	if err != nil {
		h.Fatal(err)
	}
	j.HeardAt = heard
	if _, err := h.db.PutJob(h.Context(), j); err != nil {
		h.Fatal(err)
	}
}

// beforeNow dates a dead letter for a test in simulated time.
func beforeNow(i int, d *tables.DeadLetter) {
	d.DeadLetteredAt = time.Now().Add(-time.Duration(i+1) * time.Second)
}

const slowReplay = `{"queue":"orders","rate":0.01}`

// C57: every instance tells of a job, and ends it.
func TestEveryInstanceTellsOfAReplayJobAndEndsIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := withJobs(t)
		other := h.another("other")
		h.putMany("orders", 20, beforeNow)
		id := h.do(http.StatusAccepted, "POST", replayPath, slowReplay).text("id")
		job := h.api.replays.own(id)
		if a := other.do(http.StatusOK, "GET", replayPath+"/"+id, ""); a.text("state") != "running" || a.text("filter", "queue") != "orders" {
			t.Errorf("another instance says %s", a.body)
		}
		if a := other.do(http.StatusOK, "GET", replayPath, ""); a.text("data", 0, "id") != id {
			t.Errorf("another instance lists %s", a.body)
		}
		if a := other.do(http.StatusOK, "DELETE", replayPath+"/"+id, ""); a.text("state") != "canceled" || a.get("replayed") != 1.0 {
			t.Errorf("canceled elsewhere: %s", a.body)
		}
		<-job.done
		h.do(http.StatusOK, "GET", replayPath+"/"+id, "").wantJob("canceled", 20, 1, 0, 0)
	})
}

// C57: a job that a crash has cut goes on in another process, and what was replayed before counts.
func TestAReplayJobWhoseProcessIsGoneGoesOn(t *testing.T) {
	for name, heard := range map[string]time.Duration{"killed": 2 * jobLost, "alive": 0} {
		h := withJobs(t)
		h.putMany("orders", 5, func(i int, d *tables.DeadLetter) {
			if i < 2 {
				d.Status, d.ReplayToken, d.Replays, d.ReplayedAt = tables.Replaying, "sent", 1, time.Now()
			}
		})
		v := replayJobView{
			ID: "rpl_cut", State: jobRunning, Matched: 4, Replayed: 2, Failed: 1, SkippedBecause: map[string]int{}, StartedAt: time.Now().UTC(), Rate: 1000, Limit: 4,
			Order: oldestFirst, Filter: filterView{Queue: "orders", Status: tables.Waiting},
		}
		h.storedJob(v, time.Now().Add(-heard))
		if err := h.api.replays.adopt(t.Context(), h.api); err != nil {
			t.Fatal(err)
		}
		a := h.await("rpl_cut")
		if name == "alive" {
			a.wantJob("running", 4, 2, 0, 1)
			continue
		}
		a.wantJob("done", 5, 4, 0, 0)
		if n := h.depth("orders"); n != 2 {
			t.Errorf("%d messages were sent, want 2", n)
		}
	}
}

// C57: a job whose process stops goes on in the next one at once, and one that was canceled
// while its process was dead ends.
func TestAReplayJobOutlivesTheStopOfItsProcess(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := withJobs(t)
		h.putMany("orders", 30, beforeNow)
		id := h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","rate":20}`).text("id")
		h.api.replays.stop()
		next := h.another("next")
		before := next.do(http.StatusOK, "GET", replayPath+"/"+id, "")
		if before.text("state") != "running" || before.get("replayed").(float64) > 29 {
			t.Fatalf("after the stop: %s", before.body)
		}
		if err := next.api.replays.adopt(t.Context(), next.api); err != nil {
			t.Fatal(err)
		}
		next.await(id).wantJob("done", 30, 30, 0, 0)
		if n := h.depth("orders"); n != 30 {
			t.Errorf("%d messages were sent, want 30", n)
		}
		h.putMany("late", 3, beforeNow)
		late := h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"late","rate":20}`).text("id") // it serves on for shutdown_delay
		if err := next.api.replays.adopt(t.Context(), next.api); err != nil {
			t.Fatal(err)
		}
		next.await(late).wantJob("done", 3, 3, 0, 0)
		v := replayJobView{ID: "rpl_dead", State: jobRunning, SkippedBecause: map[string]int{}, StartedAt: time.Now().UTC(), Rate: 1, Order: oldestFirst, Filter: filterView{Queue: "orders"}}
		h.storedJob(v, time.Now().Add(-2*jobLost))
		if a := next.do(http.StatusOK, "DELETE", replayPath+"/rpl_dead", ""); a.text("state") != "canceled" || a.text("finished_at") == "" {
			t.Errorf("canceled: %s", a.body)
		}
	})
}

// C57: who was paused for longer than a job waits for its process stops when it goes on.
func TestAReplayJobThatWasTakenOverStopsHere(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := withJobs(t)
		h.putMany("orders", 20, beforeNow)
		id := h.do(http.StatusAccepted, "POST", replayPath, slowReplay).text("id")
		err := tables.ErrConflict
		for errors.Is(err, tables.ErrConflict) { // it may be stored in between
			list, listErr := h.db.ListJobs(t.Context())
			if listErr != nil || len(list) != 1 {
				t.Fatal(list, listErr)
			}
			list[0].Instance = "other"
			_, err = h.db.PutJob(t.Context(), list[0])
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(jobBeat + time.Second)
		if h.api.replays.own(id) != nil {
			t.Error("it runs on beside the one that has it now")
		}
		if list, err := h.db.ListJobs(t.Context()); err != nil || list[0].Instance != "other" {
			t.Errorf("the job is %v's, %v", list, err)
		}
	})
}

// silentJobs does not answer while it is silent.
type silentJobs struct {
	tables.Jobs
	silent atomic.Bool
}

func (s *silentJobs) PutJob(ctx context.Context, j tables.Job) (tables.Job, error) {
	if s.silent.Load() {
		return tables.Job{}, errors.New("no answer")
	}
	return s.Jobs.PutJob(ctx, j)
}

func (s *silentJobs) ListJobs(ctx context.Context) ([]tables.Job, error) {
	if s.silent.Load() {
		return nil, errors.New("no answer")
	}
	return s.Jobs.ListJobs(ctx)
}

// unsureJobs takes the first job, at once or late, and does not say so; down is whether it takes no other after that.
type unsureJobs struct {
	tables.Jobs
	late, down bool
	asked      atomic.Int64
	first      tables.Job
}

func (s *unsureJobs) PutJob(ctx context.Context, j tables.Job) (tables.Job, error) {
	switch n := s.asked.Add(1); {
	case n == 1 && s.late:
		s.first = j
		return tables.Job{}, errors.New("no answer")
	case n == 1:
		_, err := s.Jobs.PutJob(ctx, j)
		return tables.Job{}, errors.Join(err, errors.New("no answer"))
	case n == 2 && s.down:
		return tables.Job{}, errors.New("no answer")
	}
	return s.Jobs.PutJob(ctx, j)
}

// C57: a job whose start was refused does not run, or its answer says that it may.
func TestAReplayJobThatWasRefusedDoesNotRun(t *testing.T) {
	for name, jobs := range map[string]*unsureJobs{"taken": {}, "taken late": {late: true}, "away": {down: true}} {
		bubble.Test(t, func(t *testing.T) {
			down := jobs.down
			h := withJobs(t, func(o *Options) { jobs.Jobs, o.Jobs = o.Jobs, jobs })
			h.putMany("orders", 3, beforeNow)
			said := h.do(http.StatusServiceUnavailable, "POST", replayPath, `{"queue":"orders","rate":1}`).text("detail")
			if down {
				_, named, _ := strings.Cut(said, "Look at ")
				path, _, _ := strings.Cut(named, " ")
				if a := h.do(http.StatusOK, "DELETE", path, ""); a.text("state") != "running" {
					t.Errorf("%q: %s", said, a.body)
				}
			}
			if jobs.late {
				if _, err := h.db.PutJob(t.Context(), jobs.first); !errors.Is(err, tables.ErrExists) {
					t.Errorf("the row takes effect after all: %v", err)
				}
			}
			for range 3 {
				time.Sleep(time.Minute)
				if err := h.api.replays.adopt(t.Context(), h.api); err != nil {
					t.Fatal(err)
				}
			}
			a := h.do(http.StatusOK, "GET", replayPath, "")
			if n := h.depth("orders"); n != 0 || a.text("data", 0, "state") != "canceled" || strings.Contains(said, "Look at") != down {
				t.Errorf("%s: %d messages were sent, jobs %s; the answer: %s", name, n, a.body, said)
			}
		})
	}
}

// C57: a job that was canceled, or has failed, stays so though storage did not take its end down at that moment.
func TestAReplayJobWhoseEndCanNotBeStoredDoesNotComeToLife(t *testing.T) {
	for _, want := range []string{"canceled", "failed"} {
		bubble.Test(t, func(t *testing.T) {
			jobs, body := &silentJobs{}, slowReplay
			h := withJobs(t, func(o *Options) {
				jobs.Jobs, o.Jobs = o.Jobs, jobs
				if want == "failed" {
					o.Queues, body = failingSends{o.Queues, queue.ErrBusy}, `{"queue":"orders","rate":1}`
				}
			})
			h.putMany("orders", 20, beforeNow)
			id := h.do(http.StatusAccepted, "POST", replayPath, body).text("id")
			time.Sleep(time.Second)
			jobs.silent.Store(true)
			if job := h.api.replays.own(id); want == "canceled" {
				a := h.do(http.StatusServiceUnavailable, "DELETE", replayPath+"/"+id, "")
				if !strings.Contains(a.text("detail"), "sends no other replay") {
					t.Errorf("the answer: %s", a.body)
				}
			} else {
				<-job.done
			}
			time.Sleep(10 * time.Second)
			jobs.silent.Store(false)
			for range 3 {
				time.Sleep(time.Minute)
				if err := h.api.replays.adopt(t.Context(), h.api); err != nil {
					t.Fatal(err)
				}
			}
			a := h.do(http.StatusOK, "GET", replayPath+"/"+id, "")
			if n := h.depth("orders"); a.text("state") != want || n > 1 || strings.Contains(h.log.String(), "goes on here") {
				t.Errorf("%d messages were sent; the job: %s", n, a.body)
			}
		})
	}
}

// C57: a cancel of a job whose process stops, which waits for the last replays, is not lost.
func TestAReplayJobIsCanceledWhileItsProcessStops(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sends := &hangingSends{until: make(chan struct{})}
		h := withJobs(t, func(o *Options) { sends.Service, o.Queues = o.Queues, sends })
		next := h.another("next")
		h.putMany("orders", 20, beforeNow)
		id := h.do(http.StatusAccepted, "POST", replayPath, slowReplay).text("id")
		job := h.api.replays.own(id)
		time.Sleep(time.Second)
		h.api.replays.stop()
		a := h.do(http.StatusOK, "DELETE", replayPath+"/"+id, "")
		close(sends.until)
		<-job.done
		for range 3 {
			time.Sleep(time.Minute)
			if err := next.api.replays.adopt(t.Context(), next.api); err != nil {
				t.Fatal(err)
			}
		}
		if b := next.do(http.StatusOK, "GET", replayPath+"/"+id, ""); a.text("state") != "running" || b.text("state") != "canceled" || h.depth("orders") != 1 {
			t.Errorf("%d messages were sent; at the cancel %s, then %s", h.depth("orders"), a.body, b.body)
		}
	})
}

// hangingSends begins no send before until.
type hangingSends struct {
	queue.Service
	until chan struct{}
}

func (s *hangingSends) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return hangingQueue{q, s.until}, err
}

type hangingQueue struct {
	queue.Queue
	until chan struct{}
}

func (q hangingQueue) Send(ctx context.Context, text []byte, o queue.SendOptions) (queue.Sent, error) {
	<-q.until
	return q.Queue.Send(context.WithoutCancel(ctx), text, o)
}

// C86: a job whose row another program has changed is not simply gone: its process writes it anew, and what
// nobody works on is said to have ended.
func TestAReplayJobWhoseRowIsDamagedGoesOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := withJobs(t)
		other := h.another("other")
		h.putMany("orders", 20, beforeNow)
		damage := func(id string) {
			t.Helper()
			err := tables.ErrConflict
			for errors.Is(err, tables.ErrConflict) { // it may be stored in between
				list, listErr := h.db.ListJobs(t.Context())
				i := slices.IndexFunc(list, func(j tables.Job) bool { return j.ID == id })
				if listErr != nil || i < 0 {
					t.Fatal(list, listErr)
				}
				list[i].State = []byte("{")
				_, err = h.db.PutJob(t.Context(), list[i])
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		id := h.do(http.StatusAccepted, "POST", replayPath, slowReplay).text("id")
		damage(id)
		if a := other.do(http.StatusOK, "GET", replayPath+"/"+id, ""); a.text("state") != "failed" || !strings.HasPrefix(a.text("last_error"), "Another program") {
			t.Errorf("elsewhere, before it is written anew: %s", a.body)
		}
		time.Sleep(2*jobBeat + time.Second)
		if a := other.do(http.StatusOK, "GET", replayPath+"/"+id, ""); a.text("state") != "running" || h.api.replays.own(id) == nil {
			t.Errorf("elsewhere, after two beats: %s", a.body)
		}
		h.storedJob(replayJobView{ID: "rpl_left", State: jobRunning, Rate: 1, Order: oldestFirst, Filter: filterView{Queue: "orders"}}, time.Now().Add(-2*jobLost))
		damage("rpl_left")
		for range 2 {
			if err := other.api.replays.adopt(t.Context(), other.api); err != nil || other.api.replays.own("rpl_left") != nil {
				t.Error("it is gone on with", err)
			}
		}
		if a := other.do(http.StatusOK, "GET", replayPath, ""); a.text("data", 1, "id") != "rpl_left" || a.text("data", 1, "state") != "failed" {
			t.Errorf("listed: %s", a.body)
		}
		if n := strings.Count(h.log.String(), "was changed by another program"); n != 1 {
			t.Errorf("the log tells %d times", n)
		}
		other.do(http.StatusOK, "DELETE", replayPath+"/rpl_left", "")
		damage(id)
		if a := h.do(http.StatusOK, "DELETE", replayPath+"/"+id, ""); a.text("state") != "canceled" || a.get("replayed") != 1.0 {
			t.Errorf("the job of this process: %s", a.body)
		}
	})
}

// C86: a job whose row another program has damaged while a process works on it is not among those of long ago that are forgotten:
// its process would take that for a cancel. One that stays so has ended.
func TestADamagedReplayJobIsForgottenOnlyWhenNobodyWorksOnIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := withJobs(t)
		for i := range keptJobs {
			h.storedJob(replayJobView{ID: fmt.Sprint("rpl_", i), State: jobDone, StartedAt: time.Now()}, time.Now())
		}
		for _, id := range []string{"rpl_hurt", "rpl_newer"} { // another version's can be read but for its state
			j := tables.Job{ID: id, Instance: "other", State: []byte("{"), HeardAt: time.Now().Add(jobLost)}
			if id == "rpl_hurt" {
				j.Instance, j.HeardAt = "", time.Time{} // as a store tells of one of which nothing can be read
			}
			if _, err := h.db.PutJob(t.Context(), j); err != nil {
				t.Fatal(err)
			}
		}
		kept := func() (ids string) {
			t.Helper()
			h.api.replays.forgetOld(t.Context(), h.api)
			list, err := h.api.replays.list(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range list {
				if v.State == jobFailed {
					ids += v.ID + " "
				}
			}
			return ids
		}
		adopt := func() {
			t.Helper()
			if err := h.api.replays.adopt(t.Context(), h.api); err != nil {
				t.Fatal(err)
			}
		}
		if got := kept(); got != "rpl_hurt rpl_newer " {
			t.Errorf("before anybody has seen them: %s", got)
		}
		adopt()
		time.Sleep(jobLost / 2)
		if got := kept(); got != "rpl_hurt rpl_newer " {
			t.Errorf("half a minute after they were seen: %s", got)
		}
		time.Sleep(jobLost)
		if got := kept(); got != "rpl_newer " {
			t.Errorf("when the process of one was heard lately: %s", got)
		}
		time.Sleep(jobLost)
		if got := kept(); got != "" {
			t.Errorf("nobody has written them anew, and there is still %s", got)
		}
	})
}

// C57: an instance of another version, which does not know by what a job is narrowed, leaves that job alone: it would replay
// what the job is not about.
func TestAReplayJobIsNotGoneOnWithByAVersionThatDoesNotKnowItsFilter(t *testing.T) {
	h := withJobs(t)
	h.putMany("orders", 4, func(i int, d *tables.DeadLetter) { d.LastStatus = 400 + i%2*103 })
	old := time.Now().Add(-2 * jobLost)
	v := replayJobView{
		ID: "rpl_narrow", State: jobRunning, SkippedBecause: map[string]int{}, StartedAt: time.Now().UTC(), Rate: 1000, Order: oldestFirst,
		Filter: filterView{Answer: "503", Status: tables.Waiting},
	}
	h.storedJob(v, old)
	list, err := h.db.ListJobs(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	var earlier struct{ ID string } // what every version compares with the row's
	if err := json.Unmarshal(list[0].State, &earlier); err != nil || earlier.ID == v.ID {
		t.Errorf("an earlier version reads %s", list[0].State)
	}
	newer := tables.Job{
		ID: "rpl_newer", Instance: "killed", HeardAt: old,
		State: []byte(`{"id":"rpl_newer","state":"running","rate":1000,"order":"oldest","filter":{"queue":"orders","size":"big"}}`),
	}
	if _, err := h.db.PutJob(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if err := h.api.replays.adopt(t.Context(), h.api); err != nil {
		t.Fatal(err)
	}
	h.await(v.ID).wantJob("done", 2, 2, 0, 0)
	if a := h.do(http.StatusOK, "GET", replayPath+"/rpl_newer", ""); a.text("state") != "failed" || !strings.Contains(a.text("last_error"), "newer version") {
		t.Errorf("a newer version's job: %s", a.body)
	}
	if n := h.depth("orders"); n != 2 {
		t.Errorf("%d messages were sent, want 2", n)
	}
}

// C83: a job sends one dead letter of an event on a queue that tells messages apart by their
// events, and of what was published with one key.
func TestAReplayJobSendsOneCopyOfAnEvent(t *testing.T) {
	event := func(id, data string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/s","type":"t","data":%q}`, id, data)
	}
	bodies := []string{event("1", "a"), event("1", "a"), event("2", "a"), event("1", "other"), "plain", "plain"}
	for queueName, want := range map[string]int{"events": 5, "orders": 6} {
		h := withJobs(t)
		ids := h.putMany(queueName, len(bodies), func(i int, d *tables.DeadLetter) {
			d.Text, d.Size = []byte(bodies[i]), len(bodies[i])
		})
		a := h.await(h.do(http.StatusAccepted, "POST", replayPath, fmt.Sprintf(`{"queue":%q,"rate":1000}`, queueName)).text("id"))
		a.wantJob("done", 6, want, 6-want, 0)
		if n := h.depth(queueName); n != int64(want) {
			t.Errorf("%s: %d messages were sent, want %d", queueName, n, want)
		}
		waiting := 0
		for _, id := range ids {
			if h.loadDead(id).Status == tables.Waiting {
				waiting++
			}
		}
		// Several are sent at a time, so either of the two can be the one that waits.
		if sent := h.loadDead(ids[2]).Status; waiting != 6-want || queueName == "events" && (a.get("skipped_because", "same_event") != 1.0 || sent == tables.Waiting) {
			t.Errorf("%d still wait, job: %s", waiting, a.body)
		}
	}
}

// What others replayed meanwhile takes nothing from a job's limit beyond what its killed process can have sent since it was heard.
func TestAReplayJobThatIsTakenOverCountsNoReplaysOfOthersTowardsItsLimit(t *testing.T) {
	const rate = 0.1
	most := 2 + int(rate*jobLeft.Seconds()) + replaysAtOnce
	h := withJobs(t)
	h.putMany("orders", most+10, func(i int, d *tables.DeadLetter) {
		if i > 0 {
			d.Status, d.Replays, d.ReplayedAt = tables.Replayed, 1, time.Now()
		}
	})
	h.storedJob(replayJobView{
		ID: "rpl_cut", State: jobRunning, Matched: 2, Replayed: 2, SkippedBecause: map[string]int{}, StartedAt: time.Now().UTC().Add(-time.Minute), Rate: rate, Limit: most + 1,
		Order: oldestFirst, Filter: filterView{Queue: "orders", Status: tables.Waiting},
	}, time.Now().Add(-2*jobLost))
	if err := h.api.replays.adopt(t.Context(), h.api); err != nil {
		t.Fatal(err)
	}
	h.await("rpl_cut").wantJob("done", most+1, most+1, 0, 0)
	if n := h.depth("orders"); n != 1 {
		t.Errorf("%d messages were sent, want the one that waits", n)
	}
}

// C83: who goes on with a job knows of which events a copy was sent, and how many replays count for the limit, though
// the process that was killed had not stored it.
func TestAReplayJobThatIsTakenOverSendsNoSecondCopyOfAnEvent(t *testing.T) {
	const body, reserved, first = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`, `{"specversion":"1.0","id":"2","source":"/s","type":"t"}`, 4
	for limit, want := range map[int]int{0: 2, 2: 0} {
		h := withJobs(t)
		ids := h.putMany("events", 6, func(i int, d *tables.DeadLetter) {
			d.Text, d.Size = []byte(body), len(body)
			switch i {
			case 0, 1: // it was replayed, once as the copy of an event that nothing else has
				d.Status, d.Replays, d.ReplayedAt = tables.Replayed, 1, time.Now()
			case 2:
				d.Text, d.Size = []byte("another"), len("another")
			case 3, 4: // the process died before it had sent the first of these two, or before it knew that it had
				d.Text, d.Size = []byte(reserved), len(reserved)
				if i == first {
					d.Replays, d.ReplayedAt = 1, time.Now().Add(-tables.ReplayReserved)
				}
			}
		})
		v := replayJobView{
			ID: "rpl_cut", State: jobRunning, SkippedBecause: map[string]int{}, StartedAt: time.Now().UTC().Add(-2 * time.Minute), Rate: 1000, Limit: limit,
			Order: oldestFirst, Filter: filterView{Queue: "events", Status: tables.Waiting},
		}
		h.storedJob(v, time.Now().Add(-2*jobLost))
		if err := h.api.replays.adopt(t.Context(), h.api); err != nil {
			t.Fatal(err)
		}
		a := h.await("rpl_cut")
		if n := h.depth("events"); n != int64(want) || a.get("replayed") != float64(2+want) {
			t.Errorf("limit %d: %d messages were sent, want %d; job: %s", limit, n, want, a.body)
		}
		if copyOf, itself := h.loadDead(ids[3]), h.loadDead(ids[first]); copyOf.Replays != 0 || limit == 0 && itself.Replays != 2 {
			t.Errorf("limit %d: the one that was reserved has %d replays, its copy %d", limit, itself.Replays, copyOf.Replays)
		}
	}
}

// C83: a dead letter that a killed process had reserved may have been sent by it. When its own turn then fails, no other
// copy of its event is sent all the same: each waits for the next job.
func TestACopyOfWhatAKilledProcessHadReservedWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const body = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
		h := withJobs(t, func(o *Options) { o.Queues = failingSends{o.Queues, queue.ErrBusy} })
		ids := h.putMany("events", 3, func(i int, d *tables.DeadLetter) {
			d.Text, d.Size, d.DeadLetteredAt = []byte(body), len(body), time.Now().Add(time.Duration(i-500)*time.Second)
			if i == 0 {
				d.Replays, d.ReplayedAt = 1, time.Now().Add(-tables.ReplayReserved)
			}
		})
		h.storedJob(replayJobView{
			ID: "rpl_cut", State: jobRunning, SkippedBecause: map[string]int{}, StartedAt: time.Now().UTC().Add(-2 * time.Minute), Rate: 1000,
			Order: oldestFirst, Filter: filterView{Queue: "events", Status: tables.Waiting},
		}, time.Now().Add(-2*jobLost))
		if err := h.api.replays.adopt(t.Context(), h.api); err != nil {
			t.Fatal(err)
		}
		a := h.await("rpl_cut")
		if a.get("failed") != 1.0 || a.get("skipped_because", "same_event") != 2.0 || h.loadDead(ids[1]).Replays+h.loadDead(ids[2]).Replays != 0 {
			t.Errorf("the job: %s", a.body)
		}
	})
}

// C83: after a send that had no answer another copy of the event would be a second one.
func TestAReplayThatMayHaveBeenSentIsTheOnlyOneOfItsEvent(t *testing.T) {
	const body = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
	for err, tried := range map[error]int{errors.New("no answer"): 1, queue.ErrBusy: 3} {
		bubble.Test(t, func(t *testing.T) {
			h := withJobs(t, func(o *Options) { o.Queues = failingSends{o.Queues, err} })
			h.putMany("events", 3, func(i int, d *tables.DeadLetter) {
				d.Text, d.Size, d.DeadLetteredAt = []byte(body), len(body), time.Now().Add(time.Duration(i-10)*time.Second)
			})
			a := h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"events"}`).text("id"))
			if a.get("failed") != float64(tried) || a.get("skipped") != float64(3-tried) {
				t.Errorf("after %v: %s", err, a.body)
			}
		})
	}
}

// cutJob stores a job that was killed after it had sent one of two dead letters of an event, and goes on with it.
func (h *harness) cutJob() {
	h.Helper()
	const body = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
	h.putMany("events", 2, func(i int, d *tables.DeadLetter) {
		d.Text, d.Size, d.DeadLetteredAt = []byte(body), len(body), time.Now().Add(-time.Hour)
		if i == 0 {
			d.Status, d.Replays, d.ReplayedAt = tables.Replayed, 1, time.Now()
		}
	})
	h.storedJob(replayJobView{
		ID: "rpl_cut", State: jobRunning, SkippedBecause: map[string]int{}, StartedAt: time.Now().UTC().Add(-time.Minute), Rate: 1000,
		Order: oldestFirst, Filter: filterView{Queue: "events", Status: tables.Waiting},
	}, time.Now().Add(-2*jobLost))
	if err := h.api.replays.adopt(h.Context(), h.api); err != nil {
		h.Fatal(err)
	}
}

// C83: storage that does not answer a few times does not end a job that is taken over.
func TestAReplayJobThatIsTakenOverAsksAgainForWhatWasSent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &flaky{}
		f.reads.Store(2)
		h := withJobs(t, func(o *Options) { f.DeadLetters, o.DeadLetters = o.DeadLetters, f })
		h.cutJob()
		a := h.await("rpl_cut")
		a.wantJob("done", 2, 1, 1, 0)
		if a.get("skipped_because", "same_event") != 1.0 || h.depth("events") != 0 {
			t.Errorf("%d messages were sent; job: %s", h.depth("events"), a.body)
		}
	})
}

// C83: what a dead letter carries may break a job that is taken over, and never the process, which the next one
// would follow.
func TestAPanicInAJobThatIsTakenOverEndsTheJobOnly(t *testing.T) {
	p := &panickingOnce{}
	h := withJobs(t, func(o *Options) { p.DeadLetters, o.DeadLetters = o.DeadLetters, p })
	h.cutJob()
	if a := h.await("rpl_cut"); a.text("state") != "failed" || h.depth("events") != 0 {
		t.Errorf("%d messages were sent; job: %s", h.depth("events"), a.body)
	}
	if strings.Contains(h.log.String(), "boom") {
		t.Error("the panic's words are in the log")
	}
}

// A list that is longer than what a job remembers of it is walked part by part. Whatever had its
// turn has no other: by then another copy of its event may be forgotten.
func TestADeadLetterHasOneTurnInAReplayJob(t *testing.T) {
	h := withJobs(t)
	h.api.replays.most = 4
	const body = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
	h.putMany("events", 12, func(_ int, d *tables.DeadLetter) {
		d.Text, d.Size = []byte(body), len(body)
	})
	h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"events","rate":1000}`).text("id")).wantJob("done", 12, 1, 11, 0)
}

func TestWhatAJobRemembersOfEventsIsBounded(t *testing.T) {
	s := &sentEvents{bound: 3}
	letters := 0
	first := func(event int) (*eventTurn, bool) {
		letters++ // another dead letter each time
		turn := &eventTurn{of: s, id: strconv.Itoa(letters)}
		return turn, turn.first(strconv.Itoa(event))
	}
	for i := range 100 {
		turn, ok := first(i)
		if !ok || !turn.first(strconv.Itoa(i)) {
			t.Fatalf("event %d: not the first", i)
		}
		for before := range min(i, 3) {
			if _, ok := first(i - before); ok {
				t.Fatalf("event %d was forgotten %d later", i-before, before)
			}
		}
		if n := len(s.lately) + len(s.older); n > 6 {
			t.Fatalf("%d events are remembered", n)
		}
	}
	turn, _ := first(100)
	turn.forget()
	if _, ok := first(100); !ok {
		t.Error("what was not sent counts")
	}
}

// What was not sent keeps no other copy of its event back.
func TestACopyThatWasNotSentDoesNotCount(t *testing.T) {
	sends := &failingOnce{left: 1}
	h := withJobs(t, func(o *Options) { sends.Service, o.Queues = o.Queues, sends })
	const body = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
	h.putMany("events", 2, func(_ int, d *tables.DeadLetter) {
		d.Text, d.Size = []byte(body), len(body)
	})
	h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"events","rate":10}`).text("id")).wantJob("done", 2, 1, 0, 1)
}

// failingOnce fails the first sends.
type failingOnce struct {
	queue.Service
	left int
}

func (s *failingOnce) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return failingOnceQueue{q, s}, err
}

type failingOnceQueue struct {
	queue.Queue
	s *failingOnce
}

func (q failingOnceQueue) Send(ctx context.Context, text []byte, o queue.SendOptions) (queue.Sent, error) {
	if q.s.left--; q.s.left >= 0 {
		return queue.Sent{}, queue.ErrTooLarge
	}
	return q.Queue.Send(ctx, text, o)
}

// silentReplays loses the answer of each replay; known tells whether the dead letter can be read after that.
type silentReplays struct {
	tables.DeadLetters
	known bool
	asked sync.Map // by id
}

func (s *silentReplays) SendReplay(_ context.Context, d tables.DeadLetter, _ []byte) (tables.DeadLetter, error) {
	s.asked.Store(d.ID, true)
	return d, errors.New("no answer")
}

func (s *silentReplays) GetDeadLetter(ctx context.Context, id string) (tables.DeadLetter, error) {
	if _, asked := s.asked.Load(id); asked && !s.known {
		return tables.DeadLetter{}, errors.New("no answer")
	}
	return s.DeadLetters.GetDeadLetter(ctx, id)
}

// C83: where a replay is marked and sent in one step, the mark whose answer was lost says whether it was sent.
func TestAReplayWhoseMarkIsUnknownIsTheOnlyOneOfItsEvent(t *testing.T) {
	const body = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
	for known, tried := range map[bool]int{false: 1, true: 3} {
		bubble.Test(t, func(t *testing.T) {
			h := withJobs(t, func(o *Options) {
				s := &silentReplays{DeadLetters: o.DeadLetters, known: known}
				o.DeadLetters, o.RecordedReplays = s, s
			})
			h.putMany("events", 3, func(i int, d *tables.DeadLetter) {
				d.Text, d.Size, d.DeadLetteredAt = []byte(body), len(body), time.Now().Add(time.Duration(i-10)*time.Second)
			})
			a := h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"events"}`).text("id"))
			if a.get("failed") != float64(tried) || a.get("skipped") != float64(3-tried) {
				t.Errorf("known %v: %s", known, a.body)
			}
		})
	}
}
