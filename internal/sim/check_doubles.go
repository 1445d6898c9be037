package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// doubles: within one generation a second 2xx is there only where a process died or stood still, or storage
// did not answer, between an answer and its record; and there are no more generations than replays.
func (k *checker) doubles(m *message, spec Webhook) {
	d := delivery{m.n, spec.Name}
	if k.purged(d) {
		return
	}
	replays := 0
	for _, l := range slices.Concat(k.dead[d], k.dead[delivery{m.n, ""}]) {
		replays += l.Replays
	}
	first := map[int]*post{}
	for _, p := range k.accepted(d) {
		generation := 0
		switch part := k.parts[p]; {
		case part != nil:
			generation = part.generation
		case replays > 0: // it is not on record, since its process died, and may have been of any
			continue
		}
		before := first[generation]
		if before == nil {
			first[generation] = p
			continue
		}
		var of *message // several may carry one event, and only a receive of this one led to the POST
		if part := k.parts[p]; part != nil {
			of = part.of
		}
		if len(m.again) > 0 && k.claimsFailed() {
			continue
		}
		if k.plan.Strict || k.unexplained(m, before, p.at, of) {
			k.violate("double", fmt.Sprintf("%s took m%d twice in generation %d: at %s from %s and at %s from %s: %s",
				spec.Name, m.n, generation, before.at, before.inst.name, p.at, p.inst.name, k.why(m, before, p)))
			return
		}
	}
	if len(first) > 1+replays {
		k.violate("double", fmt.Sprintf("%s took m%d in %d generations, and there were %d replays", spec.Name, m.n, len(first), replays))
	}
}

// claimsFailed is whether claims on keys could not be asked at times: then what was sent twice is POSTed twice, and counted.
func (k *checker) claimsFailed() bool {
	p := k.plan
	return p.Rates != (Rates{}) || p.TableCalls > 0 || slices.ContainsFunc(p.Steps, func(s Step) bool {
		return s.Do == doOutage && s.Service != "queue"
	})
}

// unexplained is whether nothing excuses that a message was POSTed, or given up, at a time
// though a receiver had taken it in an earlier POST. of is the message that the later one was about, where that is known.
func (k *checker) unexplained(m *message, first *post, at time.Duration, of *message) bool {
	if first.inst.brokeBetween(first.at, at) {
		return k.recordedBefore(m, first, at, of)
	}
	if record := k.recordOf(m, first); record != nil && record.applied < at {
		return k.receivedAfter(m, record.applied, at, of)
	}
	if first.taken > at { // two at the same time: why had the first one lost its lease?
		return !k.lapsed(m, first, at)
	}
	return !k.unanswered(m, first, at)
}

// recordedBefore is whether the record of a POST was durable before its process broke, and
// the message was received again after that.
func (k *checker) recordedBefore(m *message, first *post, at time.Duration, of *message) bool {
	record := k.recordOf(m, first)
	return record != nil && record.applied < at && k.receivedAfter(m, record.applied, at, of)
}

// receivedAfter is whether the message, or of, was received after a time and before a POST.
func (k *checker) receivedAfter(m *message, after, at time.Duration, of *message) bool {
	last := time.Duration(0)
	for _, e := range k.events(m, of) {
		if e.what == "receive" && e.inst != nil && e.at <= at {
			last = e.at
		}
	}
	return last > after
}

// events are those of a message, its copies and its replays, in their order; only those of one copy where that is given.
func (k *checker) events(m, only *message) (all []messageEvent) {
	for _, c := range k.copies[m.same] {
		if only == nil || c == only {
			all = append(all, c.events...)
		}
	}
	for id, of := range k.replayOf {
		if of.same == m.same && (only == nil || of == only) {
			all = append(all, k.others[id]...)
		}
	}
	slices.SortStableFunc(all, func(a, b messageEvent) int { return cmp.Compare(a.at, b.at) })
	return all
}

// lapsed is whether the lease of a POST ended before a time and could not be kept: storage
// did not answer its holder in the last part of it, or the holder stood still, it may be just before the POST.
func (k *checker) lapsed(m *message, first *post, at time.Duration) bool {
	const enough = 3 * time.Second
	var until time.Duration
	for _, e := range k.events(m, nil) {
		switch {
		case e.inst == first.inst && (e.what == "receive" || e.what == "update"):
			until = e.visible
		case e.what == "receive" && e.inst != nil && e.at <= at && e.at >= until && until > 0:
			return !k.faults.healthy(first.inst.slot, "queue", until-enough, until) ||
				k.failed(m, first.inst, "queue", until-enough, until) ||
				first.inst.brokeBetween(first.at-time.Second, e.at)
		}
	}
	return false
}

// stolen: nobody else receives a message whose POST is under way, unless its holder broke,
// or could not renew in the last part of the lease. Where the answer of a renewal was lost nobody
// can renew, and doubles and cut have the last word. A POST says of which event it is, and not which
// of several messages with that event it was made for, and so under whose lease.
func (k *checker) stolen(m *message) {
	if len(k.copies[m]) > 1 || len(m.again) > 0 {
		return
	}
	const enough = 3 * time.Second
	var holder *instance
	var until time.Duration
	for _, e := range m.events {
		if e.what == "receive" && holder != nil && e.inst != holder && k.posting(m, holder, until, e.at) &&
			!holder.brokeBetween(until-enough, e.at) && (holder.stopped == 0 || holder.stopped > e.at) &&
			k.faults.healthy(holder.slot, "queue", until-enough, until) && !k.failed(m, holder, "queue", until-enough, until) && !k.lostRenewal(m, holder, until) {
			k.violate("lease", fmt.Sprintf("%s received m%d at %s, whose POST by %s was under way: the lease ended at %s, and storage was well for %s before",
				e.inst.name, m.n, e.at, holder.name, until, enough))
			return
		}
		if e.inst != nil && (e.what == "receive" || e.what == "update") {
			holder, until = e.inst, e.visible
		}
	}
}

// lostRenewal is whether the answer of the renewal that gave an instance its lease was lost.
func (k *checker) lostRenewal(m *message, i *instance, until time.Duration) bool {
	return slices.ContainsFunc(k.about[m.same], func(c *call) bool {
		return c.inst == i && c.op == "update" && (c.fault == lost || c.fault == hanging) && c.applied > 0 && c.applied < until
	})
}

// cut: a POST is not cut short by a renewal whose answer was lost, while all else was well.
func (k *checker) cut(m *message, spec Webhook) {
	if k.plan.File {
		return
	}
	const before, slack = time.Minute, time.Second
	for _, p := range k.posts[delivery{m.n, spec.Name}] {
		i, from := p.inst, p.at-before
		if p.left == 0 || p.answered > 0 || p.left >= p.at+spec.Timeout-slack || i.brokeBetween(from, p.left) || i.stopped > 0 && i.stopped <= p.left {
			continue
		}
		fine := k.faults.healthy(i.slot, "table", from, p.left) && !k.failed(m, i, "table", from, p.left)
		for _, c := range k.about[m.same] {
			fine = fine && (c.inst != i || c.service != "queue" || c.begin > p.left || c.ended < from || c.fault == well || c.fault == slow || c.fault == lost)
		}
		if fine {
			k.violate("cut", fmt.Sprintf("%s cut its POST of m%d to %s short at %s, which began at %s: all that went wrong was that answers were lost", i.name, m.n, spec.Name, p.left, p.at))
			return
		}
	}
}

// posting is whether an instance had begun a POST of a message before its lease ended, and
// had no answer at a time.
func (k *checker) posting(m *message, i *instance, until, at time.Duration) bool {
	for _, spec := range k.plan.Webhooks {
		if spec.Queue != m.queue { // it gets a copy, under a lease of its own
			continue
		}
		for _, p := range k.posts[delivery{m.n, spec.Name}] {
			if p.inst == i && p.at < until && p.at <= at && (p.answered == 0 || p.answered > at) && (p.left == 0 || p.left > at) && p.answer == "late" {
				return true
			}
		}
	}
	return false
}

// unanswered is whether storage failed to take the record of a POST until a time.
func (k *checker) unanswered(m *message, first *post, at time.Duration) bool {
	from, service := first.answered, "table"
	if k.plan.File {
		service = "" // what completes a message writes its record too
	}
	return !k.faults.healthy(first.inst.slot, service, from, at) || k.failed(m, first.inst, service, from, at)
}

// failed is whether a call about a message, to a service or to any, failed within a time.
func (k *checker) failed(m *message, i *instance, service string, from, until time.Duration) bool {
	for _, c := range k.about[m.same] {
		if c.inst == i && (c.service == service || service == "") && c.begin <= until && (c.ended >= from || c.ended == 0) && c.fault != well && c.fault != slow {
			return true
		}
	}
	return false
}

// why tells what is known about a double.
func (k *checker) why(m *message, first, second *post) string {
	record := k.recordOf(m, first)
	switch {
	case k.plan.Strict:
		return "nothing in this plan can explain it"
	case record != nil && record.applied < second.at:
		return fmt.Sprintf("the first was on record at %s", record.applied)
	case first.taken > second.at:
		return "both were under way at once, and storage answered the first one's holder before its lease ended"
	}
	return "no process broke, and storage refused no record of it"
}

// busyWith is whether a write about a message was under way: its rows are written in order.
func (k *checker) busyWith(m *message, at time.Duration) bool {
	for _, c := range k.about[m.same] {
		if c.service == "table" && c.begin <= at && c.ended > at {
			return true
		}
	}
	return false
}

// making is how much of a time an instance was making tables in: the first record of a day makes
// the table of the day, and all that belong there have to wait for it.
func (k *checker) making(inst *instance, from, until time.Duration) (took time.Duration) {
	for _, c := range k.made {
		if c.service == "table" && c.inst == inst {
			took += max(0, min(c.ended, until)-max(c.begin, from))
		}
	}
	return took
}

// turnedAway is whether storage refused a call about a message within a time: its partition is throttled.
func (k *checker) turnedAway(m *message, i *instance, from, until time.Duration) bool {
	return slices.ContainsFunc(k.about[m.same], func(c *call) bool {
		return c.inst == i && (c.fault == refused || c.fault == dropped) && c.begin <= until && c.ended >= from
	})
}

// lanes: a late transaction holds up what is in it, and nothing else.
func (k *checker) lanes() {
	const slack = time.Second
	for _, m := range k.messages {
		for _, spec := range k.plan.Webhooks {
			for _, p := range k.accepted(delivery{m.n, spec.Name}) {
				c := k.recordOf(m, p)
				if c == nil || k.busyWith(m, p.taken) || k.turnedAway(m, c.inst, p.taken, c.begin) {
					continue
				}
				if waited := c.begin - p.taken - k.making(c.inst, p.taken, c.begin); waited > slack {
					k.violate("held up", fmt.Sprintf("the record of m%d began %s after the answer of %s", m.n, c.begin-p.taken, spec.Name))
					return
				}
			}
		}
	}
	for _, p := range k.publish {
		own := time.Duration(0)
		m := k.messages[p.n]
		for _, c := range slices.Concat(k.about[m.same], k.made) { // the first publish makes the queue, and the table of the day
			if c.inst == p.inst && c.begin >= p.from && c.begin <= p.end {
				own += c.ended - c.begin
			}
		}
		if took := p.end - p.from; took-own > slack && !k.turnedAway(m, p.inst, p.from, p.end) {
			k.violate("held up", fmt.Sprintf("publishing m%d took %s, and its own calls %s", m.n, took, own))
			return
		}
	}
}
