package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// judge compares what the API showed with what the account and the receivers saw.
func (w *world) judge() {
	k := newChecker(w)
	k.deadLetters()
	for _, m := range w.messages {
		if len(k.copies[m]) == 0 {
			continue
		}
		k.lost(m)
		for _, spec := range w.plan.Webhooks {
			if spec.Queue == m.queue {
				k.attempts(m, spec)
				k.doubles(m, spec)
				k.cut(m, spec)
			}
		}
		for _, c := range k.copies[m] {
			k.timeline(c)
		}
		k.stolen(m)
	}
	for key, letters := range k.dead {
		k.replays(key, letters)
	}
	if w.plan.Lanes {
		k.lanes()
	}
	k.causes()
	k.prompt()
	k.refusals()
	k.outages()
	k.expiries()
	if n := len(k.missing); n > 0 {
		k.note("plan", fmt.Sprintf("%d messages have no timeline, and the metric of lost records says %d", n, k.shown.lost))
	}
	if n := len(k.missing); k.shown != nil && n > k.shown.lost {
		k.violate("records", fmt.Sprintf("%d messages, m%d the first of them, have no timeline, and the metric of lost records says %d", n, k.missing[0], k.shown.lost))
	}
}

func newChecker(w *world) *checker {
	k := &checker{
		world: w, posts: map[delivery][]*post{}, parts: map[*post]*attempt{}, recorded: map[delivery][]*attempt{}, dead: map[delivery][]deadLetter{}, names: map[string]string{},
		copies: map[*message][]*message{}, about: map[*message][]*call{}, replayOf: map[string]*message{}, went: map[int]bool{},
	}
	for name, last := range w.webhooks {
		for r := last; r != nil; r = r.before {
			k.names[r.id] = name
		}
	}
	for _, p := range w.posts {
		d := delivery{p.n, p.webhook}
		k.posts[d] = append(k.posts[d], p)
	}
	for _, m := range w.messages {
		if m.id != "" && w.byID[m.id] == m && (m.accepted || m.put) {
			k.copies[m.same] = append(k.copies[m.same], m)
			m.events = append(slices.Clone(w.others[m.id]), m.events...)
		}
	}
	k.pointers()
	for _, c := range w.calls {
		if c.service == "queue" && (c.op == "create" || c.op == "send" && !c.ok) || c.op == "create-table" {
			k.made = append(k.made, c)
		}
		for _, id := range c.about {
			if m := cmp.Or(w.byID[id], k.replayOf[id]); m != nil {
				if about := k.about[m.same]; len(about) == 0 || about[len(about)-1] != c {
					k.about[m.same] = append(about, c)
				}
			}
		}
	}
	return k
}

// pointers finds out of which messages there were replays.
func (k *checker) pointers() {
	letters := map[string]string{}
	if k.shown != nil {
		for _, d := range k.shown.deadLetters {
			letters[d.ID] = d.MessageID
		}
	}
	for _, p := range k.purges {
		for _, d := range p.listed {
			letters[d.ID] = d.MessageID
		}
	}
	for id, letter := range k.world.pointers {
		if m := k.byID[letters[letter]]; m != nil {
			k.replayOf[id] = m
		}
	}
}

// delivery is one message for one webhook.
type delivery struct {
	n       int
	webhook string
}

// checker has what was seen in the order in which the rules ask for it.
type checker struct {
	*world
	posts map[delivery][]*post
	// parts are the attempts on record that POSTs were part of.
	parts map[*post]*attempt
	// recorded are the attempts on record, of all copies of a message.
	recorded map[delivery][]*attempt
	dead     map[delivery][]deadLetter
	// names are those of the webhooks, by id.
	names map[string]string
	// copies are the messages that storage has, by the first that was made with their event: mostly each is alone.
	copies map[*message][]*message
	// replayOf are the messages whose replays others are, by the id of these.
	replayOf map[string]*message
	// about are the calls that mention a message, or a copy of it.
	about map[*message][]*call
	// made are the calls that make a queue or a table, and the sends that found no queue.
	made []*call
	// went are the messages that went with their queue.
	went map[int]bool
	// missing are the messages of which nothing is on record.
	missing []int
}

// deadLetters: each is about one delivery that failed, and there is one of it.
func (k *checker) deadLetters() {
	if k.shown == nil {
		return
	}
	for _, d := range k.shown.deadLetters {
		m := k.byID[d.MessageID]
		if m == nil {
			k.violate("dead letters", fmt.Sprintf("%s is about message %s, which nobody sent", d.ID, d.MessageID))
			continue
		}
		key := delivery{m.same.n, k.names[d.WebhookID]}
		k.dead[key] = append(k.dead[key], d)
		same := 0
		for _, other := range k.dead[key] {
			if other.Generation == d.Generation && other.MessageID == d.MessageID {
				same++
			}
		}
		if same == 2 {
			k.violate("dead letters", fmt.Sprintf("m%d has more than one for %s and generation %d", m.n, key.webhook, d.Generation))
		}
	}
}

// replays: each ends, and what one is said to have come to is that the webhook took the message in it, or in
// one after it, or that the message was given up again.
func (k *checker) replays(key delivery, letters []deadLetter) {
	for _, d := range letters {
		switch {
		case d.Status == "replaying":
			k.violate("replay", fmt.Sprintf("the dead letter of m%d (%s) is being replayed for ever", key.n, d.ID))
		case d.Status == "replayed" && !k.purged(key) && !k.replayed(key, d):
			k.violate("replay", fmt.Sprintf("the dead letter of m%d (%s) was replayed, it says, and %s neither took it then nor left another one", key.n, d.ID, key.webhook))
		}
	}
}

// replayed is whether a replay of a dead letter came to something.
func (k *checker) replayed(key delivery, d deadLetter) bool {
	for other, letters := range k.dead {
		if other.n == key.n && (key.webhook == "" || other.webhook == key.webhook) && slices.ContainsFunc(letters, func(l deadLetter) bool { return l.Generation > d.Generation }) {
			return true
		}
	}
	for other, posts := range k.posts {
		if other.n == key.n && k.takesCopies(other.webhook) && slices.ContainsFunc(posts, func(p *post) bool { return p.status == 200 }) {
			return true
		}
		if other.n == key.n && (key.webhook == "" || other.webhook == key.webhook) && slices.ContainsFunc(posts, func(p *post) bool {
			part := k.parts[p] // none where the process died before it was on record
			return p.status == 200 && (part == nil || part.generation > d.Generation)
		}) {
			return true
		}
	}
	return false
}

// accepted are the POSTs of a delivery whose 2xx the sender has read.
func (k *checker) accepted(d delivery) (all []*post) {
	for _, p := range k.posts[d] {
		if p.status == 200 && p.taken > 0 {
			all = append(all, p)
		}
	}
	return all
}

// tookIn is the first POST of a message to a webhook in a generation whose 2xx its sender has read; nil where there is none,
// or it is not on record. One of another message with the event, which may be sent once this one was given up, is not one of it.
func (k *checker) tookIn(m *message, webhook string, generation int) *post {
	for _, p := range k.accepted(delivery{m.same.n, webhook}) {
		if part := k.parts[p]; part != nil && part.generation == generation && part.of == m {
			return p
		}
	}
	return nil
}

// gaveUpAt is when the dead letter of a generation was made, by the clock that may be ahead the most, since it does not say whose
// time it has; now where it is not there any more.
func (k *checker) gaveUpAt(d delivery, generation int) time.Duration {
	for _, l := range slices.Concat(k.dead[d], k.dead[delivery{d.n, ""}]) {
		if l.Generation == generation {
			return l.DeadLetteredAt.Sub(k.begin) - slices.Max(append(slices.Clone(k.plan.Clocks), 0))
		}
	}
	return k.now()
}

// stoodStill is whether the sender of a POST stood still before it, or before it read the answer: then its
// lease may have been over, and another one may have given the message up by what itself was told.
func (k *checker) stoodStill(p *post) bool {
	return p.inst.brokeBetween(p.at-time.Minute, p.taken)
}

// registryRefresh is how long an instance may not know of what was registered through another one.
const registryRefresh = 16 * time.Second

// due is whether a webhook was there and known to all who received a message, as long as the message lived, and had no
// filter meanwhile. Whatever else an operator did to it leaves its messages due.
func (k *checker) due(m *message, name string) bool {
	end := k.overAt(m)
	for r := k.webhooks[name]; r != nil; r = r.before {
		known := time.Duration(0)
		if slices.ContainsFunc(m.events, func(e messageEvent) bool {
			return e.what == "receive" && e.inst != nil && e.inst != r.by && e.inst.started < r.at
		}) {
			known = registryRefresh
		}
		if r.id != "" && r.at+known < m.sent && (r.deleting == 0 || r.deleting > end) {
			return !slices.ContainsFunc(k.changes, func(c *change) bool {
				return c.webhook == name && c.what == doFilter && c.from <= end && c.ended+registryRefresh > m.sent
			})
		}
	}
	return false
}

// overAt is when the last copy of a message was taken from its queue; never where that was not seen.
func (k *checker) overAt(m *message) (at time.Duration) {
	for _, c := range k.copies[m.same] {
		n := len(c.events)
		if n == 0 || c.events[n-1].what != "delete" {
			return 1 << 62
		}
		at = max(at, c.events[n-1].at)
	}
	return at
}

// lost: every message ends with a 2xx of each webhook that it was due to, or a dead letter.
func (k *checker) lost(m *message) {
	var ends, due int
	for _, spec := range k.plan.Webhooks {
		if spec.Queue != m.queue {
			continue
		}
		d := delivery{m.n, spec.Name}
		ended := len(k.accepted(d)) > 0 || len(k.dead[d]) > 0 || len(k.dead[delivery{m.n, ""}]) > 0 || k.purged(d)
		if ended {
			ends++
		}
		if !k.due(k.copies[m][0], spec.Name) {
			continue
		}
		due++
		if !ended && !k.wentBy(m) {
			k.violate("lost", fmt.Sprintf("m%d is gone, and %s neither took it nor has a dead letter of it", m.n, spec.Name))
		}
	}
	nobodys := !k.plan.File && slices.Contains(k.unwatched(), m.queue) // see expiries
	if due == 0 && ends == 0 && len(k.dead[delivery{m.n, ""}]) == 0 && !k.wentBy(m) && !nobodys {
		k.violate("lost", fmt.Sprintf("m%d is gone, and nobody took it or has a dead letter of it", m.n))
	}
}

// expiries: what is published to a queue that nobody receives from expires, and is counted, once.
func (k *checker) expiries() {
	for _, name := range k.unwatched() {
		published := 0
		for _, m := range k.messages {
			if m.queue == name && m.accepted {
				published++
			}
		}
		if k.shown != nil && k.shown.expired[name] != published {
			k.violate("expired", fmt.Sprintf("%d messages of %s have expired, and %d are counted", published, name, k.shown.expired[name]))
		}
	}
}

// wentBy is whether a message, or a copy of it, is still there, or gone by its sender's word or an operator's.
func (k *checker) wentBy(m *message) bool {
	return slices.ContainsFunc(k.copies[m], func(c *message) bool { return k.stillThere(c) || k.expiredWhileDown(c) || k.swept(c) || k.takenAway(c) })
}

// swept is whether a message went with its queue, by an operator's word. The account tells of each; on a
// file it is as many as the answer said, and those that were published meanwhile.
func (k *checker) swept(m *message) bool {
	if !k.plan.File {
		return len(m.events) > 0 && m.events[len(m.events)-1].what == "swept"
	}
	if went, asked := k.went[m.n]; asked {
		return went
	}
	for _, s := range k.sweeps { // the first one took all that was there
		if s.queue != m.queue || m.sent > s.until {
			continue
		}
		if m.sent < s.from {
			s.messages--
		}
		k.went[m.n] = s.messages >= 0
		return k.went[m.n]
	}
	return false
}

// takenAway is whether another program deleted a message.
func (k *checker) takenAway(m *message) bool {
	n := len(m.events)
	return k.taken && n > 0 && m.events[n-1].what == "delete" && m.events[n-1].inst == nil
}

// neverOurs is whether a message that another program had sent was deleted by one, or went with its queue, and none of us had received it,
// or was told so.
func (k *checker) neverOurs(m *message) bool {
	gone := k.takenAway(m) || !k.plan.File && k.swept(m)
	return gone && !slices.ContainsFunc(m.events, func(e messageEvent) bool {
		return e.inst != nil && e.what != "swept" && (e.what != "receive" || e.by.told)
	})
}

// stillThere is for messages that settle has told of.
func (k *checker) stillThere(m *message) bool {
	for _, f := range k.found {
		if f.Rule == "settle" {
			return k.account == nil || len(m.events) == 0 || m.events[len(m.events)-1].what != "delete"
		}
	}
	return false
}

// expiredWhileDown is whether nobody was there to save a message from its expiry: nobody was
// up for long enough to look at it in the second half of its life, while it was visible. A
// file is ours: whatever expires on it leaves a dead letter.
func (k *checker) expiredWhileDown(m *message) bool {
	const look = 25 * time.Second
	if k.plan.File || m.expires > k.now() {
		return false
	}
	if k.diedHidingIt(m) {
		return true
	}
	half := m.expires - min((m.expires-m.sent)/2, 5*time.Minute)
	visible := half
	if n := k.lastOf(m); n >= 0 {
		visible = max(half, m.events[n].visible)
	}
	for _, i := range k.all {
		from, until := half, k.downAt(i)
		if until < m.expires { // who was there to the end had no right to hide it for so long
			from = visible
		}
		if min(until, m.expires)-max(i.started, from) >= look {
			return false
		}
	}
	return true
}

func (k *checker) downAt(i *instance) time.Duration {
	switch {
	case i.died > 0:
		return i.died
	case i.stopped > 0:
		return i.stopped
	}
	return 1 << 62
}

// timeline: at the end nothing is pending, and what is said is what was seen.
func (k *checker) timeline(m *message) {
	if k.shown == nil {
		return
	}
	t := k.shown.timelines[m.n]
	if t == nil {
		if m.accepted && !k.recordLost(m) && !k.neverOurs(m) && (!m.put || !k.diedHidingIt(m)) {
			k.missing = append(k.missing, m.n)
		}
		return
	}
	for _, n := range t.Next {
		name := k.names[n.WebhookID]
		d := delivery{m.same.n, name}
		took := len(k.accepted(d)) > 0
		switch n.State {
		case "pending", "held", "dead_lettering", "published":
			if !k.stillThere(m) && !k.recordLost(m) {
				k.violate("timeline", fmt.Sprintf("m%d for %s is %s for ever: %q", m.n, name, n.State, n.Text))
			}
		case "lost": // its life is over, or somebody deleted it
			if m.expires > k.now() && !k.swept(m) && !k.takenAway(m) && !k.recordLost(m) {
				k.violate("timeline", fmt.Sprintf("m%d for %s is lost, it says, though it lives: %q", m.n, name, n.Text))
			}
			if took && !k.stoodStill(k.accepted(d)[0]) && k.unexplained(m, k.accepted(d)[0], k.now(), nil) {
				k.violate("timeline", fmt.Sprintf("m%d is lost for %s, it says, which took it", m.n, name))
			}
		case "delivered":
			if !slices.ContainsFunc(k.posts[d], func(p *post) bool { return p.status == 200 }) {
				k.violate("timeline", fmt.Sprintf("m%d was delivered to %s, it says, which never took it", m.n, name))
			}
		case "dead_lettered": // where it was sent twice, one may have been given up, and the other one taken
			if p := k.tookIn(m, name, n.Generation); p != nil && len(m.again) == 0 && k.unexplained(m, p, k.gaveUpAt(d, n.Generation), nil) {
				k.violate("timeline", fmt.Sprintf("m%d was given up for %s, it says, which took it", m.n, name))
			}
		}
	}
}

// prompt: the webhooks that must not notice their neighbours get their messages at once.
func (k *checker) prompt() {
	for _, spec := range k.plan.Webhooks {
		if spec.Prompt == 0 {
			continue
		}
		for _, m := range k.messages {
			if m.queue != spec.Queue || !m.accepted {
				continue
			}
			posts := k.posts[delivery{m.n, spec.Name}]
			if len(posts) == 0 || posts[0].at-m.sent > spec.Prompt {
				when := "never"
				if len(posts) > 0 {
					when = (posts[0].at - m.sent).String() + " later"
				}
				k.violate("neighbours", fmt.Sprintf("m%d was sent to %s %s, not within %s", m.n, spec.Name, when, spec.Prompt))
				return
			}
		}
	}
}
