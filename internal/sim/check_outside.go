package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// stalled: a 2xx decides, whatever becomes of its body.
func (k *checker) stalled(m *message, spec Webhook) {
	const enough = 3 * time.Second
	for _, p := range k.posts[delivery{m.n, spec.Name}] {
		if p.answer == "stall" && p.left > p.answered+enough && !p.inst.brokeBetween(p.answered, p.left) {
			k.violate("stalled", fmt.Sprintf("%s waited %s for the rest of a 2xx of %s to m%d", p.inst.name, p.left-p.answered, spec.Name, m.n))
			return
		}
	}
}

// early: nobody gets a message before its time.
func (k *checker) early(m *message, spec Webhook) {
	if posts := k.posts[delivery{m.n, spec.Name}]; m.delay > 0 && len(posts) > 0 && posts[0].at < m.sent+m.delay {
		k.violate("early", fmt.Sprintf("m%d was published at %s with a delay of %s, and %s got it at %s", m.n, m.sent, m.delay, spec.Name, posts[0].at))
	}
}

// gone: who answers 410 is not sent to again, once all know of it, until an operator says so. Where storage fails it may
// not be on record that the webhook is disabled.
func (k *checker) gone(spec Webhook) {
	if spec.Mix.Gone == 0 || !k.plan.Strict {
		return
	}
	since := time.Duration(0)
	for _, p := range k.world.posts {
		if p.webhook != spec.Name {
			continue
		}
		if since > 0 && slices.ContainsFunc(k.changes, func(c *change) bool {
			return c.webhook == spec.Name && c.what == doEnable && c.until >= since && c.from <= p.at
		}) {
			since = 0
		}
		if since > 0 && p.at > since+2*registryRefresh {
			k.violate("gone", fmt.Sprintf("%s answered 410 at %s, and got m%d at %s", spec.Name, since, p.n, p.at))
			return
		}
		if since == 0 && p.answer == "gone" && p.taken > 0 && !p.inst.brokeBetween(p.taken, p.taken+registryRefresh) {
			since = p.taken
		}
	}
}

// moved: what an operator changed holds once all know of it: nobody POSTs to the URL from before, or what a filter refuses.
// Where storage fails nobody can know of it.
func (k *checker) moved(spec Webhook) {
	if !k.plan.Strict {
		return
	}
	known := time.Second
	if len(k.slots) > 1 {
		known = registryRefresh
	}
	for _, p := range k.world.posts {
		if p.webhook != spec.Name {
			continue
		}
		hosts := []string{spec.Name + ".example"} // those that it may be sent to
		for _, c := range k.changes {
			switch {
			case c.webhook != spec.Name || c.from > p.at:
			case c.what == doFilter && k.messages[p.n].sent > c.until+known && p.at < c.ended:
				k.violate("moved", fmt.Sprintf("m%d was sent to %s at %s, whose filter takes nothing from %s to %s", p.n, spec.Name, p.at, c.until, c.ended))
				return
			case c.what == doMove && p.at > c.until+known:
				hosts = []string{c.host}
			case c.what == doMove:
				hosts = append(hosts, c.host)
			}
		}
		if !slices.Contains(hosts, p.host) {
			k.violate("moved", fmt.Sprintf("m%d was sent to %s at %s, and %s was to get it at %s", p.n, p.host, p.at, spec.Name, hosts))
			return
		}
	}
}

// told: the events of the operator's queue tell of each dead letter once.
func (k *checker) told(r *receiver) {
	made := map[[2]string]int{}
	if k.shown == nil {
		return
	}
	for _, d := range k.shown.deadLetters {
		made[[2]string{d.Queue, d.WebhookID}]++
	}
	if !maps.Equal(made, r.told) {
		k.violate("told", fmt.Sprintf("%s was told of %v, and the dead letters are %v", r.spec.Name, r.told, made))
	}
}

// takesCopies is whether a webhook gets the copies of dead letters.
func (k *checker) takesCopies(name string) bool {
	return slices.ContainsFunc(k.plan.Webhooks, func(spec Webhook) bool {
		return spec.Name == name && strings.HasSuffix(spec.Queue, poisonSuffix)
	})
}

// ofCopies: there is one copy of each message that was given up, and none of a replay. Who takes the copies gets it once, unless the
// message was replayed before, and the dead letter for which it was made does not wait any more. Judged where neither storage nor a process
// fails.
func (k *checker) ofCopies(spec Webhook) {
	of, is := strings.CutSuffix(spec.Queue, poisonSuffix)
	if !is || !k.plan.Strict {
		return
	}
	letters := map[int][]deadLetter{}
	for d, all := range k.dead {
		letters[d.n] = append(letters[d.n], all...)
	}
	for _, m := range k.messages {
		if m.queue != of {
			continue
		}
		if all := letters[m.n]; len(all) == 1 && all[0].Status == "waiting" {
			k.violate("copies", fmt.Sprintf("the one dead letter of m%d (%s) waits, though %s takes every copy", m.n, all[0].ID, spec.Name))
			return
		}
		taken := k.accepted(delivery{m.n, spec.Name})
		if all := letters[m.n]; len(all) == 1 && len(taken) > 0 {
			const before = 2 * time.Second
			if p := k.tookIn(m, k.names[all[0].WebhookID], all[0].Generation+1); p != nil && p.taken+before < taken[0].at {
				k.violate("copies", fmt.Sprintf("%s got the copy of m%d at %s, of which %s had taken the replay at %s", spec.Name, m.n, taken[0].at, p.webhook, p.taken))
				return
			}
		}
		if n := len(taken); n > min(1, len(letters[m.n])) {
			k.violate("copies", fmt.Sprintf("%s took m%d %d times, of which there are %d dead letters", spec.Name, m.n, n, len(letters[m.n])))
			return
		}
	}
}
