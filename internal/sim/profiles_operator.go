package sim

import (
	"fmt"
	"time"
)

// What operators do at the worst time, and what befalls storage and processes meanwhile.

func replays(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.5), 1+c.IntN(2)
	p.Webhooks = []Webhook{{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 2, Mix: Mix{Final: 0.5 + c.Float64()/2}}}
	p.Calm = 5 * time.Minute
	p.step(Step{At: 8 * time.Second, Do: doPublish, Queue: "queue0", Count: 60, Gap: 20 * time.Millisecond})
	for range 1 + c.IntN(3) {
		at := c.between(40*time.Second, 3*time.Minute)
		p.step(Step{At: at, Do: doReplay})
		p.step(Step{At: at + c.between(0, 2*time.Second), Do: doCrash, Instance: 0, Where: c.IntN(60), For: c.between(time.Second, 10*time.Second)})
	}
	if at := c.between(40*time.Second, 3*time.Minute); c.chance(0.3) {
		p.step(Step{At: at, Do: doDisable, Webhook: "w0"})
		p.step(Step{At: at + c.between(time.Second, time.Minute), Do: doEnable, Webhook: "w0"})
	}
	if c.chance(0.5) { // what a replay delivered comes back
		p.step(Step{At: c.between(40*time.Second, 3*time.Minute), Do: doOutage, Service: "queue", Op: p.deletes(), Kind: refused, Instance: -1, For: c.between(5*time.Second, time.Minute)})
	}
	if last := p.Steps[len(p.Steps)-1]; c.chance(0.5) { // between a replay's POST and its end
		p.step(Step{At: last.At, Do: doReplay})
		p.step(Step{At: last.At, Do: doCrash, Instance: 0, Where: 60 + c.IntN(1500), For: c.between(time.Second, 10*time.Second)})
	}
}

func purges(c chooser, p *Plan) {
	replays(c, p)
	p.Webhooks[0].Mix = Mix{FinalFirst: true, Late: 0.8, LateMin: time.Second, LateMax: 8 * time.Second}
	for _, s := range p.Steps {
		if s.Do == doReplay {
			p.step(Step{At: s.At + c.between(0, 4*time.Second), Do: doPurge})
		}
	}
}

func anew(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.5), 1+c.IntN(2)
	p.Webhooks = []Webhook{
		{Name: "old", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 20, Mix: pick(c, Mix{Fail: 1}, Mix{Busy: 1}, Mix{Down: 1}, Mix{Silent: 1}, Mix{Fail: 0.5})},
		{Name: "new", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 3, Late: true},
	}
	p.Calm = 5 * time.Minute
	p.step(Step{At: 8 * time.Second, Do: p.sending(), Queue: "queue0", Count: 20 + c.IntN(40), Gap: c.between(10*time.Millisecond, time.Second)})
	at := c.between(15*time.Second, 2*time.Minute)
	p.step(Step{At: at, Do: doDelete, Webhook: "old"})
	p.step(Step{At: at + c.between(0, 2*time.Minute), Do: doRegister, Webhook: "new"})
	if c.chance(0.3) {
		p.step(Step{At: at + c.between(0, time.Minute), Do: doCrash, Instance: 0, Where: c.IntN(40), For: c.between(time.Second, 10*time.Second)})
	}
}

func hotPartition(c chooser, p *Plan) {
	p.Instances = 1 + c.IntN(2)
	p.Webhooks = []Webhook{
		{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 4, Mix: Mix{Fail: 0.1, Final: 0.1}},
		{Name: "beside", Queue: "queue1", Timeout: 10 * time.Second, Attempts: 4, Prompt: 45 * time.Second},
	}
	p.Calm, p.Lanes = 6*time.Minute, true
	p.step(Step{At: 10 * time.Second, Do: doPublish, Queue: "queue0", Count: 200, Gap: c.between(50*time.Millisecond, 500*time.Millisecond)})
	p.step(Step{At: 10 * time.Second, Do: doPut, Queue: "queue1", Count: 200, Gap: c.between(100*time.Millisecond, time.Second)})
	hot := Step{At: c.between(12*time.Second, 30*time.Second), Do: doOutage, Kind: refused, Instance: -1, For: c.between(30*time.Second, 3*time.Minute), Count: c.IntN(2)}
	if c.chance(0.5) {
		hot.Service, hot.Queue = "queue", "queue0"
	} else {
		hot.Service, hot.Hot = "table", 0.2+0.4*c.Float64()
	}
	p.step(hot)
}

func replaced(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.4), 1+c.IntN(2)
	p.Strict = true
	p.Webhooks = []Webhook{
		{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 2, Mix: Mix{FinalFirst: true, Late: 0.5, LateMin: time.Second, LateMax: 8 * time.Second}},
		{Name: "w1", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 2, Mix: Mix{Final: c.Float64() / 2}},
	}
	if c.chance(0.5) {
		p.Webhooks[0].ID = "chosen"
	}
	p.Calm = 6 * time.Minute
	p.step(Step{At: 8 * time.Second, Do: p.sending(), Queue: "queue0", Count: 60, Gap: c.between(20*time.Millisecond, 200*time.Millisecond)})
	for range 1 + c.IntN(3) {
		at := c.between(40*time.Second, 4*time.Minute)
		p.step(Step{At: at, Do: doReplay})
		p.step(Step{At: at + c.between(-time.Second, 4*time.Second), Do: doReplace, Webhook: "w0", For: c.between(0, 40*time.Second)})
	}
	p.step(Step{At: p.Calm - 10*time.Second, Do: doEnd})
}

func swept(c chooser, p *Plan) {
	if p.File, p.Instances = c.chance(0.5), 1+c.IntN(3); p.File { // each has the queue in its memory
		p.Instances = max(p.Instances, 2)
	}
	p.Webhooks = []Webhook{
		{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 4, Mix: Mix{Fail: 0.3, Final: 0.3, Late: 0.5, LateMin: time.Second, LateMax: 8 * time.Second}},
		{Name: "beside", Queue: "queue1", Timeout: 10 * time.Second, Attempts: 4, Prompt: 45 * time.Second},
	}
	p.Calm = 6 * time.Minute
	p.step(Step{At: 9 * time.Second, Do: doPublish, Queue: "queue1", Count: 200, Instance: c.IntN(p.Instances), Gap: time.Second}) // after the other queue: a file numbers them
	for range 1 + c.IntN(3) {                                                                                                      // not only through the instance that the operator asks, which is the first
		p.step(Step{At: 8 * time.Second, Do: doPublish, Queue: "queue0", Count: 150, Instance: p.Instances - 1 - c.IntN(2)%p.Instances, Gap: c.between(200*time.Millisecond, 2*time.Second)})
	}
	for at := c.between(20*time.Second, time.Minute); at < p.Calm-2*time.Minute; at += c.between(70*time.Second, 2*time.Minute) {
		length := c.between(0, 50*time.Second)
		p.step(Step{At: at - time.Second, Do: doReplay}) // whose messages go with the queue
		p.step(Step{At: at, Do: doSweep, Queue: "queue0", For: length})
		if c.chance(0.7) { // it ends with what it remembered of the queue
			p.step(Step{At: at + length/2 + c.between(0, 20*time.Second), Do: pick(c, doCrash, doStop), Instance: p.Instances - 1, Where: c.IntN(40), For: c.between(time.Second, 10*time.Second)})
		}
	}
}

func standstill(c chooser, p *Plan) {
	p.File, p.Instances = c.chance(0.3), 2+c.IntN(2)
	p.Settings["LEASE"], p.Settings["POLL_MAX"] = "10s", "1s"
	p.Webhooks = []Webhook{
		{Name: "w0", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 2, Mix: Mix{Fail: 0.5, Final: 0.2, Late: 0.1, LateMin: time.Second, LateMax: 8 * time.Second}},
		{Name: "w1", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 2, Mix: Mix{Fail: 0.6}},
	}
	p.Calm = 5 * time.Minute
	p.step(Step{At: 8 * time.Second, Do: p.sending(), Queue: "queue0", Count: 200, Gap: c.between(300*time.Millisecond, time.Second)})
	for at := 15 * time.Second; at < p.Calm-time.Minute; at += c.between(5*time.Second, 20*time.Second) {
		p.step(Step{At: at, Do: doFreeze, Instance: c.IntN(p.Instances), Where: 1 + c.IntN(40), For: c.between(11*time.Second, 40*time.Second)})
	}
}

func clocks(c chooser, p *Plan) {
	p.Instances, p.Strict = 2+c.IntN(2), c.chance(0.5)
	for range p.Instances {
		p.Clocks = append(p.Clocks, pick(c, 0, time.Minute, c.between(0, time.Minute).Round(time.Second)))
	}
	p.Skew = pick(c, 0, time.Minute, c.between(0, time.Minute).Round(time.Second))
	p.Settings["LEASE"], p.Settings["POLL_MAX"], p.Settings["QUEUES"] = "30s", "2s", "events=auto:dedup=event-id"
	p.Webhooks = []Webhook{
		{Name: "slow", Queue: "queue0", Timeout: 2 * time.Minute, Attempts: 4, Mix: Mix{Late: 0.8, LateMin: 60 * time.Second, LateMax: 119 * time.Second}},
		{Name: "waits", Queue: "queue1", Timeout: 10 * time.Second, Attempts: 4, Mix: Mix{Fail: 0.3, Busy: 0.2, Patient: c.chance(0.5), FinalFirst: c.chance(0.5)}},
		{Name: "copies", Queue: "events", Timeout: time.Minute, Attempts: 4, Mix: Mix{Late: 0.9, LateMin: 45 * time.Second, LateMax: 59 * time.Second}},
		{Name: "there", Queue: "queue2", Timeout: 10 * time.Second, Attempts: 4, Mix: Mix{Fail: 0.3}},
		{Name: "new", Queue: "queue2", Timeout: 20 * time.Second, Attempts: 4, Late: true, Mix: Mix{Late: 0.8, LateMin: time.Second, LateMax: 15 * time.Second}},
		{Name: "leaves", Queue: "queue3", Timeout: 10 * time.Second, Attempts: 20, Mix: Mix{Fail: 1}},
	}
	p.Calm = 6 * time.Minute
	for at := 10 * time.Second; at < p.Calm-2*time.Minute; at += c.between(30*time.Second, time.Minute) { // as in lost-answers: who receives it next goes by a note
		p.step(Step{At: at, Do: doPut, Queue: "queue0", Count: 4, Gap: c.between(0, 3*time.Second)})
		p.step(Step{At: at, Do: doOutage, Service: "queue", Op: "update", Kind: lost, Instance: pick(c, 0, 1, -1), For: c.between(15*time.Second, 25*time.Second)})
	}
	p.step(Step{At: 8 * time.Second, Do: doPublish, Queue: "queue1", Count: 40, Instance: 1, Keyed: true, Gap: c.between(50*time.Millisecond, 2*time.Second)})
	for i := range 12 {
		at := c.between(8*time.Second, 3*time.Minute)
		for range 2 {
			p.step(Step{At: at, Do: doPublish, Queue: "events", Count: 1, Instance: c.IntN(p.Instances), Event: fmt.Sprintf("event%d", i)})
			at += c.between(0, 40*time.Second)
		}
	}
	joins := c.between(10*time.Second, 2*time.Minute)
	p.step(Step{At: joins, Do: doRegister, Webhook: "new"})
	p.step(Step{At: joins + 18*time.Second, Do: doPublish, Queue: "queue2", Count: 20, Instance: 1, Gap: 2 * time.Second}) // known to all
	if at := c.between(20*time.Second, 2*time.Minute); c.chance(0.5) {                                                     // a replay would wait for the next one to be registered
		p.step(Step{At: at - 10*time.Second, Do: doPublish, Queue: "queue3", Count: 5, TTL: c.between(3*time.Minute, 5*time.Minute).Round(time.Second), Gap: c.between(0, 2*time.Second)})
		p.step(Step{At: at, Do: doDelete, Webhook: "leaves"})
	} else {
		p.step(Step{At: c.between(40*time.Second, 4*time.Minute), Do: doReplay})
		p.step(Step{At: c.between(40*time.Second, 4*time.Minute), Do: doReplay})
	}
	if p.Strict && c.chance(0.5) {
		p.step(Step{At: c.between(20*time.Second, 3*time.Minute), Do: doStop, Instance: c.IntN(p.Instances), For: c.between(time.Second, 20*time.Second)})
	}
	if !p.Strict { // while they are under way to whom is new
		p.step(Step{At: joins + c.between(20*time.Second, time.Minute), Do: doCrash, Instance: c.IntN(p.Instances), Where: c.IntN(60), For: c.between(time.Second, 10*time.Second)})
	}
}

func joined(c chooser, p *Plan) {
	p.Instances, p.Clocks = 2, []time.Duration{time.Minute, 0}
	p.Webhooks = []Webhook{
		{Name: "there", Queue: "queue0", Timeout: 10 * time.Second, Attempts: 8, Mix: Mix{Fail: 0.7}},
		{Name: "new", Queue: "queue0", Timeout: 20 * time.Second, Attempts: 4, Late: true, Mix: Mix{Late: 0.9, LateMin: time.Second, LateMax: 9 * time.Second}},
	}
	p.Calm = 3 * time.Minute
	p.step(Step{At: 10 * time.Second, Do: doRegister, Webhook: "new"})
	p.step(Step{At: 28 * time.Second, Do: doPut, Queue: "queue0", Count: 60, Gap: c.between(200*time.Millisecond, 500*time.Millisecond)}) // known to all
	for range 2 {
		p.step(Step{At: c.between(30*time.Second, 50*time.Second), Do: doCrash, Instance: 1, Where: c.IntN(40), For: c.between(time.Second, 10*time.Second)})
	}
}
