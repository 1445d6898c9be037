package sim

import (
	"slices"
	"time"
)

// diedHidingIt is whether a holder died within a second of a receive that hides a message to its end, or while it held the message in the last
// half minute of its life, by whole seconds, in which it may: nobody can see such a message (ADR 0134). Who died later had the whole of its
// hold to end the message, and who had given it back holds nothing.
func (k *checker) diedHidingIt(m *message) bool {
	n := k.lastOf(m)
	if n < 0 {
		return false
	}
	e := &m.events[n]
	if e.inst == nil || e.inst.died == 0 || e.visible < m.expires-30*time.Second || k.gaveBack(m, n) {
		return false
	}
	if e.inst.died > min(e.visible, m.expires) && !k.diedInPost(m, e.inst) {
		return false
	}
	return e.at > m.expires-31*time.Second-k.plan.Skew.Abs() || e.what == "receive" && e.inst.died-e.at < time.Second
}

// gaveBack is whether the holder's nth event with a message gave it back: the account does not tell that from a renewal, but
// what came of each POST of this receive was on record before.
func (k *checker) gaveBack(m *message, n int) bool {
	e := &m.events[n]
	received := n - 1
	for received >= 0 && m.events[received].what != "receive" {
		received--
	}
	if e.what != "update" || received < 0 || m.events[received].inst != e.inst {
		return false
	}
	posted := false
	for _, p := range k.postsBy(e.inst, m) {
		if p.at < m.events[received].at || p.at > e.at {
			continue
		}
		if c := k.recordOf(m, p); c == nil || c.applied >= e.at {
			return false
		}
		posted = true
	}
	return posted
}

// diedInPost is whether an instance died in a POST of a message, which may have gone on beyond the hold.
func (k *checker) diedInPost(m *message, i *instance) bool {
	return slices.ContainsFunc(k.postsBy(i, m), func(p *post) bool {
		return p.at <= i.died && (p.taken == 0 || p.taken >= i.died) && (p.left == 0 || p.left >= i.died)
	})
}

// postsBy are the POSTs of a message by an instance.
func (k *checker) postsBy(i *instance, m *message) (list []*post) {
	for _, spec := range k.plan.Webhooks {
		for _, p := range k.posts[delivery{m.same.n, spec.Name}] {
			if p.inst == i {
				list = append(list, p)
			}
		}
	}
	return list
}

// lastOf is the place of the last that happened to a message before its expiry, of which an account tells when the message would have been
// shown; below 0 where there is none.
func (k *checker) lastOf(m *message) int {
	n := len(m.events) - 1
	for n >= 0 && m.events[n].what == "expire" {
		n--
	}
	return n
}
