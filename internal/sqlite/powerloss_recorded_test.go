package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// replays is the queue of the messages that stand for replays, which nobody receives.
const replays = "replays"

// What a transaction says together is there together after a loss of power: a message is gone with its record or its dead letter, whether
// somebody settled it or its life ended, and a dead letter is being replayed with the message that stands for that.
func TestPowerLossKeepsARecordWithWhatItEnds(t *testing.T) {
	folder, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	d := newDisk(t, folder)
	db := openFile(t, filepath.Join(folder, "p.db"), Options{})
	mustSend(t, mustQueue(t, db), "makes the queue", queue.SendOptions{TTL: time.Second})
	tr := &traffic{accepted: map[string]bool{}, ending: map[string]bool{}, ended: map[string]bool{}}
	stop := make(chan struct{})
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := recordedRound(t.Context(), db, tr, n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	seed := rand.Uint64()
	r, unsynced, expired := rand.New(rand.NewPCG(seed, 0)), 0, 0
	for i := 0; i < 12 || expired == 0 && i < 1000; i++ { // until there are some whose life ended
		left := t.TempDir()
		var told *traffic
		d.after(1+r.IntN(200), func() {
			told = tr.told()
			unsynced += d.cut(t, left, r)
		})
		problem, ofExpired := checkTogether(t, filepath.Join(left, "p.db"), told)
		if expired += ofExpired; problem != "" {
			t.Errorf("cut %d of seed %d: %s", i+1, seed, problem)
			break
		}
	}
	close(stop)
	work.Wait()
	if unsynced == 0 || len(tr.ended) == 0 || expired == 0 {
		t.Errorf("%d writes were not synced at a cut, %d messages were settled, and %d expired: the test has tried nothing", unsynced, len(tr.ended), expired)
	}
}

// recordedRound sends a message, some for a second only, and settles one: delivered, or given up and replayed.
func recordedRound(ctx context.Context, db *DB, tr *traffic, n int) error {
	q, err := db.Queues().Queue("orders")
	if err != nil {
		return err
	}
	opts := queue.SendOptions{}
	if n%4 == 3 {
		opts.TTL = time.Second
	}
	sent, err := q.Send(ctx, []byte("x"), opts)
	if err != nil {
		return err
	}
	tr.note(tr.accepted, sent.ID)
	if n%3 == 0 {
		return nil
	}
	ms, err := q.Receive(ctx, 1, time.Minute)
	for _, m := range ms {
		tr.note(tr.ending, m.ID)
		state := tables.Delivered
		if n%2 == 0 {
			state = tables.DeadLettered
		}
		key := tables.MessageKey{Queue: "orders", MessageID: m.ID, Day: m.InsertedAt}
		if state == tables.DeadLettered {
			of := tables.MessageKey{Queue: replays, MessageID: m.ID, Day: m.InsertedAt}
			dead, err := db.PutDeadLetter(ctx, tables.DeadLetter{ID: tables.DeadLetterID(of, "w", 0, time.Now()), MessageKey: of, WebhookID: "w", Status: tables.Waiting, Text: []byte("x")})
			if err != nil {
				return err
			}
			dead.Status = tables.Replaying
			if _, err := db.Queues().SendReplay(ctx, dead, []byte(m.ID)); err != nil {
				return err
			}
		}
		if err := db.Queues().CompleteRecorded(ctx, "orders", m, tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "w", State: state, Attempts: 1, UpdatedAt: time.Now().UTC()}}}); err != nil {
			return err
		}
		tr.note(tr.ended, m.ID)
	}
	return err
}

// checkTogether opens what a loss of power has left, and says what is there without what belongs to it.
func checkTogether(t *testing.T, path string, told *traffic) (problem string, expired int) {
	t.Helper()
	db, err := Open(t.Context(), path, Options{})
	if err != nil {
		return err.Error(), 0
	}
	defer func() { must(t, db.Close()) }()
	// In one statement: what has expired is ended while this looks.
	rows, err := db.reads.Query(`SELECT 'message', id FROM messages UNION ALL SELECT 'ended', message_id FROM deliveries WHERE state IN ('delivered', 'dead_lettered')
		UNION ALL SELECT CASE queue WHEN 'orders' THEN 'expired' ELSE status END, message_id FROM dead_letters UNION ALL SELECT 'pointer', CAST(short_text AS TEXT) FROM messages WHERE queue = (SELECT id FROM queues WHERE name = ?)`, replays)
	must(t, err)
	defer func() { must(t, rows.Close()) }()
	there := map[[2]string]bool{}
	for rows.Next() {
		var what, id string
		must(t, rows.Scan(&what, &id))
		if there[[2]string{what, id}] = true; what == "expired" {
			expired++
		}
	}
	must(t, rows.Err())
	problems := map[string]int{}
	for id := range told.accepted {
		message, ended, letter := there[[2]string{"message", id}], there[[2]string{"ended", id}], there[[2]string{"expired", id}]
		if !message && !ended && !letter {
			problems["is gone, and nothing is on record"]++
		}
		if message && ended {
			problems["is ended on record, and is still there"]++
		}
		if told.ended[id] && !ended {
			problems["was settled, and there is no record of that"]++
		}
		if there[[2]string{"replaying", id}] != there[[2]string{"pointer", id}] {
			problems["is being replayed without the message that stands for that, or the other way round"]++
		}
	}
	if len(problems) > 0 {
		problem = fmt.Sprintf("of %d messages: %v", len(told.accepted), problems)
	}
	return problem, expired
}
