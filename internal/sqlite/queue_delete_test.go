package sqlite

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/pushlease/pushlease/queue"
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
	var lost int64
	err = db.write(t.Context(), serviceQueue, "look", func(tx *tx) error {
		return tx.row("SELECT count(*) FROM messages WHERE queue NOT IN (SELECT id FROM queues)", nil, &lost)
	})
	if err != nil || lost != 0 {
		t.Errorf("%d messages are on no queue, %v", lost, err)
	}
}
