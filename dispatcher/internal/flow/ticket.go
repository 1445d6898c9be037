package flow

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
)

// Ticket is the right to one POST, which Begin waits for.
type Ticket struct {
	f          *Flow
	at         time.Time // when the POST may begin
	window     uint32
	pace       policy.PacePlace
	generation uint64
	used       bool // it was handed back
	spared     bool
	quota      bool // it was refused as by a quota that is used up
	probe      bool // it was one, and was refused as too much
	throttled  bool // the webhook has said nothing else for a while than that it is sent too much
	tries      bool // it finds out whether a token can be had
}

// Spared tells, once it was Answered, whether the webhook's refusal is not the message's
// fault: it takes others, or refuses whatever it is sent.
func (t *Ticket) Spared() bool { return t.spared }

// Probed tells, once it was Answered, whether it was a probe that the webhook refused as more than it takes now.
func (t *Ticket) Probed() bool { return t.probe }

// Quota tells, once it was Answered, whether it was refused as by a quota that is used up.
func (t *Ticket) Quota() bool { return t.quota }

// Enter asks for one POST. It is allowed, refused, or worth waiting for: then Wait has to be
// called. The ticket for what is allowed must be handed back: Answered or Unused.
func (f *Flow) Enter(now time.Time) (t *Ticket, refused *Refusal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, refused = f.try(now)
	if t == nil && refused == nil {
		if f.worthWaiting(now) {
			f.waiting++
			return nil, nil
		}
		refused = &Refusal{policy.WebhookBusy, now}
	}
	if refused != nil {
		f.postpone(refused, now)
	}
	return t, refused
}

// Wait waits for one POST after Enter said that it is worth it: until ctx ends, or
// flowPatience, or the webhook is not sent to any more.
func (f *Flow) Wait(ctx context.Context) (*Ticket, *Refusal) {
	patience := time.NewTimer(flowPatience)
	defer patience.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.waiting-- }()
	for over := false; ; {
		now := time.Now()
		t, refused := f.try(now)
		if t == nil && refused == nil && over {
			refused = &Refusal{policy.WebhookBusy, now}
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
func (f *Flow) try(now time.Time) (*Ticket, *Refusal) {
	if refused := f.closed(now); refused != nil {
		return nil, refused
	}
	probes := f.token.Room(f.breaker.Room(f.settings.Breaker, now))
	if probes == 0 || probes < 0 && f.inFlight >= f.limit() {
		return nil, nil
	}
	at := f.bucket.Next(f.settings, now)
	if f.paced(now) {
		at = later(at, f.pacer.Next(now))
	}
	if at.Sub(now) > flowPatience {
		return nil, &Refusal{policy.WebhookBusy, at}
	}
	_, _, generation := f.breaker.Allow(f.settings.Breaker, now)
	f.bucket.Take(f.settings, at)
	f.inFlight++
	f.moved = now
	return &Ticket{f: f, at: at, pace: f.pacer.Take(at), window: f.window.Generation(), generation: generation, tries: f.token.Try()}, nil
}

// Begin waits until the POST may begin. When others were refused over a limit meanwhile, it
// takes another place. Where that is too far away, or the webhook has asked for a pause or is found
// to fail meanwhile, it is refused: then the ticket is Unused. When ctx has ended it returns.
func (t *Ticket) Begin(ctx context.Context) *Refusal {
	over := time.Now().Add(flowPatience)
	for {
		if wait := time.Until(t.at); wait > 0 && !retry.Sleep(ctx, wait) {
			return nil
		}
		if begins, refused := t.begins(over); begins || refused != nil {
			return refused
		}
	}
}

func (t *Ticket) begins(over time.Time) (now bool, refused *Refusal) {
	f := t.f
	f.mu.Lock()
	defer f.mu.Unlock()
	at := time.Now()
	if r := f.closed(at); r != nil && (r.Reason == policy.WebhookPaused || r.Reason == policy.NoToken || !f.breaker.Current(t.generation)) {
		f.postpone(r, at)
		return false, r
	}
	if !f.paced(at) {
		return true, nil
	}
	current := f.pacer.Current(t.pace)
	if current {
		t.at = f.pacer.Start(at)
	} else {
		t.at = f.pacer.Next(at)
	}
	switch {
	case current && !t.at.After(at):
		return true, nil
	case t.at.After(over):
		r := &Refusal{policy.WebhookBusy, t.at}
		f.postpone(r, at)
		return false, r
	case !current:
		t.pace = f.pacer.Take(t.at)
	}
	return false, nil
}

// worthWaiting reports whether a POST that has to wait for others to end is likely to
// begin within flowPatience.
func (f *Flow) worthWaiting(now time.Time) bool {
	if f.stalled(now) > 0 {
		return false
	}
	capacity := f.capacity()
	if capacity == 0 {
		return f.waiting < unknownWaiters*f.limit()
	}
	return float64(f.waiting+1) <= capacity*flowPatience.Seconds()
}

// postpone gives a message that is refused its place in the line of those that come back. Another instance
// that is sent most may receive it, and need not wait for the places of this one.
func (f *Flow) postpone(r *Refusal, now time.Time) {
	f.postponed++
	if f.unsure.After(now) && r.Until.Equal(f.unsure) { // then it is known how fast they may come back
		return
	}
	if r.Reason == policy.WebhookBusy && f.pacer.Follows() {
		r.Until = now
	}
	pace := f.returns(now)
	if f.pacer.Limited() && (f.spreadAt == 0 || pace < f.spreadAt) {
		f.spreadAt = pace
	}
	r.Until = f.slots.Reserve(pace, r.Until, now, rand.Float64())
}

// Unused hands a ticket back whose POST was not made, and its place by the rate with it. A
// nil ticket, and one that was handed back, stay as they are.
func (t *Ticket) Unused() {
	if t == nil || t.used {
		return
	}
	t.used = true
	f := t.f
	f.mu.Lock()
	f.ended(t)
	f.bucket.Give()
	f.pacer.Give(t.pace, time.Now())
	f.breaker.Abort(t.generation)
	f.mu.Unlock()
	f.tell.room(f.queue)
}

// NoToken has nothing sent to the webhook, since no token could be had for its POST, until it is worth trying again: then one does.
func (t *Ticket) NoToken(why string, again time.Time) *Refusal {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	r, now := &Refusal{policy.NoToken, again}, time.Now()
	t.f.token.Ask(why, again, now)
	t.f.postpone(r, now)
	return r
}

// Answer is what one POST said about its webhook.
type Answer struct {
	Sign  policy.Sign
	Began time.Time
	Took  time.Duration
	// Failed is how many attempts for this message had failed before.
	Failed int
	// Message tells one message from another.
	Message string
	// Again tells that there was one before, also one that counts in nothing.
	Again bool
}

// Answered hands a ticket back with what came of its POST.
func (t *Ticket) Answered(a Answer) {
	f, now := t.f, time.Now()
	t.used = true
	turned, released, saves := t.leave(a, f.tell.ours(f.id, a.Sign, now), now)
	f.tell.room(f.queue)
	if saves {
		f.tell.save()
	}
	if released {
		f.tell.released(f.id)
	}
	switch turned {
	case policy.BreakerOpen:
		text := "the webhook mostly fails: until a probe succeeds nothing else is sent to it, and its messages wait uncharged"
		switch {
		case t.throttled:
			text = "the webhook answers nothing but 429, or asks for waits, as where a quota is used up: until a probe succeeds nothing else is sent to it, and its messages wait uncharged"
		case t.spared && a.Sign.Refused != 0:
			text = "the webhook refuses every message alike: until a probe succeeds nothing else is sent to it, and its messages wait uncharged; what it refused before are dead letters, which can be replayed"
		}
		f.tell.log.Warn(text, "webhook", f.id, "queue", f.queue, "status", a.Sign.Refused)
	case policy.BreakerClosed:
		f.tell.log.Info("the webhook takes messages again", "webhook", f.id, "queue", f.queue)
	default:
		return
	}
	f.tell.turned(f.id, turned)
}

// leave takes in what came of a POST; ours says that what failed is our own network's fault, as
// far as one can tell. turned is the phase that the breaker went into with it, empty when it
// stayed as it was; released says that what is held for the webhook can go on, and saves that its
// health is to be written soon.
func (t *Ticket) leave(a Answer, ours bool, now time.Time) (turned policy.BreakerPhase, released, saves bool) {
	f := t.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if !a.Sign.Limited || !f.pacer.Limited() { // otherwise the learned rate is the answer to it
		f.window.Report(a.Sign, t.window, f.inFlight, f.settings.Concurrency)
	}
	f.ended(t)
	if a.Sign == (policy.Sign{}) {
		f.breaker.Abort(t.generation)
		return "", false, false
	}
	if a.Sign.Refused != 0 || a.Sign.Failed && !a.Sign.Limited {
		f.lastUnlimited = now
	}
	f.unfit.Reset()
	if released = t.tries; released {
		f.token.Reset()
		f.release(now)
	}
	if t.judge(a, now) {
		f.changed, saves = true, true
		switch turned = f.breaker.State(now).Phase; turned {
		case policy.BreakerClosed:
			f.refusing = false
			f.release(now)
			released = true
		case policy.BreakerHalfOpen: // it takes messages again
			f.pacer.Resume(now)
			f.release(now)
			released = true
		}
	}
	if b := f.breaker.State(now); b.Phase != policy.BreakerClosed {
		f.changed = true // when the next probe is due
		if a.Sign.Failed && !a.Sign.Limited {
			f.pacer.Away(b.Since)
		}
	}
	saves = a.Sign.Limited && (f.ask(now) || f.pacer.Asks()) || saves
	if limited := f.pacer.Limited(); limited != f.limitTold { // other instances are to know soon
		f.limitTold, f.changed, saves = limited, true, true
	}
	if f.faster(now) {
		f.release(now)
		released = true
	}
	if !a.Sign.Failed {
		f.meter.Add(a.Took, now)
	}
	f.took = cmp.Or(f.took, a.Took)
	f.took += (a.Took - f.took) / tookWeight
	refused := !a.Sign.Delivered && !a.Sign.Failed
	f.answers.Add(refused, now)
	switch {
	case refused:
		f.refused++
	case a.Sign.Delivered:
		f.delivered++
		if f.postponed > 0 && now.Sub(f.lastOK) > releaseAfter {
			f.release(now)
			released = true
		}
		f.lastOK = now
		f.changed = f.changed || !f.auto.State().FailingSince.IsZero() || now.Sub(f.savedOK) > okSavedEvery
		f.auto.Succeeded(now)
	case a.Sign.Failed:
		f.failed++
		f.lastFailure = now
		if a.Failed == 0 && !ours && (!t.spared || t.probe && !a.Again) {
			f.auto.Failed(now)
			f.changed = true
		}
	}
	return turned, released, saves
}

// judge tells pacer and breaker what came of a POST, and reports whether the breaker has turned.
// What is refused over a limit, by a webhook that takes others, is no sign that it is broken;
// what is refused for good is, once it refuses everything.
func (t *Ticket) judge(a Answer, now time.Time) (turned bool) {
	f, s := t.f, t.f.settings.Breaker
	closed := f.breaker.State(now).Phase == policy.BreakerClosed
	f.countWait(a, now)
	t.throttled = f.onlyThrottles(closed, now)
	if a.Sign.Delivered {
		f.singles.Taken(a.Failed)
	}
	single := a.Sign.Limited && f.singles.Refused(a.Failed)
	takes, broken := t.overLimit(a, single, now)
	if !closed && a.Sign.Limited && f.pacer.TakesBeside(f.lastUnlimited, now) { // as good as taken: it met the limit that others use up
		t.spared, t.probe = true, true
		return f.breaker.Report(s, t.generation, true, now, rand.Float64())
	}
	if closed && !broken.IsZero() && f.breaker.Open(s, broken, now, rand.Float64()) {
		t.spared = true
		f.hasten(a.Sign, now)
		return true
	}
	t.quota = !takes && closed && !single && f.mayBeQuota(a.Sign, now)
	if takes || t.quota && a.Again && (a.Sign.TooMany || a.Sign.Waits) { // one message that is refused once more says nothing about others
		f.breaker.Abort(t.generation)
		t.spared = true
		return false
	}
	everything := f.refusals.Report(a.Sign.Refused)
	if everything && closed && f.breaker.Open(s, now, now, rand.Float64()) {
		f.refusing, t.spared = true, true
		return true
	}
	t.spared = f.refusing && a.Sign.Refused != 0
	turned = f.breaker.Report(s, t.generation, !a.Sign.Failed && !t.spared, now, rand.Float64())
	// A probe that is refused as too much, with a wait, or by a webhook that has or may have a limit, says nothing about its message, and something about the webhook.
	t.probe = !closed && (a.Sign.TooMany || a.Sign.Waits || a.Sign.Limited && f.pacer.Limited() || f.mayBeQuota(a.Sign, now))
	first := closed && a.Sign.Limited && f.settings.Adaptive && f.round.Refused(a.Began, now, f.inFlight)
	t.spared = t.spared || first || t.probe || t.quota
	f.hasten(a.Sign, now)
	return turned
}

// overLimit tells the pacer what came of a POST. takes tells that it was refused over a limit by a webhook that takes others,
// and broken is since when one has refused everything that may take others.
func (t *Ticket) overLimit(a Answer, single bool, now time.Time) (takes bool, broken time.Time) {
	f := t.f
	open := f.breaker.State(now).Phase != policy.BreakerClosed && !f.breaker.Ramping()
	switch {
	case a.Sign.Waits && !open && f.pacer.TookLately(now): // the pause is the answer to it
		if f.settings.Adaptive && f.takesFew(a.Began, now) {
			f.pacer.Asked(a.Sign.Wait)
			f.pacer.Refused(t.pace, a.Began, now, rand.Float64())
		}
		return true, broken
	case single && !open && f.pacer.Limited():
		return true, broken
	case f.onlyWaits(a.Sign, now):
		return false, f.waitsSince
	case a.Sign.Limited && f.settings.Adaptive:
		takes, broken = f.pacer.Refused(t.pace, a.Began, now, rand.Float64())
		if !f.settings.Breaker.Enabled && !broken.IsZero() { // then only the pace is the answer to it
			takes = f.tookWithinHour(now)
		}
		return takes && !open, broken
	case a.Sign.Delivered, !a.Sign.Failed && f.pacer.Limited():
		f.round = policy.Round{}
		f.pacer.Taken(t.pace, a.Began, now)
	}
	return false, broken
}

// mayBeQuota tells whether it may be the word of a quota that a webhook refuses a message with 429, 503 or a wait, which takes nothing otherwise: of
// one that took others within the hour. Where messages come that seldom no limit is learned.
func (f *Flow) mayBeQuota(s policy.Sign, now time.Time) bool {
	return f.settings.Adaptive && (s.Limited || s.Waits) && f.tookWithinHour(now)
}

// tookWithinHour tells whether the webhook took something within the time for which most quotas are.
func (f *Flow) tookWithinHour(now time.Time) bool {
	return !f.lastOK.IsZero() && now.Sub(f.lastOK).Abs() < time.Hour
}

// hasten has the next probe come soon where the last answer was no sign of a breakdown.
func (f *Flow) hasten(s policy.Sign, now time.Time) {
	if s.TooMany || s.Waits {
		f.breaker.Hasten(f.settings.Breaker, s.Wait, now)
	}
}

// ended notes that a POST has ended.
func (f *Flow) ended(t *Ticket) {
	f.token.Over(t.tries)
	f.inFlight--
	f.moved = time.Now()
	if f.freed != nil {
		close(f.freed)
		f.freed = nil
	}
}
