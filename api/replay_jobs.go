package api

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxJobs bounds the replay jobs that run at once in one process.
	maxJobs = 4
	// keptJobs is how many jobs that have ended are still shown.
	keptJobs = 50
	// cancelWait is how long an answer to a cancel waits for the job's end.
	cancelWait = 5 * time.Second
	// stopWait is how long stopping waits for replays that are being sent.
	stopWait = 10 * time.Second
)

// The causes with which a job's context ends.
var (
	errCanceledByCaller = errors.New("canceled by a request")
	errStopping         = errors.New("the process stopped; what was not replayed yet is still waiting")
)

// replayJobs are the replay jobs of this process, newest first. They end with it: what
// was not replayed by then is still waiting, and a job with the same filter goes on.
type replayJobs struct {
	mu      sync.Mutex
	jobs    []*replayJob
	stopped bool
	running sync.WaitGroup
}

// start runs a job in the background.
func (js *replayJobs) start(a *API, b bulk) (*replayJob, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if js.stopped {
		return nil, newProblem(http.StatusServiceUnavailable, "stopping", "The process is stopping", "No job is started any more. Send the request to another instance, or again in a moment.")
	}
	running := 0
	for _, j := range js.jobs {
		if !j.ended() {
			running++
		}
	}
	if running >= maxJobs {
		return nil, tooManyJobs()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	j := &replayJob{
		api: a, bulk: b, id: "rpl_" + strings.ToLower(rand.Text()), cancel: cancel, done: make(chan struct{}),
		startedAt: time.Now().UTC(), state: jobRunning, because: map[string]int{},
	}
	js.jobs = slices.Insert(js.jobs, 0, j)
	for i, ended := len(js.jobs)-1, len(js.jobs)-running-1-keptJobs; i >= 0 && ended > 0; i-- {
		if js.jobs[i].ended() {
			js.jobs = slices.Delete(js.jobs, i, i+1)
			ended--
		}
	}
	js.running.Go(func() { j.run(ctx) })
	return j, nil
}

func (js *replayJobs) get(id string) (*replayJob, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range js.jobs {
		if j.id == id {
			return j, nil
		}
	}
	return nil, noReplayJob
}

func (js *replayJobs) list() []replayJobView {
	js.mu.Lock()
	defer js.mu.Unlock()
	views := make([]replayJobView, len(js.jobs))
	for i, j := range js.jobs {
		views[i] = j.view()
	}
	return views
}

// stop ends all jobs, lets no new one begin, and waits for them, though not longer
// than stopWait.
func (js *replayJobs) stop() {
	js.mu.Lock()
	js.stopped = true
	for _, j := range js.jobs {
		j.cancel(errStopping)
	}
	js.mu.Unlock()
	ended := make(chan struct{})
	go func() { js.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(stopWait):
	}
}
