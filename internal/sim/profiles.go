package sim

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// Profile makes plans of one kind.
type Profile struct {
	Name, About string
	// Heavy ones are for runs that are asked for by name.
	Heavy bool
	make  func(c chooser, p *Plan)
}

// Profiles are all kinds of plans.
var Profiles = []Profile{
	{"mixed", "everything at once, in both stores", false, mixed},
	{"latency-tail", "one storage call in 200 is 1 to 5 s late, and nothing else: no doubles at all, and nobody waits for another's call", false, latencyTail},
	{"expiry", "messages of a short life, receivers that fail, webhooks that are disabled, processes that are down meanwhile", false, expiry},
	{"last-look", "messages of a short life on an account whose clock differs, while pauses are as long as they may be, and processes and webhooks come and go", false, lastLook},
	{"slow-short", "POSTs take a minute, leases are longer than the messages live, and holders die", false, slowShort},
	{"rolling-deployment", "each instance is stopped and started in turn, again and again", false, rollingDeployment},
	{"storage-dead", "storage is away for minutes to hours", false, storageDead},
	{"one-refuses-all", "one receiver refuses everything, beside one that takes everything", false, oneRefusesAll},
	{"hanging-neighbours", "the receivers of many queues hang, and a queue joins", false, hangingNeighbours},
	{"renewals", "storage refuses renewals for parts of a lease, while receivers take longer than it", false, renewals},
	{"lost-answers", "renewals take effect and their answers are lost, while receivers take longer than a lease: each message is POSTed once", false, lostAnswers},
	{"redelivery", "delivered messages whose delete failed come back to a new process while tables can't be read", false, redelivery},
	{"replays", "dead letters are replayed, and processes die meanwhile", false, replays},
	{"purges", "dead letters are purged while they are replayed, and processes die meanwhile", false, purges},
	{"limited", "receivers take so many messages a second, and refuse what is more; the account takes so many calls", false, limited},
	{"kept", "messages that every filter refuses, on a queue without a webhook, and texts of a newer version, beside those of a sender that wraps its base64", false, kept},
	{"unasked", "a receiver sends more than it was asked for, and refuses the next message", false, unasked},
	{"answers", "names that lead inwards, a 2xx whose body stalls, redirects, and receivers that are gone: no doubles at all", false, answers},
	{"strangers", "another program receives messages, and deletes some, while they wait, are retried and replayed: no doubles at all", false, strangers},
	{"publishers", "messages with an Idempotency-Key, with a delay, and as batches, while sends have no answer and processes die", false, publishers},
	{"changed", "webhooks get other URLs, policies and filters, and are disabled and enabled, while messages are retried: no doubles at all, and nobody goes by what was", false, changed},
	{"poison", "a webhook on the poison queue gets the copies of dead letters, of which some are replayed: each is taken once", false, poison},
	{"told", "each dead letter is told of on the operator's queue of events, once", false, told},
	{"anew", "a webhook that fails is deleted, and registered anew", false, anew},
	{"copies", "each event is published several times, through several processes, some of which die", false, copies},
	{"hot-partition", "storage throttles one queue, or some of the tables' partitions, and nothing else: others don't notice", false, hotPartition},
	{"replaced", "webhooks are deleted, and registered again under their id or name, while their dead letters are replayed: no doubles at all", false, replaced},
	{"swept", "a queue is deleted with its webhooks and messages, and made anew, while it is published to", false, swept},
	{"standstill", "processes stand still for longer than their leases, beside others", false, standstill},
	{"clocks", "the clocks of instances, and the account's, are up to a minute apart, while leases, claims, waits and replays go from one to another", false, clocks},
	{"joined", "a webhook is registered by a clock that is ahead, beside one that fails, and processes die in its POSTs", false, joined},
	{"hosted", "instances under the Functions host, some of which die, with a queue of the host's and one of the pump's", false, hosted},
	{"hosted-expiry", "messages of a short life under the Functions host, on an account that hides none until after its end", false, hostedExpiry},
	{"dead-tables", "tables are away while more messages are delivered than records are kept in memory", true, deadTables},
}

// NewPlan makes the plan of a profile and a seed; it is false when there is no such
// profile.
func NewPlan(profile string, seed uint64) (*Plan, bool) {
	for _, f := range Profiles {
		if f.Name != profile {
			continue
		}
		p := &Plan{Profile: profile, Seed: seed, Instances: 1, Settings: map[string]string{}, Warm: 5 * time.Second, Settle: 40 * time.Minute}
		f.make(newChooser(seed), p)
		slices.SortStableFunc(p.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
		for i := range p.Steps {
			p.Steps[i].ID = fmt.Sprintf("s%d", i)
		}
		return p, true
	}
	return nil, false
}

func (p *Plan) step(s Step) { p.Steps = append(p.Steps, s) }

// receiverOf has everything that can be used for it chosen.
func receiverOf(c chooser, name, queueName string) Webhook {
	m := Mix{LateMin: time.Second, LateMax: 20 * time.Second}
	for _, share := range []*float64{&m.Fail, &m.Busy, &m.Final, &m.Late, &m.Silent, &m.Reset, &m.Undone, &m.Early, &m.Extra, &m.Cut} {
		if c.chance(0.4) {
			*share = c.Float64() * 0.1
		}
	}
	if c.chance(0.3) {
		m.Down, m.NoName = c.Float64()*0.2, c.Float64()*0.2
	}
	return Webhook{Name: name, Queue: queueName, Mix: m, Timeout: pick(c, 5*time.Second, 30*time.Second), Attempts: 2 + c.IntN(4)}
}

// traffic sends messages from one time to another, through instances or past them.
func (p *Plan) traffic(c chooser, from, until time.Duration, steps, most int) {
	for range steps {
		w := p.Webhooks[c.IntN(len(p.Webhooks))]
		s := Step{At: c.between(from, until), Do: doPublish, Queue: w.Queue, Count: 1 + c.IntN(most), Instance: c.IntN(p.Instances)}
		if c.chance(0.5) {
			s.Gap = c.between(10*time.Millisecond, time.Second)
		}
		if !p.File && c.chance(0.5) {
			s.Do = doPut
			s.Form = pick(c, "", "", "", wrapped)
		}
		p.step(s)
	}
}

// outageOf is a service that fails in one of the ways it has.
func (p *Plan) outageOf(c chooser, at, length time.Duration) {
	kind, service := pick(c, refused, refused, dropped, unsent, hanging, lost), pick(c, "", "queue", "table")
	p.step(Step{At: at, Do: doOutage, For: length, Instance: c.IntN(p.Instances+1) - 1, Service: service, Kind: p.kind(kind)})
}

// kind is how storage fails: a file refuses, and that is all.
func (p *Plan) kind(of string) string {
	if p.File {
		return refused
	}
	return of
}

func mixed(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.4), 1+c.IntN(4)
	p.Skew = c.between(-20*time.Second, 20*time.Second)
	for i := range 1 + c.IntN(4) {
		p.Webhooks = append(p.Webhooks, receiverOf(c, fmt.Sprintf("w%d", i), fmt.Sprintf("queue%d", c.IntN(2))))
	}
	p.Calm = c.between(2*time.Minute, 8*time.Minute)
	p.traffic(c, 6*time.Second, p.Calm-10*time.Second, 4+c.IntN(10), 20)
	most := p.Calm - 5*time.Second
	for range c.IntN(3) {
		p.outageOf(c, c.between(8*time.Second, most), c.between(time.Second, time.Minute))
	}
	for range c.IntN(4) {
		p.step(Step{At: c.between(8*time.Second, most), Do: doCrash, Instance: c.IntN(p.Instances), Where: c.IntN(40), For: c.between(time.Second, 30*time.Second)})
	}
	if c.chance(0.3) {
		p.step(Step{At: c.between(8*time.Second, most), Do: doFreeze, Instance: c.IntN(p.Instances), For: c.between(time.Second, 2*time.Minute)})
	}
	if c.chance(0.4) {
		p.step(Step{At: c.between(8*time.Second, most), Do: doStop, Instance: c.IntN(p.Instances), For: c.between(time.Second, 30*time.Second)})
	}
	if c.chance(0.3) {
		p.step(Step{At: c.between(8*time.Second, most), Do: doReplay})
	}
	if c.chance(0.2) {
		name, at := p.Webhooks[0].Name, c.between(8*time.Second, most)
		p.step(Step{At: at, Do: doDisable, Webhook: name})
		p.step(Step{At: at + c.between(time.Second, time.Minute), Do: doEnable, Webhook: name})
	}
	r := &p.Rates
	for _, share := range []*float64{&r.Refused, &r.Unsent, &r.Dropped, &r.Lost, &r.Slow, &r.Hanging} {
		if c.chance(0.4) {
			*share = c.Float64() * 0.02
		}
	}
	if p.File {
		*r = Rates{Refused: r.Refused, Slow: r.Slow}
	}
	r.SlowMin, r.SlowMax = 100*time.Millisecond, 5*time.Second
	p.Behind64 = c.chance(0.2)
	if !p.File && c.chance(0.2) {
		p.QueueCalls, p.TableCalls = 20+c.IntN(100), 10+c.IntN(50)
	}
	if !p.File && c.chance(0.3) {
		p.step(Step{At: c.between(8*time.Second, most), Do: doOutage, Kind: refused, Instance: -1, Service: "table", Hot: c.Float64() / 2, Count: c.IntN(3), For: c.between(time.Second, 2*time.Minute)})
	}
	if c.chance(0.2) {
		p.step(Step{At: c.between(8*time.Second, most), Do: doReplace, Webhook: pick(c, p.Webhooks...).Name, For: c.between(0, time.Minute)})
	}
	if c.chance(0.2) {
		p.step(Step{At: c.between(8*time.Second, most), Do: doSweep, Queue: pick(c, p.Webhooks...).Queue, For: c.between(0, time.Minute)})
	}
	p.others(c, most)
}

func latencyTail(c chooser, p *Plan) {
	p.Instances, p.Strict, p.Lanes = 1+c.IntN(2), true, true
	p.Webhooks = []Webhook{{Name: "w0", Queue: "queue0", Timeout: 30 * time.Second, Attempts: 3}}
	p.Calm = 3 * time.Minute
	for i := range p.Instances {
		p.step(Step{At: 8 * time.Second, Do: doPublish, Queue: "queue0", Instance: i, Count: 300, Gap: c.between(20*time.Millisecond, 100*time.Millisecond)})
	}
	p.step(Step{At: 30 * time.Second, Do: doPut, Queue: "queue0", Count: 200, Gap: 50 * time.Millisecond})
	p.Rates = Rates{Slow: 0.005, SlowMin: time.Second, SlowMax: 5 * time.Second}
}

func expiry(c chooser, p *Plan) {
	p.File, p.HidesToTheEnd = c.chance(0.5), p.Seed%2 == 0
	p.Webhooks = []Webhook{{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 20, Mix: Mix{Fail: c.Float64()}}}
	p.Calm = 8 * time.Minute
	if c.chance(0.5) {
		p.step(Step{At: 7 * time.Second, Do: doDisable, Webhook: "w0"})
	}
	for range 1 + c.IntN(4) {
		s := Step{At: c.between(10*time.Second, time.Minute), Do: doPublish, Queue: "queue0", Count: 1 + c.IntN(10), TTL: c.between(60*time.Second, 240*time.Second).Round(time.Second)}
		if p.File && c.chance(0.5) {
			s.TTL = c.between(15*time.Second, time.Minute).Round(time.Second)
		}
		s.Gap = c.between(0, 4*time.Second)
		p.step(s)
	}
	if c.chance(0.5) {
		p.step(Step{At: c.between(20*time.Second, 2*time.Minute), Do: doStop, For: c.between(30*time.Second, 5*time.Minute)})
	}
	if c.chance(0.3) {
		p.step(Step{At: c.between(20*time.Second, 2*time.Minute), Do: doCrash, Where: c.IntN(20), For: c.between(30*time.Second, 5*time.Minute)})
	}
	if c.chance(0.3) {
		p.step(Step{At: c.between(20*time.Second, 90*time.Second), Do: doDelete, Webhook: "w0"})
	}
	if c.chance(0.3) {
		p.Webhooks[0].Mix = Mix{Busy: 1}
	}
	for i := range c.IntN(3) { // each is owed what it did not get, whatever the others got
		p.Webhooks = append(p.Webhooks, Webhook{Name: fmt.Sprintf("w%d", i+1), Queue: "queue0", Timeout: time.Minute, Attempts: 20, Mix: Mix{Late: 0.7, LateMin: time.Second, LateMax: 40 * time.Second}})
	}
}

func lastLook(c chooser, p *Plan) {
	p.Instances, p.HidesToTheEnd = 1+c.IntN(2), c.chance(0.5)
	p.Settings["POLL_MAX"] = "30s"
	p.Skew = pick(c, 30*time.Second, -30*time.Second, c.between(-30*time.Second, 30*time.Second))
	p.Webhooks = []Webhook{
		{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 20, Mix: pick(c, Mix{Fail: 1}, Mix{Busy: 1}, Mix{Fail: 0.5, Busy: 0.2, Patient: true})},
		{Name: "well", Queue: "idle", Timeout: 10 * time.Second, Attempts: 3},
	}
	p.Calm = 14 * time.Minute
	for at := 10 * time.Second; at < 8*time.Minute; at += c.between(20*time.Second, 90*time.Second) {
		p.step(Step{At: at, Do: doPut, Queue: "queue0", Count: 1, TTL: c.between(150*time.Second, 5*time.Minute).Round(time.Second)})
		p.step(Step{At: at, Do: doPut, Queue: "idle", Count: 1, TTL: c.between(time.Minute, 3*time.Minute).Round(time.Second)})
	}
	for at := 2 * time.Minute; at < 10*time.Minute; at += c.between(time.Minute, 4*time.Minute) {
		switch i := c.IntN(p.Instances); {
		case c.chance(0.3):
			p.step(Step{At: at, Do: doDisable, Webhook: "w0"})
			p.step(Step{At: at + c.between(time.Second, 10*time.Second), Do: doEnable, Webhook: "w0"})
		case c.chance(0.5):
			p.step(Step{At: at, Do: doStop, Instance: i, For: c.between(time.Second, 5*time.Second)})
		default:
			p.step(Step{At: at, Do: doCrash, Instance: i, Where: c.IntN(20), For: c.between(time.Second, 5*time.Second)})
		}
	}
}

func slowShort(c chooser, p *Plan) {
	p.Instances = 2 // on an account that hides to the end: else others see a message in its last two seconds (ADR 0127)
	p.Settings["LEASE"], p.Settings["POLL_MAX"] = pick(c, "2m", "5m", "1h"), "1s"
	p.Webhooks = []Webhook{{Name: "w0", Queue: "queue0", Timeout: 2 * time.Minute, Attempts: 4, Mix: Mix{Late: 1, LateMin: 20 * time.Second, LateMax: 60 * time.Second}}}
	p.Calm = 8 * time.Minute
	for at := 10 * time.Second; at < 5*time.Minute; at += c.between(5*time.Second, 20*time.Second) {
		p.step(Step{At: at, Do: doPut, Queue: "queue0", Count: 1 + c.IntN(3), TTL: c.between(2*time.Minute, 4*time.Minute).Round(time.Second), Gap: c.between(0, 3*time.Second)})
	}
	for at := 20 * time.Second; at < 5*time.Minute; at += c.between(20*time.Second, 90*time.Second) {
		p.step(Step{At: at, Do: doCrash, Instance: c.IntN(2), Where: c.IntN(40), For: c.between(time.Second, 20*time.Second)})
	}
}

func rollingDeployment(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.3), 2+c.IntN(2)
	p.Webhooks = []Webhook{
		{Name: "w0", Queue: "queue0", Timeout: 30 * time.Second, Attempts: 4, Mix: Mix{Late: 0.3, LateMin: time.Second, LateMax: 25 * time.Second}},
		{Name: "w1", Queue: "queue0", Timeout: 30 * time.Second, Attempts: 4, Mix: Mix{Fail: 0.1}},
	}
	p.Calm = 6 * time.Minute
	for i := range p.Instances {
		p.step(Step{At: 8 * time.Second, Do: doPublish, Queue: "queue0", Instance: i, Count: 80, Gap: c.between(500*time.Millisecond, 4*time.Second)})
	}
	for at := 15 * time.Second; at < p.Calm; {
		for i := range p.Instances {
			p.step(Step{At: at, Do: doStop, Instance: i, For: c.between(time.Second, 10*time.Second)})
			at += c.between(2*time.Second, 40*time.Second)
		}
	}
}

func storageDead(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.3), 1+c.IntN(2)
	p.Webhooks = []Webhook{receiverOf(c, "w0", "queue0"), receiverOf(c, "w1", "queue1")}
	start := c.between(20*time.Second, time.Minute)
	length := c.between(30*time.Second, 4*time.Hour)
	p.Calm = start + length + time.Minute
	p.traffic(c, 8*time.Second, start+20*time.Second, 6, 20)
	kind, service := p.kind(pick(c, refused, refused, hanging, unsent)), pick(c, "", "", "queue", "table")
	p.step(Step{At: start, Do: doOutage, For: length, Instance: -1, Service: service, Kind: kind})
	if c.chance(0.3) {
		p.step(Step{At: c.between(start, start+length), Do: doCrash, Instance: 0, For: 5 * time.Second})
	}
}

func oneRefusesAll(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.5), 1+c.IntN(2)
	bad := pick(c, Mix{Final: 1}, Mix{Fail: 1}, Mix{Reset: 1}, Mix{Down: 1}, Mix{Silent: 1})
	p.Webhooks = []Webhook{
		{Name: "bad", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 3, Mix: bad},
		{Name: "good", Queue: pick(c, "queue0", "queue1"), Timeout: 10 * time.Second, Attempts: 3, Prompt: 45 * time.Second}, // an idle queue is looked at every 30 s or so
	}
	p.Calm = 5 * time.Minute
	p.traffic(c, 8*time.Second, p.Calm-time.Minute, 12, 15)
	p.step(Step{At: 20 * time.Second, Do: doPublish, Queue: "queue0", Count: 200, Gap: 50 * time.Millisecond})
}

func hangingNeighbours(c chooser, p *Plan) {
	p.File = c.chance(0.5)
	p.Settings["MAX_IN_FLIGHT"], p.Settings["CONCURRENCY"] = "40", "40"
	n := 8 + c.IntN(6)
	for i := range n {
		name := fmt.Sprintf("queue%d", i)
		p.Webhooks = append(p.Webhooks, Webhook{Name: "h" + name, Queue: name, Timeout: 45 * time.Second, Attempts: 3, Mix: Mix{Hang: true}})
		p.step(Step{At: 10 * time.Second, Do: doPublish, Queue: name, Count: 50})
	}
	p.Webhooks = append(p.Webhooks, Webhook{Name: "new", Queue: "joins", Timeout: 10 * time.Second, Attempts: 3, Late: true, Prompt: 3 * time.Second})
	p.step(Step{At: 40 * time.Second, Do: doRegister, Webhook: "new"})
	p.step(Step{At: 45 * time.Second, Do: doPublish, Queue: "joins", Count: 20, Gap: 300 * time.Millisecond})
	p.Calm = 2 * time.Minute
	p.Settle = 2 * time.Hour
}

func renewals(c chooser, p *Plan) {
	p.Instances = 2
	p.Settings["LEASE"], p.Settings["POLL_MAX"] = "30s", "1s"
	p.Webhooks = []Webhook{{Name: "w0", Queue: "queue0", Timeout: 2 * time.Minute, Attempts: 4, Mix: Mix{Late: 1, LateMin: 35 * time.Second, LateMax: 80 * time.Second}}}
	p.Calm = 5 * time.Minute
	for at := 10 * time.Second; at < p.Calm-time.Minute; at += c.between(40*time.Second, 70*time.Second) {
		p.step(Step{At: at, Do: doPut, Queue: "queue0", Count: 6, Gap: c.between(0, 300*time.Millisecond)})
		from, until := c.between(11*time.Second, 16*time.Second), c.between(20*time.Second, 30*time.Second)
		p.step(Step{At: at + from, Do: doOutage, Service: "queue", Kind: refused, Instance: pick(c, 0, 1, -1), For: until - from})
	}
	if c.chance(0.3) {
		p.step(Step{At: c.between(20*time.Second, 2*time.Minute), Do: doFreeze, Instance: 0, For: c.between(20*time.Second, time.Minute)})
	}
}

func lostAnswers(c chooser, p *Plan) {
	p.Instances = 2
	p.Settings["LEASE"], p.Settings["POLL_MAX"] = "30s", "1s"
	p.Webhooks = []Webhook{{Name: "w0", Queue: "queue0", Timeout: 2 * time.Minute, Attempts: 4, Mix: Mix{Late: 0.8, LateMin: 20 * time.Second, LateMax: 100 * time.Second}}}
	p.Calm = 5 * time.Minute
	for at := 10 * time.Second; at < p.Calm-2*time.Minute; at += c.between(30*time.Second, time.Minute) {
		p.step(Step{At: at, Do: doPut, Queue: "queue0", Count: 6, Gap: c.between(0, 3*time.Second)})
		p.step(Step{At: at, Do: doOutage, Service: "queue", Op: "update", Kind: lost, Instance: pick(c, 0, 1, -1), For: c.between(15*time.Second, 25*time.Second)})
	}
	p.Strict = true
}

func redelivery(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.2), 1
	p.Settings["POLL_MAX"] = "1s" // all are delivered when the process dies
	p.Webhooks = []Webhook{{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 4}}
	p.Calm = 4 * time.Minute
	at := c.between(10*time.Second, 20*time.Second)
	p.step(Step{At: at, Do: p.sending(), Queue: "queue0", Count: 20, Gap: 50 * time.Millisecond})
	p.step(Step{At: at - time.Second, Do: doOutage, Service: "queue", Op: p.deletes(), Kind: refused, Instance: -1, For: 10 * time.Second})
	p.step(Step{At: at + 3*time.Second, Do: doCrash, Where: c.IntN(5), For: c.between(time.Second, 10*time.Second)})
	reads := Step{At: at + c.between(25*time.Second, 30*time.Second), Do: doOutage, Service: "table", Kind: p.kind(pick(c, refused, dropped, hanging)), Instance: -1}
	reads.For = c.between(2*time.Second, 20*time.Second)
	if c.chance(0.5) { // longer than anybody asks for one answer
		reads.For = c.between(30*time.Second, 90*time.Second)
	}
	p.step(reads)
}

// deletes are what ends a message on its queue.
func (p *Plan) deletes() string {
	if p.File {
		return "complete"
	}
	return "delete"
}

// sending is how messages come that no fault may keep from coming.
func (p *Plan) sending() string {
	if p.File {
		return doPublish
	}
	return doPut
}

func limited(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.3), 1+c.IntN(3)
	for i := range 1 + c.IntN(2) {
		p.Webhooks = append(p.Webhooks, Webhook{
			Name: fmt.Sprintf("w%d", i), Queue: "queue0", Timeout: 10 * time.Second, Attempts: 3, Mix: Mix{Limit: 2 + 20*c.Float64()},
		})
	}
	p.Webhooks = append(p.Webhooks, Webhook{Name: "busy", Queue: "queue1", Timeout: 10 * time.Second, Attempts: 6, Mix: Mix{Busy: 0.3, Patient: c.chance(0.5)}})
	p.Calm = 5 * time.Minute
	p.step(Step{At: 8 * time.Second, Do: p.sending(), Queue: "queue0", Count: 100 + c.IntN(200), Gap: c.between(10*time.Millisecond, 200*time.Millisecond)})
	p.traffic(c, 8*time.Second, p.Calm-time.Minute, 8, 20)
	if !p.File && c.chance(0.5) {
		p.QueueCalls, p.TableCalls = 30+c.IntN(100), 15+c.IntN(50)
	}
}

func kept(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.3), 1+c.IntN(2)
	p.Webhooks = []Webhook{
		{Name: "picky", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 3, Picky: true},
		{Name: "w1", Queue: "queue1", Timeout: 10 * time.Second, Attempts: 3},
	}
	p.Calm, p.Behind64 = 5*time.Minute, c.chance(0.5)
	p.traffic(c, 8*time.Second, 2*time.Minute, 8, 15)
	p.step(Step{At: 30 * time.Second, Do: doPublish, Queue: "nobody", Count: 1 + int(p.Seed%5), Instance: p.Instances - 1, Gap: 7 * time.Second, TTL: time.Minute})
	for i := range 10 { // more than a message has places of its own for
		p.Webhooks = append(p.Webhooks, Webhook{Name: fmt.Sprintf("wide%d", i), Queue: "wide", Timeout: 10 * time.Second, Attempts: 3})
	}
	p.step(Step{At: 40 * time.Second, Do: p.sending(), Queue: "wide", Count: 3})
	if p.File {
		return
	}
	p.step(Step{At: c.between(10*time.Second, time.Minute), Do: doPut, Queue: "queue1", Count: 1 + c.IntN(5), Form: wrapped})
	p.step(Step{At: c.between(10*time.Second, time.Minute), Do: doPut, Queue: "queue1", Count: 1 + c.IntN(5), Form: newer, TTL: c.between(2*time.Minute, 4*time.Minute).Round(time.Second)})
}

func unasked(c chooser, p *Plan) {
	p.File = c.chance(0.5)
	p.Webhooks = []Webhook{{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 5, Mix: Mix{Extra: 0.4, Fail: 0.2, Final: 0.1}}}
	p.Calm = 3 * time.Minute
	p.step(Step{At: 8 * time.Second, Do: p.sending(), Queue: "queue0", Count: 200, Gap: c.between(10*time.Millisecond, 100*time.Millisecond)})
}

func copies(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.4), 1+c.IntN(4)
	p.Settings["QUEUES"] = "queue0=auto:dedup=event-id"
	p.Webhooks = []Webhook{{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 4, Mix: Mix{Fail: 0.2, Late: 0.3, LateMin: time.Second, LateMax: 8 * time.Second}}}
	p.Calm = 4 * time.Minute
	for i := range 10 + c.IntN(20) {
		at := c.between(8*time.Second, 2*time.Minute)
		for range 2 + c.IntN(2) {
			p.step(Step{At: at, Do: doPublish, Queue: "queue0", Count: 1, Instance: c.IntN(p.Instances), Event: fmt.Sprintf("event%d", i)})
			at += c.between(0, 20*time.Second)
		}
	}
	for range c.IntN(3) {
		p.step(Step{At: c.between(10*time.Second, 2*time.Minute), Do: doCrash, Instance: c.IntN(p.Instances), Where: c.IntN(40), For: c.between(time.Second, 10*time.Second)})
	}
}

func hosted(c chooser, p *Plan) {
	p.Hosted, p.Brief, p.Instances = true, true, 1+c.IntN(2)
	p.Webhooks = []Webhook{receiverOf(c, "w0", "queue0"), receiverOf(c, "w1", "queue1")}
	if c.chance(0.5) {
		p.Webhooks = append(p.Webhooks, receiverOf(c, "w2", "queue0"))
	}
	p.Calm, p.Settle = 6*time.Minute, time.Hour
	p.traffic(c, 8*time.Second, p.Calm-time.Minute, 10, 20)
	for range c.IntN(3) {
		p.step(Step{At: c.between(10*time.Second, p.Calm-time.Minute), Do: doCrash, Instance: c.IntN(p.Instances), Where: c.IntN(60), For: c.between(time.Second, 30*time.Second)})
	}
	if c.chance(0.4) {
		p.step(Step{At: c.between(10*time.Second, p.Calm-time.Minute), Do: doStop, Instance: c.IntN(p.Instances), For: c.between(time.Second, 30*time.Second)})
	}
	if c.chance(0.3) {
		p.step(Step{At: c.between(10*time.Second, p.Calm-time.Minute), Do: doFreeze, Instance: c.IntN(p.Instances), For: c.between(time.Second, 2*time.Minute)})
	}
	if c.chance(0.5) {
		p.outageOf(c, c.between(10*time.Second, p.Calm-time.Minute), c.between(time.Second, 40*time.Second))
	}
	if c.chance(0.3) {
		p.step(Step{At: c.between(time.Minute, p.Calm-time.Minute), Do: doReplay})
	}
	if c.chance(0.5) {
		p.Rates = Rates{Refused: c.Float64() * 0.01, Lost: c.Float64() * 0.01, Dropped: c.Float64() * 0.01}
	}
	if c.chance(0.5) { // messages come, and can't be taken over from the host
		at := c.between(10*time.Second, p.Calm-2*time.Minute)
		p.step(Step{At: at, Do: doOutage, Service: "queue", Op: "update", Kind: pick(c, refused, hanging, lost), Instance: -1, For: c.between(15*time.Second, time.Minute)})
		p.step(Step{At: at + time.Second, Do: doPut, Queue: "queue0", Count: 10, Gap: 100 * time.Millisecond})
	}
}

func hostedExpiry(c chooser, p *Plan) {
	p.Hosted, p.Brief, p.HidesToTheEnd, p.Instances = true, true, true, 1+c.IntN(2)
	p.Settings["LEASE"] = "2m" // longer than anything lives
	for i := range 1 + c.IntN(3) {
		p.Webhooks = append(p.Webhooks, Webhook{Name: fmt.Sprintf("w%d", i), Queue: "queue0", Timeout: 10 * time.Second, Attempts: 3, Mix: Mix{Late: 0.5, LateMin: time.Second, LateMax: 8 * time.Second}})
	}
	p.Calm = 5 * time.Minute
	for range 2 + c.IntN(4) {
		p.step(Step{At: c.between(10*time.Second, 2*time.Minute), Do: doPut, Queue: "queue0", Count: 1 + c.IntN(10), TTL: c.between(45*time.Second, 90*time.Second).Round(time.Second), Gap: c.between(0, 4*time.Second)})
	}
}

func deadTables(c chooser, p *Plan) {
	p.Webhooks = []Webhook{{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 3}}
	// More than are kept in memory: 20,000, unless the code was made to keep fewer.
	messages := 21_000
	if n, err := strconv.Atoi(os.Getenv("SIM_MESSAGES")); err == nil {
		messages = n
	}
	const senders = 20
	length := time.Duration(messages/senders) * 700 * time.Millisecond
	p.step(Step{At: 20 * time.Second, Do: doOutage, Service: "table", Kind: refused, Instance: -1, For: length + time.Minute})
	for i := range senders {
		p.step(Step{At: 21*time.Second + time.Duration(i)*time.Millisecond, Do: doPut, Queue: "queue0", Count: messages / senders, Gap: c.between(500*time.Millisecond, 700*time.Millisecond)})
	}
	p.step(Step{At: 81*time.Second + length, Do: doPut, Queue: "queue0", Count: 600, Gap: 2 * time.Millisecond})
	p.Calm = length + 5*time.Minute
}
