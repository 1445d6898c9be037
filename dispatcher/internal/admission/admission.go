// Package admission bounds the messages that this process has in hand, so that none is
// received that can't start within a second: of one queue, of all queues together, and on their
// way to webhooks that have room. All counts have one lock, under which nothing else is called.
package admission

import "sync"

// settlingTimes is how many messages may be settling for each slot. Where a POST is quick, a
// slot is taken for as long as a receive takes, one request to storage. Settling takes
// two and a half: what is left of the transaction that is under way, the next one with the
// record in it, and the delete.
const settlingTimes = 3

// Bounds are the most messages that may be in hand.
type Bounds struct {
	// Slots is the most of one queue whose POSTs are under way or begin at once.
	Slots int
	// Total is the most of all queues together.
	Total int
}

// Settling is how many messages of one queue, whose POSTs were all answered, may wait for
// storage beside those that have a slot.
func (b Bounds) Settling() int { return settlingTimes * b.Slots }

// lingering is how many messages may be without a slot because one of their webhooks is done
// with them while others are still at it.
func (b Bounds) lingering() int { return b.Total / 2 }

// Admission divides what the process may have in hand among its queues. Half of the total is
// for all queues in equal parts, which nobody else can take; the other half goes to whoever
// asks first. So a busy queue can use more than its part, and never keeps another one from
// its own. A queue with nothing in hand may always have one message, beyond the total too:
// parts shrink when a queue joins, and what the others have by then may hang for as long as
// their POSTs may take. Safe for concurrent use.
type Admission struct {
	bounds Bounds

	mu        sync.Mutex
	inHand    int
	lingering int
	shares    map[string]*share
	// part is what each queue has for itself, and reserved what of that is not in use.
	part, reserved int
	// seats are the pollers', and waiting those that wait for a share.
	seats   map[*Seats]struct{}
	waiting map[*Seats]struct{}
}

// share is what one queue has of the total, whatever pollers it has had.
type share struct {
	used   int
	joined int // by how many pollers
}

// New makes one that has admitted nothing.
func New(b Bounds) *Admission {
	return &Admission{bounds: b, shares: map[string]*share{}, seats: map[*Seats]struct{}{}, waiting: map[*Seats]struct{}{}}
}

// Counts are the messages in hand, and those of them without a slot because they linger.
func (a *Admission) Counts() (inHand, lingering int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inHand, a.lingering
}

// Seated are the slots in use at all pollers, and the messages that wait for storage without one.
func (a *Admission) Seated() (slots, settling int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.seats {
		slots, settling = slots+s.slots, settling+s.settling
	}
	return slots, settling
}

// Admit takes a place for one message that somebody else has received, unless the process has as
// many in hand as it may, by the same total and the same parts as for what is received here.
// Where ok, leave gives the place back.
func (a *Admission) Admit(queueName string) (leave func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sh := a.join(queueName, 1) // what is in hand keeps the queue's part from here on
	if a.available(sh) > 0 {
		a.use(sh, 1)
		ok = true
	}
	a.join(queueName, -1)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.giveBack(queueName, sh, 1)
	}, ok
}

// join notes that a queue has one poller more, or one less. What it has in use stays so.
// a.mu is held.
func (a *Admission) join(queueName string, more int) *share {
	sh := a.shares[queueName]
	if sh == nil {
		sh = &share{}
		a.shares[queueName] = sh
	}
	sh.joined += more
	a.dropUnused(queueName, sh)
	a.divide()
	a.wake()
	return sh
}

// dropUnused forgets a queue that has neither a poller nor a message. a.mu is held.
func (a *Admission) dropUnused(queueName string, sh *share) (dropped bool) {
	if sh.joined > 0 || sh.used > 0 {
		return false
	}
	delete(a.shares, queueName)
	return true
}

// divide sets the parts of the queues that there are. a.mu is held.
func (a *Admission) divide() {
	a.part = a.bounds.Total / 2 / max(len(a.shares), 1)
	a.reserved = 0
	for _, sh := range a.shares {
		a.reserved += max(a.part-sh.used, 0)
	}
}

// available is how much of the total a queue may take now. a.mu is held.
func (a *Admission) available(sh *share) int {
	others := a.reserved - max(a.part-sh.used, 0)
	if n := a.bounds.Total - a.inHand - others; n > 0 || sh.used > 0 {
		return max(n, 0)
	}
	return 1
}

// use notes that a queue uses n more. a.mu is held.
func (a *Admission) use(sh *share, n int) {
	a.reserved -= max(a.part-sh.used, 0)
	sh.used += n
	a.inHand += n
	a.reserved += max(a.part-sh.used, 0)
}

// giveBack notes that a queue uses n less. a.mu is held.
func (a *Admission) giveBack(queueName string, sh *share, n int) {
	a.use(sh, -n)
	if a.dropUnused(queueName, sh) {
		a.divide()
	}
	a.wake()
}

// wake lets those that wait for a share ask again. a.mu is held.
func (a *Admission) wake() {
	for s := range a.waiting {
		s.signal()
	}
	clear(a.waiting)
}
