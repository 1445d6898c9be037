package flow

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/sqlite/sqlitetest"
	"github.com/pushlease/pushlease/queue"
)

// A receipt that is out of date changes nothing.
func TestAHeldMessageThatSomeoneElseHasIsLeftAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		fs, q := testFlows(), testQueue(t)
		if _, err := q.Send(t.Context(), []byte("x"), queue.SendOptions{}); err != nil {
			t.Fatal(err)
		}
		first, err := q.Receive(t.Context(), 1, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		fs.held.keep(q, first[0], []string{"wh_a"})
		time.Sleep(61 * time.Second)
		again, err := q.Receive(t.Context(), 1, time.Minute)
		if err != nil || len(again) != 1 {
			t.Fatal(again, err)
		}
		fs.show(t.Context(), []*heldMessage{{q: q, m: first[0]}}, false)
		if none, err := q.Receive(t.Context(), 1, time.Minute); err != nil || len(none) != 0 {
			t.Errorf("the message was taken away from its holder: %v, %v", none, err)
		}
		want(t, "one whose time has come is forgotten", len(fs.held.take("wh_a", 10)), 0)
		want(t, "kept", len(fs.held.messages), 0)
	})
}

func TestHeldMessagesAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, q := newHeld(), testQueue(t)
		for i := range maxHeld + 1000 {
			p.keep(q, &queue.Message{ID: fmt.Sprint(i), Lease: queue.NewLease("r", time.Now(), time.Hour)}, []string{"wh_a"})
		}
		want(t, "kept", len(p.messages), maxHeld)
		p.drop("orders", "5")
		want(t, "kept after one was received again", len(p.messages), maxHeld-1)
		p.release("wh_a")
		want(t, "taken", len(p.take("wh_a", 100)), 100)
		want(t, "left", int(p.n.Load()), maxHeld-101)
	})
}

// What waits for a webhook that was deleted, or for any, goes to the one that is registered next
// on its queue; what somebody else waits for too stays theirs.
func TestANewWebhookInheritsWhatWaitsForThoseThatAreGone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, q := newHeld(), testQueue(t)
		for i, ids := range [][]string{{"gone"}, {""}, {"here"}, {"gone", "here"}} {
			p.keep(q, &queue.Message{ID: fmt.Sprint(i), Lease: queue.NewLease("r", time.Now(), time.Hour)}, ids)
		}
		gone := func(id string) bool { return id != "here" }
		want(t, "another queue has some", p.inherit("other", "new", gone), false)
		want(t, "some", p.inherit("orders", "new", gone), true)
		want(t, "for the new one", len(p.take("new", 10)), 2)
		want(t, "for the other one", len(p.take("here", 10)), 2)
		want(t, "left", len(p.messages), 0)
	})
}

// Many webhooks may be released at once, and each is looked at twice a second.
func TestShowingSomeHeldMessagesCostsNothingForTheOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, q := newHeld(), testQueue(t)
		for i := range maxHeld {
			p.keep(q, &queue.Message{ID: fmt.Sprint(i), Lease: queue.NewLease("r", time.Now(), time.Hour)}, []string{"wh_a", fmt.Sprint("wh_", i%100)})
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		taken := p.take("wh_a", 10)
		runtime.ReadMemStats(&after)
		for i, one := range taken {
			want(t, "the oldest first", one.m.ID, fmt.Sprint(i))
		}
		want(t, "taken", len(taken), 10)
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 100<<10 {
			t.Errorf("%d bytes were allocated for 10 messages", cost)
		}
		want(t, "the next of another webhook", p.take("wh_5", 1)[0].m.ID, "105") // 5 was taken
	})
}

// What another process has received meanwhile is never heard of here.
func TestHeldMessagesThatOthersHaveMakeRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, q := newHeld(), testQueue(t)
		park := func(id string) {
			p.keep(q, &queue.Message{ID: id, Lease: queue.NewLease("r", time.Now(), 10*time.Minute)}, []string{"wh_a"})
		}
		for i := range maxHeld + 1 {
			park(fmt.Sprint(i))
		}
		time.Sleep(11 * time.Minute)
		park("new")
		want(t, "kept", len(p.messages), 1)
		want(t, "taken", len(p.take("wh_a", 10)), 1)
		want(t, "lines", len(p.lines), 0)
	})
}

// testQueue is a real queue, on a file of its own.
func testQueue(t *testing.T) queue.Queue {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlitetest.File(t), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	q, err := db.Queues().Queue("orders")
	if err != nil {
		t.Fatal(err)
	}
	return q
}
