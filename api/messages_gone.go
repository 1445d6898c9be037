package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// quietFor is how long nothing may have happened to a message before its queue is asked whether
// it is there at all: who is at work on one, or has just ended it, has recorded that by then.
const quietFor = 2 * time.Minute

// round is one generation of a delivery.
type round struct {
	webhook    string
	generation int
}

// away is what is said of a delivery whose message can't be received; lost is whether it is surely not there any more.
type away struct {
	text string
	lost bool
}

// takenAway says of which deliveries nothing can come any more, or nothing but from others: the
// message has no outcome, and its queue is empty, or gone, or shows it to nobody. Others may read a queue,
// clear and delete it.
func (a *API) takenAway(ctx context.Context, deliveries []tables.Delivery, now time.Time) (map[round]away, error) {
	waiting := waitingOnes(deliveries, now)
	if len(waiting) == 0 {
		return nil, nil
	}
	name, id := waiting[0].Queue, waiting[0].MessageID
	depth, err := a.depth(ctx, name)
	missing := errors.Is(err, queue.ErrQueueNotFound)
	if err != nil && !missing {
		return nil, nil // storage does not say so
	}
	shown := depth.Total > 0
	if shown && a.shows(ctx, name, id) {
		return nil, nil
	}
	// What was ended between the first reading and the count is on record by now.
	again, _, err := a.History.Message(ctx, name, id)
	if err != nil && !errors.Is(err, tables.ErrNotFound) {
		return nil, web.StorageFault("read the message's records", err)
	}
	why := "its queue is empty: somebody took it from there or cleared the queue, or it expired"
	if missing {
		why = "its queue is gone: somebody deleted it"
		if s, ok := a.Dispatcher.Queue(name); ok && !s.GoneAt.IsZero() {
			why += " at about " + web.Stamp(s.GoneAt)
		}
	}
	gone := map[round]away{}
	for _, d := range waitingOnes(again, now) {
		done := "it was never sent"
		if d.Attempts > 0 {
			done = fmt.Sprintf("%d attempts left no outcome", d.Attempts)
		}
		switch {
		case !shown:
			gone[round{d.WebhookID, d.Generation}] = away{"Nothing: the message is not there any more, " + why + ". As far as is known, " + done + ".", true}
		case isMissed(d, now):
			gone[round{d.WebhookID, d.Generation}] = away{text: "It has been due since " + web.Stamp(dueAt(d)) + ", but is not among the messages that can be received from its queue: either an instance is at work on it, " +
				"or another program has received it, and holds it or has deleted it. As far as is known, " + done + "."}
		}
	}
	return gone, nil
}

// shows reports whether a message can be received from a queue, or that can't be told: a look shows the first few.
// A replay comes under another id.
func (a *API) shows(ctx context.Context, name, id string) bool {
	q, err := a.Queues.Queue(name)
	if err != nil {
		return true
	}
	front, err := q.Peek(ctx, queue.MaxReceive)
	return err != nil || len(front) == queue.MaxReceive || slices.ContainsFunc(front, func(p queue.Peeked) bool { return p.ID == id })
}

// isMissed reports whether a message that no look shows has been due for a while.
func isMissed(d tables.Delivery, now time.Time) bool {
	ofReplay, untilSomebodyActs := d.Generation > 0, d.State == tables.Held && d.NextAt.IsZero()
	return !ofReplay && !untilSomebodyActs && now.Sub(dueAt(d)) > quietFor
}

// dueAt is since when a message without an outcome can be received, as far as its record says.
func dueAt(d tables.Delivery) time.Time {
	if d.NextAt.After(d.UpdatedAt) {
		return d.NextAt
	}
	return d.UpdatedAt
}

// waitingOnes are the deliveries that have no outcome, and to which nothing has happened for a while.
func waitingOnes(deliveries []tables.Delivery, now time.Time) (list []tables.Delivery) {
	for _, d := range deliveries {
		if !d.State.Terminal() && !d.Damage.Undecided && !d.Over(now) && now.Sub(d.UpdatedAt) > quietFor {
			list = append(list, d)
		}
	}
	return list
}
