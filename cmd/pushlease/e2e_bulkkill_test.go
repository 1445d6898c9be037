package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// Killed twice while it dead-letters, and twice in the middle of a replay by filter, the
// program makes one dead letter of each message and replays each once.
func TestKillsWhileDeadLettersAreMadeAndReplayed(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		const n, concurrency = 200, 8
		settings := []string{"PUSHLEASE_LEASE=3s", fmt.Sprintf("PUSHLEASE_CONCURRENCY=%d", concurrency)}
		p, queue, receiver := s.start(t, settings...), queueName("bulk"), newMended(t)
		h := p.register(queue, receiver.url, map[string]any{"enabled": false})
		ids := p.publishMany(queue, n)
		p.call(http.MethodPost, "/api/v1/webhooks/"+h.ID+"/enable", "", http.StatusOK, nil)
		for k := 1; k <= 2; k++ {
			waitUntil(t, time.Minute, func() string {
				if got := receiver.refusals(); got < k*n/3 {
					return fmt.Sprintf("%d POSTs were refused, want %d", got, k*n/3)
				}
				return ""
			})
			p.kill()
			p = s.start(t, settings...)
		}
		p.waitEmpty(3*time.Minute, queue) // what a kill left without an outcome is waited for first
		expectOneDeadLetterEach(t, p, queue, ids, "waiting", 0)
		if again := receiver.refusals() - n; again < 0 || again > 2*concurrency {
			t.Errorf("%d POSTs beyond one for each message: the kills explain at most %d", again, 2*concurrency)
		}

		receiver.mend()
		request := func(more string) string {
			return fmt.Sprintf(`{"queue":%q,"webhook":%q,"reason":"NonRetryableError"%s}`, queue, h.ID, more)
		}
		var dry bulkCounts
		p.call(http.MethodPost, replayJobsPath, request(`,"dry_run":true`), http.StatusOK, &dry)
		if dry.Matched != n || !dry.Exact {
			t.Errorf("the dry run says %+v, want %d", dry, n)
		}
		for k := 1; k <= 2; k++ {
			p = killReplaying(t, s, p, receiver, request(`,"rate":100`), settings)
		}
		taken, _ := receiver.counts()
		if taken == 0 || taken > n-20 {
			t.Fatalf("%d of %d were taken when the last kill came: that proves nothing", taken, n)
		}
		p.replayToTheEnd(request(`,"rate":1000`))
		waitUntil(t, 2*time.Minute, func() string { // what a kill cut is kept for it for a minute
			if left := p.count(queue, "waiting"); left > 0 {
				p.replayToTheEnd(request(`,"rate":1000`))
				return fmt.Sprintf("%d dead letters wait", left)
			}
			return ""
		})
		p.waitEmpty(3*time.Minute, queue)
		if rows := p.deadLetters(queue, "replaying"); len(rows) > 0 {
			t.Errorf("%d dead letters are replaying, and nothing is on the queue", len(rows))
		}
		waitUntil(t, 20*time.Second, func() string {
			if got := p.count(queue, "replayed"); got != n {
				return fmt.Sprintf("%d of %d dead letters are replayed", got, n)
			}
			return ""
		})
		expectOneDeadLetterEach(t, p, queue, ids, "replayed", 1)
		taken, posts := receiver.counts()
		if taken != n || posts-taken > 2*concurrency {
			t.Errorf("%d of %d messages were taken, by %d POSTs; the kills explain %d more", taken, n, posts, 2*concurrency)
		}
		for _, id := range ids {
			p.waitState(10*time.Second, queue, id, h.ID, "delivered")
		}
		t.Logf("%d dead letters, 2 kills while they were made, 2 while they were replayed: %d POSTs more", n, posts-taken)
	})
}

// killReplaying starts a job, kills the process in the middle of it, and starts another
// one, which tells of the job, and goes on with it later.
func killReplaying(t *testing.T, s *store, p *process, receiver *mended, request string, settings []string) *process {
	t.Helper()
	var job replayJob
	p.call(http.MethodPost, replayJobsPath, request, http.StatusAccepted, &job)
	waitUntil(t, 30*time.Second, func() string {
		if j := p.job(job.ID); j.Replayed < 40 {
			return j.progress()
		}
		if taken, _ := receiver.counts(); taken == 0 {
			return "nothing that was replayed was taken"
		}
		return ""
	})
	p.kill()
	p = s.start(t, settings...)
	if told := p.job(job.ID); told.State != "running" {
		t.Errorf("the job that was interrupted is told of as %s", told.progress())
	}
	return p
}

func (p *process) replayToTheEnd(request string) {
	p.t.Helper()
	var job replayJob
	p.call(http.MethodPost, replayJobsPath, request, http.StatusAccepted, &job)
	waitUntil(p.t, time.Minute, func() string {
		if job = p.job(job.ID); job.State == "running" {
			return job.progress()
		}
		return ""
	})
	if job.State != "done" || job.Failed > 0 {
		p.t.Errorf("the job ended as %s", job.progress())
	}
}

// expectOneDeadLetterEach: no message has two dead letters, none is missing, and each was
// replayed so often, but for what kills cut.
func expectOneDeadLetterEach(t *testing.T, p *process, queue string, ids []string, status string, replays int) {
	t.Helper()
	byID := map[string]int{}
	for _, d := range p.deadLetters(queue, "") {
		byID[d.MessageID]++
		if d.Status != status || d.Reason != "NonRetryableError" || d.LastStatus != http.StatusBadRequest || d.Attempts != 1 {
			t.Errorf("a dead letter is %+v, want it to be %s", d, status)
		}
		if d.Replays < replays || d.Replays > 3*replays { // each of the two kills may have cut one
			t.Errorf("message %s was replayed %d times, want %d", d.MessageID, d.Replays, replays)
		}
	}
	for _, id := range ids {
		if byID[id] != 1 {
			t.Errorf("message %s has %d dead letters", id, byID[id])
		}
	}
	if len(byID) != len(ids) {
		t.Errorf("%d messages have dead letters, want %d", len(byID), len(ids))
	}
}
