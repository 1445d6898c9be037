package dispatcher

import (
	"context"
	"errors"

	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// This file lets the last record of a delivered message go into one transaction with its
// delete, where one store keeps both (RecordedCompletes). Every other record is written
// before anything follows from it.

// lastRecord is a record that waits for the delete of its message; the zero value is none.
type lastRecord struct {
	rec tables.Record
	// tell says what was recorded, once it was.
	tell func()
}

func (l lastRecord) none() bool { return len(l.rec.Deliveries) == 0 }

// mayGoTogether counts the POSTs that have to be delivered for the message to be done with:
// all that are made now, if it is done with everywhere else. What comes between record and
// delete, ending a replay or a claim, must find the record: then nothing goes together. Nor
// does it where the message is suspected: its note is taken back before the next one's turn.
func (p *parcel) mayGoTogether(targets []target) {
	p.together = p.together && p.replay == nil && p.claim == nil && !p.alone
	for i := range targets {
		t := &targets[i]
		switch {
		case t.flow != nil:
			p.undelivered++
		case !t.delivery.State.Terminal(), t.delivery.State == tables.DeadLettering:
			p.together = false
		}
	}
}

// keepLast keeps the record of a POST that was delivered when it is the last of the message,
// and nothing is left to be done but the delete. With false the record is to be written now.
func (p *parcel) keepLast(last lastRecord) bool {
	if !p.together || last.rec.Deliveries[0].State != tables.Delivered {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.undelivered--; p.undelivered > 0 || len(last.rec.Deliveries) > 1 {
		return false
	}
	p.last = last
	return true
}

// takeAlong gives the last record to the decision to complete its message.
func (p *parcel) takeAlong(decision Decision) Decision {
	if decision.Action == policy.Complete && len(decision.DeadLetters) == 0 {
		decision.last, p.last = p.last, lastRecord{}
	}
	return decision
}

// recordApart writes the last record when no decision took it along.
func (d *Dispatcher) recordApart(ctx context.Context, p *parcel) {
	if last := p.last; !last.none() {
		p.last = lastRecord{}
		d.journal.Record(d.writing(ctx), last.rec)
		last.tell()
	}
}

// deleteRecorded tries once to delete the message together with its last record. Where its
// lease had ended, and this process received it anew before anything was recorded, this work
// was given the new lease, and the message is deleted with that one.
func (d *Dispatcher) deleteRecorded(ctx context.Context, k *lease.Lease, last lastRecord) error {
	recorded := false
	err := k.Settling(func() error {
		callCtx, cancel := context.WithTimeout(ctx, retry.Timeout)
		defer cancel()
		receipt := k.Message.Lease.Receipt()
		err := d.o.RecordedCompletes.CompleteRecorded(callCtx, k.Queue.Name(), k.Message, last.rec)
		if !errors.Is(err, queue.ErrLeaseLost) {
			return err
		}
		d.recordedWith(ctx, k, last, err)
		if recorded = true; k.Message.Lease.Receipt() == receipt {
			return err
		}
		callAgain, cancelAgain := context.WithTimeout(ctx, retry.Timeout)
		defer cancelAgain()
		return k.Queue.Complete(callAgain, k.Message)
	})
	if !recorded {
		d.recordedWith(ctx, k, last, err)
	}
	return err
}

// recordedWith sees to the last record of a message, after a try to write it together with
// the delete ended with err. Until then the message is in work here: if it is received anew
// meanwhile, nobody knows yet that it was delivered.
func (d *Dispatcher) recordedWith(ctx context.Context, k *lease.Lease, last lastRecord, err error) {
	switch {
	case err == nil, errors.Is(err, queue.ErrLeaseLost), errors.Is(err, queue.ErrQueueNotFound):
		d.journal.Written(last.rec)
	default: // it may be there or not, and is the same when it is written again
		d.journal.Record(ctx, last.rec)
	}
	last.tell()
	k.End()
}
