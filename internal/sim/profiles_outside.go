package sim

import "time"

// others is what else receivers, publishers, operators and other programs do.
func (p *Plan) others(c chooser, most time.Duration) {
	for i := range p.Webhooks {
		m := &p.Webhooks[i].Mix
		for _, share := range []*float64{&m.Stall, &m.Redirect, &m.Inward} {
			if c.chance(0.2) {
				*share = c.Float64() * 0.1
			}
		}
		if c.chance(0.1) {
			m.Gone = 0.02
		}
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		switch way := c.IntN(8); {
		case s.Do != doPublish:
		case way == 0:
			s.Keyed = true
		case way == 1:
			s.Delay = c.between(time.Second, time.Minute).Round(time.Second)
		case way == 2:
			s.Form = batch
		}
	}
	if c.chance(0.3) {
		p.step(Step{At: c.between(8*time.Second, most), Do: doMove, Webhook: pick(c, p.Webhooks...).Name})
	}
	if c.chance(0.2) {
		p.step(Step{At: c.between(8*time.Second, most), Do: doFilter, Webhook: pick(c, p.Webhooks...).Name, For: c.between(time.Second, time.Minute)})
	}
	if !p.File && c.chance(0.2) {
		p.step(Step{At: c.between(8*time.Second, most), Do: doTake, Queue: pick(c, p.Webhooks...).Queue, Count: 8, For: c.between(time.Second, 30*time.Second), Gap: c.between(100*time.Millisecond, 3*time.Second)})
	}
}

func answers(c chooser, p *Plan) {
	p.File, p.Instances, p.Strict = c.chance(0.4), 1+c.IntN(2), true
	p.Webhooks = []Webhook{
		{Name: "w0", Queue: "queue0", Timeout: 20 * time.Second, Attempts: 4, Mix: Mix{Stall: 0.1, Redirect: 0.1, Inward: 0.7 * c.Float64()}},
		{Name: "w1", Queue: pick(c, "queue0", "queue1"), Timeout: 20 * time.Second, Attempts: 4, Mix: Mix{Gone: 0.02, Stall: 0.05}},
	}
	p.Calm, p.Behind64 = 5*time.Minute, c.chance(0.3)
	p.traffic(c, 8*time.Second, 2*time.Minute, 8, 15)
	p.step(Step{At: 9 * time.Second, Do: doPublish, Queue: p.Webhooks[1].Queue, Count: 100, Gap: c.between(50*time.Millisecond, time.Second)})
	if c.chance(0.5) {
		p.step(Step{At: c.between(time.Minute, 3*time.Minute), Do: doEnable, Webhook: "w1"})
	}
}

func strangers(c chooser, p *Plan) {
	p.Instances, p.Strict = 1+c.IntN(2), true
	p.Webhooks = []Webhook{
		{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 5, Mix: Mix{Fail: 0.5, Late: 0.2, LateMin: time.Second, LateMax: 8 * time.Second}},
		{Name: "w1", Queue: "queue1", Timeout: 10 * time.Second, Attempts: 3, Mix: Mix{FinalFirst: true}},
	}
	p.Calm = 5 * time.Minute
	p.step(Step{At: 8 * time.Second, Do: doPut, Queue: "queue0", Count: 60, Gap: c.between(20*time.Millisecond, time.Second)})
	p.step(Step{At: 8 * time.Second, Do: doPublish, Queue: "queue1", Count: 20, Gap: c.between(20*time.Millisecond, time.Second)})
	for _, name := range []string{"w0", "w1"} { // what waits meanwhile is there to be taken
		at := c.between(10*time.Second, time.Minute)
		p.step(Step{At: at, Do: doDisable, Webhook: name})
		p.step(Step{At: at + c.between(20*time.Second, 100*time.Second), Do: doEnable, Webhook: name})
	}
	p.step(Step{At: c.between(30*time.Second, 2*time.Minute), Do: doReplay})
	for range 2 + c.IntN(3) {
		p.step(Step{At: c.between(10*time.Second, 3*time.Minute), Do: doTake, Queue: pick(c, "queue0", "queue1"), Count: 8, For: c.between(time.Second, 30*time.Second), Gap: c.between(100*time.Millisecond, 3*time.Second)})
	}
}

func publishers(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.3), 1+c.IntN(3)
	p.Webhooks = []Webhook{{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 4, Mix: Mix{Fail: 0.2, Final: 0.05, Late: 0.1, LateMin: time.Second, LateMax: 8 * time.Second}}}
	p.Calm = 5 * time.Minute
	for range 3 + c.IntN(4) {
		s := Step{At: c.between(8*time.Second, 3*time.Minute), Do: doPublish, Queue: "queue0", Instance: c.IntN(p.Instances), Count: 5 + c.IntN(15), Gap: c.between(10*time.Millisecond, time.Second)}
		switch c.IntN(4) {
		case 0:
			s.Form = batch
		case 1:
			s.Delay = c.between(time.Second, time.Minute).Round(time.Second)
		default:
			s.Keyed = true
		}
		p.step(s)
	}
	for range c.IntN(4) {
		p.step(Step{At: c.between(8*time.Second, 3*time.Minute), Do: doOutage, Service: "queue", Op: "send", Kind: p.kind(pick(c, lost, lost, dropped, hanging)), Instance: -1, For: c.between(time.Second, 20*time.Second)})
	}
	for range c.IntN(3) {
		p.step(Step{At: c.between(8*time.Second, 3*time.Minute), Do: doCrash, Instance: c.IntN(p.Instances), Where: c.IntN(40), For: c.between(time.Second, 10*time.Second)})
	}
}

func changed(c chooser, p *Plan) {
	p.File, p.Instances, p.Strict = c.chance(0.4), 1+c.IntN(3), true
	p.Webhooks = []Webhook{
		{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 4, Mix: Mix{Fail: 0.4, Late: 0.3, LateMin: time.Second, LateMax: 8 * time.Second}},
		{Name: "w1", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 4, Mix: Mix{Fail: 0.2}},
	}
	p.Calm = 5 * time.Minute
	for i := range p.Instances {
		p.step(Step{At: 8 * time.Second, Do: doPublish, Queue: "queue0", Instance: i, Count: 100, Gap: c.between(500*time.Millisecond, 2*time.Second)})
	}
	for at := c.between(15*time.Second, 40*time.Second); at < p.Calm-time.Minute; at += c.between(20*time.Second, time.Minute) {
		p.step(Step{At: at, Do: doMove, Webhook: pick(c, "w0", "w1")})
	}
	for _, name := range []string{"w0", "w1"}[:c.IntN(3)] {
		p.step(Step{At: c.between(20*time.Second, 2*time.Minute), Do: doFilter, Webhook: name, For: c.between(20*time.Second, time.Minute)})
	}
	if at := c.between(15*time.Second, 2*time.Minute); c.chance(0.7) {
		name := pick(c, "w0", "w1")
		p.step(Step{At: at, Do: doDisable, Webhook: name})
		p.step(Step{At: at + c.between(10*time.Second, time.Minute), Do: doEnable, Webhook: name})
	}
}

func told(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.5), 1+c.IntN(2)
	p.Settings["EVENTS_QUEUE"] = "events"
	p.Webhooks = []Webhook{
		{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 2, Mix: Mix{Fail: 0.4, Final: 0.2}},
		{Name: "w1", Queue: pick(c, "queue0", "queue1"), Timeout: 10 * time.Second, Attempts: 2, Mix: Mix{Final: c.Float64()}},
		{Name: "ops", Queue: "events", Timeout: 10 * time.Second, Attempts: 20, Told: true},
	}
	p.Calm = 5 * time.Minute
	s := Step{At: 8 * time.Second, Do: doPublish, Queue: "queue0", Count: 150, Gap: c.between(20*time.Millisecond, time.Second)}
	p.step(s)
	s.Queue, s.Count, s.TTL = p.Webhooks[1].Queue, 20, c.between(time.Minute, 3*time.Minute).Round(time.Second)
	p.step(s)
	if c.chance(0.5) { // they expire
		p.step(Step{At: c.between(10*time.Second, 30*time.Second), Do: doDisable, Webhook: "w1"})
	}
	for range c.IntN(3) {
		p.step(Step{At: c.between(10*time.Second, 4*time.Minute), Do: doStop, Instance: c.IntN(p.Instances), For: c.between(time.Second, 20*time.Second)})
	}
}

// poisonSuffix is what the name of a queue of copies ends with.
const poisonSuffix = "-poison"

func poison(c chooser, p *Plan) {
	p.File, p.Instances, p.Strict = c.chance(0.4), 1+c.IntN(2), true
	p.Webhooks = []Webhook{
		{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 2, Mix: Mix{Fail: 0.3, Final: 0.3}},
		{Name: "w1", Queue: pick(c, "queue0", "queue1"), Timeout: 10 * time.Second, Attempts: 2, Mix: Mix{FinalFirst: true}},
		{Name: "last", Queue: "queue0" + poisonSuffix, Timeout: 10 * time.Second, Attempts: 20, Mix: Mix{Fail: 0.3, Late: 0.2, LateMin: time.Second, LateMax: 8 * time.Second}},
	}
	p.Calm = 5 * time.Minute
	p.step(Step{At: 8 * time.Second, Do: p.sending(), Queue: "queue0", Count: 100, Gap: c.between(20*time.Millisecond, time.Second)})
	if c.chance(0.5) { // the copies lie there meanwhile
		p.step(Step{At: 7 * time.Second, Do: doDisable, Webhook: "last"})
		p.step(Step{At: c.between(time.Minute, 4*time.Minute), Do: doEnable, Webhook: "last"})
	}
	for range c.IntN(3) {
		p.step(Step{At: c.between(20*time.Second, 4*time.Minute), Do: doReplay})
	}
}
