package main

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// script is how a webhook answers all POSTs of one message.
type script string

const (
	answersAtOnce script = "200"
	busyOnce      script = "503, 200"
	busyTwice     script = "503, 503, 200"
	hangsUpTwice  script = "hang up, hang up, 200"
	slowly        script = "200 after the lease"
	refusing      script = "400"
	alwaysBusy    script = "503"
)

// scripts are picked by their weight. Fewer than a third of all POSTs fail, so that the
// webhooks count as healthy.
var scripts = []struct {
	script script
	weight int
}{{answersAtOnce, 78}, {busyOnce, 6}, {busyTwice, 4}, {hangsUpTwice, 4}, {slowly, 2}, {refusing, 4}, {alwaysBusy, 2}}

func pickScript(random *rand.Rand) script {
	pick := random.IntN(100)
	for _, s := range scripts {
		if pick -= s.weight; pick < 0 {
			return s.script
		}
	}
	return answersAtOnce
}

// end is how a delivery by this script ends; reason is empty for one that is delivered.
func (s script) end() (state, reason string) {
	switch s {
	case refusing:
		return "dead_lettered", "NonRetryableError"
	case alwaysBusy:
		return "dead_lettered", "MaxDeliveryCountExceeded"
	}
	return "delivered", ""
}

// soakBody is a message that says how each webhook, by its path, answers it.
type soakBody struct {
	N       int               `json:"n"`
	Scripts map[string]script `json:"scripts"`
	Text    string            `json:"text"`
}

// soakPost is one POST. Status is 0 for one that got no answer.
type soakPost struct {
	began, ended time.Time
	status       int
}

type soakKey struct{ path, id string }

// soakReceiver answers as the messages say, and notes everything.
type soakReceiver struct {
	url  string
	slow time.Duration
	// gate is closed when answers may begin: POSTs wait for it.
	gate chan struct{}

	mu    sync.Mutex
	posts map[soakKey][]*soakPost
	total int
}

func newSoakReceiver(t *testing.T, slow time.Duration) *soakReceiver {
	rc := &soakReceiver{slow: slow, gate: make(chan struct{}), posts: map[soakKey][]*soakPost{}}
	server := httptest.NewServer(rc)
	t.Cleanup(func() { hangUp(server) })
	rc.url = server.URL
	return rc
}

func (rc *soakReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	var body soakBody
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	s, ok := body.Scripts[r.URL.Path]
	if err != nil || !ok {
		return // its sender was killed while it wrote; a broken body would never be delivered
	}
	post, n := rc.arrive(soakKey{r.URL.Path, r.Header.Get("webhook-id")})
	select {
	case <-rc.gate:
	case <-r.Context().Done():
		return
	}
	status := http.StatusOK
	switch {
	case s == busyOnce && n <= 1, s == busyTwice && n <= 2, s == alwaysBusy:
		status = http.StatusServiceUnavailable
	case s == refusing:
		status = http.StatusBadRequest
	case s == hangsUpTwice && n <= 2:
		panic(http.ErrAbortHandler) // net/http closes the connection
	case s == slowly:
		timer := time.NewTimer(rc.slow)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done(): // the sender has gone, and gets no answer
			return
		}
	}
	rc.mu.Lock()
	post.status, post.ended = status, time.Now()
	rc.mu.Unlock()
	w.WriteHeader(status)
}

// arrive notes a POST and returns its number.
func (rc *soakReceiver) arrive(key soakKey) (post *soakPost, n int) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	post = &soakPost{began: time.Now()}
	rc.posts[key] = append(rc.posts[key], post)
	rc.total++
	return post, len(rc.posts[key])
}

func (rc *soakReceiver) count() int {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.total
}

// of returns the POSTs of a message to a path, in the order of arrival, and those among
// them that were answered with 200.
func (rc *soakReceiver) of(path, id string) (all, taken []soakPost) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	for _, p := range rc.posts[soakKey{path, id}] {
		all = append(all, *p)
		if p.status == http.StatusOK {
			taken = append(taken, *p)
		}
	}
	return all, taken
}
