package sim

import (
	"fmt"
	"sync"
	"time"
)

// Rates are the shares of storage calls that go wrong.
type Rates struct {
	// Refused calls are answered 503 and do nothing; Unsent ones find nobody; Dropped ones
	// do nothing and their connection breaks; Lost ones take effect and their answer is
	// lost; Slow ones are late; Hanging ones are never answered, and half of them take
	// effect.
	Refused, Unsent, Dropped, Lost, Slow, Hanging float64
	// SlowMin and SlowMax bound how late slow ones are.
	SlowMin, SlowMax time.Duration
	// Service restricts them to "queue" or "table".
	Service string
}

// What becomes of a call.
const (
	well    = ""
	refused = "refused"
	unsent  = "unsent"
	dropped = "dropped"
	lost    = "lost"
	slow    = "slow"
	hanging = "hangs"
)

// outage is a time in which a service fails for one instance or all.
type outage struct {
	from, until time.Duration
	instance    int
	service     string
	op          string // empty for all calls of the service
	kind        string
	// partition is the one that it is about, or hot the share of them; without either it is about all.
	// Each takes so many calls a second nevertheless.
	partition string
	hot       float64
	takes     int
}

// faults decide about each call.
type faults struct {
	plan *Plan
	mu   sync.Mutex
	// outages are those of the steps so far.
	outages []outage
	// drawn are the faults that calls met by the rates.
	drawn []string
	calm  bool
	// warm is when faults by rate begin, once that is known.
	warm  time.Duration
	begun bool
	// second is the one that the counts of calls are of.
	second time.Duration
	counts map[string]int
}

// add makes a service fail for a while.
func (f *faults) add(o outage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outages = append(f.outages, o)
}

// begin says when faults begin.
func (f *faults) begin(at time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.warm, f.begun = at, true
}

// end ends all faults.
func (f *faults) end(now time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calm = true
	for i := range f.outages {
		f.outages[i].until = min(f.outages[i].until, now)
	}
}

// about is what becomes of a call. id names it.
func (f *faults) about(c *call, now time.Duration) (kind, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calm {
		return well, ""
	}
	if kind, forced := f.plan.Force[c.id()]; forced {
		return kind, c.id()
	}
	for _, o := range f.outages {
		if now >= o.from && now < o.until && (o.instance < 0 || o.instance == c.inst.slot) && (o.service == "" || o.service == c.service) && (o.op == "" || o.op == c.op) {
			if (o.hot > 0 || o.partition != "") && (!f.hot(o, c.partition) || f.counted(c.partition, now) <= o.takes) {
				continue
			}
			if o.kind == refused && f.plan.draw("outage", c.id()) < 0.2 {
				return dropped, ""
			}
			return o.kind, ""
		}
	}
	if !f.begun || now < f.warm || now >= f.plan.Calm || f.plan.Rates.Service != "" && f.plan.Rates.Service != c.service {
		return well, ""
	}
	if f.throttles(c.service, now) {
		return refused, ""
	}
	r, id := f.plan.Rates, c.id()
	x := f.plan.draw("fault", id)
	for _, k := range []struct {
		kind string
		rate float64
	}{{refused, r.Refused}, {unsent, r.Unsent}, {dropped, r.Dropped}, {lost, r.Lost}, {slow, r.Slow}, {hanging, r.Hanging}} {
		if x -= k.rate; x < 0 {
			if !f.plan.kept(id) {
				return well, ""
			}
			f.drawn = append(f.drawn, id)
			return k.kind, id
		}
	}
	return well, ""
}

// throttles is whether the account has taken as many calls in this second as it takes. f.mu
// is held.
func (f *faults) throttles(service string, now time.Duration) bool {
	bound := map[string]int{"queue": f.plan.QueueCalls, "table": f.plan.TableCalls}[service]
	if bound == 0 {
		return false
	}
	return f.counted(service, now) > bound
}

// hot is whether an outage is about a partition.
func (f *faults) hot(o outage, partition string) bool {
	return partition != "" && (partition == o.partition || f.plan.draw("hot", o.from, partition) < o.hot)
}

// counted is how many calls of one kind there were in this second, this one included. f.mu is held.
func (f *faults) counted(of string, now time.Duration) int {
	if second := now.Truncate(time.Second); second != f.second || f.counts == nil {
		f.second, f.counts = second, map[string]int{}
	}
	f.counts[of]++
	return f.counts[of]
}

// healthy is whether no outage touched the instance's service, or with none any, within a time.
func (f *faults) healthy(instance int, service string, from, until time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.outages {
		if o.from < until && o.until > from && (o.instance < 0 || o.instance == instance) && (o.service == "" || service == "" || o.service == service) {
			return false
		}
	}
	return true
}

// call is one storage call of an instance.
type call struct {
	inst                  *instance
	service, op           string
	partition             string // empty where it is of none
	ordinal               int
	begin, applied, ended time.Duration
	fault                 string
	// ok is whether it was done, and told whether the caller was told so.
	ok, told bool
	// about are the messages that it mentions, attempts those of which it writes an attempt.
	about    []string
	attempts []written
}

// written is an attempt that a call writes: of which message, for which webhook, and which one.
type written struct {
	message, webhook string
	number           int
	delivered        bool // it shares the row of the delivery, which does not tell its number
}

// id names the call in a plan: it depends on the order of calls of one kind in one
// instance, and on nothing else.
func (c *call) id() string {
	return fmt.Sprintf("%s/%s.%s/%d", c.inst.name, c.service, c.op, c.ordinal)
}
