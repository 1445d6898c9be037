package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// receiver answers POSTs and notes when they came.
type receiver struct {
	delay time.Duration
	// answers are the statuses to give, in turn; none means 200.
	answers []int

	mu sync.Mutex
	// arrivals are when POSTs came, and latencies how long after their body was made;
	// both in nanoseconds.
	arrivals    []int64
	latencies   []int64
	inFlight    int
	maxInFlight int
	limit       limiter // at limitPath
}

// arrivalStats is what the receiver tells about the POSTs since the last reset.
type arrivalStats struct {
	// Count is how many came, First and Last when; At is when the one that was asked
	// for came. Unix nanoseconds, 0 for none.
	Count       int   `json:"count"`
	First       int64 `json:"first"`
	Last        int64 `json:"last"`
	At          int64 `json:"at"`
	InFlight    int   `json:"in_flight"`
	MaxInFlight int   `json:"max_in_flight"`
	// Latency holds the quantiles of the time since the body was made.
	Latency quantiles `json:"latency"`
}

// quantiles of a set of durations, in milliseconds.
type quantiles struct {
	N    int     `json:"n"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func quantilesOf(nanos []int64) quantiles {
	if len(nanos) == 0 {
		return quantiles{}
	}
	sorted := slices.Clone(nanos)
	slices.Sort(sorted)
	at := func(q float64) float64 {
		return float64(sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]) / 1e6
	}
	return quantiles{N: len(sorted), P50: at(.5), P99: at(.99), P999: at(.999), Max: at(1)}
}

// stampPrefix begins every body, and stampDigits of Unix nanoseconds follow.
const (
	stampPrefix = `{"made_at":`
	stampDigits = 19
	padPrefix   = `,"pad":"`
	// minBody leaves room for the stamp.
	minBody = len(stampPrefix) + stampDigits + len(padPrefix) + len(`"}`)
)

// newBody is JSON of size bytes that says when it was made.
func newBody(size int, made time.Time) []byte {
	b := make([]byte, 0, size)
	b = append(b, stampPrefix...)
	b = strconv.AppendInt(b, made.UnixNano(), 10)
	b = append(b, padPrefix...)
	for len(b) < size-len(`"}`) {
		b = append(b, 'x')
	}
	return append(b, `"}`...)
}

// stamp reads when a body was made; false for a body of somebody else.
func stamp(body []byte) (int64, bool) {
	rest, ok := strings.CutPrefix(string(body[:min(len(body), len(stampPrefix)+stampDigits)]), stampPrefix)
	if !ok {
		return 0, false
	}
	made, err := strconv.ParseInt(rest, 10, 64)
	return made, err == nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	now := time.Now().UnixNano()
	body, err := io.ReadAll(req.Body)
	if err != nil || serveBad(w, req) {
		return
	}
	if req.URL.Path == limitPath {
		r.serveLimited(w, req)
		return
	}
	status := r.arrived(now, body)
	if delay := delayOf(req.URL.Query().Get("delay"), r.delay); delay > 0 {
		select {
		case <-time.After(delay):
		case <-req.Context().Done():
		}
	}
	r.mu.Lock()
	r.inFlight--
	r.mu.Unlock()
	w.WriteHeader(status)
}

func (r *receiver) arrived(now int64, body []byte) (status int) {
	made, stamped := stamp(body)
	r.mu.Lock()
	defer r.mu.Unlock()
	status = http.StatusOK
	if len(r.answers) > 0 {
		status = r.answers[len(r.arrivals)%len(r.answers)]
	}
	r.arrivals = append(r.arrivals, now)
	if stamped {
		r.latencies = append(r.latencies, now-made)
	}
	r.inFlight++
	r.maxInFlight = max(r.maxInFlight, r.inFlight)
	return status
}

func (r *receiver) stats(at int) arrivalStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := arrivalStats{Count: len(r.arrivals), InFlight: r.inFlight, MaxInFlight: r.maxInFlight, Latency: quantilesOf(r.latencies)}
	if s.Count > 0 {
		s.First, s.Last = r.arrivals[0], r.arrivals[s.Count-1]
	}
	if at > 0 && at <= s.Count {
		s.At = r.arrivals[at-1]
	}
	return s
}

// waitPause is how often wait looks. It costs no precision: arrivals carry their time.
const waitPause = 2 * time.Millisecond

// wait returns when count POSTs have come, or ctx ends.
func (r *receiver) wait(ctx context.Context, count int) {
	tick := time.NewTicker(waitPause)
	defer tick.Stop()
	for {
		r.mu.Lock()
		have := len(r.arrivals)
		r.mu.Unlock()
		if have >= count {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// control is what the measuring process asks the receiver.
func (r *receiver) control() http.Handler {
	mux := http.NewServeMux()
	number := func(req *http.Request, name string) int {
		n, err := strconv.Atoi(req.URL.Query().Get(name))
		if err != nil {
			return 0
		}
		return n
	}
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, req *http.Request) {
		at := number(req, "at")
		r.wait(req.Context(), at)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.stats(at)) // a caller that is gone needs no answer
	})
	mux.HandleFunc("GET /limited", r.tellLimited)
	mux.HandleFunc("POST /reset", func(_ http.ResponseWriter, _ *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.arrivals, r.latencies, r.maxInFlight, r.limit = r.arrivals[:0], r.latencies[:0], r.inFlight, limiter{}
	})
	return mux
}

// addresses is what a role prints when it is ready.
type addresses struct {
	URL     string `json:"url"`
	Control string `json:"control"`
}

func receiveRole(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	set := flag.NewFlagSet("receive", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	delay := set.Duration("delay", 0, "")
	answers := set.String("answers", "", "")
	if err := set.Parse(args); err != nil {
		return usagef("receive: %v", err)
	}
	statuses, err := parseAnswers(*answers)
	if err != nil {
		return err
	}
	r := &receiver{delay: *delay, answers: statuses}
	posts, stopPosts, err := serveLocal(ctx, r)
	if err != nil {
		return err
	}
	defer stopPosts()
	control, stopControl, err := serveLocal(ctx, r.control())
	if err != nil {
		return err
	}
	defer stopControl()
	if err := json.NewEncoder(stdout).Encode(addresses{URL: posts, Control: control}); err != nil {
		return fmt.Errorf("say where the receiver is: %w", err)
	}
	untilClosed(ctx, stdin)
	return nil
}

// parseAnswers reads statuses such as "200,503,200".
func parseAnswers(list string) ([]int, error) {
	var statuses []int
	for s := range strings.SplitSeq(list, ",") {
		if s == "" {
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 200 || n > 599 {
			return nil, usagef("answers: %q is not a status from 200 to 599", s)
		}
		statuses = append(statuses, n)
	}
	return statuses, nil
}

// serveLocal serves on a free loopback port.
func serveLocal(ctx context.Context, h http.Handler) (url string, stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // the process is of no use any more, and its parent sees it end
		}
	}()
	return "http://" + l.Addr().String(), func() { _ = server.Close() }, nil
}

// untilClosed returns when the parent is gone, which closes stdin, or ctx ends.
func untilClosed(ctx context.Context, stdin io.Reader) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, stdin) // its end is all that matters
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
}
