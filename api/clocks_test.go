package api

import (
	"context"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/tables"
)

// aheadLetters are dead letters as a process reads and writes them whose clock is ahead by so much.
type aheadLetters struct {
	tables.DeadLetters
	by time.Duration
}

func shifted(d tables.DeadLetter, by time.Duration) tables.DeadLetter {
	for _, at := range []*time.Time{&d.DeadLetteredAt, &d.ReplayedAt} {
		if !at.IsZero() {
			*at = at.Add(by)
		}
	}
	return d
}

func (s aheadLetters) GetDeadLetter(ctx context.Context, id string) (tables.DeadLetter, error) {
	d, err := s.DeadLetters.GetDeadLetter(ctx, id)
	return shifted(d, -s.by), err
}

func (s aheadLetters) UpdateDeadLetter(ctx context.Context, d tables.DeadLetter) (tables.DeadLetter, error) {
	d, err := s.DeadLetters.UpdateDeadLetter(ctx, shifted(d, s.by))
	return shifted(d, -s.by), err
}

func (s aheadLetters) ListDeadLetters(ctx context.Context, f tables.DeadLetterFilter, page tables.Page) ([]tables.DeadLetter, tables.Cursor, error) {
	for _, at := range []*time.Time{&f.From, &f.Until} {
		if !at.IsZero() {
			*at = at.Add(s.by)
		}
	}
	rows, next, err := s.DeadLetters.ListDeadLetters(ctx, f, page)
	for i := range rows {
		rows[i] = shifted(rows[i], -s.by)
	}
	return rows, next, err
}

// aheadJobs are jobs as such a process reads and writes them.
type aheadJobs struct {
	tables.Jobs
	by time.Duration
}

var instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT[^"]+Z`)

func shiftedJob(j tables.Job, by time.Duration) tables.Job {
	j.HeardAt = j.HeardAt.Add(by)
	j.State = instants.ReplaceAllFunc(j.State, func(text []byte) []byte {
		at, err := time.Parse(time.RFC3339Nano, string(text))
		if err != nil {
			panic(err)
		}
		return []byte(at.Add(by).Format(time.RFC3339Nano))
	})
	return j
}

func (s aheadJobs) PutJob(ctx context.Context, j tables.Job) (tables.Job, error) {
	j, err := s.Jobs.PutJob(ctx, shiftedJob(j, s.by))
	return shiftedJob(j, -s.by), err
}

func (s aheadJobs) ListJobs(ctx context.Context) ([]tables.Job, error) {
	all, err := s.Jobs.ListJobs(ctx)
	for i := range all {
		all[i] = shiftedJob(all[i], -s.by)
	}
	return all, err
}

// ahead is an API of another process, whose clock is as far ahead as good ones may be apart.
func (h *harness) ahead() *harness {
	return h.another("ahead", func(o *Options) {
		o.DeadLetters, o.Jobs, o.Queues = aheadLetters{h.db, tables.ClocksApart}, aheadJobs{h.db, tables.ClocksApart}, h.db.Queues()
	})
}

// C57: while a replay is being sent no other one is let past it by a clock that is ahead.
func TestClocksApartLetNoSecondReplayPast(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sends := &hangingSends{until: make(chan struct{})}
		h := withJobs(t, func(o *Options) { sends.Service, o.Queues = o.Queues, sends })
		ahead := h.ahead()
		path := "/api/v1/dead-letters/" + h.putMany("orders", 1, beforeNow)[0] + "/replay"
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			h.do(http.StatusAccepted, "POST", path, "")
		}()
		defer func() {
			close(sends.until)
			<-answered
			if n := h.depth("orders"); n != 1 {
				t.Errorf("%d messages were sent", n)
			}
		}()
		time.Sleep(replayTimeout)
		ahead.do(http.StatusConflict, "POST", path, "")
	})
}

// C57: whoever can't write a job any more has left it when another process takes it over by a clock that is ahead.
func TestClocksApartHaveAJobRunOnceAtATime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		jobs := &silentJobs{}
		h := withJobs(t, func(o *Options) { jobs.Jobs, o.Jobs = o.Jobs, jobs })
		ahead := h.ahead()
		h.putMany("orders", 20, beforeNow)
		id := h.do(http.StatusAccepted, "POST", replayPath, slowReplay).text("id")
		job := h.api.replays.own(id)
		jobs.silent.Store(true)
		for ahead.api.replays.own(id) == nil {
			time.Sleep(time.Second)
			if err := ahead.api.replays.adopt(t.Context(), ahead.api); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-job.done:
		default:
			t.Error("two processes run it")
		}
	})
}

// C57: a job is about what was there when it began, also where that is dated by a clock that is ahead.
func TestClocksApartLeaveNothingOutOfAJob(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := withJobs(t)
		h.putMany("orders", 2, func(i int, d *tables.DeadLetter) {
			d.DeadLetteredAt = time.Now().Add(time.Duration(i) * 59 * time.Second)
		})
		h.await(h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders"}`).text("id")).wantJob("done", 2, 2, 0, 0)
	})
}

// C57: a job that goes on in a process whose clock is behind sends nothing again that came back from its own replays, and knows
// all of them for its own.
func TestClocksApartHaveAJobSendNothingAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := withJobs(t)
		ahead := h.ahead()
		ids := h.putMany("orders", 3, beforeNow)
		id := ahead.do(http.StatusAccepted, "POST", replayPath, slowReplay).text("id")
		time.Sleep(time.Second)
		ahead.api.replays.stop()
		oldest := h.loadDead(ids[2])
		if oldest.Replays != 1 {
			t.Fatalf("sent first: %+v", oldest)
		}
		back := oldest
		oldest.Status, oldest.ReplayToken = tables.Replayed, ""
		if _, err := h.db.UpdateDeadLetter(t.Context(), oldest); err != nil {
			t.Fatal(err)
		}
		back.ID, back.Status, back.ReplayToken, back.Generation, back.Replays, back.ReplayedAt, back.DeadLetteredAt = "", tables.Waiting, "", 1, 0, time.Time{}, time.Now()
		h.putDeadLetter(back)
		if err := h.api.replays.adopt(t.Context(), h.api); err != nil {
			t.Fatal(err)
		}
		<-h.api.replays.own(id).done
		a := h.do(http.StatusOK, "GET", replayPath+"/"+id, "")
		if n := h.depth("orders"); n != 3 || a.get("outcome", "came_back") != 1.0 || a.get("outcome", "under_way") != 2.0 || a.get("outcome", "exact") != true {
			t.Errorf("%d messages were sent: %s", n, a.body)
		}
	})
}

// C57: what came back from an earlier replay just before a job began is part of it, in whatever order and process.
func TestWhatCameBackJustBeforeAJobIsPartOfIt(t *testing.T) {
	for _, adopted := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			h := withJobs(t)
			h.putMany("orders", 3, func(i int, d *tables.DeadLetter) {
				beforeNow(i, d)
				d.Generation = 1
			})
			id := "rpl_cut"
			if adopted {
				h.storedJob(replayJobView{
					ID: id, State: jobRunning, SkippedBecause: map[string]int{}, StartedAt: time.Now().UTC(), Rate: 1000, Order: newestFirst,
					Filter: filterView{Queue: "orders", Status: tables.Waiting},
				}, time.Now().Add(-2*jobLost))
				if err := h.api.replays.adopt(t.Context(), h.api); err != nil {
					t.Fatal(err)
				}
			} else {
				id = h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","order":"newest"}`).text("id")
			}
			h.await(id).wantJob("done", 3, 3, 0, 0)
		})
	}
}

// C57: a job that a kill has cut goes on within two minutes, whenever in the minute between two looks it came.
func TestAJobIsGoneOnWithWithinTwoMinutes(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 20 * time.Second, 59 * time.Second} {
		bubble.Test(t, func(t *testing.T) {
			h := withJobs(t)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); h.api.replays.watch(ctx, h.api) }()
			time.Sleep(after)
			h.storedJob(replayJobView{
				ID: "rpl_cut", State: jobRunning, SkippedBecause: map[string]int{}, StartedAt: time.Now().UTC(), Rate: 1, Order: oldestFirst, Filter: filterView{Queue: "orders"},
			}, time.Now())
			time.Sleep(jobLost + jobBeat)
			if a := h.do(http.StatusOK, "GET", replayPath+"/rpl_cut", ""); a.text("state") != "done" {
				t.Errorf("killed %s after a look: %s", after, a.body)
			}
			stop()
			<-ended
		})
	}
}
