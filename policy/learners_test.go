package policy_test

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// learner is what learns a rate in the comparison of ADR 0054.
type learner interface {
	next(now time.Time) time.Time
	take(at time.Time) (ticket uint32)
	report(ticket uint32, taken bool, began, now time.Time)
	rate() float64
}

// placed is a learner that gives places ahead, as the dispatcher takes them.
type placed interface {
	// place is the next place; it is not free when it is only worth asking again then.
	place(now time.Time) (at time.Time, free bool)
	// begin begins a POST whose place has come, says when it may begin, or that it is given back.
	begin(ticket uint32, now time.Time) (at time.Time, back bool)
}

// limiter says whether a POST is taken that arrives at that time.
type limiter func(now time.Time) bool

// strictly takes one POST in each interval.
func strictly(rate float64) limiter {
	var free time.Time
	gap := time.Duration(float64(time.Second) / rate)
	return func(now time.Time) bool {
		if now.Before(free) {
			return false
		}
		free = now.Add(gap)
		return true
	}
}

func tokenBucket(rate, burst float64) limiter {
	tokens, last := burst, start
	return func(now time.Time) bool {
		tokens = min(tokens+rate*now.Sub(last).Seconds(), burst)
		last = now
		if tokens < 1 {
			return false
		}
		tokens--
		return true
	}
}

func fixedWindow(n int, length time.Duration) limiter {
	var window int64
	taken := 0
	return func(now time.Time) bool {
		if w := now.UnixNano() / int64(length); w != window {
			window, taken = w, 0
		}
		taken++
		return taken <= n
	}
}

func slidingWindow(n int, length time.Duration) limiter {
	var at []time.Time
	return func(now time.Time) bool {
		for len(at) > 0 && now.Sub(at[0]) >= length {
			at = at[1:]
		}
		if len(at) >= n {
			return false
		}
		at = append(at, now)
		return true
	}
}

func unlimited(time.Time) bool { return true }

// then is one limiter until a time, and another one after it.
func then(first limiter, after time.Duration, second limiter) limiter {
	return func(now time.Time) bool {
		if now.Sub(start) < after {
			return first(now)
		}
		return second(now)
	}
}

// trial sends as much as a learner lets it to a receiver behind a limiter.
type trial struct {
	senders []learner
	accepts limiter
	latency time.Duration
	refusal time.Duration // how long one that is refused takes; 0: as long as others
	late    float64       // the share of answers that take 7 s
	window  bool          // POSTs in flight are bounded by a Window, too, as in the dispatcher
	flight  int           // POSTs in flight at most; 0: trialMost
	jitter  time.Duration
	ahead   time.Duration // how far ahead places are taken; 0: trialAhead
	posts   []trialPost
	rows    []policy.PeerRow // as the senders have written them last
	peers   []policy.Peers   // as they know each other
	reads   []time.Time      // when they read the rows next
	moved   []time.Time      // when a POST of theirs last began or ended
	counts  []policy.PeerRow // what they have sent
}

type trialPost struct {
	at    time.Time
	taken bool
	rate  float64
}

type event struct {
	at     time.Time
	sender int
	ticket uint32
	window uint32
	began  time.Time
	answer bool
	wakes  bool
	looks  bool // whether it is time for its row
	taken  bool
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

const (
	trialMost  = 64              // in flight
	trialAhead = time.Second     // as one webhook of a queue takes its places
	trialHost  = 2 * time.Second // as invocations of a Functions host do, and the webhooks of a queue that has several
)

func (tr *trial) run(length time.Duration, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	n := len(tr.senders)
	flying, planned := make([]int, n), make([]int, n) // those planned have their place, and wait for it
	wakes := make([]time.Time, n)                     // when it is worth looking for a place again
	windows := make([]policy.Window, n)
	tr.begin(n)
	most := trialMost
	if tr.flight > 0 {
		most = tr.flight
	}
	far := trialAhead
	if tr.ahead > 0 {
		far = tr.ahead
	}
	var queue events
	end := start.Add(length)
	plan := func(i int, now time.Time) {
		limit := most
		if tr.window {
			limit = windows[i].Size(most)
		}
		p, ahead := tr.senders[i].(placed)
		for s := tr.senders[i]; flying[i]+planned[i] < limit; {
			if !ahead {
				if planned[i] == 0 {
					planned[i]++
					heap.Push(&queue, event{at: s.next(now).Add(10 * time.Microsecond), sender: i})
				}
				return
			}
			at, free := p.place(now)
			if free && at.Sub(now) <= far {
				planned[i]++
				heap.Push(&queue, event{at: at.Add(10 * time.Microsecond), sender: i, ticket: s.take(at)})
				continue
			}
			if free {
				at = at.Add(-far)
			}
			if at = at.Add(10 * time.Microsecond); wakes[i].IsZero() || at.Before(wakes[i]) {
				wakes[i] = at
				heap.Push(&queue, event{at: at, sender: i, wakes: true})
			}
			return
		}
	}
	for i := range n {
		plan(i, start.Add(time.Duration(i)*7*time.Millisecond))
		if n > 1 {
			heap.Push(&queue, event{at: start.Add(time.Duration(i+1) * 300 * time.Millisecond), sender: i, looks: true})
		}
	}
	for queue.Len() > 0 {
		e := heap.Pop(&queue).(event)
		now := e.at
		if now.After(end) {
			return
		}
		i := e.sender
		s := tr.senders[i]
		tr.share(i, now)
		if e.looks {
			e.at = now.Add(time.Second)
			heap.Push(&queue, e)
			continue
		}
		if e.answer {
			sign := taken
			if !e.taken {
				sign = overloaded
			}
			if e.taken || s.rate() == 0 { // otherwise the learned rate is the answer to it
				windows[i].Report(sign, e.window, flying[i]+planned[i], most)
			}
			flying[i]--
			s.report(e.ticket, e.taken, e.began, now)
			tr.moved[i] = now
			tr.share(i, now)
			plan(i, now)
			continue
		}
		if e.wakes {
			if now.Equal(wakes[i]) {
				wakes[i] = time.Time{}
			}
			plan(i, now)
			continue
		}
		at, ticket := s.next(now), e.ticket
		if p, ok := s.(placed); ok {
			var back bool
			if at, back = p.begin(ticket, now); back {
				planned[i]--
				plan(i, now)
				continue
			}
		}
		if at.After(now) { // refused meanwhile
			e.at = at
			heap.Push(&queue, e)
			continue
		}
		if planned[i]--; ticket == 0 {
			ticket = s.take(now)
		}
		arrives := now.Add(time.Duration(rng.Float64() * float64(tr.jitter)))
		ok := tr.accepts(arrives)
		tr.posts = append(tr.posts, trialPost{now, ok, s.rate()})
		if tr.counts[i].Posts++; !ok {
			tr.counts[i].Failed++
		}
		flying[i]++
		tr.moved[i] = now
		takes := tr.latency
		if !ok && tr.refusal > 0 {
			takes = tr.refusal
		}
		if tr.late > 0 && rng.Float64() < tr.late {
			takes = 7 * time.Second
		}
		heap.Push(&queue, event{at: arrives.Add(takes), sender: i, ticket: ticket, window: windows[i].Generation(), began: now, answer: true, taken: ok})
		plan(i, now)
	}
}

// begin begins with senders that know nothing of each other.
func (tr *trial) begin(n int) {
	tr.rows, tr.counts = make([]policy.PeerRow, n), make([]policy.PeerRow, n)
	tr.peers, tr.reads, tr.moved = make([]policy.Peers, n), make([]time.Time, n), make([]time.Time, n)
	for i := range n {
		name := fmt.Sprint(i)
		tr.peers[i] = policy.Peers{Self: name, ClocksApart: time.Minute}
		tr.counts[i] = policy.PeerRow{Instance: name, StartedAt: start}
	}
}

const (
	rowsSoon   = time.Second     // after a sender has become limited it reads the others' rows
	rowsFirst  = 2 * time.Second // in its first 3 × rowsEvery
	rowsEvery  = 10 * time.Second
	rowsSeldom = time.Minute // where it sends nothing, or knows of no others and is limited for longer than that
)

// share has a sender write its row and read those of the others, when it is time for that.
func (tr *trial) share(i int, now time.Time) {
	p, ok := tr.senders[i].(*pacer)
	if !ok {
		return
	}
	st := p.State()
	if p.unsure && now.Sub(p.asked) >= rowsSoon {
		p.unsure = false
		p.Share(tr.peers[i].Read(tr.rows, now), now)
		return
	}
	switch {
	case st.Rate == 0:
		if tr.rows[i].Pace.Rate > 0 {
			tr.write(i, p, now)
		}
		tr.reads[i] = time.Time{}
		return
	case tr.reads[i].IsZero():
		tr.write(i, p, now)
		tr.reads[i] = now.Add(rowsSoon)
		return
	case p.Asks() && tr.reads[i].Sub(now) > rowsSoon:
		tr.reads[i] = now.Add(rowsSoon)
		return
	case now.Before(tr.reads[i]):
		return
	}
	tr.write(i, p, now)
	p.Share(tr.peers[i].Read(tr.rows, now), now)
	switch known := now.Sub(st.Since); {
	case known < 3*rowsEvery:
		tr.reads[i] = now.Add(rowsFirst)
	case now.Sub(tr.moved[i]) < rowsSeldom && (p.Shared() || known < rowsSeldom):
		tr.reads[i] = now.Add(rowsEvery)
	default:
		tr.reads[i] = now.Add(rowsSeldom)
	}
}

// write has a sender write its row.
func (tr *trial) write(i int, p *pacer, now time.Time) {
	tr.rows[i] = tr.counts[i]
	tr.rows[i].UpdatedAt, tr.rows[i].Pace, tr.rows[i].Closed = now, p.State(), p.breaker.State(now).Phase == policy.BreakerClosed
}

// between counts the POSTs of a stretch.
func (tr *trial) between(from, to time.Duration) (taken, refused int) {
	for _, p := range tr.posts {
		if at := p.at.Sub(start); at >= from && at < to {
			if p.taken {
				taken++
			} else {
				refused++
			}
		}
	}
	return taken, refused
}

// pacer is policy.Pacer beside a policy.Breaker, as the dispatcher has them.
type pacer struct {
	policy.Pacer
	rng         *rand.Rand
	breaker     policy.Breaker
	generations map[uint32]uint64  // of the breaker, by ticket
	places      []policy.PacePlace // of the pacer, by ticket
	asked       time.Time          // when others' rows were last asked for, as nothing was taken
	unsure      bool               // until they tell
	opened      int
}

var breakerDefaults = policy.DefaultFlow().Breaker

func (p *pacer) paced(now time.Time) bool {
	return p.breaker.Room(breakerDefaults, now) < 0 || p.breaker.Ramping()
}

// closed is until when nothing is sent; not later than now when something is.
func (p *pacer) closed(now time.Time) time.Time {
	at := p.breaker.Next(breakerDefaults, now)
	if p.unsure {
		at = later(at, p.asked.Add(time.Second))
	}
	return at
}

func (p *pacer) next(now time.Time) time.Time {
	at, _ := p.place(now)
	return at
}

func (p *pacer) place(now time.Time) (at time.Time, free bool) {
	if at = p.closed(now); at.After(now) {
		return at, false
	}
	if p.breaker.Room(breakerDefaults, now) == 0 {
		return now.Add(10 * time.Millisecond), false
	}
	if p.paced(now) {
		return p.Next(now), true
	}
	return now, true
}

func (p *pacer) take(at time.Time) uint32 {
	if p.generations == nil {
		p.generations = map[uint32]uint64{}
	}
	_, _, generation := p.breaker.Allow(breakerDefaults, at)
	if len(p.places) == 0 {
		p.places = append(p.places, policy.PacePlace{}) // 0 is no ticket
	}
	p.places = append(p.places, p.Take(at))
	ticket := uint32(len(p.places) - 1)
	p.generations[ticket] = generation
	return ticket
}

// begin does what a Ticket of dispatcher/internal/flow does.
func (p *pacer) begin(ticket uint32, now time.Time) (at time.Time, back bool) {
	switch closed := p.closed(now).After(now); {
	case closed && (p.unsure || !p.breaker.Current(p.generations[ticket])):
	case !p.paced(now):
		return now, false
	case p.Current(p.places[ticket]):
		return p.Start(now), false
	default:
		if at = p.Next(now); at.Sub(now) <= 2*time.Second {
			p.places[ticket] = p.Take(at)
			return at, false
		}
	}
	p.Give(p.places[ticket], now)
	p.breaker.Abort(p.generations[ticket])
	delete(p.generations, ticket)
	return now, true
}

func (p *pacer) rate() float64 { return p.Rate() }
func (p *pacer) report(ticket uint32, taken bool, began, now time.Time) {
	generation, place := p.generations[ticket], p.places[ticket]
	delete(p.generations, ticket)
	closed := p.breaker.State(now).Phase == policy.BreakerClosed
	if taken {
		p.Taken(place, began, now)
	} else {
		limited, broken := p.Refused(place, began, now, p.rng.Float64())
		if closed && !broken.IsZero() {
			p.breaker.Open(breakerDefaults, broken, now, p.rng.Float64())
			p.opened++
			return
		}
		if limited && (closed || p.breaker.Ramping()) {
			p.breaker.Abort(generation)
			return
		}
		if !limited && closed && !p.Shared() && (p.asked.IsZero() || now.Sub(p.asked) > time.Minute) {
			p.asked, p.unsure = now, true
		}
	}
	if p.breaker.Report(breakerDefaults, generation, taken, now, p.rng.Float64()) {
		switch p.breaker.State(now).Phase {
		case policy.BreakerHalfOpen:
			p.Resume(now)
		case policy.BreakerOpen:
			if closed {
				p.opened++
			}
		}
	}
}

func newPacer(seed uint64) learner { return &pacer{rng: rand.New(rand.NewPCG(seed, 3))} }

// cubic is what the adaptive retry of AWS SDKs does: CUBIC on the rate, in POSTs a second.
type cubicRate struct {
	fill, most, tokens, measured float64
	stamp, throttled, bucket     time.Time
	sent                         int
}

func (c *cubicRate) rate() float64 { return c.fill }

func (c *cubicRate) refill(now time.Time) {
	if c.fill > 0 {
		c.tokens = min(c.tokens+c.fill*now.Sub(c.stamp).Seconds(), max(c.fill, 1))
	}
	c.stamp = now
}

func (c *cubicRate) next(now time.Time) time.Time {
	if c.fill == 0 {
		return now
	}
	c.refill(now)
	if c.tokens >= 1 {
		return now
	}
	return now.Add(time.Duration((1 - c.tokens) / c.fill * float64(time.Second)))
}

func (c *cubicRate) take(at time.Time) uint32 {
	if c.fill > 0 {
		c.refill(at)
		c.tokens--
	}
	return 0
}

func (c *cubicRate) report(_ uint32, taken bool, _, now time.Time) {
	c.sent++
	if b := now.Truncate(500 * time.Millisecond); b.After(c.bucket) {
		if !c.bucket.IsZero() {
			c.measured = 0.8*float64(c.sent)/b.Sub(c.bucket).Seconds() + 0.2*c.measured
		}
		c.sent, c.bucket = 0, b
	}
	var rate float64
	if taken {
		if c.fill == 0 {
			return
		}
		k := math.Cbrt(c.most * 0.3 / 0.4)
		rate = 0.4*math.Pow(now.Sub(c.throttled).Seconds()-k, 3) + c.most
	} else {
		c.most = max(c.measured, 0.5)
		if c.fill > 0 {
			c.most = min(c.most, c.fill)
		}
		c.throttled = now
		rate = 0.7 * c.most
	}
	c.refill(now)
	c.fill = max(min(rate, 2*c.measured), 0.5)
	c.tokens = min(c.tokens, max(c.fill, 1))
}

// acceptedShare is client-side throttling as in the SRE book, and gRPC's of retries: POSTs
// are held back by chance when more were tried lately than k times what was taken.
type acceptedShare struct {
	k            float64
	tried, taken float64
	at           time.Time
	rng          *rand.Rand
	waitsFor     time.Time
}

func (a *acceptedShare) rate() float64         { return 0 }
func (a *acceptedShare) take(time.Time) uint32 { a.waitsFor = time.Time{}; return 0 }

func (a *acceptedShare) next(now time.Time) time.Time {
	if !a.waitsFor.IsZero() {
		return later(a.waitsFor, now)
	}
	at := now
	for { // a message is there each 5 ms
		a.decay(at)
		a.tried++
		if a.rng.Float64() >= (a.tried-a.k*a.taken)/(a.tried+1) {
			a.waitsFor = at
			return at
		}
		at = at.Add(5 * time.Millisecond)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (a *acceptedShare) decay(now time.Time) {
	f := math.Exp(-now.Sub(a.at).Seconds() / 30)
	a.tried, a.taken, a.at = a.tried*f, a.taken*f, now
}

func (a *acceptedShare) report(_ uint32, taken bool, _, now time.Time) {
	if taken {
		a.taken++
	}
}

// additive is AIMD on the rate: one more each second, halved by a refusal.
type additive struct {
	r    float64
	at   time.Time
	last time.Time
}

func (a *additive) rate() float64 { return a.r }

func (a *additive) next(now time.Time) time.Time {
	if a.r == 0 {
		return now
	}
	if at := a.last.Add(time.Duration(float64(time.Second) / a.r)); at.After(now) {
		return at
	}
	return now
}

func (a *additive) take(at time.Time) uint32 {
	if a.r > 0 {
		a.r += at.Sub(a.at).Seconds()
	}
	a.at, a.last = at, at
	return 0
}

func (a *additive) report(_ uint32, taken bool, began, now time.Time) {
	if !taken && (a.r == 0 || began.After(a.at.Add(-time.Duration(float64(time.Second)/a.r)))) {
		a.r = max(a.r/2, 0.1)
	}
}

// learners are those that are compared.
var learners = []struct {
	name string
	make func(seed uint64) learner
}{
	{"Pacer", newPacer},
	{"CUBIC", func(uint64) learner { return &cubicRate{} }},
	{"share", func(seed uint64) learner {
		return &acceptedShare{k: 1.1, at: start, rng: rand.New(rand.NewPCG(seed, 9))}
	}},
	{"AIMD", func(uint64) learner { return &additive{} }},
}

// learnerCases are the limiters of the field case C84, and others. least is the share of the
// limit that has to be reached in the stretch, most the share of POSTs that may be refused.
var learnerCases = []struct {
	name        string
	limit       float64
	accepts     func(rng *rand.Rand) limiter
	from, to    time.Duration
	latency     time.Duration
	senders     int
	least, most float64
}{
	{"(a) one in 50 ms, strictly", 20, func(*rand.Rand) limiter { return strictly(20) }, 10 * time.Second, 70 * time.Second, time.Millisecond, 1, 0.8, 0.1},
	{"(b) token bucket 20/s, burst 20", 20, func(*rand.Rand) limiter { return tokenBucket(20, 20) }, 10 * time.Second, 70 * time.Second, time.Millisecond, 1, 0.9, 0.1},
	{"(c) 60 in each full minute", 1, func(*rand.Rand) limiter { return fixedWindow(60, time.Minute) }, 2 * time.Minute, 6 * time.Minute, time.Millisecond, 1, 0.7, 0.1},
	{"(d) 2/s, strictly", 2, func(*rand.Rand) limiter { return strictly(2) }, 10 * time.Second, 70 * time.Second, time.Millisecond, 1, 0.8, 0.1},
	{"(e) 500/s, strictly", 500, func(*rand.Rand) limiter { return strictly(500) }, 30 * time.Second, 90 * time.Second, time.Millisecond, 1, 0.8, 0.1},
	{"(e) token bucket 500/s, burst 50", 500, func(*rand.Rand) limiter { return tokenBucket(500, 50) }, 30 * time.Second, 90 * time.Second, time.Millisecond, 1, 0.8, 0.1},
	{"(f) 20 in a sliding second", 20, func(*rand.Rand) limiter { return slidingWindow(20, time.Second) }, 10 * time.Second, 70 * time.Second, time.Millisecond, 1, 0.9, 0.1},
	{"20 in each 5 s", 4, func(*rand.Rand) limiter { return fixedWindow(20, 5*time.Second) }, 10 * time.Second, 70 * time.Second, time.Millisecond, 1, 0.8, 0.1},
	{"100 in each 15 s", 100. / 15, func(*rand.Rand) limiter { return fixedWindow(100, 15*time.Second) }, 30 * time.Second, 90 * time.Second, time.Millisecond, 1, 0.8, 0.1},
	{"10 in each 10 s", 1, func(*rand.Rand) limiter { return fixedWindow(10, 10*time.Second) }, 30 * time.Second, 230 * time.Second, time.Millisecond, 1, 0.8, 0.1},
	{"5 in each minute", 5. / 60, func(*rand.Rand) limiter { return fixedWindow(5, time.Minute) }, 5 * time.Minute, 25 * time.Minute, time.Millisecond, 1, 0.8, 0.1},
	{"5 in a sliding minute", 5. / 60, func(*rand.Rand) limiter { return slidingWindow(5, time.Minute) }, 5 * time.Minute, 25 * time.Minute, time.Millisecond, 1, 0.8, 0.1},
	{"1000 in each minute", 1000. / 60, func(*rand.Rand) limiter { return fixedWindow(1000, time.Minute) }, 2 * time.Minute, 6 * time.Minute, time.Millisecond, 1, 0.7, 0.1},
	{"token bucket 10/s, burst 100", 10, func(*rand.Rand) limiter { return tokenBucket(10, 100) }, 10 * time.Second, 70 * time.Second, time.Millisecond, 1, 0.9, 0.1},
	{"one in a minute, strictly", 1. / 60, func(*rand.Rand) limiter { return strictly(1. / 60) }, 6 * time.Minute, time.Hour, time.Millisecond, 1, 0.6, 0.15},
	{"20 in each 2 minutes", 1. / 6, func(*rand.Rand) limiter { return fixedWindow(20, 2*time.Minute) }, 10 * time.Minute, time.Hour, time.Millisecond, 1, 0.8, 0.1},
	{"100 in each 15 minutes", 100. / 900, func(*rand.Rand) limiter { return fixedWindow(100, 15*time.Minute) }, time.Hour, 4 * time.Hour, time.Millisecond, 1, 0.8, 0.1},
	{"100 in sliding 15 minutes", 100. / 900, func(*rand.Rand) limiter { return slidingWindow(100, 15*time.Minute) }, time.Hour, 4 * time.Hour, time.Millisecond, 1, 0.8, 0.1},
	{"1000 in each hour", 1000. / 3600, func(*rand.Rand) limiter { return fixedWindow(1000, time.Hour) }, 4 * time.Hour, 10 * time.Hour, time.Millisecond, 1, 0.8, 0.1},
	{"(a) answers take 50 ms", 20, func(*rand.Rand) limiter { return strictly(20) }, 10 * time.Second, 70 * time.Second, 50 * time.Millisecond, 1, 0.85, 0.1},
	{"200/s, 64 × 200 ms in flight", 200, func(*rand.Rand) limiter { return tokenBucket(200, 20) }, 30 * time.Second, 90 * time.Second, 200 * time.Millisecond, 1, 0.9, 0.1},
	{"20/s, answers take 300 ms", 20, func(*rand.Rand) limiter { return strictly(20) }, 10 * time.Second, 70 * time.Second, 300 * time.Millisecond, 1, 0.75, 0.1},
	{"limit × 4, from 30 s after it", 80, func(*rand.Rand) limiter { return then(strictly(20), time.Minute, strictly(80)) }, 90 * time.Second, 110 * time.Second, time.Millisecond, 1, 0.8, 0.1},
	{"limit gone, from 45 s after it", 3200, func(*rand.Rand) limiter { return then(tokenBucket(20, 2), time.Minute, unlimited) }, 105 * time.Second, 110 * time.Second, 20 * time.Millisecond, 1, 0.95, 0},
	{"limit halved, the 10 s after it", 10, func(*rand.Rand) limiter { return then(strictly(20), time.Minute, strictly(10)) }, 60 * time.Second, 70 * time.Second, time.Millisecond, 1, 0.7, 0.2},
	{"2/s × 4, from 45 s after it", 8, func(*rand.Rand) limiter { return then(strictly(2), time.Minute, strictly(8)) }, 105 * time.Second, 125 * time.Second, time.Millisecond, 1, 0.8, 0.1},
	{"2/s gone, from 90 s after it", 50, func(*rand.Rand) limiter { return then(strictly(2), time.Minute, tokenBucket(50, 50)) }, 150 * time.Second, 160 * time.Second, time.Millisecond, 1, 0.95, 0.1},
	{"60 a minute × 4, from a minute after it", 4, func(*rand.Rand) limiter {
		return then(fixedWindow(60, time.Minute), 4*time.Minute, fixedWindow(240, time.Minute))
	}, 5 * time.Minute, 7 * time.Minute, time.Millisecond, 1, 0.7, 0.1},
	{"60 a minute gone, from 3 minutes after it", 50, func(*rand.Rand) limiter {
		return then(fixedWindow(60, time.Minute), 4*time.Minute, tokenBucket(50, 50))
	}, 7 * time.Minute, 430 * time.Second, time.Millisecond, 1, 0.9, 0.1},
	{"two instances, 60 in each full minute", 1, func(*rand.Rand) limiter { return fixedWindow(60, time.Minute) }, 2 * time.Minute, 8 * time.Minute, time.Millisecond, 2, 0.75, 0.2},
	{"two instances, 500/s", 500, func(*rand.Rand) limiter { return strictly(500) }, 30 * time.Second, 60 * time.Second, time.Millisecond, 2, 0.75, 0.2},
	{"two instances, 100 in each 15 minutes", 100. / 900, func(*rand.Rand) limiter { return fixedWindow(100, 15*time.Minute) }, 2 * time.Hour, 4 * time.Hour, time.Millisecond, 2, 0.75, 0.2},
	{"two instances, one in 50 ms", 20, func(*rand.Rand) limiter { return strictly(20) }, 10 * time.Second, 130 * time.Second, time.Millisecond, 2, 0.75, 0.12},
	{"two instances, token bucket", 20, func(*rand.Rand) limiter { return tokenBucket(20, 20) }, 10 * time.Second, 130 * time.Second, time.Millisecond, 2, 0.75, 0.12},
	{"two instances, sliding second", 20, func(*rand.Rand) limiter { return slidingWindow(20, time.Second) }, 10 * time.Second, 130 * time.Second, time.Millisecond, 2, 0.75, 0.12},
	{"30 % refused at random (of 10/s)", 10, randomly(0.3), time.Minute, 3 * time.Minute, 100 * time.Millisecond, 1, 1, 0.4},
	{"5 % refused at random (of 10/s)", 10, randomly(0.05), time.Minute, 3 * time.Minute, 100 * time.Millisecond, 1, 10, 0.15},
}

func randomly(share float64) func(*rand.Rand) limiter {
	return func(rng *rand.Rand) limiter { return func(time.Time) bool { return rng.Float64() >= share } }
}

// What a receiver with a limit is sent: the worst of some runs of each learner, against each
// limiter. The table of docs/adr/0054-learned-rate.md is what this prints: task learners.
func TestThePacerReachesALimitAndIsSeldomRefused(t *testing.T) {
	const seeds = 5
	header, line := "| limiter, and when |", "|---|"
	compared := learners[:1]
	if testing.Verbose() { // the others are there to be looked at
		compared = learners
	}
	for _, l := range compared {
		header, line = header+" "+l.name+" |", line+"---|"
	}
	t.Log(header)
	t.Log(line)
	for _, c := range learnerCases {
		row := "| " + c.name + " |"
		for _, l := range compared {
			least, most := math.Inf(1), 0.0
			for seed := range uint64(seeds) {
				tr := &trial{accepts: c.accepts(rand.New(rand.NewPCG(seed, 1))), latency: c.latency, window: true, jitter: 200 * time.Microsecond}
				for i := range c.senders {
					s := l.make(seed + uint64(i)*100)
					tr.senders = append(tr.senders, s)
				}
				tr.run(c.to+time.Second, seed)
				ok, no := tr.between(c.from, c.to)
				least = min(least, float64(ok)/c.limit/(c.to-c.from).Seconds())
				most = max(most, float64(no)/float64(max(ok+no, 1)))
			}
			row += fmt.Sprintf(" %.0f %%, %.1f %% |", 100*least, 100*most)
			if l.name == "Pacer" && (least < c.least || most > c.most) {
				t.Errorf("%s: %.1f %% of the limit and %.1f %% refused, want at least %.0f %% and at most %.0f %%", c.name, 100*least, 100*most, 100*c.least, 100*c.most)
			}
		}
		t.Log(row)
	}
}
