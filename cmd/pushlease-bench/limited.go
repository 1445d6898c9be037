package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"time"
)

// limitPath takes as many POSTs a second as its query says, a tenth of a second's of them at
// once, and answers 503 to the others at once, without a word about when to come back.
const limitPath = "/limited"

// limitedRates are the limits that are measured, in POSTs a second.
var limitedRates = []float64{20, 500}

const (
	// limitedLearning is the time after the first refusal that is not judged.
	limitedLearning = 10 * time.Second
	// limitedTime is how long it is measured then.
	limitedTime = 30 * time.Second
	// naiveWait is how long the naive consumer waits after a 503.
	naiveWait = time.Second
)

// limiter is a token bucket that remembers what it answered.
type limiter struct {
	rate    float64
	tokens  float64
	last    time.Time
	refused time.Time // the first one
	answers []limitedAnswer
}

type limitedAnswer struct {
	at    time.Time
	taken bool
}

// take decides on one POST.
func (l *limiter) take(now time.Time) bool {
	burst := max(l.rate/10, 1)
	if l.last.IsZero() {
		l.tokens = burst
	} else {
		l.tokens = min(l.tokens+now.Sub(l.last).Seconds()*l.rate, burst)
	}
	l.last = now
	taken := l.tokens >= 1
	if taken {
		l.tokens--
	} else if l.refused.IsZero() {
		l.refused = now
	}
	l.answers = append(l.answers, limitedAnswer{now, taken})
	return taken
}

// limitedStats is what a receiver with a limit tells of a time after its first refusal.
type limitedStats struct {
	Taken   int `json:"taken"`
	Refused int `json:"refused"`
}

func (l *limiter) stats(after, length time.Duration) (s limitedStats, over bool) {
	from := l.refused.Add(after)
	for _, a := range l.answers {
		switch since := a.at.Sub(from); {
		case since < 0 || since >= length:
		case a.taken:
			s.Taken++
		default:
			s.Refused++
		}
	}
	return s, !l.refused.IsZero() && time.Since(from) >= length
}

// serveLimited answers a POST to limitPath.
func (r *receiver) serveLimited(w http.ResponseWriter, req *http.Request) {
	rate, err := strconv.ParseFloat(req.URL.Query().Get("rate"), 64)
	if err != nil || !(rate > 0) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.limit.rate = rate
	taken := r.limit.take(time.Now())
	r.mu.Unlock()
	if !taken {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// tellLimited answers when the time that is asked about is over.
func (r *receiver) tellLimited(w http.ResponseWriter, req *http.Request) {
	length := func(name string) time.Duration { return delayOf(req.URL.Query().Get(name), 0) }
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r.mu.Lock()
		s, over := r.limit.stats(length("after"), length("length"))
		r.mu.Unlock()
		if over {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(s) // a caller that is gone needs no answer
			return
		}
		select {
		case <-req.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// limited runs the rounds of the scenario limited: what a receiver with a limit is sent, by
// the server and by a naive consumer.
func (b *bench) limited(ctx context.Context) error {
	learning, length := limitedLearning, limitedTime
	if b.quick {
		learning, length = 4*time.Second, b.LoadTime // a server that is refused at first waits for a second or two
	}
	for round := range b.Rounds {
		for _, rate := range limitedRates {
			b.say("limited to %v/s, round %d of %d", rate, round+1, b.Rounds)
			for _, who := range []struct {
				name string
				send func(ctx context.Context, s storage, url string) (stop func() error, err error)
			}{{"server", b.sendByServer}, {"naive", b.sendNaively}} {
				got, err := b.limitedTo(ctx, rate, learning, length, who.send)
				if err != nil {
					return fmt.Errorf("%s at %v/s: %w", who.name, rate, err)
				}
				name := fmt.Sprintf("limited.%v.%s", rate, who.name)
				b.add(name, "messages/s", float64(got.Taken)/length.Seconds())
				b.relate(name, "the limit", float64(got.Taken)/length.Seconds(), rate)
				b.add(name+".refused", "% of POSTs", 100*float64(got.Refused)/math.Max(float64(got.Taken+got.Refused), 1))
			}
		}
	}
	return nil
}

// limitedTo fills a queue with more than the limit lets through, and has it sent.
func (b *bench) limitedTo(ctx context.Context, rate float64, learning, length time.Duration, send func(context.Context, storage, string) (func() error, error)) (got limitedStats, err error) {
	ctx, cancel := context.WithTimeout(ctx, learning+length+time.Minute)
	defer cancel()
	s := b.fresh()
	defer func() { err = errors.Join(err, s.remove()) }()
	url := fmt.Sprintf("%s%s?rate=%v", b.receiver.URL, limitPath, rate)
	messages := int(1.5*rate*(learning+length).Seconds()) + 100
	err = s.with(ctx, func(st store) error {
		return errors.Join(st.register(ctx, s.queue(), url, 1, b.Concurrency), b.fill(ctx, st, s.queue(), messages))
	})
	if err != nil {
		return got, err
	}
	if err := b.resetCounts(ctx); err != nil {
		return got, err
	}
	stop, err := send(ctx, s, url)
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	path := fmt.Sprintf("%s/limited?after=%v&length=%v", b.receiver.Control, learning, length)
	err = askControl(ctx, b.receiver.client, http.MethodGet, path, &got)
	return got, err
}

func (b *bench) sendByServer(ctx context.Context, s storage, _ string) (stop func() error, err error) {
	v, err := startServer(ctx, b.binary, b.work, s, b.serverSettings())
	if err != nil {
		return nil, err
	}
	return v.kill, nil
}

func (b *bench) sendNaively(ctx context.Context, s storage, url string) (stop func() error, err error) {
	j := job{url: url, queue: s.queue(), count: math.MaxInt32, workers: b.Concurrency, size: b.Size}
	var begun jobDone
	c, err := startRole(ctx, s.env(), &begun, j.args("retry")...)
	if err != nil {
		return nil, err
	}
	return c.close, nil
}

// retryRole is the naive consumer: the ideal one, but it repeats a POST that was answered
// with 503 after naiveWait, until it is told to leave.
func retryRole(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	j, err := parseJob("retry", args)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(stdout).Encode(jobDone{}); err != nil {
		return fmt.Errorf("say that it begins: %w", err)
	}
	ctx, leave := context.WithCancelCause(ctx)
	go func() {
		untilClosed(ctx, stdin)
		leave(errAllDone)
	}()
	s := storage{setting: os.Getenv(storageEnv), prefix: os.Getenv(prefixEnv)}
	p := newPoster(j)
	p.wait = naiveWait
	return s.with(context.WithoutCancel(ctx), func(st store) error { return j.consume(ctx, st, p) })
}
