package sim

import (
	"fmt"
	"slices"
	"time"
)

// recordLost is whether a process ended with something about the message unwritten, and for cause.
func (k *checker) recordLost(m *message) bool {
	for _, spec := range k.plan.Webhooks {
		for _, p := range k.posts[delivery{m.same.n, spec.Name}] {
			if k.recordOf(m, p) == nil && k.attemptExcused(m, p) {
				return true
			}
		}
	}
	return false
}

// recordOf is the first write about a POST that took effect, or nil.
func (k *checker) recordOf(m *message, p *post) *call {
	after := max(p.at, p.answered)
	for _, c := range k.about[m.same] {
		if c.inst == p.inst && c.applied >= after && c.ok && slices.ContainsFunc(c.attempts, func(a written) bool {
			of := k.byID[a.message]
			return of != nil && of.same == m.same && k.names[a.webhook] == p.webhook && (a.delivered && p.status/100 == 2 || a.number == p.attempt)
		}) {
			return c
		}
	}
	return nil
}

// attempts: those on record are the POSTs that the receiver saw.
func (k *checker) attempts(m *message, spec Webhook) {
	if k.shown == nil {
		return
	}
	var recorded []*attempt
	for _, c := range k.copies[m] { // they share what was seen, and each has a record
		t := k.shown.timelines[c.n]
		if t == nil {
			return
		}
		for _, e := range t.Events {
			if e.Attempt != nil && k.names[e.WebhookID] == spec.Name {
				e.Attempt.generation, e.Attempt.of = e.Generation, c
				e.Attempt.StartedAt = e.Attempt.StartedAt.Add(-k.aheadOf(e.Attempt.Instance))
				recorded = append(recorded, e.Attempt)
			}
		}
	}
	k.recorded[delivery{m.n, spec.Name}] = recorded
	for _, p := range k.posts[delivery{m.n, spec.Name}] {
		if a := k.attemptOf(recorded, p); a != nil {
			a.used++
			k.parts[p] = a
			continue
		}
		if !k.attemptExcused(m, p) {
			k.violate("attempts", fmt.Sprintf("%s saw a POST of m%d by %s at %s, of which there is no attempt on record (%d are)", spec.Name, m.n, p.inst.name, p.at, len(recorded)))
		}
	}
	for _, a := range recorded {
		switch {
		case a.Status > 0 && a.used == 0:
			k.violate("attempts", fmt.Sprintf("attempt %d of m%d by %s is on record with %d, and %s never saw it", a.Number, m.n, a.Instance, a.Status, spec.Name))
		case a.Charged && a.Status == 503 && k.uncharged(recorded, a) < maxWaits && k.unrecorded(delivery{m.n, spec.Name}, k.now()) == 0:
			k.violate("charged", fmt.Sprintf("attempt %d of m%d by %s is charged, though %s asked for a wait, and not for the %dth time", a.Number, m.n, a.Instance, spec.Name, maxWaits+1))
		case a.Charged && a.Status == 0 && !k.itsFault(spec, a):
			k.violate("charged", fmt.Sprintf("attempt %d of m%d by %s (%s) is charged to %s, which had no part in its failure", a.Number, m.n, a.Instance, a.ErrorClass, spec.Name))
		}
	}
}

// maxWaits is how often a webhook may ask for a wait for a message without being charged.
const maxWaits = 10

// uncharged is how many attempts before one, in its generation, were not charged.
func (k *checker) uncharged(recorded []*attempt, a *attempt) (n int) {
	for _, other := range recorded {
		if !other.Charged && other.generation == a.generation && other.StartedAt.Before(a.StartedAt) {
			n++
		}
	}
	return n
}

// itsFault is whether a webhook, its name or its address had a part in an attempt without an answer: the plan
// made one of them fail, or the process stood still and could not tell.
func (k *checker) itsFault(spec Webhook, a *attempt) bool {
	if a.ErrorClass == "canceled" { // what we cut short
		return false
	}
	took, err := time.ParseDuration(a.Duration)
	if err != nil {
		return false
	}
	from := a.StartedAt.Sub(k.begin) - time.Millisecond
	until := from + took + time.Second
	for _, u := range k.unlucky {
		if u.webhook == spec.Name && u.inst.name == a.Instance && u.at >= from && u.at <= until {
			return true
		}
	}
	for _, p := range k.world.posts {
		if p.webhook == spec.Name && p.inst.name == a.Instance && p.at >= from && p.at <= until && slices.Contains(faulty, p.answer) {
			return true
		}
	}
	return slices.ContainsFunc(k.all, func(i *instance) bool { return i.name == a.Instance && i.brokeBetween(from, until) })
}

// faulty are the ways of receivers by which a POST may have no answer, by their own doing.
var faulty = []string{"late", "silent", "reset", "undone", "early", "extra", "cut", "stall"}

// attemptOf finds the attempt that a POST was part of.
func (k *checker) attemptOf(recorded []*attempt, p *post) *attempt {
	for _, a := range recorded {
		took, err := time.ParseDuration(a.Duration)
		if err != nil || a.Instance != p.inst.name || a.used > a.Redials {
			continue
		}
		from := a.StartedAt.Sub(k.begin)
		if p.at < from-time.Millisecond || p.at > from+took+time.Second {
			continue
		}
		if a.Status > 0 && a.Status != p.status && a.Redials == 0 {
			continue
		}
		return a
	}
	return nil
}

// attemptExcused is whether the process ended before the attempt was on record, for a cause: it died within what a
// record takes, or storage did not take the record until it ended. Who is asked to stop writes what it knows.
func (k *checker) attemptExcused(m *message, p *post) bool {
	const takes = 10 * time.Second
	i, over := p.inst, max(p.at, p.answered, p.left)
	if i.died == 0 && i.stopped == 0 {
		return false
	}
	if c := k.recordOf(m, p); c != nil && c.applied <= k.downAt(i) {
		return false
	}
	stood := false
	for _, s := range i.frozen { // who stands still writes nothing, and what came meanwhile is over when it goes on
		if s.from <= over+takes && s.until > over {
			over, stood = s.until, true
		}
	}
	return i.died > 0 && i.died <= over+takes || stood && i.stopped > 0 && over >= i.stopped && k.endedAt(i) <= over+takes || !k.tookRecords(i, over, k.endedAt(i))
}

// endedAt is when an instance was over: later than it was asked to stop.
func (k *checker) endedAt(i *instance) time.Duration {
	if i.died > 0 {
		return i.died
	}
	return i.ended
}

// tookRecords is whether storage answered all that an instance asked of it for records, within a time.
func (k *checker) tookRecords(i *instance, from, until time.Duration) bool {
	service := "table"
	if k.plan.File {
		service = "" // what completes a message writes its record too
	}
	return k.faults.healthy(i.slot, service, from, until) && !slices.ContainsFunc(k.calls, func(c *call) bool {
		return c.inst == i && (c.service == service || service == "") && c.begin <= until && (c.ended >= from || c.ended == 0) && c.fault != well && c.fault != slow
	})
}
