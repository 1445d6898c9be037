package flow

import (
	"math"
	"math/rand/v2"
	"time"
)

// stalled is for how long no POST has ended although as many are in flight as may be; zero
// while that is nothing unusual.
func (f *Flow) stalled(now time.Time) time.Duration {
	usual := flowPatience
	if latency := f.meter.Latency(); latency > 0 {
		usual = min(max(stallTimes*latency, stallMin), flowPatience)
	}
	if still := now.Sub(f.moved); f.inFlight >= f.limit() && still > usual {
		return still
	}
	return 0
}

// pace is how many messages a second are worth receiving again for the webhook: what it
// takes, or as far as one can tell what it will take. One that hangs takes a window in the
// time that its POSTs hang for.
func (f *Flow) pace(now time.Time) float64 {
	capacity := f.capacity()
	took := f.stalled(now)
	if capacity == 0 {
		took = max(took, f.took)
	}
	if took == 0 {
		return capacity
	}
	hanging := float64(f.limit()) / took.Seconds()
	if capacity == 0 {
		return min(hanging, 1)
	}
	return min(hanging, capacity)
}

// returns is at how many messages a second those come back that could not be sent.
func (f *Flow) returns(now time.Time) float64 {
	turn := f.pacer.Turn()
	switch {
	case turn == 0:
		return f.pace(now)
	case f.settings.Rate > 0:
		return min(turn, f.settings.Rate)
	}
	return turn
}

// faster tells whether its messages are to come back twice as fast as when they were last spread
// over time: they would come back too late.
func (f *Flow) faster(now time.Time) bool {
	if f.spreadAt == 0 || f.pacer.Limited() && f.returns(now) < 2*f.spreadAt {
		return false
	}
	f.spreadAt = 0
	return true
}

// capacity is how many POSTs a second the webhook can take as far as one knows; 0 before the
// first answer.
func (f *Flow) capacity() float64 {
	capacity := f.meter.Capacity(f.settings, f.limit())
	if learned := f.pacer.Rate(); learned > 0 && (capacity == 0 || learned < capacity) {
		return learned
	}
	return capacity
}

// room is how many more messages could be sent to the webhook now, besides those that are
// on their way to it, at most most, and with up to ahead that wait for POSTs to end; and
// otherwise when it is worth asking again, zero when a POST has to end first.
func (f *Flow) room(onTheWay, ahead, most int, now time.Time) (n int, next time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.enabled {
		return 0, time.Time{}
	}
	if refused := f.closed(now); refused != nil {
		return 0, refused.Until
	}
	n = min(f.limit()+f.ahead(ahead, now)-f.inFlight-f.waiting-onTheWay, most)
	probes := f.token.Room(f.breaker.Room(f.settings.Breaker, now))
	if probes >= 0 {
		n = min(probes-f.waiting-onTheWay, most)
	}
	if n > 0 && f.settings.Rate > 0 {
		n, next = f.tokens(onTheWay, n, now)
	}
	if n > 0 && f.paced(now) && f.pacer.Limited() {
		n, next = f.places(onTheWay+f.waiting, n, now)
	}
	return max(n, 0), next
}

// hasRoom reports whether one more message could be sent to the webhook now.
func (f *Flow) hasRoom(now time.Time) bool {
	n, _ := f.room(0, 0, 1, now)
	return n > 0
}

// ahead is how many messages, of so many, may wait for its POSTs to end: half a window, if it
// takes that within a second.
func (f *Flow) ahead(most int, now time.Time) int {
	n := min(most, f.limit()/2)
	if n == 0 || f.pace(now) < float64(n) {
		return 0
	}
	return n
}

// places is tokens by the learned rate.
func (f *Flow) places(onTheWay, most int, now time.Time) (n int, next time.Time) {
	rate, first, soon := f.pacer.Rate(), f.pacer.Next(now), now.Add(flowPatience/2)
	batch := min(most, max(int(rate*flowPatience.Seconds()/4), 1))
	if !first.After(soon) {
		n = int(soon.Sub(first).Seconds()*rate) + 1
	}
	if n -= onTheWay; n >= batch {
		return min(n, most), time.Time{}
	}
	last := first.Add(time.Duration(float64(onTheWay+batch-1) / rate * float64(time.Second)))
	return 0, later(last.Add(-flowPatience/2), now.Add(time.Millisecond))
}

// tokens is room as far as the rate allows it: what may begin within half of flowPatience
// is received now, in batches of what may begin within a quarter of it.
func (f *Flow) tokens(onTheWay, most int, now time.Time) (n int, next time.Time) {
	batch := min(most, max(int(f.settings.Rate*flowPatience.Seconds()/4), 1))
	bucket, soon := f.bucket, now.Add(flowPatience/2) // a copy: nothing is taken
	for n = -onTheWay; n < most; n++ {
		at := bucket.Next(f.settings, now)
		switch {
		case at.After(soon) && n >= batch:
			return n, time.Time{}
		case at.After(soon) && n == batch-1:
			return 0, at.Add(-flowPatience / 2)
		}
		bucket.Take(f.settings, at)
	}
	return most, time.Time{}
}

// releasable is how many of its held messages are worth showing now: what the webhook takes
// within that time. It is negative when it can't be sent to at all.
func (f *Flow) releasable(now time.Time, within time.Duration) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.enabled || f.closed(now) != nil {
		return -1
	}
	if probes := f.token.Room(f.breaker.Room(f.settings.Breaker, now)); probes >= 0 {
		return max(probes-f.waiting, 0)
	}
	room := f.limit() - f.inFlight - f.waiting
	switch {
	case room <= 0:
		return 0
	case f.pacer.Limited(): // by its pace, however much may be in flight
		return int(f.returns(now)*within.Seconds() + rand.Float64())
	}
	return max(room, int(math.Ceil(f.pace(now)*within.Seconds())))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
