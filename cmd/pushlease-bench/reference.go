package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// job is what a reference is told to do.
type job struct {
	url, queue           string
	count, workers, size int
}

// jobDone is what it prints at the end.
type jobDone struct {
	// Posts were answered, whatever the answer.
	Posts int `json:"posts"`
	// RoundTrip are the quantiles of the POSTs alone.
	RoundTrip quantiles `json:"round_trip"`
}

func parseJob(role string, args []string) (job, error) {
	var j job
	set := flag.NewFlagSet(role, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&j.url, "url", "", "")
	set.StringVar(&j.queue, "queue", "", "")
	set.IntVar(&j.count, "count", 1, "")
	set.IntVar(&j.workers, "workers", 1, "")
	set.IntVar(&j.size, "size", minBody, "")
	if err := set.Parse(args); err != nil {
		return job{}, usagef("%s: %v", role, err)
	}
	return j, nil
}

func (j job) args(role string) []string {
	return []string{
		role, "-url", j.url, "-queue", j.queue, "-count", fmt.Sprint(j.count),
		"-workers", fmt.Sprint(j.workers), "-size", fmt.Sprint(j.size),
	}
}

// poster makes bare POSTs with the connections of the server's sender: HTTP/1.1 kept
// alive, as many idle ones as there are workers, no proxy, no compression.
type poster struct {
	client *http.Client
	url    string
	wait   time.Duration // before a POST is repeated that was answered with 503; 0: it is not
	mu     sync.Mutex
	took   []int64
}

func newPoster(j job) *poster {
	t := &http.Transport{MaxIdleConns: 2048, MaxIdleConnsPerHost: max(256, j.workers), DisableCompression: true, Proxy: nil}
	return &poster{client: &http.Client{Transport: t, Timeout: time.Minute}, url: j.url}
}

func (p *poster) post(ctx context.Context, body []byte) error {
	for {
		status, err := p.once(ctx, body)
		if err != nil || p.wait == 0 || status != http.StatusServiceUnavailable {
			return err
		}
		select {
		case <-time.After(p.wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *poster) once(ctx context.Context, body []byte) (status int, err error) {
	start := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("make a POST: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := p.client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("bare POST: %w", err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return 0, fmt.Errorf("bare POST: %w", err)
	}
	p.mu.Lock()
	p.took = append(p.took, int64(time.Since(start)))
	p.mu.Unlock()
	return res.StatusCode, nil
}

func (p *poster) done() jobDone {
	p.mu.Lock()
	defer p.mu.Unlock()
	return jobDone{Posts: len(p.took), RoundTrip: quantilesOf(p.took)}
}

// postRole is the reference "raw": count POSTs and nothing else.
func postRole(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	j, err := parseJob("post", args)
	if err != nil {
		return err
	}
	p := newPoster(j)
	err = inParallel(ctx, j.count, j.workers, func(ctx context.Context, _ int) error {
		return p.post(ctx, newBody(j.size, time.Now()))
	})
	return tell(ctx, p, err, stdin, stdout)
}

// tell prints what was done and stays, so that the parent can read what it cost.
func tell(ctx context.Context, p *poster, err error, stdin io.Reader, stdout io.Writer) error {
	if err != nil {
		return err
	}
	if err := json.NewEncoder(stdout).Encode(p.done()); err != nil {
		return fmt.Errorf("tell the result: %w", err)
	}
	untilClosed(ctx, stdin)
	return nil
}

// receivers is how many receives of the ideal consumer run at once: enough that storage
// of 10 ms keeps more messages coming than anybody can POST.
const receivers = 4

// idealLease is longer than any run.
const idealLease = 10 * time.Minute

// consumeRole is the reference "ideal": receive a batch, POST, delete, with the same
// adapter on the same kind of store. It keeps no records, renews nothing and decides
// nothing, so nobody who needs those can be faster.
func consumeRole(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	j, err := parseJob("consume", args)
	if err != nil {
		return err
	}
	s := storage{setting: os.Getenv(storageEnv), prefix: os.Getenv(prefixEnv)}
	p := newPoster(j)
	err = s.with(ctx, func(st store) error { return j.consume(ctx, st, p) })
	return tell(ctx, p, err, stdin, stdout)
}

func (j job) consume(ctx context.Context, st store, p *poster) error {
	q, err := st.queues.Queue(j.queue)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan *queue.Message, j.workers)
	var left atomic.Int64
	left.Store(int64(j.count))
	var receiving, working sync.WaitGroup
	for range receivers {
		receiving.Go(func() {
			if err := receiveAll(ctx, q, work); err != nil {
				cancel(err)
			}
		})
	}
	for range j.workers {
		working.Go(func() {
			for m := range work {
				err := errors.Join(p.post(ctx, m.Text), patiently(ctx, func() error { return q.Complete(ctx, m) }))
				if err != nil && ctx.Err() == nil {
					cancel(err)
				}
				if left.Add(-1) == 0 {
					cancel(errAllDone)
				}
			}
		})
	}
	receiving.Wait()
	close(work)
	working.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, errAllDone) {
		return cause
	}
	return nil
}

var errAllDone = errors.New("all done")

// busyPause is how long a consumer waits that storage has refused for its limits, as any has to.
const busyPause = 100 * time.Millisecond

// patiently repeats what storage is too busy for.
func patiently(ctx context.Context, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, queue.ErrBusy) || sleep(ctx, busyPause) != nil {
			return err
		}
	}
}

// receiveAll receives until ctx ends.
func receiveAll(ctx context.Context, q queue.Queue, work chan<- *queue.Message) error {
	for ctx.Err() == nil {
		var messages []*queue.Message
		err := patiently(ctx, func() (err error) {
			messages, err = q.Receive(ctx, queue.MaxReceive, idealLease)
			return err
		})
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err != nil:
			continue // cut short: all is done
		}
		for _, m := range messages {
			select {
			case work <- m:
			case <-ctx.Done():
				return nil
			}
		}
		if len(messages) == 0 {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	return nil
}
