package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// mended is a receiver that refuses until it is mended, and counts what it took.
type mended struct {
	url string

	mu      sync.Mutex
	ok      bool
	refused map[string]int // POSTs of each message
	taken   map[string]int
}

func newMended(t *testing.T) *mended {
	m := &mended{refused: map[string]int{}, taken: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.ok {
			m.refused[r.Header.Get("webhook-id")]++
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		m.taken[r.Header.Get("webhook-id")]++
	}))
	t.Cleanup(func() { hangUp(server) })
	m.url = server.URL + "/hook"
	return m
}

func (m *mended) mend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ok = true
}

// refusals counts the POSTs that were refused.
func (m *mended) refusals() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	posts := 0
	for _, n := range m.refused {
		posts += n
	}
	return posts
}

// posts are the POSTs of each message, of one of the two kinds.
func (m *mended) posts(of map[string]int) map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(of)
}

// counts returns how many messages were taken, and how many POSTs that took.
func (m *mended) counts() (ids, posts int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.taken {
		posts += n
	}
	return len(m.taken), posts
}

// bulkCounts are what a dry run answers.
type bulkCounts struct {
	Matched int  `json:"matched"`
	Exact   bool `json:"exact"`
}

func (p *process) count(queue, status string) int {
	p.t.Helper()
	var c bulkCounts
	p.call(http.MethodPost, purgePath, fmt.Sprintf(`{"queue":%q,"status":%q,"dry_run":true}`, queue, status), http.StatusOK, &c)
	return c.Matched
}

func (p *process) job(id string) (j replayJob) {
	p.t.Helper()
	p.call(http.MethodGet, replayJobsPath+"/"+id, "", http.StatusOK, &j)
	return j
}

// replayAll has n messages of a queue refused, replays them, and returns the job once all are dead letters again.
func (p *process) replayAll(queue, url string, n int) (id string) {
	p.t.Helper()
	p.register(queue, url, nil)
	for i := range n {
		p.publish(queue, fmt.Sprintf(`{"n":%d}`, i))
	}
	wait := func() {
		p.t.Helper()
		waitUntil(p.t, 30*time.Second, func() string {
			if got := p.count(queue, "waiting"); got != n {
				return fmt.Sprintf("%d of %d dead letters", got, n)
			}
			return ""
		})
	}
	wait()
	var job replayJob
	p.call(http.MethodPost, replayJobsPath, fmt.Sprintf(`{"queue":%q,"rate":500}`, queue), http.StatusAccepted, &job)
	waitUntil(p.t, 20*time.Second, func() string {
		if j := p.job(job.ID); j.State != "done" {
			return j.progress()
		}
		return ""
	})
	wait()
	return job.ID
}

func killDuringAReplayByFilter(t *testing.T, s *store) {
	t.Helper()
	const n = 40
	queue, receiver := queueName("replay"), newMended(t)
	p := s.start(t)
	p.register(queue, receiver.url, nil)
	for i := range n {
		p.publish(queue, fmt.Sprintf(`{"n":%d,"text":%q}`, i, bodyMark))
	}
	waitUntil(t, 30*time.Second, func() string {
		if got := p.count(queue, "waiting"); got != n {
			return fmt.Sprintf("%d of %d dead letters", got, n)
		}
		return ""
	})
	refused := p.replayAll(queueName("refused"), receiver.url, 3)
	receiver.mend()
	var dry bulkCounts
	p.call(http.MethodPost, replayJobsPath, fmt.Sprintf(`{"queue":%q,"dry_run":true}`, queue), http.StatusOK, &dry)
	if dry.Matched != n || !dry.Exact {
		t.Errorf("dry run: %+v", dry)
	}
	var job replayJob
	p.call(http.MethodPost, replayJobsPath, fmt.Sprintf(`{"queue":%q,"reason":"NonRetryableError","rate":15}`, queue), http.StatusAccepted, &job)
	waitUntil(t, 20*time.Second, func() string {
		if j := p.job(job.ID); j.Replayed < 10 {
			return j.progress()
		}
		return ""
	})
	p.kill()
	if ids, _ := receiver.counts(); ids > n-5 {
		t.Fatalf("%d of %d were taken before the kill: it came too late to prove anything", ids, n)
	}

	p = s.start(t)
	goesOn := job.ID
	waitUntil(t, 150*time.Second, func() string {
		if j := p.job(goesOn); j.State != "done" || j.Failed > 0 {
			return j.progress()
		}
		return ""
	})
	// Where queues and tables are two services, a replay that the kill cut before its
	// message was sent has its dead letter reserved for 90 s (docs/adr/0060).
	waitUntil(t, 90*time.Second, func() string {
		p.call(http.MethodPost, replayJobsPath, fmt.Sprintf(`{"queue":%q,"rate":500}`, queue), http.StatusAccepted, &job)
		waitUntil(t, 20*time.Second, func() string {
			if j := p.job(job.ID); j.State != "done" || j.Failed > 0 {
				return j.progress()
			}
			return ""
		})
		if left := p.count(queue, "waiting"); left != 0 {
			return fmt.Sprintf("%d still wait", left)
		}
		return ""
	})
	p.waitEmpty(90*time.Second, queue)
	waitUntil(t, 2*time.Minute, func() string { // it is counted once a minute, and what was under way then is not delivered in it
		if j := p.job(goesOn); j.Outcome == nil || !j.Outcome.Exact || j.Outcome.CameBack > 0 || j.Outcome.Delivered < j.Replayed-2 {
			return fmt.Sprintf("outcome %v of %s", j.Outcome, j.progress())
		}
		return ""
	})
	if o := p.job(refused).Outcome; o == nil || *o != (replayOutcome{CameBack: 3, Exact: true}) {
		t.Errorf("outcome of what was refused again: %v", o)
	}
	// One replay may have been between its two steps; it stays, and says so.
	ids, posts := receiver.counts()
	stuck := p.count(queue, "replaying")
	if ids != n-stuck || stuck > 2 || p.count(queue, "replayed") != n-stuck {
		t.Errorf("%d of %d taken, %d replaying", ids, n, stuck)
	}
	// What was being POSTed at the kill may come twice, nothing else.
	if posts-ids > 5 {
		t.Errorf("%d POSTs for %d messages", posts, ids)
	}
	var gone struct {
		Purged int `json:"purged"`
		Kept   int `json:"kept"`
	}
	p.call(http.MethodPost, purgePath, fmt.Sprintf(`{"queue":%q}`, queue), http.StatusOK, &gone)
	if gone.Purged != n-stuck || gone.Kept != stuck {
		t.Errorf("purge: %+v, with %d replaying", gone, stuck)
	}
	p.terminate()
	p.ended(20 * time.Second)
}

// A job under way does not keep the process from stopping, and goes on in the next one.
func TestReplayJobIsLeftToTheNextProcess(t *testing.T) {
	s := sqliteStore(t)
	t.Parallel()
	queue, receiver := queueName("stop"), newMended(t)
	p := s.start(t)
	p.register(queue, receiver.url, nil)
	for range 5 {
		p.publish(queue, `{"text":"`+bodyMark+`"}`)
	}
	waitUntil(t, 30*time.Second, func() string {
		if got := p.count(queue, "waiting"); got != 5 {
			return fmt.Sprintf("%d of 5 dead letters", got)
		}
		return ""
	})
	var job replayJob
	p.call(http.MethodPost, replayJobsPath, fmt.Sprintf(`{"queue":%q,"rate":0.4}`, queue), http.StatusAccepted, &job)
	p.terminate()
	p.ended(10 * time.Second)
	if line, ok := p.log.find("replay by filter is left to another process"); !ok {
		t.Errorf("no word about the job: %v", line)
	}
	p = s.start(t)
	receiver.mend()
	waitUntil(t, 30*time.Second, func() string {
		if j := p.job(job.ID); j.State != "done" || j.Replayed != 5 {
			return j.progress()
		}
		return ""
	})
	p.terminate()
	p.ended(10 * time.Second)
}
