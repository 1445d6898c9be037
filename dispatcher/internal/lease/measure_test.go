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

func TestWebhooksThatAreGoneAreForgotten(t *testing.T) {
	ms := NewMeasure(0, func(string) policy.Estimate { return policy.Estimate{} })
	bubble.Test(t, func(t *testing.T) {
		for i := range 100 {
			ms.Took("orders", []Posted{{fmt.Sprint("wh", i), time.Second}}, time.Second, time.Minute)
		}
		time.Sleep(policy.MeasuredAge + time.Second)
		ms.Length("orders")
		want(t, "webhooks remembered", len(ms.queues["orders"].webhooks), 0)
	})
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}
