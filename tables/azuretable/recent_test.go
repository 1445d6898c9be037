package azuretable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable/internal/commit"
)

// index is a recentIndex over a service that notes what it is asked.
type index struct {
	*recentIndex
	names

	mu      sync.Mutex
	written map[string]time.Time // by partition and row key
	sizes   []int
	dropped int
	// answer decides about a transaction; nil accepts all.
	answer func(ctx context.Context) error
}

func newIndex() *index {
	x := &index{names: names{prefix: "p"}, written: make(map[string]time.Time)}
	x.recentIndex = newRecentIndex(x.submit, func(rows int) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.dropped += rows
	})
	return x
}

func (x *index) submit(ctx context.Context, _ string, rows []commit.Row) error {
	if x.answer != nil {
		if err := x.answer(ctx); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sizes = append(x.sizes, len(rows))
	for _, r := range rows {
		x.written[r.PK+r.RK] = time.Now()
	}
	return nil
}

// attempt adds the attempt number n of a webhook, as it is now.
func (x *index) attempt(webhook string, n int, action policy.Action) tables.Attempt {
	a := tables.Attempt{
		MessageKey: tables.MessageKey{Queue: "orders", MessageID: fmt.Sprint("m", n)}, WebhookID: webhook, Number: 1,
		StartedAt: time.Now(), Action: action,
	}
	x.add(x.addIndexRows(nil, &a, nil))
	return a
}

// sent tells of the transactions so far: how many rows each has, and how many rows there are in all.
func (x *index) sent() (sizes []int, written int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.sizes), len(x.written)
}

// age is when the rows of an attempt came into the index; ok is false while they are not
// both there.
func (x *index) age(a tables.Attempt) (age time.Duration, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range x.addIndexRows(nil, &a, nil) {
		at, there := x.written[r.row.PK+r.row.RK]
		if hour, all := strings.CutPrefix(r.row.PK, allWebhooks); all {
			for _, shard := range allPrefixes() {
				if in, one := x.written[shard+hour+r.row.RK]; one {
					at, there = in, true
				}
			}
		}
		if !there {
			return 0, false
		}
		age = max(age, at.Sub(a.StartedAt))
	}
	return age, true
}

func TestListsTakeFewTransactionsAtATrickle(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newIndex()
		var all []tables.Attempt
		for i := range 300 { // for ten minutes of one hour: bubbles begin at midnight
			all = append(all, x.attempt("wh", i, policy.Complete))
			time.Sleep(2 * time.Second)
		}
		time.Sleep(completedWait)
		synctest.Wait()
		for i, a := range all {
			if age, ok := x.age(a); !ok || age > completedWait {
				t.Fatalf("attempt %d is in the index: %t, after %v", i, ok, age)
			}
		}
		if sizes, _ := x.sent(); len(sizes) > 30 {
			t.Errorf("300 attempts took %d transactions, want at most 30", len(sizes))
		}
	})
}

func TestAFailedAttemptIsInListsWithinSeconds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newIndex()
		done := x.attempt("wh", 1, policy.Complete)
		time.Sleep(time.Second)
		failed := x.attempt("wh", 2, policy.Abandon)
		other := x.attempt("other", 3, policy.Complete)
		time.Sleep(failedWait)
		synctest.Wait()
		if age, ok := x.age(failed); !ok || age > failedWait {
			t.Errorf("the failed attempt is in the index: %t, after %v", ok, age)
		}
		if _, ok := x.age(done); !ok {
			t.Error("the attempt before it did not go along")
		}
		if _, ok := x.age(other); ok {
			t.Error("another webhook's attempt took a transaction of its own already")
		}
		time.Sleep(completedWait)
		synctest.Wait()
		if _, ok := x.age(other); !ok {
			t.Error("the other webhook's attempt is not in the index")
		}
	})
}

func TestAWholeTransactionIsWrittenAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newIndex()
		for i := range 250 {
			x.attempt("wh", i, policy.Complete)
		}
		synctest.Wait()
		if sizes, written := x.sent(); len(sizes) != 4 || written != 400 {
			t.Errorf("%d rows in transactions of %v, want 400 in four of 100", written, sizes)
		}
		time.Sleep(completedWait)
		synctest.Wait()
		if sizes, written := x.sent(); len(sizes) != 6 || written != 500 {
			t.Errorf("%d rows in transactions of %v, want all 500 in six", written, sizes)
		}
		if len(x.gathered) != 0 || x.rows != 0 || x.running {
			t.Errorf("%d partitions and %d rows are left behind, running: %t", len(x.gathered), x.rows, x.running)
		}
	})
}

func TestFlushWritesWhatWaitsAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newIndex()
		x.answer = func(context.Context) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		}
		for range 3 { // again, since what was asked for before must not count as done
			a := x.attempt("wh", 1, policy.Complete)
			b := x.attempt("wh", 2, policy.Complete)
			if err := x.flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, a := range []tables.Attempt{a, b} {
				if age, ok := x.age(a); !ok || age > 10*time.Millisecond {
					t.Fatalf("after flush, an attempt is in the index: %t, after %v", ok, age)
				}
			}
			time.Sleep(time.Second)
		}
		if err := x.close(t.Context()); err != nil {
			t.Fatal(err)
		}
		x.attempt("wh", 3, policy.Complete)
		if x.dropped != rowsPerAttempt {
			t.Errorf("%d rows were dropped after close, want %d", x.dropped, rowsPerAttempt)
		}
	})
}

func TestAnAttemptThatWasRecordedTwiceIsOnceInATransaction(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newIndex()
		x.attempt("wh", 1, policy.Complete)
		x.attempt("wh", 1, policy.Complete)
		if err := x.close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if sizes, _ := x.sent(); len(sizes) != 2 || sizes[0] != 1 || sizes[1] != 1 {
			t.Errorf("transactions of %v rows, want two of one", sizes)
		}
	})
}

func TestWhatTheIndexCannotTakeIsCounted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newIndex()
		stuck := make(chan struct{})
		x.answer = func(context.Context) error {
			<-stuck
			return errors.New("away")
		}
		for i := range maxIndexRows {
			x.attempt("wh", i, policy.Complete)
		}
		synctest.Wait()
		if want := maxIndexRows; x.dropped != want {
			t.Errorf("%d of %d rows were dropped, want %d: memory is bounded", x.dropped, 2*maxIndexRows, want)
		}
		close(stuck)
		if err := x.close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := 2 * maxIndexRows; x.dropped != want {
			t.Errorf("%d rows were dropped, want all %d", x.dropped, want)
		}
	})
}

func TestCloseGivesUpOnAServiceThatDoesNotAnswer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newIndex()
		x.answer = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		x.attempt("wh", 1, policy.Complete)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := x.close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("close = %v after %v, want the deadline after 1s", err, time.Since(start))
		}
		if x.dropped != rowsPerAttempt {
			t.Errorf("%d rows were dropped, want %d", x.dropped, rowsPerAttempt)
		}
	})
}
