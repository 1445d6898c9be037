package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
)

// block keeps the writer busy inside a transaction until the returned function is
// called. In a bubble only.
func block(db *DB) (release func()) {
	gate, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- db.writer.do(context.Background(), "", false, func(*tx) error { <-gate; return nil })
	}()
	synctest.Wait()
	return func() {
		close(gate)
		<-done
	}
}

func addQueue(name string) func(tx *tx) error {
	return func(tx *tx) error {
		_, err := tx.exec("INSERT INTO queues (name) VALUES (?)", name)
		return err
	}
}

func mustList(t *testing.T, db *DB) []string {
	t.Helper()
	names, err := db.Queues().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestCommitTakesWhateverWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		release := block(db)
		const writers = 40
		var ran atomic.Int32
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				err := db.writer.do(t.Context(), "", false, func(tx *tx) error {
					ran.Add(1)
					tx.afterCommit(func() {
						if n := ran.Load(); n != writers {
							t.Errorf("a commit ended after %d operations, want all %d that waited", n, writers)
						}
					})
					return addQueue(fmt.Sprint("queue-", i))(tx)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		release()
		wg.Wait()
		if n := len(mustList(t, db)); n != writers {
			t.Errorf("%d rows were written, want %d", n, writers)
		}
	})
}

func TestBadOperationLeavesItsNeighboursAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		release := block(db)
		errBad := errors.New("bad")
		var wg sync.WaitGroup
		write := func(want error, run func(tx *tx) error) {
			wg.Go(func() {
				if err := db.writer.do(t.Context(), "", false, run); !errors.Is(err, want) {
					t.Errorf("write = %v, want %v", err, want)
				}
			})
			synctest.Wait() // one after the other
		}
		write(nil, addQueue("before"))
		write(errBad, func(tx *tx) error { return errors.Join(addQueue("bad-1")(tx), errBad) })
		write(nil, addQueue("between"))
		write(errBad, func(tx *tx) error {
			tx.afterCommit(func() { t.Error("afterCommit was called for an operation that failed") })
			// A statement that SQLite refuses takes only itself back.
			if err := errors.Join(addQueue("bad-2")(tx), addQueue("bad-2")(tx)); err == nil {
				t.Error("the second insert of one name succeeded")
			}
			return errBad
		})
		write(nil, addQueue("after-it"))
		release()
		wg.Wait()
		if names := mustList(t, db); !slices.Equal(names, []string{"after-it", "before", "between"}) {
			t.Errorf("rows are %v, want those of the good operations", names)
		}
	})
}

// A batch is run again when one of its operations fails half-way: what the others answer
// is that of the second run alone.
func TestNeighboursOfABadOperationAnswerOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		q := mustQueue(t, db)
		mustSend(t, q, "first", queue.SendOptions{})
		release := block(db)
		var wg sync.WaitGroup
		var told atomic.Int32
		wg.Go(func() {
			ms := wantVisible(t, q, "beside a bad operation", 1)
			if err := q.Complete(t.Context(), ms[0]); err != nil {
				t.Errorf("Complete: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			err := db.writer.do(t.Context(), "", false, func(tx *tx) error {
				tx.afterCommit(func() { told.Add(1) })
				return addQueue("neighbour")(tx)
			})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			errBad := errors.New("bad")
			err := db.writer.do(t.Context(), "", false, func(tx *tx) error { return errors.Join(addQueue("bad")(tx), errBad) })
			if !errors.Is(err, errBad) {
				t.Errorf("the bad one = %v", err)
			}
		})
		synctest.Wait()
		release()
		wg.Wait()
		if n := told.Load(); n != 1 {
			t.Errorf("the neighbour was told %d times that it is durable", n)
		}
		if names := mustList(t, db); !slices.Equal(names, []string{"neighbour", "orders"}) {
			t.Errorf("rows are %v", names)
		}
	})
}

func TestCallerWhoseContextEndsWhileQueuedGoesAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		release := block(db)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := mustQueue(t, db).Send(ctx, []byte("a"), queue.SendOptions{})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Send = %v after %v, want DeadlineExceeded after 1s", err, time.Since(start))
		}
		release()
		if names := mustList(t, db); len(names) != 0 {
			t.Error("the write took effect although its caller had gone")
		}
	})
}

func TestCallerWhoseContextEndsWhileWritingGoesSoon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		gate := make(chan struct{})
		defer close(gate)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := db.writer.do(ctx, "", false, func(*tx) error { <-gate; return nil })
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second+settleGrace || !queue.Ambiguous(err) {
			t.Errorf("write = %v after %v, want an ambiguous DeadlineExceeded within the grace", err, time.Since(start))
		}
	})
}

// lockedBy opens the file twice and has the second handle hold the write lock.
func lockedBy(t *testing.T) (db *DB, release func()) {
	path := filepath.Join(t.TempDir(), "test.db")
	db = openFile(t, path, Options{})
	other := openFile(t, path, Options{})
	return db, block(other)
}

func TestLockOfAnotherProcessIsWaitedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db, release := lockedBy(t)
		time.AfterFunc(time.Second, release)
		start := time.Now()
		mustSend(t, mustQueue(t, db), "a", queue.SendOptions{})
		if d := time.Since(start); d < time.Second {
			t.Errorf("Send took %v, want until the lock was released after 1s", d)
		}
	})
}

// C59: who waits for a lock that another process keeps learns so soon, and everybody after
// that at once, until the lock is free.
func TestLockThatStaysIsBusy(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var said []error
		db, release := lockedBy(t)
		db.condition.told = func(err error) { said = append(said, err) }
		q := mustQueue(t, db)
		for i, patience := range []time.Duration{lockPatience + longestBusyPause, 0} {
			start := time.Now()
			_, err := q.Send(t.Context(), []byte("a"), queue.SendOptions{})
			if !errors.Is(err, queue.ErrBusy) || !errors.Is(err, queue.ErrLocked) || queue.Ambiguous(err) || !strings.Contains(err.Error(), "end what holds "+db.path+" open") {
				t.Errorf("Send = %v, want ErrLocked with the cure", err)
			}
			if d := time.Since(start); d > patience {
				t.Errorf("send %d was answered after %v, want at most %v", i+1, d, patience)
			}
		}
		if err := db.Fault(t.Context()); !errors.Is(err, queue.ErrLocked) {
			t.Errorf("Fault = %v, want ErrLocked", err)
		}
		release()
		mustSend(t, q, "a", queue.SendOptions{})
		if err := db.Fault(t.Context()); err != nil {
			t.Errorf("Fault = %v after the lock was released", err)
		}
		if len(said) != 2 || !errors.Is(said[0], queue.ErrLocked) || said[1] != nil {
			t.Errorf("OnFault was told %v, want ErrLocked and its end", said)
		}
	})
}

// A lock that changes hands is no lock that stays.
func TestOthersThatCommitAreWaitedForLonger(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "test.db")
		db, busy := openFile(t, path, Options{}), openFile(t, path, Options{})
		release := block(busy)
		for i := range 4 {
			time.AfterFunc(time.Duration(i+1)*1500*time.Millisecond, func() {
				// Without a moment between: the commit, and the lock again.
				if err := errors.Join(busy.writer.conn.script("INSERT INTO queues (name) VALUES ('busy-" + fmt.Sprint(i) + "'); COMMIT; BEGIN IMMEDIATE")); err != nil {
					t.Error(err)
				}
			})
		}
		time.AfterFunc(7*time.Second, release)
		start := time.Now()
		mustSend(t, mustQueue(t, db), "a", queue.SendOptions{})
		if d := time.Since(start); d < 7*time.Second {
			t.Errorf("Send took %v, want until the lock was free after 7s", d)
		}
	})
}

func TestContextEndsTheWaitForALock(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db, release := lockedBy(t)
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := mustQueue(t, db).Send(ctx, []byte("a"), queue.SendOptions{})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second+settleGrace {
			t.Errorf("Send = %v after %v, want DeadlineExceeded soon after 1s", err, time.Since(start))
		}
		if !errors.Is(err, queue.ErrLocked) || queue.Ambiguous(err) {
			t.Errorf("Send = %v, want it to say what it waited for, and that nothing was done", err)
		}
	})
}

// C59 and C81: a full disk is named, and so for as long as it may be one.
func TestFullDiskIsAnErrorAndHeals(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		q := mustQueue(t, db)
		mustSend(t, q, "first", queue.SendOptions{})
		limit := func(pages int) {
			t.Helper()
			err := db.writer.conn.row(fmt.Sprintf("PRAGMA max_page_count = %d", pages), nil, new(int))
			if err != nil {
				t.Fatal(err)
			}
		}
		limit(60)
		text := []byte(strings.Repeat("x", queue.MaxTextBytes))
		var err error
		sent := 1
		for range 20 {
			if _, err = q.Send(t.Context(), text, queue.SendOptions{}); err != nil {
				break
			}
			sent++
		}
		if !errors.Is(err, queue.ErrFull) || queue.Ambiguous(err) || !strings.Contains(err.Error(), "free some space") {
			t.Fatalf("Send on a full disk = %v, want ErrFull with the cure", err)
		}
		for range 2 { // what Fault writes to find out fits
			if fault := db.Fault(t.Context()); !errors.Is(fault, queue.ErrFull) {
				t.Errorf("Fault = %v, want ErrFull", fault)
			}
		}
		limit(1 << 20)
		mustSend(t, q, "after", queue.SendOptions{})
		time.Sleep(fullFor)
		if fault := db.Fault(t.Context()); fault != nil {
			t.Errorf("Fault = %v, although it can be written again", fault)
		}
		if n := len(receiveAll(t, q)); n != sent+1 {
			t.Errorf("%d messages are there, want the %d that were accepted", n, sent+1)
		}
	})
}

func TestReadOnlyFileIsDenied(t *testing.T) {
	db := openNew(t)
	q := mustQueue(t, db)
	if err := db.writer.conn.script("PRAGMA query_only = 1"); err != nil {
		t.Fatal(err)
	}
	_, err := q.Send(t.Context(), []byte("a"), queue.SendOptions{})
	if !errors.Is(err, queue.ErrDenied) || !strings.Contains(err.Error(), "permissions") {
		t.Errorf("Send = %v, want ErrDenied with the cure", err)
	}
}

func TestCloseWaitsForQueuedWrites(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "test.db")
		db := openFile(t, path, Options{})
		release := block(db)
		q := mustQueue(t, db)
		sent, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := q.Send(t.Context(), []byte("a"), queue.SendOptions{})
			sent <- err
		}()
		synctest.Wait()
		go func() { closed <- db.Close() }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Fatalf("Close = %v before the queued write ended", err)
		default:
		}
		release()
		if err := errors.Join(<-sent, <-closed); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Depth(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Depth after Close = %v, want ErrClosed", err)
		}
		if _, err := q.Send(t.Context(), []byte("a"), queue.SendOptions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("Send after Close = %v, want ErrClosed", err)
		}
		wantVisible(t, mustQueue(t, openFile(t, path, Options{})), "after it was opened again", 1)
	})
}

func TestEveryOperationIsCountedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		expired := 0
		db := openFile(t, filepath.Join(t.TempDir(), "test.db"), Options{
			OnTransaction: func(service, operation string, err error) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprintf("%s %s %t", service, operation, err == nil))
			},
			OnExpired: func(e Expired) { expired += e.Messages },
		})
		q := mustQueue(t, db)
		got = nil
		mustSend(t, q, "a", queue.SendOptions{})
		m := receiveAll(t, q)[0]
		_, depthErr := q.Depth(t.Context())
		_, loadErr := db.Load(t.Context(), messageKeyOf(q, m))
		_, refused := q.Receive(t.Context(), 0, time.Minute) // asks storage for nothing
		err := errors.Join(q.Renew(t.Context(), m, time.Minute), q.Abandon(t.Context(), m, 0), depthErr, loadErr)
		if lost := q.Complete(t.Context(), m); err != nil || refused == nil || !errors.Is(lost, queue.ErrLeaseLost) {
			t.Errorf("%v, %v, %v", err, refused, lost)
		}
		want := []string{
			"queue send true", "queue receive true", "queue depth true", "table load true",
			"queue renew true", "queue abandon true", "queue complete false",
		}
		if !slices.Equal(got, want) {
			t.Errorf("counted %q, want %q", got, want)
		}
		mustSend(t, q, "short-lived", queue.SendOptions{TTL: time.Second})
		time.Sleep(2 * houseInterval)
		synctest.Wait()
		if expired != 1 {
			t.Errorf("%d expired messages were counted, want 1", expired)
		}
	})
}

func TestEmptyReceivesWriteNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	q := mustQueue(t, openFile(t, path, Options{}))
	mustSend(t, q, "a", queue.SendOptions{Delay: time.Hour})
	size := func() int64 {
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	for range 50 {
		wantVisible(t, q, "while it is delayed", 0)
	}
	if after := size(); after != before {
		t.Errorf("50 empty receives wrote %d bytes", after-before)
	}
}
