package delivery

import (
	"context"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	// poisonMargin is how many receives without a recorded outcome are allowed on top
	// of the policy's attempts before a message is suspected: lost answers of storage
	// and killed processes cause them too.
	poisonMargin = 7
	// poisonProofs is how many POSTs must then have begun and left no outcome.
	poisonProofs = 3
	// suspectWait is how long a suspected message waits for others before it is given
	// back: they may be slow, and it takes up a place.
	suspectWait = 15 * time.Second
)

// suspects see to messages that may kill whoever handles them.
type suspects struct {
	*Options
	tickets tickets
	// turn holds one while a suspected message is POSTed.
	turn chan struct{}
}

// suspect reports whether the message was received over and over with no outcome
// ever recorded: something about it may kill whoever handles it.
func suspect(h history, m *queue.Message, targets []target) bool {
	if !h.known {
		return false
	}
	limit := int64(0)
	for i := range targets {
		limit = max(limit, int64(targets[i].registration.Policy.MaxAttempts))
	}
	return m.DequeueCount-1-int64(h.explained) > limit+poisonMargin
}

// isPoison tells a message that kills its process from one whose receives were in
// vain because of us. The count of receives only raises the suspicion: from then on
// a POST is noted before it begins, and its outcome takes the note back. Notes that
// stay are the proof.
func isPoison(targets []target) bool {
	now := time.Now()
	return some(targets, func(t *target) bool {
		return t.due(now) && t.delivery.MissingRecords >= poisonProofs
	})
}

// begin notes that POSTs of a suspected message begin. Suspected messages
// are POSTed one at a time: what died with the one that killed the process would have
// the same notes. It returns false when it is not this one's turn for long. A note that
// can't be written keeps no message back. end must follow.
func (s *suspects) begin(ctx context.Context, p *parcel, targets []target) bool {
	now := time.Now().UTC().Truncate(time.Millisecond)
	due := func(t *target) bool { return t.due(now) }
	if !some(targets, due) {
		return true
	}
	turn := time.NewTimer(suspectWait)
	defer turn.Stop()
	select {
	case s.turn <- struct{}{}:
		p.alone = true
	case <-ctx.Done():
		return true // no POST begins any more
	case <-turn.C:
		s.Log.Info("other messages that were received many times without an outcome come first",
			"queue", p.key.Queue, "message", p.key.MessageID, "delivery_count", p.m.DequeueCount)
		return false
	}
	var notes []tables.Delivery
	for i := range targets {
		t := &targets[i]
		if !due(t) {
			continue
		}
		t.noteAt(now)
		t.noted = true
		note := t.delivery
		note.MissingRecords++
		notes = append(notes, note)
	}
	p.mu.Lock()
	notes = append(notes, p.dueBeside(notes)...)
	p.mu.Unlock()
	s.Log.Warn("the message was received many times without an outcome; this attempt is noted before it begins",
		"queue", p.key.Queue, "message", p.key.MessageID, "delivery_count", p.m.DequeueCount)
	if err := s.Journal.Note(ctx, func() []tables.Delivery { return notes }); err != nil {
		s.Log.Error("the attempt could not be noted", "queue", p.key.Queue, "message", p.key.MessageID, "error", err)
	}
	return true
}

// end lets the next suspected message begin, once no note about this one stands that is to be taken back.
func (s *suspects) end(ctx context.Context, p *parcel) {
	if p.alone {
		for _, rec := range p.named(records(s.tickets.takeAllHeld(ctx, p))) {
			s.Journal.Record(s.writing(ctx), rec)
		}
		p.alone = false
		<-s.turn
	}
}
