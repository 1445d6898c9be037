package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// quietFor is how long nothing may have happened to a message before its queue is asked whether
// it is there at all: who is at work on one, or has just ended it, has recorded that by then.
const quietFor = 2 * time.Minute

// takenAway says of which deliveries nothing can come any more, by webhook: the message has no
// outcome, and its queue is empty, or gone. Others may read a queue, clear and delete it.
func (a *API) takenAway(ctx context.Context, deliveries []tables.Delivery, now time.Time) (map[string]string, error) {
	waiting := waitingOnes(deliveries, now)
	if len(waiting) == 0 {
		return nil, nil
	}
	first := waiting[0]
	depth, err := a.depth(ctx, first.Queue)
	missing := errors.Is(err, queue.ErrQueueNotFound)
	if err != nil && !missing || depth.Total > 0 {
		return nil, nil // storage does not say so
	}
	// What was ended between the first reading and the count is on record by now.
	again, _, err := a.History.Message(ctx, first.Queue, first.MessageID)
	if err != nil && !errors.Is(err, tables.ErrNotFound) {
		return nil, web.StorageFault("read the message's records", err)
	}
	why := "its queue is empty: somebody took it from there or cleared the queue, or it expired"
	if missing {
		why = "its queue is gone: somebody deleted it"
		if s, ok := a.Dispatcher.Queue(first.Queue); ok && !s.GoneAt.IsZero() {
			why += " at about " + web.Stamp(s.GoneAt)
		}
	}
	gone := map[string]string{}
	for _, d := range waitingOnes(again, now) {
		done := "it was never sent"
		if d.Attempts > 0 {
			done = fmt.Sprintf("%d attempts left no outcome", d.Attempts)
		}
		gone[d.WebhookID] = "Nothing: the message is not there any more, " + why + ". As far as is known, " + done + "."
	}
	return gone, nil
}

// waitingOnes are the deliveries that have no outcome, and to which nothing has happened for a while.
func waitingOnes(deliveries []tables.Delivery, now time.Time) (list []tables.Delivery) {
	for _, d := range deliveries {
		if !d.State.Terminal() && !over(d, now) && now.Sub(d.UpdatedAt) > quietFor {
			list = append(list, d)
		}
	}
	return list
}
