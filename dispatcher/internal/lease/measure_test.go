package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
)

// With a fast webhook on every message and a slow one on few, an average over all
// would be far too short for those few.
func TestLeaseFollowsTheSlowestWebhook(t *testing.T) { // R1, issue: measured per webhook
	ms := NewMeasure(0, func(string) policy.Estimate { return policy.Estimate{} })
	bubble.Test(t, func(t *testing.T) {
		for range 200 {
			ms.Took("orders", []Posted{{"fast", time.Second}}, time.Second, time.Minute)
		}
		for range policy.EnoughSamples {
			ms.Took("orders", []Posted{{"fast", time.Second}, {"slow", 44 * time.Second}}, 45*time.Second, time.Minute)
		}
		want(t, "lease", ms.Length("orders"), 90*time.Second)
		_, rec, times := ms.Status("orders")
		want(t, "base, with what is around the POST", time.Duration(rec.Base), 45*time.Second)
		want(t, "samples", rec.Samples, policy.EnoughSamples)
		want(t, "messages", times.Samples, 220)
		want(t, "median message", times.P50, time.Second)
		want(t, "slow message", times.P99, 45*time.Second)
	})
}

func TestMeasurementIsBoundedAndCountsTheNewest(t *testing.T) {
	var r ring
	start := time.Now()
	for i := range 10 * measuredSamples {
		r.add(start, time.Duration(i))
	}
	times := r.fresh(start)
	want(t, "samples", len(times), measuredSamples)
	want(t, "oldest", times[0], 9*measuredSamples)
	want(t, "newest", times[measuredSamples-1], 10*measuredSamples-1)
	want(t, "too old", len(r.fresh(start.Add(measuredAge))), 0)

	ms := NewMeasure(0, func(string) policy.Estimate { return policy.Estimate{} })
	bubble.Test(t, func(t *testing.T) { // webhooks that are gone are forgotten
		for i := range 100 {
			ms.Took("orders", []Posted{{fmt.Sprint("wh", i), time.Second}}, time.Second, time.Minute)
		}
		time.Sleep(measuredAge + time.Second)
		ms.Length("orders")
		want(t, "webhooks remembered", len(ms.queues["orders"].webhooks), 0)
	})
}

func TestPercentiles(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, tt := range []struct {
		times []time.Duration
		p     float64
		want  time.Duration
	}{
		{nil, .5, 0}, {hundred[:1], .5, 1}, {hundred[:1], .99, 1}, {hundred[:2], .5, 1}, {hundred[:3], .5, 2},
		{hundred, .5, 50}, {hundred, .95, 95}, {hundred, .99, 99}, {hundred[:20], .95, 19},
	} {
		want(t, fmt.Sprintf("percentile %v of %d", tt.p, len(tt.times)), percentile(tt.times, tt.p), tt.want)
	}
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}
