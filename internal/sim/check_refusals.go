package sim

import (
	"fmt"
	"time"
)

// refusals: what receivers refuse, and for how long, is believed.
func (k *checker) refusals() {
	for _, spec := range k.plan.Webhooks {
		if spec.Mix == (Mix{Final: 1}) {
			k.drained(spec)
		}
		if spec.Mix == (Mix{Limit: spec.Mix.Limit}) && spec.Mix.Limit > 0 {
			k.limited(spec)
		}
		for _, m := range k.messages {
			k.asked(m, spec)
			k.stalled(m, spec)
			k.early(m, spec)
		}
		k.gone(spec)
		k.moved(spec)
		k.ofCopies(spec)
		if spec.Told {
			k.told(k.receivers[spec.Name])
		}
	}
}

// drained: a webhook that refuses everything keeps its messages, but for those by which that
// was found out.
func (k *checker) drained(spec Webhook) {
	bound, n := 40*len(k.slots), 0
	for d, letters := range k.dead {
		if d.webhook == spec.Name {
			n += len(letters)
		}
	}
	if n > bound {
		k.violate("drained", fmt.Sprintf("%s refused everything, and %d of its messages were given up, more than %d", spec.Name, n, bound))
	}
}

// limited: a receiver that refuses what is too much at once, and nothing else, makes no dead
// letter.
func (k *checker) limited(spec Webhook) {
	for d, letters := range k.dead {
		if d.webhook == spec.Name && k.messages[d.n].ttl == 0 {
			k.violate("limited", fmt.Sprintf("m%d was given up for %s (%s), which only takes %g in a second", d.n, spec.Name, letters[0].Reason, spec.Mix.Limit))
			return
		}
	}
}

// asked: nobody POSTs a message again before the time that the receiver named, as far as
// whoever does knows of it.
func (k *checker) asked(m *message, spec Webhook) {
	const slack = 500 * time.Millisecond
	posts := k.posts[delivery{m.n, spec.Name}]
	for i := 1; i < len(posts); i++ {
		first, second := posts[i-1], posts[i]
		if first.asked == 0 || first.taken == 0 || second.inst != first.inst || m.ttl > 0 || second.at >= first.answered+first.asked-slack ||
			k.recordOf(m, first) == nil {
			continue
		}
		k.violate("asked", fmt.Sprintf("%s asked for a wait of %s at %s, and got m%d again at %s", spec.Name, first.asked, first.answered, m.n, second.at))
		return
	}
}
