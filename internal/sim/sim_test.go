package sim

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azurestandin"
)

// long are the profiles a seed of which takes as long as those of ten others: they are for -every-point.
var long = []string{"latency-tail", "hanging-neighbours", "swept"}

func wanted(profile string) bool { return *everyPoint || !slices.Contains(long, profile) }

// Seeds that are the same each time: .ci/run takes fresh ones.
func TestSeeds(t *testing.T) {
	const each = 1
	for _, f := range Profiles {
		if f.Heavy || !wanted(f.Name) {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			for seed := uint64(1); seed <= each; seed++ {
				p, _ := NewPlan(f.Name, seed)
				r := Run(t, p)
				tell(t, r)
				if r.Messages == 0 || r.Posts == 0 && f.Name != "expiry" {
					t.Errorf("seed %d did nothing: %d messages, %d POSTs", seed, r.Messages, r.Posts)
				}
			}
		})
	}
}

// A call whose answer was lost was done, and its caller was not told so.
func TestWhoseAnswerWasLostWasNotTold(t *testing.T) {
	p, _ := NewPlan("redelivery", 1)
	p.Rates.Lost = 0.1
	w, _ := run(t, p)
	told, untold := 0, 0
	for _, c := range w.calls {
		switch {
		case c.ok && c.fault == lost:
			untold++
		case c.told:
			told++
		}
		if want := c.ok && (c.fault == well || c.fault == slow); c.told && !want {
			t.Errorf("the caller of %s was told that it was done, though it was %q", c.id(), c.fault)
		}
	}
	if told == 0 || untold == 0 {
		t.Errorf("%d calls were answered, and the answers of %d lost", told, untold)
	}
}

// Storage tells of the id of a copy before its sender does, and it is taken for another one: its life goes over with what happened to it.
func TestACopyThatStorageToldOfFirstKeepsItsLife(t *testing.T) {
	w := newWorld(&Plan{}, t.TempDir())
	first := w.newMessage(Step{Queue: "orders", Event: "e", TTL: time.Minute})
	second := w.newMessage(Step{Queue: "orders", Event: "e", TTL: time.Hour})
	third := w.newMessage(Step{Queue: "orders", Event: "e", TTL: time.Minute})
	w.accept(first, "a")
	first.put = true
	w.onMessage(t.Context(), azurestandin.MessageEvent{ID: "b", Queue: "orders", What: "put", Text: string(third.text("")), Expires: w.accountTime().Add(3 * time.Minute)})
	w.accept(third, "b")
	if second.id != "" || second.expires != second.sent+time.Hour || len(third.events) != 1 || third.expires < 2*time.Minute || third.expires > 4*time.Minute {
		t.Errorf("the second one is %q and ends at %s, the third one has %d events and ends at %s", second.id, second.expires, len(third.events), third.expires)
	}
}

// Seeds that found what is mended by now, beside those of TestSeeds: the first seed of
// hanging-neighbours found C58, of renewals C64, of latency-tail C68.
func TestSeedsOfWhatIsMended(t *testing.T) {
	for _, m := range []struct {
		found, profile string
		seed           uint64
	}{
		{"C63: the next try of a renewal was later than the lease's end", "renewals", 4},
		{"C54: nobody looked at a disabled queue within the lives of its messages", "expiry", 42},
		{"C54: the poller took one message at a time, and nobody looked at the others", "expiry", 47},
		{"C54: what was near its end stood behind others, and the next look came too late", "expiry", 148},
		{"C54: whoever dead-lettered a message died, and its timeline said for ever that it was about to", "expiry", 61},
		{"C57: a replay that a crash cut stayed replaying", "replays", 2},
		{"C55: a delivered message was POSTed again because tables could not be read for a moment", "redelivery", 4},
		{"a publish waited for a late list of webhooks", "latency-tail", 20000},
		{"a publish waited for its record while the table of the day was made", "latency-tail", 1005579630},
		{"the replay to one webhook, by a process that knew nothing else of the event, ended the message for the other one", "mixed", 334599411},
		{"of two messages with one event the second was sent when the first had its dead letter: the checker took that for one", "copies", 197007154},
		{"an idle queue was looked at for messages that had come back before their time", "one-refuses-all", 20003},
	} {
		if !wanted(m.profile) {
			continue
		}
		t.Run(m.found, func(t *testing.T) {
			p, _ := NewPlan(m.profile, m.seed)
			tell(t, Run(t, p))
		})
	}
}

var (
	huntProfile = flag.String("profile", "", "the profile that TestHunt runs")
	huntRule    = flag.String("rule", "", "the rule by which TestHunt has to find it: what another one finds ends it not")
	huntSeeds   = flag.Int("seeds", 1, "how many seeds TestHunt runs, from the first one on")
)

// TestHunt ends with the first finding of its rule. It is for a build with a fault in it
// (internal/mutant/teeth.go), and for one without, in which there must be none.
func TestHunt(t *testing.T) {
	if *huntProfile == "" {
		t.Skip("it is run by task mutants: it needs -args -profile=NAME")
	}
	for seed := uint64(1); seed <= uint64(*huntSeeds); seed++ {
		p, ok := NewPlan(*huntProfile, seed)
		if !ok {
			t.Fatalf("no profile %q", *huntProfile)
		}
		r := Run(t, p)
		if tell(t, r); r.Broke(*huntRule) || *huntRule == "" && t.Failed() {
			return
		}
	}
}

// tell reports what a run found.
func tell(t *testing.T, r *Result) {
	t.Helper()
	t.Logf("seed %d: %d messages, %d POSTs, %d storage calls, %d faults, %d crashes, %s of simulated time, %d findings",
		r.Plan.Seed, r.Messages, r.Posts, r.Calls, r.Faults, r.Crashes, r.Simulated.Round(time.Second), len(r.Findings))
	for _, f := range r.Findings {
		t.Errorf("%s\nrepeat it with: %s", f, r.Replay())
	}
}
