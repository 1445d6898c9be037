package policy_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// receiver takes one POST in 20 ms, 50 in a second; what would wait for longer than
// 200 ms gets a 503. Until up it answers nothing but that.
type receiver struct{ up, free time.Time }

func (r *receiver) post(now time.Time) (s policy.Sign, at time.Time) {
	begin := r.free
	if begin.Before(now) {
		begin = now
	}
	if now.Before(r.up) || begin.Sub(now) > 200*time.Millisecond {
		return overloaded, now.Add(5 * time.Millisecond)
	}
	r.free = begin.Add(20 * time.Millisecond)
	return taken, r.free
}

type simMessage struct {
	failed   int
	due      time.Time
	patience time.Time // until when it waits under its lease
}

type simPost struct {
	message    *simMessage
	sign       policy.Sign
	began, end time.Time
	window     uint32
	generation uint64
}

// sender is a dispatcher of one webhook, in steps of 10 ms.
type sender struct {
	flow     policy.Flow
	defers   bool // what can't start is put back into the queue, else it stays there
	receiver receiver
	rng      *rand.Rand

	window  policy.Window
	bucket  policy.Bucket
	breaker policy.Breaker
	slots   policy.Slots
	meter   policy.Meter

	waiting   []*simMessage
	flying    []simPost
	started   []time.Time
	delivered int
	deferrals int
	recovered time.Time
	most      int // charged attempts of one message
}

func (s *sender) step(now time.Time) {
	s.land(now)
	rest := s.waiting[:0]
	blocked := false
	for _, m := range s.waiting {
		if m.due.After(now) || blocked && !s.defers {
			rest = append(rest, m)
			continue
		}
		if s.start(m, now) {
			continue
		}
		blocked = true
		if m.patience.IsZero() { // storage brings them back in whole seconds, many at once
			m.patience = now.Add(2 * time.Second)
		}
		earliest := s.breaker.Next(s.flow.Breaker, now)
		if s.defers && (earliest.After(now) || now.After(m.patience)) {
			if next := s.bucket.Next(s.flow, now); next.After(earliest) {
				earliest = next
			}
			m.due = s.slots.Reserve(s.meter.Capacity(s.flow, s.window.Size(s.flow.Concurrency)), earliest, now, s.rng.Float64()).Add(time.Second - 1).Truncate(time.Second)
			m.patience = time.Time{}
			s.deferrals++
		}
		rest = append(rest, m)
	}
	s.waiting = rest
}

func (s *sender) start(m *simMessage, now time.Time) bool {
	if len(s.flying) >= s.window.Size(s.flow.Concurrency) || s.bucket.Next(s.flow, now).After(now) {
		return false
	}
	ok, _, generation := s.breaker.Allow(s.flow.Breaker, now)
	if !ok {
		return false
	}
	s.bucket.Take(s.flow, now)
	sign, end := s.receiver.post(now)
	s.flying = append(s.flying, simPost{m, sign, now, end, s.window.Generation(), generation})
	s.started = append(s.started, now)
	return true
}

func (s *sender) land(now time.Time) {
	rest := s.flying[:0]
	inFlight := len(s.flying)
	for _, p := range s.flying {
		if p.end.After(now) {
			rest = append(rest, p)
			continue
		}
		s.window.Report(p.sign, p.window, inFlight, s.flow.Concurrency)
		inFlight--
		changed := s.breaker.Report(s.flow.Breaker, p.generation, !p.sign.Failed, now, s.rng.Float64())
		if p.sign.Delivered {
			s.delivered++
			s.meter.Add(p.end.Sub(p.began), now)
			if changed {
				s.slots.Reset()
				s.recovered = now
			}
			continue
		}
		standard, _ := policy.Preset("standard")
		p.message.due = now.Add(standard.Backoff.Delay(p.message.failed, s.rng.Float64()))
		p.message.failed++
		s.most = max(s.most, p.message.failed)
		s.waiting = append(s.waiting, p.message)
	}
	s.flying = rest
}

// A receiver that takes 50/s is sent 30/s for a minute, fails for two minutes and comes
// back: it never sees more than the rate and one window, no message uses up its
// attempts, and the backlog drains at nearly what it can take.
func TestAReceiverRecoversWithoutAHerdAndItsBacklogDrains(t *testing.T) {
	for _, tt := range []struct {
		name   string
		defers bool
	}{{"messages stay in the queue", false}, {"messages are postponed", true}} {
		t.Run(tt.name, func(t *testing.T) {
			flow := policy.DefaultFlow()
			flow.Rate, flow.Burst = 60, 10
			s := &sender{flow: flow, defers: tt.defers, rng: rand.New(rand.NewPCG(5, 6))}
			healthy, down, end := start.Add(time.Minute), start.Add(3*time.Minute), start.Add(20*time.Minute)
			total, drained := 0, time.Time{}
			for now := start; now.Before(end) && drained.IsZero(); now = now.Add(10 * time.Millisecond) {
				if s.receiver.up = start; now.After(healthy) {
					s.receiver.up = down
				}
				if now.Before(down) && now.Sub(start) >= time.Duration(total)*time.Second/30 {
					s.waiting = append(s.waiting, &simMessage{due: now})
					total++
				}
				s.step(now)
				if s.delivered*100 >= total*99 && now.After(down) { // some wait for their own next attempt
					drained = now
				}
			}
			if drained.IsZero() || s.recovered.IsZero() {
				t.Fatalf("%d of %d delivered after 20 minutes, recovered at %s", s.delivered, total, s.recovered)
			}
			backlog := float64(2 * 60 * 30)
			took, ideal := drained.Sub(s.recovered).Seconds(), backlog/50
			t.Logf("%.0f s to drain, ideal %.0f s; %.1f deferrals a message; at most %d charged attempts; recovery seen after %s",
				took, ideal, float64(s.deferrals)/float64(total), s.most, s.recovered.Sub(down))
			if took > 1.5*ideal {
				t.Errorf("it took %.0f s to drain, want nearly %.0f", took, ideal)
			}
			if s.most > 6 {
				t.Errorf("a message was tried %d times in vain", s.most)
			}
			if s.deferrals > 6*total {
				t.Errorf("%d deferrals of %d messages", s.deferrals, total)
			}
			for i, j := 0, 0; j < len(s.started); j++ {
				for s.started[j].Sub(s.started[i]) >= time.Second {
					i++
				}
				if n := j - i + 1; n > 60+10 {
					t.Fatalf("%d POSTs within a second", n)
				}
			}
		})
	}
}
