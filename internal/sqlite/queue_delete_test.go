package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// Where a queue's row is remembered must not outlive it: a message would be stored for a queue
// that is nowhere.
func TestAQueueThatAnotherProcessDeletesIsMadeAnewByASend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	here, there := openFile(t, path, Options{}), openFile(t, path, Options{})
	q := mustQueue(t, here)
	mustSend(t, q, "before", queue.SendOptions{})
	if err := there.Queues().Delete(t.Context(), q.Name(), false); err != nil {
		t.Fatal(err)
	}
	mustSend(t, q, "after", queue.SendOptions{})
	ms, err := mustQueue(t, there).Receive(t.Context(), queue.MaxReceive, queue.MinLease)
	if err != nil || len(ms) != 1 || string(ms[0].Text) != "after" {
		t.Errorf("received %d messages, %v, want the one that was sent after the deletion", len(ms), err)
	}
}

// Sends and deletions share transactions: what is accepted is on the queue, or went with it.
func TestWhatIsSentBesideDeletionsIsThereOrWentWithItsQueue(t *testing.T) {
	db := openNew(t)
	q := mustQueue(t, db)
	mustSend(t, q, "x", queue.SendOptions{})
	last, err := db.Queues().Queue("last") // so that no row of a queue has the number of one before
	if err != nil {
		t.Fatal(err)
	}
	mustSend(t, last, "x", queue.SendOptions{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				if i == 0 {
					_ = db.Queues().Delete(t.Context(), q.Name(), false)
					continue
				}
				if _, err := q.Send(t.Context(), []byte("x"), queue.SendOptions{}); err != nil {
					t.Errorf("Send: %v", err)
				}
			}
		})
	}
	wg.Wait()
	must(t, db.inParts(t.Context(), "delete", expireAtOnce, (*tx).removeOwnerless))
	if lost := ownerless(t, db); lost != 0 {
		t.Errorf("%d messages are on no queue", lost)
	}
}

func ownerless(t *testing.T, db *DB) (n int64) {
	t.Helper()
	must(t, db.write(t.Context(), serviceQueue, "look", func(tx *tx) error {
		return tx.row("SELECT count(*) FROM messages WHERE queue NOT IN (SELECT id FROM queues)", nil, &n)
	}))
	return n
}

// A queue with many messages is gone at once; they are removed in parts afterwards, by whoever has the file
// open, and no queue that is made meanwhile gets them.
func TestTheMessagesOfADeletedQueueAreRemovedInParts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		path := filepath.Join(bubble.Folder(t), "test.db")
		var deletes atomic.Int64
		db := openFile(t, path, Options{Around: func(_ context.Context, c *Call, call func() error) error {
			if c.Operation == "delete" && deletes.Add(1) > 2 { // the queue and a first part, and then a stop
				return errors.New("stopped")
			}
			return call()
		}})
		other, err := db.Queues().Queue("another")
		must(t, err)
		mustSend(t, other, "stays", queue.SendOptions{})
		q := mustQueue(t, db)
		for range 3*expireAtOnce + 1 {
			mustSend(t, q, "goes", queue.SendOptions{TTL: time.Hour})
		}
		must(t, db.Queues().Delete(t.Context(), q.Name(), false))
		synctest.Wait()
		left := ownerless(t, db)
		mustSend(t, q, "new", queue.SendOptions{})
		if depth, err := q.Depth(t.Context()); left != 2*expireAtOnce+1 || err != nil || depth.Total != 1 {
			t.Errorf("at once: %d messages are left, and %d are on the queue that is made anew, %v", left, depth.Total, err)
		}
		must(t, db.Close())
		db = openFile(t, path, Options{})
		time.Sleep(2 * houseInterval)
		if left := ownerless(t, db); left != 0 {
			t.Errorf("%d messages are on no queue after the next round", left)
		}
		for name, want := range map[string]string{q.Name(): "new", other.Name(): "stays"} {
			q, err := db.Queues().Queue(name)
			must(t, err)
			if ms, err := q.Receive(t.Context(), queue.MaxReceive, queue.MinLease); err != nil || len(ms) != 1 || string(ms[0].Text) != want {
				t.Errorf("%s has %d messages, %v", name, len(ms), err)
			}
		}
		if list := letters(t, db); len(list) != 0 {
			t.Errorf("%d dead letters of what was deleted", len(list))
		}
	})
}

// What has expired is ended before the queue counts as one with messages, however much it is.
func TestAQueueWhoseMessagesHaveAllExpiredIsDeleted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openFile(t, filepath.Join(bubble.Folder(t), "test.db"), Options{})
		q := mustQueue(t, db)
		for range 2*endAtOnce + 1 {
			mustSend(t, q, "x", queue.SendOptions{TTL: time.Second})
		}
		time.Sleep(2 * time.Second)
		if err := db.Queues().Delete(t.Context(), q.Name(), true); err != nil {
			t.Errorf("delete: %v", err)
		}
		if list, _, err := db.ListDeadLetters(t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: tables.MaxPage}); err != nil || len(list) != 2*endAtOnce+1 {
			t.Errorf("%d dead letters, %v, want %d", len(list), err, 2*endAtOnce+1)
		}
	})
}
