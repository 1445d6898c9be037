// Package retry says how long to wait before something is tried again, and tries it.
package retry

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// Backoff doubles from first to limit with n = 1, 2, …, and takes a random value
// in the upper half, so that instances do not move in step; never less than first.
func Backoff(n int, first, limit time.Duration) time.Duration {
	d := Doubled(n, first, limit)
	return max(d/2+time.Duration(rand.Int64N(int64(d/2)+1)), min(first, limit))
}

// Doubled is first doubled n-1 times, and limit at most.
func Doubled(n int, first, limit time.Duration) time.Duration {
	if n < 32 {
		if shifted := first << (n - 1); shifted>>(n-1) == first && shifted > 0 {
			return min(limit, shifted)
		}
	}
	return limit
}

// Sleep waits; false when ctx ended first.
func Sleep(ctx context.Context, wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Await waits for done, at most for bound, and reports whether it came.
func Await(done <-chan struct{}, bound time.Duration) bool {
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// Policy says how often something is tried, and when. Between tries it waits by Backoff from
// First to Max, after Quick pauses of First and up to a third more.
type Policy struct {
	// Each bounds one try; zero where a try bounds itself.
	Each time.Duration
	// A try that failed is the last one when Tries were made and For has passed since the
	// first. Endless makes tries until the context ends.
	Tries   int
	For     time.Duration
	Endless bool

	Quick      int
	First, Max time.Duration
	// Final errors do not get better by trying again.
	Final func(error) bool
}

// Timeout bounds one call to storage.
const Timeout = 5 * time.Second

// The policies for calls to storage. All of these calls may be repeated.
var (
	// Call is for what a message waits for: a few quick tries.
	Call = Policy{Each: Timeout, Tries: 3, First: 250 * time.Millisecond, Max: 2 * time.Second, Final: definitive}
	// Once is for what is asked again anyway.
	Once = Policy{Each: Timeout, Tries: 1}
	// Record is for records: what is not written then is kept and written later.
	Record = Policy{Each: Timeout, Tries: 3, First: 250 * time.Millisecond, Max: 4 * time.Second}
	// Ended is Record for what was delivered or dead-lettered, and whose message is not deleted before: it takes longer to give
	// up. A crash would make a second POST of the one; of the other it would be on record for ever that it is not over.
	Ended = Policy{Each: Timeout, Tries: 3, For: 20 * time.Second, First: 250 * time.Millisecond, Max: 4 * time.Second}
	// GiveBack is for giving a message back. Where that fails, the end of its lease does it.
	GiveBack = Policy{Each: Timeout, Tries: 3, Quick: 2, First: 500 * time.Millisecond, Max: time.Second, Final: definitive}
	// Delete is for deleting a message, as long as its lease can be kept; tries bound themselves.
	Delete = Policy{Endless: true, Quick: 2, First: 500 * time.Millisecond, Max: 30 * time.Second, Final: gone}
)

// Longest is how long Do takes at most by a policy of bounded tries without quick pauses.
func (p Policy) Longest() time.Duration {
	all := time.Duration(p.Tries) * p.Each
	for n := 1; n < p.Tries; n++ {
		all += Doubled(n, p.First, p.Max)
	}
	return all
}

// Do makes tries by the policy until one succeeds, and returns the error of the last one. No
// try begins after ctx has ended, but for the first.
func Do(ctx context.Context, p Policy, f func(ctx context.Context, try int) error) error {
	start := time.Now()
	for try := 1; ; try++ {
		err := p.try(ctx, try, f)
		switch {
		case err == nil, p.Final != nil && p.Final(err):
			return err
		case !p.Endless && try >= p.Tries && time.Since(start) >= p.For:
			return err
		case !Sleep(ctx, p.pause(try)):
			return err
		}
	}
}

// try makes one try, within its bound.
func (p Policy) try(ctx context.Context, try int, f func(ctx context.Context, try int) error) error {
	if p.Each == 0 {
		return f(ctx, try)
	}
	ctx, cancel := context.WithTimeout(ctx, p.Each)
	defer cancel()
	return f(ctx, try)
}

// pause is the wait after a try that failed.
func (p Policy) pause(try int) time.Duration {
	switch {
	case try <= p.Quick: // what failed together does not come back together
		return p.First + rand.N(p.First/3)
	case p.Quick > 0:
		return Backoff(try-p.Quick, 2*p.First, p.Max)
	}
	return Backoff(try, p.First, p.Max)
}

// Get is Do for what returns a value.
func Get[T any](ctx context.Context, p Policy, f func(ctx context.Context) (T, error)) (v T, err error) {
	err = Do(ctx, p, func(ctx context.Context, _ int) (err error) {
		v, err = f(ctx)
		return err
	})
	return v, err
}

func definitive(err error) bool {
	for _, e := range []error{queue.ErrDenied, queue.ErrTooLarge, queue.ErrUnsendable, queue.ErrLeaseLost, tables.ErrNotFound, tables.ErrExists} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// gone: there is nothing left to delete, or somebody else has it.
func gone(err error) bool {
	return errors.Is(err, queue.ErrLeaseLost) || errors.Is(err, queue.ErrQueueNotFound)
}

const (
	drainTogether = 64 // calls under way at most: the rows of several go into one transaction of a table
	drainFaults   = 3  // in a row, after which a round ends
)

// Drain makes call for each of what has waited for the store, and tells of its end by ended, one after the other. While the store
// takes what it is given, more and more calls are made at a time, so that what waited for hours is durable within seconds, and
// before a stop ends; a store that is away is asked drainFaults times.
func Drain[T any](ctx context.Context, waiting []T, call func(context.Context, T) error, ended func(T, error)) {
	faults := 0
	for n := 1; len(waiting) > 0 && faults < drainFaults && ctx.Err() == nil; n = min(2*n, drainTogether) {
		some := waiting[:min(n, len(waiting))]
		errs, failed := make([]error, len(some)), 0
		var calls sync.WaitGroup
		for i, of := range some {
			calls.Go(func() { errs[i] = Once.try(ctx, 1, func(ctx context.Context, _ int) error { return call(ctx, of) }) })
		}
		calls.Wait()
		for i, of := range some {
			if ended(of, errs[i]); errs[i] != nil {
				failed++
			}
		}
		if faults += failed; failed < len(some) {
			faults = 0
		}
		waiting = waiting[len(some):]
	}
}
