package dispatcher

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pushlease/pushlease/queue"
)

const (
	// maxGather is the longest wait for more slots than are free.
	maxGather = 100 * time.Millisecond
	// settlingTimes is how many messages may be settling for each slot. Where a POST is quick, a
	// slot is taken for as long as a receive takes, one request to storage. Settling takes
	// two and a half: what is left of the transaction that is under way, the next one with the
	// record in it, and the delete.
	settlingTimes = 3
)

// takeSlots waits until a message could start at once, and takes slots for as many as
// one receive can bring: where a webhook has room for them, in the queue's own bounds and
// in the process's. It returns 0 when ctx has ended, or patience.
func (p *poller) takeSlots(ctx context.Context) int {
	select {
	case p.gathering <- struct{}{}:
		defer func() { <-p.gathering }()
	case <-ctx.Done():
		return 0
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return 0
		case p.slots <- struct{}{}:
		}
		room, next := p.roomFor()
		if room > 0 {
			if n := p.gather(ctx, room); n > 0 {
				return p.shareSlots(ctx, n)
			}
			continue
		}
		<-p.slots
		if !p.waitForRoom(ctx, next) {
			return 0
		}
	}
	return 0
}

func (p *poller) roomFor() (n int, next time.Time) {
	return p.d.flows.Room(p.q.Name(), int(p.onTheWay.Load()), queue.MaxReceive, time.Now())
}

// gather takes up to room slots, of which one is taken already, and returns how many it has.
//
// While there is a backlog and other messages are in work it waits for half of what can be
// in work at a time: slots come free a few at a time, and a receive costs the same whatever
// it brings. It waits for twice as long as a receive takes at most, so that slow receivers
// of some messages never keep others waiting. Without a backlog it takes what is free.
func (p *poller) gather(ctx context.Context, room int) (taken int) {
	taken = p.fillSlots(1, room)
	p.mu.Lock()
	backlog, wait := p.backlog != nil, min(2*p.took, maxGather)
	p.mu.Unlock()
	if !backlog || p.enough(taken, room) {
		return taken
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for waiting := true; waiting && !p.enough(taken, room); {
		free := p.slots
		if taken >= room {
			free = nil
		}
		select {
		case <-ctx.Done():
			p.freeSlots(taken)
			return 0
		case <-over.C:
			waiting = false
		case free <- struct{}{}:
			taken++
		case <-p.room:
		}
		room, _ = p.roomFor()
		taken = p.fillSlots(taken, room)
	}
	if taken > room { // a webhook can be sent less meanwhile
		p.freeSlots(taken - room)
		taken = room
	}
	return taken
}

// enough reports whether waiting for more slots than are taken would not pay.
func (p *poller) enough(taken, room int) bool {
	busy := len(p.slots) - taken
	most := min(cap(p.slots), room+busy)
	return busy == 0 || taken >= min(queue.MaxReceive, (most+1)/2)
}

// fillSlots takes slots that are free until there are n.
func (p *poller) fillSlots(taken, n int) int {
	for taken < n {
		select {
		case p.slots <- struct{}{}:
			taken++
		default:
			return taken
		}
	}
	return taken
}

func (p *poller) freeSlots(n int) {
	for range n {
		<-p.slots
	}
}

// shareSlots takes the process's part of the slots that are taken, and frees those that
// there is none for.
func (p *poller) shareSlots(ctx context.Context, taken int) int {
	p.noRoom.Store(true)
	granted := p.d.shares.take(ctx, p.q.Name(), taken)
	p.noRoom.Store(false)
	p.freeSlots(taken - granted)
	p.onTheWay.Add(int64(granted))
	return granted
}

// giveSlots gives back n slots that no message was received for. Another receiver may wait for
// that room, and keeps all others from slots while it does.
func (p *poller) giveSlots(n int) {
	if n == 0 {
		return
	}
	p.onTheWay.Add(int64(-n))
	p.freeSlots(n)
	p.d.shares.give(p.q.Name(), n)
	p.d.flows.Signal(p.q.Name())
}

// waitForRoom waits until a webhook may take more than before: until next if that is
// known, and otherwise for roomWait at most; false when ctx or patience has ended.
func (p *poller) waitForRoom(ctx context.Context, next time.Time) bool {
	wait := roomWait
	if !next.IsZero() {
		wait = time.Until(next)
	}
	last := p.patience > 0 && wait > p.patience
	if last && !next.IsZero() {
		return false
	}
	if last {
		wait = p.patience
	}
	p.noRoom.Store(true)
	defer p.noRoom.Store(false)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return !last
	case <-p.room:
		return true
	}
}

// arrival is one received message as its poller counts it: on the way until it has asked
// its webhooks, then by what holds it. The nil arrival counts nothing.
type arrival struct {
	p    *poller
	over bool // it has asked
	// posts are those that were not answered.
	posts atomic.Int64
	place atomic.Int32
}

// What a message is counted by, beside max_in_flight: it changes once.
const (
	inSlot    = iota // a slot of its queue
	lingers          // the webhooks that are still at it, while others are done with it
	isSettled        // those that wait for storage
)

// done says that the message has asked, or won't.
func (a *arrival) done() {
	if a == nil || a.over {
		return
	}
	a.over = true
	a.p.onTheWay.Add(-1)
	a.p.d.flows.Signal(a.p.q.Name())
}

// leaveSlot gives the message's slot to another one; false when that was done before.
func (a *arrival) leaveSlot(place int32) bool {
	if !a.place.CompareAndSwap(inSlot, place) {
		return false
	}
	<-a.p.slots
	return true
}

// taken says that one of the message's webhooks is done with it while others are still at
// it. From now on those count it, by what they may have in flight, and not the queue: its
// slots are for what the quickest of its webhooks can take.
func (a *arrival) taken() {
	if a == nil || a.place.Load() != inSlot || !a.p.d.lingering.begin() {
		return
	}
	if !a.leaveSlot(lingers) {
		a.p.d.lingering.end()
	}
}

// answered says that one of the POSTs is over, once for each. With the last one the slot is
// free for another message: records and settling wait for storage, and nobody's POST has
// to wait for that. settlingTimes as many messages as there are slots may be settling; beyond
// that they keep their slots, so that storage that does not keep up is not asked for ever more.
func (a *arrival) answered() {
	if a == nil || a.posts.Add(-1) != 0 {
		return
	}
	select {
	case a.p.settling <- struct{}{}:
		if !a.leaveSlot(isSettled) {
			<-a.p.settling
		}
	default:
	}
}

// end says that the message is settled, or will be by others.
func (a *arrival) end() {
	a.done() // also when it never came as far as its webhooks
	switch a.place.Load() {
	case inSlot:
		<-a.p.slots
	case lingers:
		a.p.d.lingering.end()
	case isSettled:
		<-a.p.settling
	}
	a.p.d.shares.give(a.p.q.Name(), 1)
}

// underWay counts the POSTs of a message that have not ended: answered, and recorded too.
type underWay struct {
	a *arrival
	n atomic.Int32
}

func newUnderWay(a *arrival, targets []target) *underWay {
	u := &underWay{a: a}
	for i := range targets {
		if targets[i].flow != nil {
			u.n.Add(1)
		}
	}
	if a != nil {
		a.posts.Store(int64(u.n.Load()))
	}
	return u
}

func (u *underWay) ended() {
	if u.n.Add(-1) > 0 {
		u.a.taken()
	}
}

// lingering counts the messages without a slot, at most so many.
type lingering struct {
	n    atomic.Int64
	most int64
}

// begin counts one more, unless there are too many.
func (l *lingering) begin() bool {
	if l.n.Add(1) <= l.most {
		return true
	}
	l.end()
	return false
}

func (l *lingering) end() { l.n.Add(-1) }
