package commit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

// service is a stand-in for the table service that notes each transaction.
type service struct {
	mu      sync.Mutex
	batches [][]Row
	rows    map[string]string // by row key
	// about are the messages of the transactions under way, most how many of these there were.
	about        map[string]bool
	active, most int
	// answer decides about a transaction; nil accepts all. takes is how long one takes,
	// counted from 0; nil means 10 ms each.
	answer func(ctx context.Context, rows []Row) error
	takes  func(n int) time.Duration
}

func (s *service) submit(ctx context.Context, _ string, rows []Row) error {
	s.mu.Lock()
	n := len(s.batches)
	s.batches = append(s.batches, rows)
	s.active++
	s.most = max(s.most, s.active)
	about := map[string]bool{}
	for _, r := range rows {
		about[messageOf(r.RK)] = true
	}
	for m := range about {
		if s.about[m] {
			panic("two transactions about one message at once")
		}
		s.about[m] = true
	}
	s.mu.Unlock()
	takes := 10 * time.Millisecond // in a bubble
	if s.takes != nil {
		takes = s.takes(n)
	}
	time.Sleep(takes)
	var err error
	if s.answer != nil {
		err = s.answer(ctx, rows)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	for m := range about {
		delete(s.about, m)
	}
	if err == nil {
		for _, r := range rows {
			s.rows[r.RK] = string(r.Columns)
		}
	}
	return err
}

func newCommitter(answer func(context.Context, []Row) error) (*Committer, *service) {
	s := &service{rows: make(map[string]string), about: make(map[string]bool), answer: answer}
	return &Committer{Submit: s.submit, Message: messageOf}, s
}

func messageOf(rk string) string {
	message, _, _ := strings.Cut(rk, "~")
	return message
}

var somePartition = Partition{Table: "t", Key: "s0"}

func oneRow(key, value string) []Row { return []Row{{PK: "s0", RK: key, Columns: []byte(value)}} }

// refusedRow is the service's answer to a transaction whose row with this number is bad.
type refusedRow int

func (r refusedRow) Error() string        { return fmt.Sprintf("row %d is refused", int(r)) }
func (r refusedRow) Refusal() (int, bool) { return int(r), true }

func TestWhatWaitsIsWrittenTogetherAndTheLastOfAKeyWins(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCommitter(nil)
		var wg sync.WaitGroup
		for i := range 250 {
			key := fmt.Sprint("m", i)
			if i == 200 {
				key = "m199"
			}
			wg.Go(func() {
				if err := c.Commit(t.Context(), somePartition, oneRow(key, fmt.Sprint(i)), nil); err != nil {
					t.Errorf("commit: %v", err)
				}
			})
			synctest.Wait() // so that they wait in this order
		}
		wg.Wait()
		synctest.Wait()
		if len(s.rows) != 249 || s.rows["m199"] != "200" {
			t.Errorf("%d rows, m199 = %s; want 249 and the last one, 200", len(s.rows), s.rows["m199"])
		}
		// The first alone, since nothing else waited, then 100 and 100 and the rest.
		if len(s.batches) != 4 {
			t.Errorf("%d transactions, want 4", len(s.batches))
		}
		for _, b := range s.batches {
			if len(b) > MaxRows {
				t.Errorf("a transaction has %d rows", len(b))
			}
		}
		if len(c.busy) != 0 {
			t.Errorf("%d partitions are left behind", len(c.busy))
		}
	})
}

func TestAnIdlePartitionWritesAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, _ := newCommitter(nil)
		start := time.Now()
		if err := c.Commit(t.Context(), somePartition, oneRow("m", "1"), nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("took %v, want only the 10ms of the service", took)
		}
	})
}

// commitAll commits callers' rows while a first commit keeps the partition busy, so
// that they travel together, and returns their errors.
func commitAll(t *testing.T, c *Committer, rows ...[]Row) []error {
	t.Helper()
	errs := make([]error, len(rows))
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Commit(t.Context(), somePartition, oneRow("first", ""), nil) })
	synctest.Wait()
	for i, r := range rows {
		wg.Go(func() { errs[i] = c.Commit(t.Context(), somePartition, r, nil) })
		synctest.Wait()
	}
	wg.Wait()
	return errs
}

func TestARefusedRowFailsItsOwnerOnly(t *testing.T) {
	for _, named := range []bool{true, false} {
		t.Run(fmt.Sprintf("service names the row: %t", named), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				c, s := newCommitter(func(_ context.Context, rows []Row) error {
					for i, r := range rows {
						if string(r.Columns) == "bad" && named {
							return refusedRow(i)
						} else if string(r.Columns) == "bad" {
							return refusedRow(-1)
						}
					}
					return nil
				})
				owner := append(oneRow("b1", "good half"), oneRow("b2", "bad")...)
				errs := commitAll(t, c, oneRow("a", "1"), owner, oneRow("b1", "2"), oneRow("c", "bad"), oneRow("d", "3"))
				for i, wantErr := range []bool{false, true, false, true, false} {
					if (errs[i] != nil) != wantErr {
						t.Errorf("caller %d got %v, want an error: %t", i, errs[i], wantErr)
					}
				}
				if s.rows["a"] != "1" || s.rows["b1"] != "2" || s.rows["d"] != "3" || len(s.rows) != 4 {
					t.Errorf("stored %v; want a, b1 of its second writer, d and first", s.rows)
				}
			})
		})
	}
}

func TestARefusedRowUncoversTheRowThatItReplaced(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCommitter(func(_ context.Context, rows []Row) error {
			for i, r := range rows {
				if string(r.Columns) == "bad" {
					return refusedRow(i)
				}
			}
			return nil
		})
		errs := commitAll(t, c, oneRow("m", "1"), oneRow("m", "bad"))
		if errs[0] != nil || errs[1] == nil || s.rows["m"] != "1" {
			t.Errorf("errors %v, row %q; want the first caller's row stored", errs, s.rows["m"])
		}
	})
}

func TestEveryCallerLearnsThatTheServiceIsAway(t *testing.T) {
	away := errors.New("the server is busy")
	bubble.Test(t, func(t *testing.T) {
		c, s := newCommitter(func(context.Context, []Row) error { return away })
		for i, err := range commitAll(t, c, oneRow("a", "1"), oneRow("b", "2")) {
			if !errors.Is(err, away) {
				t.Errorf("caller %d got %v", i, err)
			}
		}
		if len(s.batches) != 2 {
			t.Errorf("%d transactions, want 2: one that is away is not asked for each caller", len(s.batches))
		}
	})
}

func TestLargeRowsAreSpreadOverTransactionsButAMessageIsNot(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCommitter(nil)
		big := strings.Repeat("x", 900<<10)
		message := append(oneRow("m~1", big), oneRow("m~2", big)...)
		errs := commitAll(t, c, oneRow("a", big), oneRow("b", big), oneRow("c", big), message)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for _, b := range s.batches {
			size, ofMessage := 0, 0
			for _, r := range b {
				size += r.Size()
				if strings.HasPrefix(r.RK, "m~") {
					ofMessage++
				}
			}
			if size > MaxBytes || ofMessage == 1 {
				t.Errorf("a transaction has %d bytes and %d of 2 rows of the message", size, ofMessage)
			}
		}
	})
}

func TestACallerThatHangsUpNeitherWaitsNorFailsOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCommitter(func(ctx context.Context, _ []Row) error { return ctx.Err() })
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { _ = c.Commit(t.Context(), somePartition, oneRow("first", ""), nil) })
		synctest.Wait()
		wg.Go(func() {
			if err := c.Commit(ctx, somePartition, oneRow("a", "1"), nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the caller that hung up got %v", err)
			}
		})
		wg.Go(func() {
			if err := c.Commit(t.Context(), somePartition, oneRow("b", "2"), nil); err != nil {
				t.Errorf("the other caller got %v", err)
			}
		})
		wg.Wait()
		if s.rows["b"] != "2" {
			t.Error("the other caller's row is not stored")
		}
	})
}

func TestATransactionThatNobodyWaitsForIsCutShort(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var ended error
		c, _ := newCommitter(func(ctx context.Context, _ []Row) error {
			<-ctx.Done()
			ended = ctx.Err()
			return ended
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.Commit(ctx, somePartition, oneRow("a", "1"), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("commit = %v, want the caller's deadline", err)
		}
		synctest.Wait()
		if ended == nil {
			t.Error("the transaction still runs")
		}
	})
}

// One of many transactions is late. What is in it waits, and what is about the same messages;
// nothing else does.
func TestALateTransactionHoldsUpItselfOnly(t *testing.T) { // C68
	bubble.Test(t, func(t *testing.T) {
		const late = 2500 * time.Millisecond
		c, s := newCommitter(nil)
		s.takes = func(n int) time.Duration {
			if n == 3 {
				return late
			}
			return 10 * time.Millisecond
		}
		var mu sync.Mutex
		took := map[int]time.Duration{}
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				start := time.Now()
				if err := c.Commit(t.Context(), somePartition, oneRow(fmt.Sprintf("m%d~q~d~wh~0000~1", i), "1"), nil); err != nil {
					t.Errorf("commit: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				took[i] = time.Since(start)
			})
			time.Sleep(7 * time.Millisecond)
		}
		wg.Wait()
		held := 0
		for i, d := range took {
			if d >= late {
				held++
			} else if d > lateAfter+20*time.Millisecond {
				t.Errorf("commit %d took %s", i, d)
			}
		}
		if held == 0 || held > 5 {
			t.Errorf("%d commits were in the late transaction", held)
		}
		synctest.Wait()
		if len(c.busy) != 0 {
			t.Errorf("%d partitions are left behind", len(c.busy))
		}
		if underWay, stalls := c.Lanes(); underWay != 0 || stalls != 1 {
			t.Errorf("%d transactions under way and %d beside a late one, want 0 and 1", underWay, stalls)
		}
	})
}

// Where each transaction takes long, many are under way at a time, each about other messages,
// whose rows are written in order.
func TestSlowStorageIsAskedSideBySideAndEachMessageInOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := newCommitter(nil)
		s.takes = func(int) time.Duration { return 100 * time.Millisecond }
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 1000 {
			wg.Go(func() {
				key := fmt.Sprintf("m%d~q~d~wh~0000~1", i%50)
				if err := c.Commit(t.Context(), somePartition, oneRow(key, fmt.Sprint(i)), nil); err != nil {
					t.Errorf("commit: %v", err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		t.Logf("%d transactions, %d at once at most, %s", len(s.batches), s.most, time.Since(start))
		if s.most < 2 || s.most > maxLanes {
			t.Errorf("%d transactions were under way at once, want some and at most %d", s.most, maxLanes)
		}
		for m := range 50 {
			if got, want := s.rows[fmt.Sprintf("m%d~q~d~wh~0000~1", m)], fmt.Sprint(950+m); got != want {
				t.Errorf("message %d ends with %s, want the last row, %s", m, got, want)
			}
		}
	})
}
