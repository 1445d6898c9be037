package policy_test

import (
	"math/rand/v2"
	"testing"

	"github.com/pushlease/pushlease/policy"
)

// singlesOf sends messages, each until it is taken or has failed ten times, and returns which
// share of the later refusals counts as their messages' affair.
func singlesOf(refuses func(rng *rand.Rand, message int) bool) float64 {
	var s policy.Singles
	rng := rand.New(rand.NewPCG(1, 4))
	var waiting []int // how often they failed; the index modulo 10 is the message's number
	own, refused := 0, 0
	for n := range 20_000 {
		message, failed := n, 0
		if n%2 == 1 && len(waiting) > 0 {
			message, failed = waiting[0]/100, waiting[0]%100
			waiting = waiting[1:]
		}
		if !refuses(rng, message) {
			s.Taken(failed)
			continue
		}
		if s.Refused(failed) {
			own++
		}
		if failed >= 3 {
			refused++
		}
		if failed < 10 {
			waiting = append(waiting, 100*message+failed+1)
		}
	}
	return float64(own) / float64(max(refused, 1))
}

func TestRefusalsOfSingleMessagesAreToldFromALimit(t *testing.T) {
	for _, tt := range []struct {
		name        string
		refuses     func(rng *rand.Rand, message int) bool
		least, most float64
	}{
		{"one in ten messages, always", func(_ *rand.Rand, m int) bool { return m%10 == 0 }, 0.8, 1},
		{"one in five messages, always", func(_ *rand.Rand, m int) bool { return m%5 == 0 }, 0.6, 1},
		{"3 % of all POSTs, as over a limit", func(rng *rand.Rand, _ int) bool { return rng.Float64() < 0.03 }, 0, 0.01},
		{"30 % of all POSTs", func(rng *rand.Rand, _ int) bool { return rng.Float64() < 0.3 }, 0, 0.02},
		{"90 % of all POSTs, as at a limit that fell", func(rng *rand.Rand, _ int) bool { return rng.Float64() < 0.9 }, 0, 0.02},
	} {
		if got := singlesOf(tt.refuses); got < tt.least || got > tt.most {
			t.Errorf("%s: %.1f %% of the refusals count as the messages' affair, want %.0f to %.0f", tt.name, 100*got, 100*tt.least, 100*tt.most)
		}
	}
}

// A limit that has taken many and takes nothing more refuses the few that are left again and again. None is taken meanwhile, so it is not their affair.
func TestWhatIsLeftWhenALimitClosesIsNotRefusedForItself(t *testing.T) {
	var s policy.Singles
	for before := range 2 { // how many messages were refused for themselves before
		for range 100 {
			s.Taken(0)
		}
		own := 0
		for failed := range 40 {
			for range 2 {
				if s.Refused(failed) {
					own++
				}
			}
		}
		if own > before {
			t.Errorf("%d refusals are the messages' own affair, where it was so of %d before", own, before)
		}
		for range 10 { // others are taken while these two are refused
			s.Taken(0)
			s.Refused(41)
		}
	}
	if !s.Refused(42) {
		t.Error("while others are taken it is not the message's own affair")
	}
}
