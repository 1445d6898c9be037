package sim

import (
	"fmt"
	"time"
)

// outages: whoever finds that storage does not answer asks it rarely, for its queues, its webhooks and what it
// has to write.
func (k *checker) outages() {
	const first = 2 * time.Minute
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
			if asked[c.inst] = times; len(times) > bound {
				k.violate("outage", fmt.Sprintf("%s asked storage, which did not answer it, for more than %d things from %s to %s", c.inst.name, bound, times[0], c.begin))
				return
			}
		}
	}
}
