package policy_test

import (
	"testing"
	"time"
)

// A limit of so many POSTs at a time, as ASP.NET's concurrency limiter and most that count requests in flight have it, is met like one of as many in the time that an
// answer takes, however many instances send.
func TestALimitOfSoManyAtATimeIsReached(t *testing.T) {
	for _, tt := range []struct {
		most  int
		takes time.Duration
	}{{1, 100 * time.Millisecond}, {4, 200 * time.Millisecond}, {10, time.Second}, {20, 50 * time.Millisecond}} {
		for instances, bounds := range map[int]struct{ least, most float64 }{1: {0.9, 0.05}, 2: {0.75, 0.2}} {
			for seed := range uint64(2) {
				tr := &trial{accepts: slidingWindow(tt.most, tt.takes), latency: tt.takes, refusal: time.Millisecond, window: true, jitter: 200 * time.Microsecond}
				for i := range instances {
					tr.senders = append(tr.senders, newPacer(seed+uint64(i)*100))
				}
				from, to := time.Duration(instances)*20*time.Second, 2*time.Minute
				tr.run(to+time.Second, seed)
				ok, no := tr.between(from, to)
				share, vain := float64(ok)/float64(tt.most)*tt.takes.Seconds()/(to-from).Seconds(), float64(no)/float64(ok+no)
				t.Logf("%d at a time, each for %v, %d instances: %.0f %% of the limit, %.1f %% refused", tt.most, tt.takes, instances, 100*share, 100*vain)
				if share < bounds.least || vain > bounds.most {
					t.Errorf("%d at a time, each for %v, %d instances: %.0f %% of the limit, %.1f %% refused; want %.0f and at most %.0f",
						tt.most, tt.takes, instances, 100*share, 100*vain, 100*bounds.least, 100*bounds.most)
				}
			}
		}
	}
}
