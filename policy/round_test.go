package policy_test

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// Of the POSTs that are under way together when a webhook refuses the first one none is charged; one that is
// alone, and what begins later, is.
func TestTheFirstRoundOfARefusingWebhookIsNobodysFault(t *testing.T) {
	var r policy.Round
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	for _, step := range []struct {
		began, now, others int
		want               bool
	}{{0, 10, 3, true}, {2, 12, 2, true}, {5, 40, 0, true}, {11, 45, 1, false}, {50, 60, 5, false}} {
		if got := r.Refused(at(step.began), at(step.now), step.others); got != step.want {
			t.Errorf("%+v: %v", step, got)
		}
	}
	r = policy.Round{}
	for _, began := range []int{100, 105} {
		if r.Refused(at(began), at(110+began), 0) {
			t.Errorf("%d: one that is alone is not charged", began)
		}
	}
}

// A webhook that refuses with 429 is there, and may take another message: it is asked again each 10 s, and more rarely when it has refused everything for hours. One that is
// dead is not.
func TestAWebhookThatRefusesWith429IsProbedEachTenSeconds(t *testing.T) {
	s := policy.DefaultFlow().Breaker
	for _, tt := range []struct {
		tooMany     bool
		length      time.Duration
		least, most int
	}{{true, 10 * time.Minute, 60, 75}, {false, 10 * time.Minute, 15, 22}, {true, 24 * time.Hour, 300, 450}} {
		var b policy.Breaker
		now, posts := start, 0
		for now.Before(start.Add(tt.length)) {
			ok, _, generation := b.Allow(s, now)
			if !ok {
				now = b.Next(s, now)
				continue
			}
			posts++
			now = now.Add(time.Millisecond)
			b.Report(s, generation, false, now, 0.5)
			if tt.tooMany {
				b.Hasten(s, 0, now)
			}
		}
		if posts < tt.least || posts > tt.most {
			t.Errorf("with 429 %v: %d POSTs in %s, want %d to %d", tt.tooMany, posts, tt.length, tt.least, tt.most)
		}
	}
}

// One refusal after a long outage says that the webhook is back, and is no long time of refusals. Nor is it asked later than it says itself.
func TestARefusalAfterALongOutageIsAskedAgainSoon(t *testing.T) {
	s := policy.DefaultFlow().Breaker
	var b policy.Breaker
	now := start
	probe := func(tooMany bool, wait time.Duration) time.Duration {
		for {
			ok, _, generation := b.Allow(s, now)
			if !ok {
				now = b.Next(s, now)
				continue
			}
			b.Report(s, generation, false, now, 0.5)
			if tooMany {
				b.Hasten(s, wait, now)
			}
			return b.Next(s, now).Sub(now)
		}
	}
	for now.Before(start.Add(10 * time.Hour)) {
		probe(false, 0)
	}
	if next := probe(true, 0); next > 10*time.Second {
		t.Errorf("after an outage of ten hours and one 429 the next probe comes after %s", next)
	}
	for end := now.Add(10 * time.Hour); now.Before(end); {
		probe(true, 0)
	}
	if next := probe(true, 0); next < 9*time.Minute {
		t.Errorf("after ten hours of 429 the next probe comes after %s", next)
	}
	if next := probe(true, 30*time.Second); next > 30*time.Second {
		t.Errorf("after a 429 that asks for 30 s the next probe comes after %s", next)
	}
	probe(false, 0)
	if next := probe(true, 0); next > 10*time.Second {
		t.Errorf("after another failure and one 429 the next probe comes after %s", next)
	}
	for end := now.Add(10 * time.Hour); now.Before(end); {
		probe(true, 0)
	}
	now = b.Next(s, now)
	_, _, generation := b.Allow(s, now)
	b.Report(s, generation, true, now, 0.5)
	_, _, generation = b.Allow(s, now)
	b.Report(s, generation, false, now, 0.5)
	b.Hasten(s, 0, now)
	if next := b.Next(s, now).Sub(now); next > 10*time.Second {
		t.Errorf("after ten hours of 429, a message that was taken and one 429 the next probe comes after %s", next)
	}
}
