package policy

import (
	"cmp"
	"slices"
	"time"
)

const (
	// PeerFirst is for how long the first row that is read of an instance counts, by that instance's clock. Those that know of
	// each other write each 10 s. Of two that don't yet, and write each minute, at least one sees the other, since it is longer than half of that.
	PeerFirst = 35 * time.Second
	// peerLate is by how much a row may be later than the one before it was, peerOften how often rows are taken to be written
	// at most, and peerSeldom how seldom.
	peerLate   = 5 * time.Second
	peerOften  = 10 * time.Second
	peerSeldom = time.Minute
	// peerOld is how long an instance may have been at work, or gone, for what it has sent to count as sent just now where its row is read first.
	peerOld = time.Hour
)

// Peers are the instances that have a limit of one webhook in common, by the rows that each of them writes. Their clocks differ: whether an
// instance is still there, and what was before what, goes by when this process saw its row change.
type Peers struct {
	// Self is the instance that reads, and ClocksApart how far the others' clocks may be from its own.
	Self        string
	ClocksApart time.Duration
	seen        []peer
	leader      string // the instance that leads, this one too
	taken       int64  // of what others have sent since their rows were read first
}

// PeerRow is what an instance has written of the webhook.
type PeerRow struct {
	Instance string
	// StartedAt and UpdatedAt are by the clock of the instance.
	StartedAt, UpdatedAt time.Time
	// Posts is how many it has sent since it started, and Failed how many of these failed.
	Posts, Failed int64
	Pace          PaceState
	// Closed tells that its breaker is.
	Closed bool
}

// peer is an instance as its last row, and the one before, tell. A rate that one may use and does not use takes nothing of a
// limit; what it sends is known when it has written its row again. Where it is not said otherwise a time is that of a reading.
type peer struct {
	row   PeerRow
	read  time.Time     // when the row was read first
	still time.Time     // when the same one was first read again; zero: it was not
	every time.Duration // from this row to its next one, by its clock
	tells Others
	// tookFrom begins the last time between two rows in which some POSTs were taken, and vainAt is when it was first told since then that
	// all had failed, or that its breaker is not closed. By passedAt others' POSTs were taken in a time that began after that. still fails: all that it
	// has sent since passedAt.
	tookFrom, vainAt, passedAt time.Time
	fails                      bool
}

// there tells whether it is limited, and its row no older than that of an instance which is at work.
func (p *peer) there(now time.Time) bool {
	return p.row.Pace.Rate > 0 && (p.still.IsZero() || now.Sub(p.still) < p.every+peerLate)
}

// vain tells whether nothing of what it sends is taken while others' POSTs are. In a window of a limit in which nothing is taken all of them fail, and
// one of them is the first to be taken after it.
func (p *peer) vain() bool { return !p.passedAt.IsZero() && (p.fails || !p.row.Closed) }

// then is the instance by a row that is read now.
func (p *peer) then(row PeerRow, clocksApart time.Duration, now time.Time) peer {
	next := peer{
		row: row, read: now, every: PeerFirst - peerLate,
		tells: Others{Rate: row.Pace.Rate, Taken: row.Pace.Rate, Learned: row.Pace.Rate, Instances: 1, Noise: row.Pace.Noise, Window: row.Pace.Window},
	}
	if !row.Closed {
		next.vainAt = now
	}
	length := row.UpdatedAt.Sub(p.row.UpdatedAt)
	switch {
	case p.read.IsZero():
		next.still = earlier(row.UpdatedAt.Add(clocksApart), now)
		return next
	case !row.StartedAt.Equal(p.row.StartedAt) || length < 0: // a new process, or its clock was set back
		return next
	case length == 0:
		next = *p
		if p.still.IsZero() {
			next.still = now
		}
		return next
	}
	if next.every = min(max(length, peerOften), peerSeldom); p.row.Pace.Rate <= 0 { // it was not limited
		return next
	}
	o := &next.tells
	if o.Posts, o.Failed = row.Posts-p.row.Posts, row.Failed-p.row.Failed; o.Posts == 0 { // it may write seldom from now on
		next.every = peerSeldom
	}
	o.Rate = min(row.Pace.Rate, float64(o.Posts+1)/length.Seconds()) // never none: it is limited
	o.Taken = min(o.Rate, float64(o.Posts-o.Failed+1)/length.Seconds())
	next.tookFrom = p.tookFrom
	switch {
	case o.Posts > o.Failed:
		next.tookFrom, next.vainAt = p.read, time.Time{}
	case !p.vainAt.IsZero():
		next.vainAt, next.passedAt = p.vainAt, p.passedAt
		next.fails = p.fails || o.Posts > 0 && !p.passedAt.IsZero() && !p.read.Before(p.passedAt)
	case o.Posts > 0:
		next.vainAt = now
	}
	return next
}

// since is how many of its POSTs were taken from its last row to this one, or since it started, if it has done so lately and is not gone for long.
func (p *peer) since(row PeerRow, now time.Time) int64 {
	switch {
	case p.read.IsZero() && (row.UpdatedAt.Sub(row.StartedAt) >= peerOld || now.Sub(row.UpdatedAt) >= peerOld):
		return 0
	case !row.StartedAt.Equal(p.row.StartedAt):
		return row.Posts - row.Failed
	}
	return max(row.Posts-row.Failed-p.row.Posts+p.row.Failed, 0)
}

// Read takes in the rows of all instances as they are now, and returns what the others have learned.
func (p *Peers) Read(rows []PeerRow, now time.Time) (others Others) {
	there := p.take(rows, now)
	leader := p.leads(there, now)
	for _, one := range there {
		if one.row.Instance == p.Self {
			continue
		}
		tells := one.tells
		if one.vain() { // it has learned what holds for others no more
			tells.Taken, tells.Learned, tells.Instances, tells.Window = 0, 0, 0, 0
		}
		others = others.Plus(tells)
	}
	others.Sum = p.taken
	if leader != nil && leader.row.Instance != p.Self && others.Rate > 0 {
		others.Leader, others.Learned = leader.row.Instance, leader.tells.Learned
	}
	return others
}

// take takes in the rows, and returns the instances that are there.
func (p *Peers) take(rows []PeerRow, now time.Time) (there []*peer) {
	before := make(map[string]*peer, len(p.seen))
	for i := range p.seen {
		before[p.seen[i].row.Instance] = &p.seen[i]
	}
	p.seen = nil
	var tookFrom time.Time // that of the one that was taken last
	for _, row := range rows {
		last := before[row.Instance]
		if last == nil {
			last = &peer{}
		}
		one := last.then(row, p.ClocksApart, now)
		if p.seen = append(p.seen, one); row.Instance != p.Self {
			p.taken += last.since(row, now)
		}
	}
	for i := range p.seen {
		if one := &p.seen[i]; one.there(now) {
			there = append(there, one)
			tookFrom = later(tookFrom, one.tookFrom)
		}
	}
	for _, one := range there {
		if !one.vainAt.IsZero() && one.passedAt.IsZero() && !tookFrom.Before(one.vainAt) {
			one.passedAt = now
		}
	}
	return there
}

// leads is the instance that leads now. One that has led goes on until its next row is read: the others' rows may be of a later time, in which it was
// taken more than its own tells yet.
func (p *Peers) leads(there []*peer, now time.Time) *peer {
	led := slices.IndexFunc(there, func(one *peer) bool {
		return one.row.Instance == p.leader && !one.vain() && !one.read.Equal(now)
	})
	if led >= 0 {
		return there[led]
	}
	leader := leading(there)
	if p.leader = ""; leader != nil {
		p.leader = leader.row.Instance
	}
	return leader
}

// leading is the instance that is taken most often, or of these the one that has learned most, or the first by name. One of which nothing is taken where others are is none.
func leading(there []*peer) (leader *peer) {
	for _, one := range there {
		if one.vain() {
			continue
		}
		if leader == nil || cmp.Or(-cmp.Compare(one.tells.Taken, leader.tells.Taken), -cmp.Compare(one.tells.Learned, leader.tells.Learned), cmp.Compare(one.row.Instance, leader.row.Instance)) < 0 {
			leader = one
		}
	}
	return leader
}
