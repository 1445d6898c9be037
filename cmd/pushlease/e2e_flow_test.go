package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// scripted is a receiver whose answer can be changed while it runs.
type scripted struct {
	url string

	mu     sync.Mutex
	answer http.HandlerFunc
	at     []time.Time              // of each POST
	ok     map[string]time.Duration // from publishing to the 2xx, by webhook-id
	done   []time.Time              // of each 2xx
	active int
	most   int // in flight at once
}

func newScripted(t *testing.T, answer http.HandlerFunc) *scripted {
	rc := &scripted{answer: answer, ok: map[string]time.Duration{}}
	server := httptest.NewServer(rc)
	t.Cleanup(func() { hangUp(server) })
	rc.url = server.URL + "/hook"
	return rc
}

// become changes what is answered from now on.
func (rc *scripted) become(answer http.HandlerFunc) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.answer = answer
}

func (rc *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender gave up
	}
	rc.mu.Lock()
	answer := rc.answer
	rc.at = append(rc.at, time.Now())
	rc.active++
	rc.most = max(rc.most, rc.active)
	rc.mu.Unlock()
	seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	answer(seen, r)
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.active--
	if seen.status/100 == 2 && r.Context().Err() == nil {
		var m struct{ At time.Time }
		_ = json.Unmarshal(body, &m) // bodies without a time are not measured
		rc.ok[r.Header.Get("webhook-id")] = time.Since(m.At)
		rc.done = append(rc.done, time.Now())
	}
}

// statusWriter keeps the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (rc *scripted) counts() (posts, delivered int) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return len(rc.at), len(rc.ok)
}

func (rc *scripted) waitDelivered(t *testing.T, n int, bound time.Duration) {
	t.Helper()
	waitUntil(t, bound, func() string {
		if posts, got := rc.counts(); got < n {
			return fmt.Sprintf("%d messages delivered with %d POSTs, want %d", got, posts, n)
		}
		return ""
	})
}

// figures are how fast messages were delivered, and the 99th percentile of the time from
// publishing to the answer.
func (rc *scripted) figures() (perSecond float64, p99 time.Duration) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	var times []time.Duration
	for _, d := range rc.ok {
		times = append(times, d)
	}
	slices.Sort(times)
	took := rc.done[len(rc.done)-1].Sub(rc.at[0])
	return float64(len(times)) / took.Seconds(), times[len(times)*99/100]
}

// after answers with a status when that time has passed, or never when the sender leaves.
func after(d time.Duration, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			w.WriteHeader(status)
		case <-r.Context().Done():
		}
	}
}

// e2eStatus is how a webhook fares, as the API shows it.
type e2eStatus struct {
	State  string    `json:"state"`
	Until  time.Time `json:"until"`
	Text   string    `json:"text"`
	Window int       `json:"window"`

	LastSuccessAt  time.Time `json:"last_success_at"`
	FailingSince   time.Time `json:"failing_since"`
	FailedMessages int       `json:"failed_messages"`
}

func (p *process) status(id string) (hook, e2eStatus) {
	p.t.Helper()
	var w struct {
		hook
		Status e2eStatus `json:"status"`
	}
	p.call(http.MethodGet, "/api/v1/webhooks/"+id, "", http.StatusOK, &w)
	return w.hook, w.Status
}

func (p *process) waitStatus(bound time.Duration, id string, states ...string) e2eStatus {
	p.t.Helper()
	var s e2eStatus
	waitUntil(p.t, bound, func() string {
		if _, s = p.status(id); slices.Contains(states, s.State) {
			return ""
		}
		return fmt.Sprintf("the webhook is %s (%s), want %v", s.State, s.Text, states)
	})
	return s
}

func (p *process) enable(id string) {
	p.t.Helper()
	p.call(http.MethodPost, "/api/v1/webhooks/"+id+"/enable", "", http.StatusOK, nil)
}

func (p *process) expectNoDeadLetters(queue string) {
	p.t.Helper()
	if dead := p.deadLetters(queue, ""); len(dead) > 0 {
		p.t.Errorf("%d dead letters on %s, the first: %+v", len(dead), queue, dead[0])
	}
}

// untilItWorks are a policy and a flow whose waits are short.
func untilItWorks(breaker map[string]any) map[string]any {
	return map[string]any{
		"policy": map[string]any{"max_attempts": 50, "backoff": map[string]any{"delays": []string{"1s"}, "jitter": 0}},
		"flow":   map[string]any{"breaker": breaker},
	}
}

func TestPauseIsKeptAndChargesNothing(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p := s.start(t)
		in := newScripted(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
		})
		queue := queueName("pause")
		h := p.register(queue, in.url, nil)
		ids := []string{p.publish(queue, `{"n":0}`)}
		st := p.waitStatus(20*time.Second, h.ID, "paused")
		if !strings.Contains(st.Text, "asked for a pause") || st.Until.IsZero() {
			t.Errorf("status %+v", st)
		}
		in.become(after(0, http.StatusOK))
		ids = append(ids, p.publishMany(queue, 8)...)
		in.waitDelivered(t, len(ids), time.Minute)
		in.mu.Lock()
		for i, at := range in.at[1:] {
			if at.Before(st.Until.Add(-50 * time.Millisecond)) { // times are to the millisecond, and clocks are read apart
				t.Errorf("POST %d came at %s, in the pause until %s", i+2, at, st.Until)
			}
		}
		if posts := len(in.at); posts != len(ids)+1 {
			t.Errorf("%d POSTs for %d messages, want one more", posts, len(ids))
		}
		in.mu.Unlock()
		for _, id := range ids {
			if n := p.waitState(30*time.Second, queue, id, h.ID, "delivered"); n.Charged > 1 {
				t.Errorf("message %s was charged %d attempts", id, n.Charged)
			}
		}
	})
}

// It fails, and comes back with little capacity: the breaker opens, a probe closes it,
// and all is delivered at a pace that it can take.
func TestReceiverThatRecoversGetsItsBacklog(t *testing.T) {
	t.Parallel()
	const messages = 150
	p := sqliteStore(t).start(t)
	in := newScripted(t, after(0, http.StatusServiceUnavailable))
	queue := queueName("recovers")
	h := p.register(queue, in.url, untilItWorks(map[string]any{"enabled": true, "min_samples": 5, "probe_after": "1s", "probe_max": "2s"}))
	p.publishMany(queue, messages)
	st := p.waitStatus(30*time.Second, h.ID, "failing")
	if st.Until.IsZero() || !strings.Contains(st.Text, "A probe is due at") {
		t.Errorf("status %+v", st)
	}
	if n := p.metric("pushlease_webhook_stopped", h.ID, `state="`); n != 1 {
		t.Errorf("pushlease_webhook_stopped is %v", n)
	}
	places := make(chan struct{}, 4)
	mended := time.Now()
	in.become(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			after(20*time.Millisecond, http.StatusOK)(w, r)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	in.waitDelivered(t, messages, 2*time.Minute)
	t.Logf("a backlog of %d at 200/s took %s with %d in flight at most", messages, time.Since(mended).Round(100*time.Millisecond), in.most)
	p.waitEmpty(30*time.Second, queue)
	// The refusals of what was too much at once may be taken for a limit, which is then learned.
	p.waitStatus(10*time.Second, h.ID, "healthy", "busy", "limited")
	p.expectNoDeadLetters(queue)
}

func TestOpenBreakerSurvivesAKillAndEnableBeginsAnew(t *testing.T) {
	t.Parallel()
	const messages = 40
	s := sqliteStore(t)
	p := s.start(t)
	in := newScripted(t, after(0, http.StatusInternalServerError))
	queue := queueName("survives")
	h := p.register(queue, in.url, untilItWorks(map[string]any{"enabled": true, "min_samples": 5, "probe_after": "30s"}))
	p.publishMany(queue, messages)
	before := p.waitStatus(30*time.Second, h.ID, "failing")
	waitUntil(t, 20*time.Second, func() string {
		if p.metric("pushlease_storage_transactions_total", `operation="put_health"`) == 0 {
			return "the breaker is not stored"
		}
		return ""
	})
	p.kill()
	posts, _ := in.counts()
	in.become(after(0, http.StatusOK))
	p = s.start(t)
	st := p.waitStatus(20*time.Second, h.ID, "failing")
	if d := st.Until.Sub(before.Until).Abs(); d > time.Second {
		t.Errorf("the next probe was due at %s, and is at %s after the restart", before.Until, st.Until)
	}
	if now, _ := in.counts(); now != posts {
		t.Errorf("the start made %d POSTs through an open breaker", now-posts)
	}
	p.enable(h.ID)
	// A few had been received already when the breaker opened, and come back at their time.
	in.waitDelivered(t, messages, 2*time.Minute)
	in.mu.Lock()
	first := in.done[0]
	in.mu.Unlock()
	if !first.Before(st.Until) {
		t.Errorf("the first delivery was at %s: not by enabling, but by the probe of %s", first, st.Until)
	}
	p.waitEmpty(30*time.Second, queue)
	p.waitStatus(10*time.Second, h.ID, "healthy", "busy")
	p.expectNoDeadLetters(queue)
}

// The minute between two looks at what fails is why this takes so long.
func TestWebhookThatOnlyFailsIsDisabledAndKeepsItsMessages(t *testing.T) {
	t.Parallel()
	const messages = 25
	p := sqliteStore(t).start(t)
	in := newScripted(t, after(0, http.StatusInternalServerError))
	queue := queueName("auto")
	more := untilItWorks(map[string]any{"enabled": false})
	more["policy"] = map[string]any{"max_attempts": 50, "max_age": "24h", "backoff": map[string]any{"delays": []string{"5s"}, "jitter": 0}}
	more["flow"] = map[string]any{"breaker": map[string]any{"enabled": false}, "auto_disable_after": "1s", "auto_disable_min_failures": 20}
	h := p.register(queue, in.url, more)
	ids := p.publishMany(queue, messages)
	p.waitStatus(2*time.Minute, h.ID, "disabled")
	w, st := p.status(h.ID)
	if w.DisabledReason != "failing" || !strings.Contains(st.Text, "failed for 1s without one 2xx") {
		t.Errorf("disabled because %q: %s", w.DisabledReason, st.Text)
	}
	if n := p.metric("pushlease_webhook_stopped", `state="disabled"`, `why="failing"`); n != 1 {
		t.Errorf("pushlease_webhook_stopped is %v", n)
	}
	in.become(after(0, http.StatusOK))
	if n := p.depth(queue); n != len(ids) {
		t.Errorf("%d messages are on the queue, want all %d", n, len(ids))
	}
	p.enable(h.ID)
	in.waitDelivered(t, len(ids), time.Minute)
	if _, st := p.status(h.ID); st.LastSuccessAt.IsZero() {
		t.Errorf("status %+v", st)
	}
	p.expectNoDeadLetters(queue)
}

// What counts towards the disabling is kept over one kill, and the disabling over another:
// neither process sees as many messages fail as it takes. What fails is stored and looked at
// once a minute, which is why this takes so long.
func TestAutoDisableSurvivesKills(t *testing.T) {
	t.Parallel()
	const before, more = 12, 8
	s := sqliteStore(t)
	p := s.start(t)
	in := newScripted(t, after(0, http.StatusInternalServerError))
	queue := queueName("autokill")
	h := p.register(queue, in.url, map[string]any{
		"policy": map[string]any{"max_attempts": 50, "max_age": "24h", "backoff": map[string]any{"delays": []string{"30s"}, "jitter": 0}},
		"flow":   map[string]any{"breaker": map[string]any{"enabled": false}, "auto_disable_after": "1s", "auto_disable_min_failures": before + more},
	})
	p.publishMany(queue, before)
	var first e2eStatus
	waitUntil(t, 30*time.Second, func() string {
		if _, first = p.status(h.ID); first.FailedMessages < before {
			return fmt.Sprintf("%d messages have failed, want %d", first.FailedMessages, before)
		}
		return ""
	})
	stored := p.metric("pushlease_storage_transactions_total", `operation="put_health"`)
	p.publish(queue, `{"n":0}`)                 // what is stored from here on knows of all before
	waitUntil(t, 3*time.Minute, func() string { // it is stored once a minute
		if p.metric("pushlease_storage_transactions_total", `operation="put_health"`) == stored {
			return "what has failed is not stored"
		}
		return ""
	})
	p.kill()

	p = s.start(t)
	if st := p.waitStatus(30*time.Second, h.ID, "healthy"); st.FailingSince.Sub(first.FailingSince).Abs() > time.Millisecond {
		t.Errorf("before the kill it was %+v, and after it %+v", first, st)
	}
	p.publishMany(queue, more)
	p.waitStatus(3*time.Minute, h.ID, "disabled")
	p.kill()

	posts, _ := in.counts()
	in.become(after(0, http.StatusOK))
	p = s.start(t)
	p.waitStatus(30*time.Second, h.ID, "disabled")
	if w, st := p.status(h.ID); w.Enabled || w.DisabledReason != "failing" {
		t.Errorf("after the second kill it is %+v, %+v", w, st)
	}
	good := newScripted(t, after(0, http.StatusOK)) // for it the queue is polled
	p.register(queue, good.url, nil)
	p.waitPolling(queue)
	id := p.publish(queue, `{"n":1}`)
	p.waitState(30*time.Second, queue, id, h.ID, "held")
	if now, _ := in.counts(); now != posts {
		t.Errorf("%d POSTs to a disabled webhook", now-posts)
	}
	if n := p.depth(queue); n != before+more+2 {
		t.Errorf("%d messages are on the queue, want all %d", n, before+more+2)
	}
	p.enable(h.ID)
	p.waitState(time.Minute, queue, id, h.ID, "delivered")
	p.expectNoDeadLetters(queue)
}

func TestWebhookThatIsGoneIsDisabledAndKeepsWhatComes(t *testing.T) {
	t.Parallel()
	p := sqliteStore(t).start(t)
	in := newScripted(t, after(0, http.StatusGone))
	queue := queueName("gone")
	h := p.register(queue, in.url, nil)
	p.publish(queue, `{"n":0}`)
	p.waitStatus(20*time.Second, h.ID, "disabled")
	w, st := p.status(h.ID)
	if w.DisabledReason != "gone" || !strings.Contains(st.Text, "410 Gone") {
		t.Errorf("disabled because %q: %s", w.DisabledReason, st.Text)
	}
	p.publish(queue, `{"n":1}`)
	in.become(after(0, http.StatusOK))
	p.enable(h.ID)
	in.waitDelivered(t, 1, 30*time.Second)
	if dead := p.deadLetters(queue, ""); len(dead) != 1 || dead[0].Reason != "WebhookGone" {
		t.Errorf("dead letters %+v", dead)
	}
	var audit struct {
		Data []struct {
			Action, Reason string
			RequestID      string `json:"request_id"`
		}
	}
	p.call(http.MethodGet, "/api/v1/audit?webhook="+h.ID, "", http.StatusOK, &audit)
	if list := audit.Data; len(list) != 3 || list[0].Action != "webhook.enabled" || list[0].RequestID == "" ||
		list[1].Action != "webhook.disabled" || list[1].Reason != "gone" || list[1].RequestID != "" || list[2].Action != "webhook.created" {
		t.Errorf("audit %+v, want that it was registered, disabled by pushlease, and enabled", list)
	}
}

// What was received, and then held because its webhook asked for an hour, goes on when an
// operator enables that.
func TestEnableReleasesWhatIsHeld(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		const messages = 60
		p := s.start(t)
		good := newScripted(t, after(0, http.StatusOK))
		in := newScripted(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		})
		queue := queueName("held")
		p.register(queue, good.url, nil)
		h := p.register(queue, in.url, nil)
		p.publish(queue, `{"n":0}`)
		p.waitStatus(20*time.Second, h.ID, "paused")
		ids := p.publishMany(queue, messages)
		good.waitDelivered(t, messages+1, time.Minute)
		for _, id := range ids {
			p.waitState(30*time.Second, queue, id, h.ID, "held")
		}
		in.become(after(0, http.StatusOK))
		p.enable(h.ID)
		start := time.Now()
		in.waitDelivered(t, messages, time.Minute)
		t.Logf("%d held messages were delivered %s after the webhook was enabled", messages, time.Since(start).Round(time.Millisecond))
		p.expectNoDeadLetters(queue)
	})
}
