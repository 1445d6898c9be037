package lease

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
)

// With a fast webhook on every message and a slow one on few, an average over all
// would be far too short for those few.
func TestLeaseFollowsTheSlowestWebhook(t *testing.T) { // R1, issue: measured per webhook
	ms := NewMeasure(0, func(string) policy.Estimate { return policy.Estimate{} }, func(name string) bool { return name == "hosted" })
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

// However long POSTs take, what a host's instance had in hand when it was lost is shown soon.
func TestLeasesUnderAHostAreShortHoweverLongMessagesTake(t *testing.T) {
	measure := func(fixed time.Duration) *Measure {
		return NewMeasure(fixed, func(string) policy.Estimate { return policy.Estimate{} }, func(name string) bool { return name == "hosted" })
	}
	bubble.Test(t, func(t *testing.T) {
		ms := measure(0)
		for _, name := range []string{"hosted", "polled"} {
			ms.Took(name, []Posted{{"slow", 400 * time.Second}}, 400*time.Second, time.Minute)
		}
		fits := ms.Length("polled")
		want(t, "polled", fits >= 700*time.Second, true)
		want(t, "hosted", ms.Length("hosted"), time.Minute)
		m := &queue.Message{Lease: queue.NewLease("r", time.Now(), time.Minute)}
		want(t, "judged by what fits", ms.Fits("hosted", m), fits)
		want(t, "polled is judged by what was granted", ms.Fits("polled", m), time.Minute)
		m.ExpiresAt = time.Now().Add(2 * time.Minute)
		want(t, "one whose life keeps its lease short is judged by what fits", ms.Fits("polled", m), fits)
		lease, rec, _ := ms.Status("hosted")
		want(t, "shown", lease, time.Minute)
		want(t, "why", strings.Contains(rec.Reasoning, "Under the Functions host leases are 1m0s at most"), true)
		want(t, "a fixed lease", measure(10*time.Minute).Length("hosted"), 10*time.Minute)
	})
}

func TestWebhooksThatAreGoneAreForgotten(t *testing.T) {
	ms := NewMeasure(0, func(string) policy.Estimate { return policy.Estimate{} }, func(name string) bool { return name == "hosted" })
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
