package admission

import (
	"context"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// roomWait is the longest wait before it is asked again whether a webhook has room; Changed
// tells of room that is made before.
const roomWait = 30 * time.Second

// Wants is what one poller asks for.
type Wants struct {
	Queue string
	// Room is how many messages the queue's webhooks have room for, at most most: beside those onTheWay, which are not with them yet, and
	// with up to ahead that wait, within AheadTime, for POSTs to end. With none, next is when it is worth asking again, zero if nobody knows.
	Room func(onTheWay, ahead, most int, now time.Time) (n int, next time.Time)
	// Gather is how long it is worth waiting for more slots than are free: a receive costs
	// the same whatever it brings. Zero while the queue has no backlog.
	Gather func() time.Duration
	// Patience is how long to wait for room at most; zero is for ever.
	Patience time.Duration
	// Ahead says that messages may be received before there is a slot for them (see Start).
	Ahead bool
}

// Seats are what one poller may have in hand of its queue: slots for messages whose POSTs are
// not over, settlingTimes as many for those that wait for storage, and while slots turn
// over some for those that are received ahead and wait for a slot.
type Seats struct {
	a     *Admission
	wants Wants
	share *share
	// gathering is held by the receiver that asks; changed holds one when there may be
	// more for it than before.
	gathering chan struct{}
	changed   chan struct{}
	enough    chan struct{} // holds one when that is so with no more than wakeAt slots in use
	// starting is held by who waits for a slot; freed holds one when there may be one.
	starting chan struct{}
	freed    chan struct{}

	// The rest is guarded by a.mu.
	slots, settling int // in use
	coming          int // being received, or received and without a slot so far
	onTheWay        int // those with a slot that have not asked their webhooks yet
	waits           bool
	wakeAt          int
	turnover        turnover
}

// Join gives a queue its part, for one poller. Leave takes it back.
func (a *Admission) Join(w Wants) *Seats {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &Seats{
		a: a, wants: w, share: a.join(w.Queue, 1),
		gathering: make(chan struct{}, 1), changed: make(chan struct{}, 1), enough: make(chan struct{}, 1), wakeAt: -1,
		starting: make(chan struct{}, 1), freed: make(chan struct{}, 1),
		turnover: newTurnover(a.bounds.ahead(w.Ahead)),
	}
	a.seats[s] = struct{}{}
	return s
}

// Leave takes the poller's part back. What it has in hand may go on.
func (s *Seats) Leave() {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	delete(s.a.seats, s)
	s.a.join(s.wants.Queue, -1)
}

// Changed is told when there may be more room than before, by whoever makes it.
func (s *Seats) Changed() chan struct{} { return s.changed }

// signal tells that there may be more. a.mu is held.
func (s *Seats) signal() {
	if signal(s.changed); s.slots+s.coming <= s.wakeAt {
		signal(s.enough)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Wait reports whether the poller waits until something can start, and so does not ask
// storage.
func (s *Seats) Wait() bool {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	return s.waits
}

// manySeats are worth more than one receive while there is no backlog.
const manySeats = 8

// shortage is why nothing is admitted now.
type shortage int

const (
	none    shortage = iota
	noSlot           // all of the queue's are in use
	noRoom           // at any of its webhooks
	noShare          // of what the process may have in hand
	few              // a little, and more is worth waiting for
)

// Acquire waits until a message could start at once, or within AheadTime, and takes seats for as many as one receive can bring: where a
// webhook has room for them, in the queue's bounds and in the process's. It returns 0 when ctx has ended, or patience. Each seat has to
// be given a slot by Start, or given back by Return.
//
// While there is a backlog and other messages are in work it waits for half of what can be in work at a time, and no longer than Gather
// says, so that slow receivers of some messages never keep others waiting. Without a backlog it takes half of what is free, of manySeats
// or more: where storage is late with the receive, another one is made for the rest.
func (s *Seats) Acquire(ctx context.Context) int {
	select {
	case s.gathering <- struct{}{}:
		defer func() { <-s.gathering }()
	case <-ctx.Done():
		return 0
	}
	defer s.waiting(false)
	var gathered time.Time // when gathering ends
	for ctx.Err() == nil {
		now := time.Now()
		gather := s.wants.Gather() > 0
		ahead := 0
		if gather { // there is a backlog
			ahead = s.ahead(now)
		}
		room, next := s.room(ahead, now)
		n, short := s.take(room, ahead, gather, gather && (gathered.IsZero() || now.Before(gathered)))
		switch {
		case n > 0:
			return n
		case short != few:
			gathered = time.Time{}
			s.waiting(true)
		case gathered.IsZero():
			gathered = now.Add(s.wants.Gather())
		}
		if !s.wait(ctx, short, next, gathered) {
			return 0
		}
	}
	return 0
}

// TryAcquire takes one seat as Acquire does, and a slot for it, if there is one at once and
// nobody waits for one.
func (s *Seats) TryAcquire() bool {
	select {
	case s.gathering <- struct{}{}:
		defer func() { <-s.gathering }()
	default:
		return false
	}
	room, _ := s.room(0, time.Now())
	if n, _ := s.take(min(room, 1), 0, false, false); n == 0 {
		return false
	}
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	s.begin()
	return true
}

// Return gives back n seats without a slot.
func (s *Seats) Return(n int) {
	if n == 0 {
		return
	}
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	s.coming -= n
	s.a.giveBack(s.wants.Queue, s.share, n)
	s.signal()
}

// Start gives a seat, for which a message was received, its slot, which it waits for until ctx or
// until has ended: then it is false, and the seat is as it was. Only what was received ahead waits.
func (s *Seats) Start(ctx context.Context, until time.Time) bool {
	if s.tryStart() {
		return true
	}
	over := time.NewTimer(time.Until(until))
	defer over.Stop()
	select {
	case s.starting <- struct{}{}:
		defer func() { <-s.starting }()
	case <-over.C:
		return false
	case <-ctx.Done():
		return false
	}
	for !s.tryStart() {
		select {
		case <-s.freed:
		case <-over.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (s *Seats) tryStart() bool {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	if s.slots >= s.a.bounds.Slots {
		return false
	}
	s.begin()
	return true
}

// begin gives a seat its slot. a.mu is held.
func (s *Seats) begin() {
	s.coming--
	s.slots++
	s.onTheWay++
	if s.slots < s.a.bounds.Slots {
		signal(s.freed) // for the next one that waits
	}
}

// leave frees a slot. a.mu is held.
func (s *Seats) leave() {
	s.slots--
	s.turnover.note(time.Now())
	signal(s.freed)
	s.signal()
}

func (s *Seats) waiting(yes bool) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	s.waits = yes
}

// ahead is how many messages may be received now before there is a slot for them, which so many
// slots have to have come free for within AheadTime.
func (s *Seats) ahead(now time.Time) int {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	return s.turnover.within(now, AheadTime)
}

func (s *Seats) room(ahead int, now time.Time) (n int, next time.Time) {
	s.a.mu.Lock()
	onTheWay := s.onTheWay + s.coming
	s.a.mu.Unlock()
	return s.wants.Room(onTheWay, ahead, queue.MaxReceive, now)
}

// take takes seats for up to room messages, all of them while there is a backlog; none, and why, when there is none or when more are
// worth waiting for, as far as gather allows that. Whoever calls it holds gathering, so that nobody else takes any meanwhile.
func (s *Seats) take(room, ahead int, backlog, gather bool) (n int, short shortage) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	used := s.slots + s.coming
	free := s.a.bounds.Slots + ahead - used
	n = min(free, room)
	worth := min(queue.MaxReceive, (min(s.a.bounds.Slots, room+used)+1)/2)
	switch {
	case free <= 0:
		return 0, noSlot
	case room <= 0:
		return 0, noRoom
	case gather && used > 0 && n < worth:
		s.wakeAt = s.a.bounds.Slots + ahead - worth // or each slot that comes free would wake who gathers
		return 0, few
	}
	if all := n < queue.MaxReceive || free < 2*queue.MaxReceive; all && !backlog && n >= manySeats {
		n /= 2
	}
	if n = min(n, s.a.available(s.share)); n == 0 {
		s.a.waiting[s] = struct{}{}
		return 0, noShare
	}
	s.a.use(s.share, n)
	s.coming += n
	return n, none
}

// wait waits until it is worth asking again: until something has changed, until next where no webhook has room, for roomWait at most, and
// until gathered where more is to come, or enough slots are free. It is false when patience has ended.
func (s *Seats) wait(ctx context.Context, short shortage, next, gathered time.Time) bool {
	var over <-chan time.Time
	last := false
	if short == noRoom || short == few {
		wait := time.Until(gathered)
		if short == noRoom {
			if wait = roomWait; !next.IsZero() {
				wait = time.Until(next)
			}
			if last = s.wants.Patience > 0 && wait > s.wants.Patience; last {
				wait = s.wants.Patience
			}
		}
		if last && !next.IsZero() {
			return false
		}
		t := time.NewTimer(wait)
		defer t.Stop()
		over = t.C
	}
	changed := s.changed
	if short == few {
		changed = s.enough
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-over:
		return !last
	}
	return true
}

// Grant is one message that was admitted. It is on the way until it has asked its webhooks;
// then it is counted by what holds it. The nil Grant counts nothing.
type Grant struct {
	s *Seats
	// The rest is guarded by the lock of the Admission.
	asked bool
	posts int // those that were not answered
	by    holder
}

// holder is what a message is counted by, beside the total: it changes once.
type holder int

const (
	inSlot  holder = iota // its queue
	lingers               // the webhooks that are still at it, while others are done with it
	waits                 // those that wait for storage
)

// Grant turns one slot into that of a message that was received. Close must follow.
func (s *Seats) Grant() *Grant { return &Grant{s: s} }

// Asked says that the message has asked its webhooks, or won't.
func (g *Grant) Asked() {
	if g == nil {
		return
	}
	g.s.a.mu.Lock()
	defer g.s.a.mu.Unlock()
	g.leaveWay()
}

// leaveWay is Asked with the lock held.
func (g *Grant) leaveWay() {
	if g.asked {
		return
	}
	g.asked = true
	g.s.onTheWay--
	g.s.signal()
}

// Posting says that n POSTs begin; some says that a webhook is done with the message already.
func (g *Grant) Posting(n int, some bool) {
	if g == nil {
		return
	}
	g.s.a.mu.Lock()
	defer g.s.a.mu.Unlock()
	g.posts = n
	if some && n > 0 {
		g.linger()
	}
}

// Answered says that one of the POSTs is over. With the last one, and with one of several, the slot is free for another message: the slots
// are for what the quickest of the webhooks can take, and nobody's POST has to wait for storage. As many messages may be settling as
// Bounds.Settling says; beyond that they keep their slots, so that storage that does not keep up is not asked for ever more.
func (g *Grant) Answered() {
	if g == nil {
		return
	}
	g.s.a.mu.Lock()
	defer g.s.a.mu.Unlock()
	if g.posts--; g.posts > 0 {
		g.linger()
		return
	}
	if g.posts == 0 && g.by == inSlot && g.s.settling < g.s.a.bounds.Settling() {
		g.s.settling++
		g.leaveSlot(waits)
	}
}

// linger lets the message be counted by the webhooks that are still at it, unless too many
// are. The lock is held.
func (g *Grant) linger() {
	if g.by == inSlot && g.s.a.lingering < g.s.a.bounds.lingering() {
		g.s.a.lingering++
		g.leaveSlot(lingers)
	}
}

// leaveSlot gives the message's slot to another one. The lock is held.
func (g *Grant) leaveSlot(to holder) {
	g.by = to
	g.s.leave()
}

// Close says that the message is settled, or will be by others.
func (g *Grant) Close() {
	if g == nil {
		return
	}
	s, a := g.s, g.s.a
	a.mu.Lock()
	defer a.mu.Unlock()
	g.leaveWay() // also when it never came as far as its webhooks
	switch g.by {
	case inSlot:
		s.leave()
	case lingers:
		a.lingering--
	case waits:
		s.settling--
	}
	a.giveBack(s.wants.Queue, s.share, 1)
}
