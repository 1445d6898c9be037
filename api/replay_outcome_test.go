package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/tables"
)

func TestAReplayJobSaysWhatBecameOfItsReplays(t *testing.T) { // C57
	bubble.Test(t, func(t *testing.T) {
		h := withJobs(t)
		webhook := h.register(`{"queue":"orders","url":"https://receiver.example/hook"}`).text("id")
		ids := h.putMany("orders", 7, func(i int, d *tables.DeadLetter) {
			beforeNow(i, d)
			if i != 6 { // which is about a message as a whole
				d.WebhookID = webhook
			}
		})
		// Two dead letters of one message: the second one was there before the job.
		twice := h.loadDead(ids[0])
		twice.Generation, twice.DeadLetteredAt, twice.ID = 1, time.Now().Add(-time.Second), ""
		ids = append(ids, h.putDeadLetter(twice).ID)
		id := h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","rate":1000}`).text("id")
		outcome := func(want string) {
			t.Helper()
			o := h.await(id).get("outcome").(map[string]any)
			if got := fmt.Sprint(o["delivered"], o["came_back"], o["under_way"], o["waiting"], o["exact"]); got != want {
				t.Errorf("outcome %s, want %s", got, want)
			}
		}
		outcome("0 0 8 0 true")
		for i, id := range ids {
			d := h.loadDead(id)
			d.Status, d.ReplayToken = tables.Replayed, ""
			switch i {
			case 2:
				d.Status = tables.Replaying
			case 3:
				d.Status = tables.Waiting
			case 4: // somebody has replayed it again since
				d.Replays, d.ReplayedAt = 2, time.Now().Add(time.Minute)
			}
			if _, err := h.db.UpdateDeadLetter(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if i == 1 || i == 6 { // by a clock that is behind
				d.WebhookID, d.Generation, d.Status, d.DeadLetteredAt, d.ID, d.Replays, d.ReplayedAt = webhook, 1, tables.Waiting, time.Now().Add(-30*time.Second), "", 0, time.Time{}
				h.putDeadLetter(d)
			}
		}
		outcome("0 0 8 0 true") // as it was counted
		time.Sleep(outcomeFresh)
		outcome("3 2 1 1 true")
		change := func(id string, status tables.DeadLetterStatus) {
			d := h.loadDead(id)
			d.Status = status
			if _, err := h.db.UpdateDeadLetter(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			time.Sleep(outcomeFresh)
		}
		change(ids[2], tables.Replayed)
		outcome("4 2 0 1 true")
		change(ids[3], tables.Replayed)
		outcome("5 2 0 0 true") // what waits may go on
		change(ids[0], tables.Waiting)
		outcome("5 2 0 0 true") // it was settled, and is not counted again
	})
}

// Others may have replayed what a job's filter matches while it ran.
func TestWhatBecameOfReplaysIsBoundedByHowManyAJobHasSent(t *testing.T) { // C57
	h := withJobs(t)
	began := time.Now().UTC().Truncate(time.Millisecond)
	h.putMany("orders", 3, func(_ int, d *tables.DeadLetter) {
		d.Status, d.Replays, d.ReplayedAt = tables.Replayed, 1, began.Add(time.Second)
	})
	h.storedJob(replayJobView{
		ID: "rpl_ended", State: jobDone, Matched: 2, Replayed: 2, SkippedBecause: map[string]int{}, StartedAt: began, FinishedAt: began.Add(2 * time.Second), Rate: 1,
		Order: oldestFirst, Filter: filterView{Queue: "orders", Status: tables.Waiting},
	}, time.Now())
	if a := h.do(http.StatusOK, "GET", replayPath+"/rpl_ended", ""); a.get("outcome", "delivered") != 2.0 || a.get("outcome", "exact") != false {
		t.Errorf("of two replays: %s", a.body)
	}
}

// What a job has done is told though nobody can count what became of it.
func TestAReplayJobIsShownWithoutItsOutcomeWhereThatCanNotBeCounted(t *testing.T) {
	f := &flaky{}
	h := withJobs(t, func(o *Options) { f.DeadLetters, o.DeadLetters = o.DeadLetters, f })
	h.putMany("orders", 2, nil)
	id := h.do(http.StatusAccepted, "POST", replayPath, `{"queue":"orders","rate":1000}`).text("id")
	if job := h.api.replays.own(id); job != nil {
		<-job.done
	}
	f.left.Store(100)
	a := h.do(http.StatusOK, "GET", replayPath+"/"+id, "")
	if a.wantJob("done", 2, 2, 0, 0); a.get("outcome") != nil {
		t.Errorf("the outcome: %s", a.body)
	}
}
