package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// tally is a receiver that takes its time and notes when it answered what.
type tally struct {
	url   string
	delay time.Duration

	mu       sync.Mutex
	answered map[string][]time.Time // by webhook-id
	posts    int
	reached  chan struct{} // gets a value with each POST, when there is room
}

func newTally(t *testing.T, delay time.Duration) *tally {
	ta := &tally{delay: delay, answered: map[string][]time.Time{}, reached: make(chan struct{}, 1)}
	server := httptest.NewServer(ta)
	t.Cleanup(func() { hangUp(server) })
	ta.url = server.URL + "/hook"
	return ta
}

func (ta *tally) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return // the sender was killed meanwhile
	}
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(2 * ta.delay))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	id := r.Header.Get("webhook-id")
	ta.mu.Lock()
	ta.answered[id] = append(ta.answered[id], time.Now())
	ta.posts++
	ta.mu.Unlock()
	select {
	case ta.reached <- struct{}{}:
	default:
	}
	w.WriteHeader(http.StatusOK)
}

func (ta *tally) counts() (ids, posts int) {
	ta.mu.Lock()
	defer ta.mu.Unlock()
	return len(ta.answered), ta.posts
}

// waitPosts waits until so many POSTs were answered.
func (ta *tally) waitPosts(t *testing.T, n int, bound time.Duration) {
	t.Helper()
	deadline := time.NewTimer(bound)
	defer deadline.Stop()
	for {
		if _, posts := ta.counts(); posts >= n {
			return
		}
		select {
		case <-ta.reached:
		case <-deadline.C:
			ids, posts := ta.counts()
			t.Fatalf("%d POSTs of %d messages after %s, want %d POSTs", posts, ids, bound, n)
		}
	}
}

// publishMany publishes so many messages and returns their ids.
func (p *process) publishMany(queue string, n int) []string {
	p.t.Helper()
	return p.publishEach(queue, n, func(k int) string { return fmt.Sprintf(`{"n":%d,"text":%q}`, k, bodyMark) })
}

// publishEach publishes n messages, 16 at a time, and returns their ids in the order of
// the bodies.
func (p *process) publishEach(queue string, n int, body func(k int) string) []string {
	p.t.Helper()
	ids, errs := make([]string, n), make([]error, 16)
	var work sync.WaitGroup
	next := make(chan int)
	for i := range errs {
		work.Go(func() {
			for k := range next {
				a, err := p.try(http.MethodPost, "/api/v1/queues/"+queue+"/messages", "application/json", body(k))
				if err == nil && a.status != http.StatusAccepted {
					err = fmt.Errorf("status %d: %s", a.status, a.body)
				}
				if err != nil {
					errs[i] = err
					continue
				}
				ids[k] = locationID(a)
			}
		})
	}
	for k := range n {
		next <- k
	}
	close(next)
	work.Wait()
	for _, err := range errs {
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return ids
}

// locationID is the message id at the end of the header Location.
func locationID(a e2eAnswer) string {
	const prefix = "/api/v1/messages/"
	if l := a.header.Get("Location"); len(l) > len(prefix) {
		return l[len(prefix):]
	}
	return ""
}

// Killed at any moment, the program loses nothing, and POSTs a message again only
// when it was killed between the answer and its record.
//
// KILL_MESSAGES is how many messages there are on SQLite, KILLS how often it is killed: task kills has a
// thousand kills over 42,600 messages.
func TestKilledProcessLosesNothing(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		messages, kills, delay := number(t, "KILL_MESSAGES", 2000), number(t, "KILLS", 20), 50*time.Millisecond
		if s.account != nil {
			messages, kills, delay = 300, 5, 50*time.Millisecond
		}
		settings := []string{"PUSHLEASE_LEASE=3s", "PUSHLEASE_CONCURRENCY=16"}
		p := s.start(t, settings...)
		in := newTally(t, delay)
		queue := queueName("killed")
		h := p.register(queue, in.url, map[string]any{"enabled": false})
		published := p.publishMany(queue, messages)
		p.call(http.MethodPost, "/api/v1/webhooks/"+h.ID+"/enable", "", http.StatusOK, nil)

		var killed []time.Time
		generations := []*process{p}
		for k := 1; k <= kills; k++ {
			in.waitPosts(t, k*messages*9/10/kills, time.Minute)
			p.kill()
			killed = append(killed, time.Now())
			p = s.start(t, settings...)
			generations = append(generations, p)
		}
		waitUntil(t, time.Minute, func() string {
			if ids, posts := in.counts(); ids < messages {
				return fmt.Sprintf("%d of %d messages were answered (%d POSTs)", ids, messages, posts)
			}
			return ""
		})
		p.waitEmpty(30*time.Second, queue)
		checkNothingLost(t, in, published, killed)
		checkRecordedOnce(t, generations, in)
		for _, id := range published[:10] {
			if next := p.waitState(time.Second, queue, id, h.ID, "delivered"); next.Charged != 1 {
				t.Errorf("message %s has %d charged attempts", id, next.Charged)
			}
		}
	})
}

// answerToRecord is more than a record takes on a busy machine: a message that is
// POSTed again was answered no longer than that before a kill.
const answerToRecord = time.Second

func checkNothingLost(t *testing.T, in *tally, published []string, killed []time.Time) {
	t.Helper()
	in.mu.Lock()
	defer in.mu.Unlock()
	again, widest := 0, time.Duration(0)
	for _, id := range published {
		times := in.answered[id]
		if len(times) == 0 {
			t.Errorf("message %s was lost", id)
		}
		for i := 1; i < len(times); i++ {
			again++
			gap := time.Hour
			for _, k := range killed {
				// An answer can also be written to a process that was just killed.
				if d := k.Sub(times[i-1]).Abs(); k.Before(times[i]) {
					gap = min(gap, d)
				}
			}
			widest = max(widest, gap)
			if gap > answerToRecord {
				t.Errorf("message %s was answered %s and again %s, with no kill right after the first", id, times[i-1], times[i])
			}
		}
	}
	if len(in.answered) != len(published) {
		t.Errorf("%d messages were POSTed, %d published", len(in.answered), len(published))
	}
	t.Logf("%d messages, %d kills, %d POSTed again; at most %s between an answer and the kill", len(published), len(killed), again, widest)
}

// checkRecordedOnce: the log line of an attempt comes after its record, so that a
// message with two lines of a success was POSTed although the first was on record.
func checkRecordedOnce(t *testing.T, generations []*process, in *tally) {
	t.Helper()
	logged := map[string]int{}
	for _, p := range generations {
		for _, l := range p.log.lines() {
			if l.Msg == "attempt" && l.Decision == "complete" {
				logged[l.Message]++
			}
		}
	}
	for id, n := range logged {
		if n > 1 {
			t.Errorf("message %s was POSTed %d times although its delivery was on record", id, n)
		}
	}
	if len(logged) < len(in.answered)/2 {
		t.Errorf("%d attempts in the logs of %d messages: the check is worth nothing", len(logged), len(in.answered))
	}
}
