package dispatcher

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

const (
	// flowPatience is how long a POST waits, holding its lease, until its webhook can take
	// it. What would wait longer is given back.
	flowPatience = 2 * time.Second
	// unknownWaiters bounds those that wait for a webhook of which nothing is known yet, in
	// multiples of what it may have in flight.
	unknownWaiters = 4
	// pauseWorthSaving is the shortest pause that is saved when it is asked for.
	pauseWorthSaving = 5 * time.Second
	// releaseAfter is how long a webhook has taken nothing when the next 2xx shows that it
	// takes messages again.
	releaseAfter = 30 * time.Second
	// A webhook stalls when none of its POSTs has ended for stallTimes what one takes on
	// average, at least stallMin and at most flowPatience.
	stallTimes = 8
	stallMin   = 250 * time.Millisecond
	// tookWeight is the share of a new measurement in what a POST takes, failed or not.
	tookWeight = 8
)

// flow is how one webhook fares in this process, and what it may be sent. It is the place
// where all of its POSTs pass: enter before, leave after.
type flow struct {
	id    string
	queue string

	mu       sync.Mutex
	url      string
	enabled  bool
	why      string // it is disabled
	settings policy.Flow
	resetAt  time.Time // of the registration
	since    time.Time // when it was registered, or began anew

	window  policy.Window
	bucket  policy.Bucket
	breaker policy.Breaker
	pause   policy.Pause
	slots   policy.Slots
	meter   policy.Meter
	auto    policy.AutoDisable

	inFlight, waiting            int
	moved                        time.Time     // when a POST last began or ended
	took                         time.Duration // by a POST on average, also one that fails
	freed                        chan struct{} // closed when a POST has ended; nil while nobody waits
	delivered, failed, postponed int64
	refused                      int64  // answers that say nothing about the receiver, a 400 for instance
	answers                      lately // POSTs, and those of them that were refused
	lastFailure                  time.Time
	toldUnusable                 time.Time // when the log last said that no request can be made
	// releasedAt is when the webhook was last found to take messages again: what was held
	// before is due. told hears of it; it may be nil.
	releasedAt time.Time
	told       func(webhookID string)
	lastOK     time.Time // when a POST was last answered 2xx
	changed    bool      // since its health was last written
}

func newFlow(r tables.Registration) *flow {
	f := &flow{
		id: r.ID, queue: r.Queue, url: r.URL, enabled: r.Enabled, why: r.DisabledReason,
		settings: r.Flow.OrDefault(), resetAt: r.ResetAt, since: r.CreatedAt,
	}
	if !r.ResetAt.IsZero() {
		f.since = r.ResetAt
	}
	return f
}

// update takes in the registration as it is now. A webhook that was enabled, though it was
// so already, or has another URL, begins anew; reset tells.
func (f *flow) update(r tables.Registration) (reset bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	anew := !r.ResetAt.Equal(f.resetAt)
	reset = anew || r.URL != f.url || r.Enabled && !f.enabled
	more := f.settings != r.Flow.OrDefault()
	f.url, f.enabled, f.why, f.settings, f.resetAt = r.URL, r.Enabled, r.DisabledReason, r.Flow.OrDefault(), r.ResetAt
	if !reset {
		if more {
			f.release(time.Now())
		}
		if !f.settings.Breaker.Enabled && f.breaker.State(time.Now()).Phase != policy.BreakerClosed {
			f.breaker.Reset() // nothing waits for a probe any more
			f.changed = true
		}
		return false
	}
	f.since = time.Now()
	if anew {
		f.since = r.ResetAt
	}
	f.release(time.Now())
	f.window.Reset()
	f.breaker.Reset()
	f.pause.Reset()
	f.auto.Reset()
	f.answers, f.lastOK = lately{}, time.Time{}
	f.changed = true
	return true
}

// release lets what was held before now go on: the webhook takes messages again, or more.
func (f *flow) release(now time.Time) {
	f.slots.Reset()
	f.releasedAt = now
	if f.told != nil {
		f.told(f.id)
	}
}

// limit is how many POSTs may be in flight now. f.mu is held.
func (f *flow) limit() int {
	if !f.settings.Adaptive {
		return f.settings.Concurrency
	}
	return f.window.Size(f.settings.Concurrency)
}

// ticket is the right to one POST.
type ticket struct {
	f          *flow
	at         time.Time // when the POST may begin
	window     uint32
	generation uint64
	used       bool // it has left or was aborted
}

// refusal says why a webhook is not sent to now, and when it is worth asking again.
type refusal struct {
	reason policy.Reason
	until  time.Time
}

// enter asks for one POST. It is allowed, refused, or worth waiting for: then wait has to be
// called. What is allowed must leave or be aborted.
func (f *flow) enter(now time.Time) (t *ticket, refused *refusal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, refused = f.try(now)
	if t == nil && refused == nil {
		if f.worthWaiting(now) {
			f.waiting++
			return nil, nil
		}
		refused = &refusal{policy.WebhookBusy, now}
	}
	if refused != nil {
		f.postpone(refused, now)
	}
	return t, refused
}

// wait waits for one POST after enter said that it is worth it: until ctx ends, or
// flowPatience, or the webhook is not sent to any more.
func (f *flow) wait(ctx context.Context) (*ticket, *refusal) {
	patience := time.NewTimer(flowPatience)
	defer patience.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.waiting-- }()
	for over := false; ; {
		now := time.Now()
		t, refused := f.try(now)
		if t == nil && refused == nil && over {
			refused = &refusal{policy.WebhookBusy, now}
		}
		if t != nil {
			return t, nil
		}
		if refused != nil {
			f.postpone(refused, now)
			return nil, refused
		}
		if f.freed == nil {
			f.freed = make(chan struct{})
		}
		freed := f.freed
		f.mu.Unlock()
		select {
		case <-freed:
		case <-patience.C:
			over = true
		case <-ctx.Done():
			over = true
		}
		f.mu.Lock()
	}
}

// try allows one POST, or says why there is none; neither when as many are in flight as
// may be. f.mu is held.
func (f *flow) try(now time.Time) (*ticket, *refusal) {
	if refused := f.closed(now); refused != nil {
		return nil, refused
	}
	if f.inFlight >= f.limit() && !f.probeDue(now) {
		return nil, nil
	}
	at := f.bucket.Next(f.settings, now)
	if at.Sub(now) > flowPatience {
		return nil, &refusal{policy.WebhookBusy, at}
	}
	ok, _, generation := f.breaker.Allow(f.settings.Breaker, now)
	if !ok {
		return nil, &refusal{policy.WebhookFailing, f.breaker.Next(f.settings.Breaker, now)}
	}
	f.bucket.Take(f.settings, at)
	f.inFlight++
	f.moved = now
	return &ticket{f: f, at: at, window: f.window.Generation(), generation: generation}, nil
}

// probeDue reports whether the next POST would be a probe. It waits for no POST of before
// the breaker opened: those may hang for long, and say nothing about now.
func (f *flow) probeDue(now time.Time) bool {
	st := f.breaker.State(now)
	return st.Phase == policy.BreakerOpen && !st.NextProbe.After(now)
}

// worthWaiting reports whether a POST that has to wait for others to end is likely to
// begin within flowPatience.
func (f *flow) worthWaiting(now time.Time) bool {
	if f.stalled(now) > 0 {
		return false
	}
	capacity := f.meter.Capacity(f.settings, f.limit())
	if capacity == 0 {
		return f.waiting < unknownWaiters*f.limit()
	}
	return float64(f.waiting+1) <= capacity*flowPatience.Seconds()
}

// stalled is for how long no POST has ended although as many are in flight as may be; zero
// while that is nothing unusual.
func (f *flow) stalled(now time.Time) time.Duration {
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
func (f *flow) pace(now time.Time) float64 {
	capacity := f.meter.Capacity(f.settings, f.limit())
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

// ended notes that a POST has ended.
func (f *flow) ended() {
	f.inFlight--
	f.moved = time.Now()
	if f.freed != nil {
		close(f.freed)
		f.freed = nil
	}
}

// closed says why nothing may be sent now, whatever is in flight; nil when it may.
func (f *flow) closed(now time.Time) *refusal {
	if until := f.pause.Until(now); !until.IsZero() {
		return &refusal{policy.WebhookPaused, until}
	}
	if next := f.breaker.Next(f.settings.Breaker, now); next.After(now) {
		return &refusal{policy.WebhookFailing, next}
	}
	return nil
}

// postpone gives a message that is refused its place in the line of those that come back.
func (f *flow) postpone(r *refusal, now time.Time) {
	f.postponed++
	r.until = f.slots.Reserve(f.pace(now), r.until, now, rand.Float64())
}

// abort gives a ticket back whose POST was not made, and its place by the rate with it.
func (t ticket) abort() {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	t.f.ended()
	t.f.bucket.Give()
	t.f.breaker.Abort(t.generation)
}

// outcome is what one POST said about its webhook.
type outcome struct {
	sign  policy.Sign
	began time.Time
	took  time.Duration
	// first: no attempt for this message had failed before.
	first bool
	// ours: what failed is our own network's fault, as far as one can tell.
	ours bool
}

// leave takes in what came of a POST. turned is the phase that the breaker went into with
// it, empty when it stayed as it was.
func (t ticket) leave(o outcome, now time.Time) (turned policy.BreakerPhase) {
	f := t.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.window.Report(o.sign, t.window, f.inFlight, f.settings.Concurrency)
	f.ended()
	if o.sign == (policy.Sign{}) {
		f.breaker.Abort(t.generation)
		return ""
	}
	if f.breaker.Report(f.settings.Breaker, t.generation, !o.sign.Failed, now, rand.Float64()) {
		f.changed = true
		if turned = f.breaker.State(now).Phase; turned == policy.BreakerClosed { // it takes messages again
			f.release(now)
		}
	}
	if !o.sign.Failed {
		f.meter.Add(o.took, now)
	}
	if f.took == 0 {
		f.took = o.took
	}
	f.took += (o.took - f.took) / tookWeight
	refused := !o.sign.Delivered && !o.sign.Failed
	f.answers.add(refused, now)
	switch {
	case refused:
		f.refused++
	case o.sign.Delivered:
		f.delivered++
		if f.postponed > 0 && now.Sub(f.lastOK) > releaseAfter {
			f.release(now)
		}
		f.lastOK = now
		f.pause.Succeeded(o.began)
		f.changed = f.changed || !f.auto.State().FailingSince.IsZero()
		f.auto.Succeeded(now)
	case o.sign.Failed:
		f.failed++
		f.lastFailure = now
		if o.first && !o.ours {
			f.auto.Failed(now)
			f.changed = true
		}
	}
	return turned
}

// askPause keeps everything from the webhook for as long as it asked, and reports whether
// that is worth saving at once.
func (f *flow) askPause(d time.Duration, now time.Time) (save bool) {
	if d <= 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pause.Ask(d, now)
	f.changed = true
	return d >= pauseWorthSaving
}

// room is how many more messages could be sent to the webhook now, besides those that are
// on their way to it, at most most; and otherwise when it is worth asking again, zero when
// a POST has to end first.
func (f *flow) room(onTheWay, most int, now time.Time) (n int, next time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.enabled {
		return 0, time.Time{}
	}
	if refused := f.closed(now); refused != nil {
		return 0, refused.until
	}
	n = min(f.limit()-f.inFlight-f.waiting-onTheWay, most)
	if f.breaker.State(now).Phase != policy.BreakerClosed {
		n = 0
		if f.probeDue(now) {
			n = min(1-onTheWay, most)
		}
	}
	if n <= 0 || f.settings.Rate == 0 {
		return max(n, 0), time.Time{}
	}
	return f.tokens(onTheWay, n, now)
}

// tokens is room as far as the rate allows it: what may begin within half of flowPatience
// is received now, in batches of what may begin within a quarter of it.
func (f *flow) tokens(onTheWay, most int, now time.Time) (n int, next time.Time) {
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

// takeChange returns the health to write if it has changed since it was last asked for.
func (f *flow) takeChange() (tables.Health, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.changed {
		return tables.Health{}, false
	}
	f.changed = false
	now := time.Now()
	return tables.Health{
		WebhookID: f.id, Breaker: f.breaker.State(now), PausedUntil: f.pause.Until(now), Failing: f.auto.State(),
		LastFailureAt: f.lastFailure, Window: f.limit(), InFlight: f.inFlight,
		Delivered: f.delivered, Failed: f.failed, Postponed: f.postponed, UpdatedAt: now,
	}, true
}

func (f *flow) markChanged() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed = true
}

// lastDelivered is when a POST was last answered 2xx; zero when none was.
func (f *flow) lastDelivered() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastOK
}

// begun is the ResetAt that the webhook is known with.
func (f *flow) begun() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.resetAt
}

func (f *flow) isFailing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.enabled && !f.auto.State().FailingSince.IsZero()
}

// overdue reports whether the webhook has failed for too long, with what others have seen.
func (f *flow) overdue(others []policy.AutoDisableState, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return policy.Together(f.since, append(others, f.auto.State())...).Due(f.settings, now)
}

// unusableLogEvery is how often the log says that no request can be made to a webhook.
const unusableLogEvery = time.Minute

// tellUnusable reports whether the log is to say now that no request can be made.
func (f *flow) tellUnusable(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.toldUnusable.IsZero() && now.Sub(f.toldUnusable) < unusableLogEvery {
		return false
	}
	f.toldUnusable = now
	return true
}
