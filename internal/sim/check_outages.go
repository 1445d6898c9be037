package sim

import (
	"fmt"
	"time"
)

// outages: whoever finds that storage does not answer asks it rarely, for its queues, its webhooks, what it
// has to write, and each message that it must look up and can't.
func (k *checker) outages() {
	const first, each = 2 * time.Minute, 10
	bound := 40 + 30*len(k.queues())
	for _, o := range k.faults.outages {
		if o.op != "" || o.partition != "" || o.hot > 0 || o.instance >= 0 {
			continue
		}
		asked := map[*instance][]time.Duration{} // of each the times in the last minute
		for _, c := range k.calls {
			if c.begin < o.from+first || c.begin >= o.until || o.service != "" && c.service != o.service {
				continue
			}
			asked[c.inst] = append(asked[c.inst], c.begin)
			times := asked[c.inst]
			for times[0] <= c.begin-time.Minute {
				times = times[1:]
			}
			if asked[c.inst] = times; len(times) > bound && len(times) > bound+each*k.inWork(o.from, times[0]) {
				k.violate("outage", fmt.Sprintf("%s asked storage, which did not answer it, for %d things from %s to %s, with %d messages in work", c.inst.name, len(times), times[0], c.begin, k.inWork(o.from, times[0])))
				return
			}
		}
	}
}

// inWork is how many messages were sent before a time and not over when the outage began: they are looked up,
// or have records that wait.
func (k *checker) inWork(began, at time.Duration) (n int) {
	for _, m := range k.messages {
		if m.sent < at && len(m.events) > 0 && m.events[len(m.events)-1].at > began {
			n++
		}
	}
	return n
}
