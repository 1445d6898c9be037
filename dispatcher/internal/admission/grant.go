package admission

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
	inSlot    holder = iota // its queue
	lingers                 // the webhooks that are still at it, while others are done with it
	isSettled               // those that wait for storage
)

// Grant turns one seat into that of a message that was received. Close must follow.
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

// Answered says that one of the POSTs is over. With the last one the slot is free for another
// message: records and settling wait for storage, and nobody's POST has to wait for that. As
// many messages may be settling as Bounds.Settling says; beyond that they keep their slots,
// so that storage that does not keep up is not asked for ever more. With one of several the
// slot is free too: the slots are for what the quickest of the webhooks can take.
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
		g.leaveSlot(isSettled)
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
	g.s.slots--
	g.s.signal()
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
		s.slots--
		s.signal()
	case lingers:
		a.lingering--
	case isSettled:
		s.settling--
	}
	a.giveBack(s.wants.Queue, s.share, 1)
}
