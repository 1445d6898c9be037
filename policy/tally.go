package policy

import "time"

// BreakerWindow is the time over which a Breaker and a Meter count.
const BreakerWindow = 60 * time.Second

const (
	tallySlots = 6
	slotLength = BreakerWindow / tallySlots
)

// tally counts successes and failures of the last BreakerWindow, to within
// slotLength, in fixed memory.
type tally struct {
	ok, failed [tallySlots]uint32
	newest     int64 // the number of the newest slot, counted from 1970
}

func slotOf(now time.Time) int64 { return max(now.Unix(), 0) / int64(slotLength/time.Second) }

// advance forgets what is over the window. Callers read the clock before they take
// their turn, so a time just behind the newest slot counts there; a clock that was
// set back farther begins anew.
func (t *tally) advance(now time.Time) {
	slot := slotOf(now)
	switch behind := t.newest - slot; {
	case behind == 0 || behind == 1:
		return
	case behind > 0 || behind <= -tallySlots:
		*t = tally{newest: slot}
		return
	}
	for t.newest < slot {
		t.newest++
		i := t.newest % tallySlots
		t.ok[i], t.failed[i] = 0, 0
	}
}

func (t *tally) add(ok bool, now time.Time) {
	t.advance(now)
	i := t.newest % tallySlots
	if ok {
		t.ok[i]++
	} else {
		t.failed[i]++
	}
}

func (t *tally) counts(now time.Time) (ok, failed int) {
	t.advance(now)
	for i := range tallySlots {
		ok += int(t.ok[i])
		failed += int(t.failed[i])
	}
	return ok, failed
}

// Meter measures how fast a webhook takes POSTs. The zero Meter is ready. Like
// everything of flow control here it has no lock and reads no clock: its caller does
// both.
type Meter struct {
	taken   tally
	latency time.Duration
}

// latencyWeight is the share of a new measurement in the mean latency, as in TCP.
const latencyWeight = 8

// Add counts one POST that was answered without failing, and how long that took.
func (m *Meter) Add(took time.Duration, now time.Time) {
	m.taken.add(true, now)
	took = max(took, time.Microsecond)
	if m.latency == 0 {
		m.latency = took
	}
	m.latency += (took - m.latency) / latencyWeight
}

// Latency is the mean over recent POSTs; 0 before the first.
func (m *Meter) Latency() time.Duration { return m.latency }

// Rate is POSTs per second over BreakerWindow, or over the time since the first that
// counts, at least 1 s.
func (m *Meter) Rate(now time.Time) float64 {
	total, _ := m.taken.counts(now)
	for slot := m.taken.newest - tallySlots + 1; slot <= m.taken.newest; slot++ {
		if m.taken.ok[(slot+tallySlots)%tallySlots] > 0 {
			began := time.Unix(slot*int64(slotLength/time.Second), 0)
			return float64(total) / max(now.Sub(began), time.Second).Seconds()
		}
	}
	return 0
}

// Capacity is how many POSTs per second the webhook can take as far as one knows: a
// window of them in the time that one takes, at most the rate of its Flow. Unlike Rate
// it holds when nothing was sent for a while, after an outage for instance. It is the
// Flow's rate, or 0 without one, before the first answer.
func (m *Meter) Capacity(f Flow, window int) float64 {
	if m.latency == 0 {
		return f.Rate
	}
	capacity := float64(window) / m.latency.Seconds()
	if f.Rate > 0 {
		capacity = min(capacity, f.Rate)
	}
	return capacity
}
