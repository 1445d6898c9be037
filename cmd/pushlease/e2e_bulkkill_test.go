package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

func killWhileDeadLettersAreMadeAndReplayed(t *testing.T, s *store) {
	t.Helper()
	const n = 200
	settings := []string{"PUSHLEASE_LEASE=3s", "PUSHLEASE_CONCURRENCY=8"}
	p, queue, receiver := s.start(t, settings...), queueName("bulk"), newMended(t)
	generations := []*process{p}
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
		generations = append(generations, p)
	}
	p.waitEmpty(3*time.Minute, queue) // what a kill left without an outcome is waited for first
	expectOneDeadLetterEach(t, p, queue, ids, "waiting", 0)
	expectRecordedOnce(t, generations, "dead-letter", receiver.posts(receiver.refused))

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
		p = killReplaying(t, s, p, receiver, request(`,"rate":20`), settings)
		generations = append(generations, p)
	}
	p.replayToTheEnd(request(`,"rate":1000`))
	left, next := 1, time.Now()
	waitUntil(t, 2*time.Minute, func() string { // what a kill cut is kept for it for 90 s
		if time.Now().After(next) { // a job reads all of the dead letters
			if left = p.count(queue, "waiting"); left > 0 {
				p.replayToTheEnd(request(`,"rate":1000`))
			}
			next = time.Now().Add(5 * time.Second)
		}
		if left > 0 {
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
	if taken != n {
		t.Errorf("%d of %d messages were taken", taken, n)
	}
	expectRecordedOnce(t, generations, "complete", receiver.posts(receiver.taken))
	for _, id := range ids {
		p.waitState(10*time.Second, queue, id, h.ID, "delivered")
	}
	t.Logf("%d dead letters, 2 kills while they were made, 2 while they were replayed: %d POSTs more", n, posts-taken)
}

// expectRecordedOnce: a message is POSTed again only where a kill came before the record of its POST. The
// log line of an attempt comes after its record, so that there is one for each message at most, and each POST
// beyond that was of a process that was killed.
func expectRecordedOnce(t *testing.T, generations []*process, decision string, posts map[string]int) {
	t.Helper()
	logged, all := map[string]int{}, 0
	for _, p := range generations {
		for _, l := range p.log.lines() {
			if l.Msg == "attempt" && l.Decision == decision {
				logged[l.Message]++
				all++
			}
		}
	}
	for id, n := range logged {
		if n > 1 {
			t.Errorf("message %s was POSTed again though its attempt was on record: %d attempts end with %s", id, n, decision)
		}
	}
	if all < len(posts)/2 {
		t.Errorf("%d attempts of %d messages are in the logs: the check is worth nothing", all, len(posts))
	}
	for id, n := range posts {
		if most := len(generations); n > most {
			t.Errorf("message %s was POSTed %d times by %d processes", id, n, most)
		}
	}
}

// killReplaying starts a job, kills the process in the middle of it, and starts another
// one, which tells of the job, and goes on with it later.
func killReplaying(t *testing.T, s *store, p *process, receiver *mended, request string, settings []string) *process {
	t.Helper()
	var job replayJob
	p.call(http.MethodPost, replayJobsPath, request, http.StatusAccepted, &job)
	waitUntil(t, 30*time.Second, func() string {
		if j := p.job(job.ID); j.Replayed < 20 { // a second's, of ten
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
