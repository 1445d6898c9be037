package sqlite

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// A backlog that fills its disk can still be delivered: the records and deletes have the room that publishes leave.
func TestABacklogLeavesRoomForItsEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		free, said := uint64(plenty), []error(nil)
		db := openFile(t, filepath.Join(t.TempDir(), "test.db"), Options{OnFault: func(err error) { said = append(said, err) }})
		db.condition.room = func() (uint64, bool) { return free, true }
		q := mustQueue(t, db)
		mustSend(t, q, "before", queue.SendOptions{})
		free = plenty - 1
		time.Sleep(lookEvery)
		mustSend(t, q, "looks at it from here on", queue.SendOptions{})
		free = reserve - 1
		for range 2 {
			_, err := q.Send(t.Context(), []byte("more"), queue.SendOptions{})
			if !errors.Is(err, queue.ErrFull) || queue.Ambiguous(err) || !strings.Contains(err.Error(), "free some space") || !strings.Contains(err.Error(), "16 MB") {
				t.Errorf("Send on a disk that is nearly full = %v, want ErrFull with the cure", err)
			}
		}
		if err := db.Fault(t.Context()); !errors.Is(err, queue.ErrFull) {
			t.Errorf("Fault = %v, want ErrFull", err)
		}
		copies, err := db.Queues().Queue(q.Name() + tables.PoisonSuffix)
		if err != nil {
			t.Fatal(err)
		}
		mustSend(t, copies, "of a dead letter", queue.SendOptions{})
		refused := make(chan error)
		go func() {
			_, err := q.Send(t.Context(), []byte("beside what is settled"), queue.SendOptions{})
			refused <- err
		}()
		all := receiveAll(t, q)
		if err := <-refused; !errors.Is(err, queue.ErrFull) {
			t.Errorf("Send beside a receive = %v", err)
		}
		if len(all) != 2 {
			t.Fatalf("%d messages are received, want what was accepted", len(all))
		}
		if err := q.Complete(t.Context(), all[0]); err != nil {
			t.Errorf("settling: %v", err)
		}
		for _, left := range []uint64{reserve, reserveBack - 1} {
			free = left
			time.Sleep(lookEvery)
			if _, err := q.Send(t.Context(), []byte("more"), queue.SendOptions{}); !errors.Is(err, queue.ErrFull) {
				t.Errorf("with %d MB it is %v, so that it goes to and fro", left>>20, err)
			}
		}
		free = reserveBack
		time.Sleep(lookEvery)
		mustSend(t, q, "after", queue.SendOptions{})
		if err := db.Fault(t.Context()); err != nil {
			t.Errorf("Fault = %v with room", err)
		}
		if len(said) != 2 || !errors.Is(said[0], queue.ErrFull) || said[1] != nil {
			t.Errorf("OnFault was told %v, want that it is full, and its end", said)
		}
	})
}
