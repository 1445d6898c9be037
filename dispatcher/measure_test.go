package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook"
)

// asked notes the leases that receives and renewals ask for, which storage keeps to
// itself.
type asked struct {
	queue.Service
	mu       sync.Mutex
	receives []time.Duration
	renewals []time.Duration
}

func (s *asked) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return askedQueue{q, s}, err
}

func (s *asked) last() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.receives[len(s.receives)-1]
}

func (s *asked) first() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.receives[0]
}

type askedQueue struct {
	queue.Queue
	s *asked
}

func (q askedQueue) Receive(ctx context.Context, n int, lease time.Duration) ([]*queue.Message, error) {
	q.s.mu.Lock()
	q.s.receives = append(q.s.receives, lease)
	q.s.mu.Unlock()
	return q.Queue.Receive(ctx, n, lease)
}

func (q askedQueue) Renew(ctx context.Context, m *queue.Message, lease time.Duration) error {
	q.s.mu.Lock()
	q.s.renewals = append(q.s.renewals, lease)
	q.s.mu.Unlock()
	return q.Queue.Renew(ctx, m, lease)
}

// measuring starts a dispatcher whose leases follow measured time.
func (b *bench) measuring(change func(*Options)) (*Dispatcher, *asked, func()) {
	b.t.Helper()
	leases := &asked{Service: b.queues}
	d, stop := b.start(func(o *Options) {
		o.Queues, o.Lease, o.Concurrency = leases, 0, 100
		o.PollMax, o.RegistryRefresh = 20*time.Second, 5*time.Minute // hours of simulated time pass
		if change != nil {
			change(o)
		}
	})
	return d, leases, stop
}

// counters are the instruments of one dispatcher.
type counters struct{ reader *sdkmetric.ManualReader }

func newCounters(o *Options) *counters {
	c := &counters{sdkmetric.NewManualReader()}
	o.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(c.reader)).Meter("")
	return c
}

// sum adds up a counter over the attribute sets that have all of labels (key, value,
// key, value, …).
func (c *counters) sum(t *testing.T, name string, labels ...string) (n int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := c.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			data, ok := m.Data.(metricdata.Sum[int64])
			if m.Name != name || !ok {
				continue
			}
			for _, point := range data.DataPoints {
				if hasLabels(point.Attributes, labels) {
					n += point.Value
				}
			}
		}
	}
	return n
}

func hasLabels(set attribute.Set, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		if v, ok := set.Value(attribute.Key(labels[i])); !ok || v.AsString() != labels[i+1] {
			return false
		}
	}
	return true
}

func TestLeaseIsTheEstimatesUntilEnoughWasMeasured(t *testing.T) { // R1
	sec := time.Second
	tests := []struct {
		name     string
		estimate policy.Estimate
		want     time.Duration
	}{
		{"nothing known", policy.Estimate{}, 30 * sec},
		{"average", policy.Estimate{Min: sec, Average: 45 * sec, Max: 120 * sec}, 90 * sec},
		{"maximum on request", policy.Estimate{Average: 45 * sec, Max: 120 * sec, UseMax: true}, 210 * sec},
		{"too long for storage", policy.Estimate{Average: 7 * 24 * time.Hour}, policy.MaxLease},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				d, leases, stop := b.measuring(func(o *Options) { o.Estimate = func(string) policy.Estimate { return tt.estimate } })
				time.Sleep(sec)
				want(t, "asked for", leases.last(), tt.want)
				s := statusOf(d, testQueue)
				want(t, "in force", s.Lease, tt.want)
				want(t, "recommended", time.Duration(s.Recommended.Lease), tt.want)
				want(t, "samples", s.Recommended.Samples, 0)
				want(t, "fixed", s.LeaseFixed, false)
				stop()
			})
		})
	}
}

func TestMeasuredTimeReplacesTheEstimateAndFades(t *testing.T) { // R1
	inBubble(t, func(b *bench) {
		b.webhook.Timeout = 2 * time.Minute
		b.update(b.webhook)
		b.sender.takes = time.Minute
		estimate := policy.Estimate{Average: 10 * time.Minute}
		d, leases, stop := b.measuring(func(o *Options) { o.Estimate = func(string) policy.Estimate { return estimate } })
		for range policy.EnoughSamples - 1 {
			b.send("x")
		}
		time.Sleep(2 * time.Minute)
		want(t, "asked for with too few samples", leases.last(), 1050*time.Second)
		b.send("x")
		time.Sleep(2 * time.Minute)
		want(t, "asked for", leases.last(), 2*time.Minute)
		s := statusOf(d, testQueue)
		want(t, "in force", s.Lease, 2*time.Minute)
		want(t, "samples", s.Recommended.Samples, policy.EnoughSamples)
		want(t, "base", time.Duration(s.Recommended.Base).Round(100*time.Millisecond), time.Minute)
		want(t, "messages measured", s.Processing.Samples, policy.EnoughSamples)
		want(t, "median", s.Processing.P50.Round(100*time.Millisecond), time.Minute)
		if !strings.Contains(s.Recommended.Reasoning, "20 measured messages") {
			t.Errorf("reasoning: %s", s.Recommended.Reasoning)
		}
		time.Sleep(time.Hour) // what is old does not count any more
		want(t, "asked for later", leases.last(), 1050*time.Second)
		want(t, "messages measured later", statusOf(d, testQueue).Processing.Samples, 0)
		stop()
	})
}

func TestFixedLeaseStaysAndTheRecommendationIsShown(t *testing.T) { // R1
	inBubble(t, func(b *bench) {
		b.sender.takes = 20 * time.Second
		d, leases, stop := b.measuring(func(o *Options) { o.Lease = 2 * time.Second })
		for range policy.EnoughSamples {
			b.send("x")
		}
		time.Sleep(time.Minute)
		want(t, "asked for", leases.last(), 2*time.Second)
		s := statusOf(d, testQueue)
		want(t, "in force", s.Lease, 2*time.Second)
		want(t, "fixed", s.LeaseFixed, true)
		want(t, "recommended", time.Duration(s.Recommended.Lease), time.Minute)
		if !strings.Contains(s.Recommended.Reasoning, "fixes it at 2s") {
			t.Errorf("reasoning: %s", s.Recommended.Reasoning)
		}
		stop()
		for _, lease := range leases.renewals {
			want(t, "renewed for", lease, 2*time.Second)
		}
		want(t, "POSTs", b.sender.count(), policy.EnoughSamples)
	})
}

func TestUtilisationWarnsAboveEightyAndLengthensAboveNinetyPercent(t *testing.T) { // R1, R4
	tests := []struct {
		takes  time.Duration
		risk   int64
		warned int
		next   time.Duration
	}{
		{45 * time.Second, 0, 0, 90 * time.Second},         // 50 %
		{71500 * time.Millisecond, 0, 0, 90 * time.Second}, // just below 80 %
		{75 * time.Second, 1, 1, 90 * time.Second},         // 83 %
		{85 * time.Second, 1, 1, 150 * time.Second},        // 94 %: half as long again, in steps of 30 s
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.takes), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.Timeout = 10 * time.Minute
				b.update(b.webhook)
				b.sender.takes = tt.takes
				var c *counters
				d, leases, stop := b.measuring(func(o *Options) {
					c = newCounters(o)
					o.Estimate = func(string) policy.Estimate { return policy.Estimate{Average: 45 * time.Second} }
				})
				b.send("x")
				time.Sleep(3 * time.Minute)
				want(t, "asked for first", leases.first(), 90*time.Second)
				want(t, "at risk", c.sum(t, "pushlease.lease.at_risk", "queue", testQueue), tt.risk)
				want(t, "asked for next", leases.last(), tt.next)
				want(t, "in force", statusOf(d, testQueue).Lease, tt.next)
				time.Sleep(time.Hour + time.Minute)
				want(t, "asked for an hour later", leases.last(), 90*time.Second)
				stop()
				want(t, "warnings", strings.Count(b.log.String(), "too much of its lease"), tt.warned)
			})
		})
	}
}

func TestWarningsAboutLongMessagesAreRateLimitedAndCounted(t *testing.T) { // R4
	inBubble(t, func(b *bench) {
		var c *counters
		b.sender.takes = 3 * time.Second
		_, stop := b.start(func(o *Options) { o.Lease = 2 * time.Second; o.Concurrency = 1; c = newCounters(o) })
		for range 41 {
			b.send("x")
		}
		time.Sleep(3 * time.Minute)
		stop()
		want(t, "at risk", c.sum(t, "pushlease.lease.at_risk"), 41)
		if n := strings.Count(b.log.String(), "too much of its lease"); n < 2 || n > 3 {
			t.Errorf("%d warnings in two minutes, want one a minute", n)
		}
		if !strings.Contains(b.log.String(), `"unlogged_before":1`) {
			t.Error("the second warning does not say how many were left out")
		}
	})
}

// Neither a receiver that can't be reached, nor a message that is held, nor storage
// that does not delete tells how long the work takes.
func TestWhatIsNoWorkIsNotMeasured(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			return webhook.Result{ErrorClass: string(policy.ClassConnect)}
		}
		d, _, stop := b.measuring(nil)
		b.send("x")
		time.Sleep(3 * time.Second)
		want(t, "measured without a receiver", statusOf(d, testQueue).Processing.Samples, 0)
		b.sender.answer = statuses(200)
		var down outage
		b.queues.on("complete", down.rule(failBefore))
		time.Sleep(5 * time.Minute)
		down.end()
		time.Sleep(time.Minute)
		s := statusOf(d, testQueue)
		want(t, "measured", s.Processing.Samples, 1)
		if s.Processing.P99 > 2*retry.Timeout {
			t.Errorf("measured %s, with the outage of storage in it", s.Processing.P99)
		}
		want(t, "lease", s.Lease, 30*time.Second)
		stop()
	})
}

func TestTimeoutsAreMeasured(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.takes = 29 * time.Second
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			return webhook.Result{ErrorClass: string(policy.ClassTimeout)}
		}
		d, _, stop := b.measuring(nil)
		b.send("x")
		time.Sleep(31 * time.Second)
		want(t, "measured", statusOf(d, testQueue).Processing.Samples, 1)
		stop()
	})
}

func TestOptionsRefuseLeasesThatCanNotBeKept(t *testing.T) { // C03, R7
	for lease, ok := range map[time.Duration]bool{
		0: true, time.Second: false, 2*time.Second - 1: false, 2 * time.Second: true,
		queue.MaxLease: true, queue.MaxLease + 1: false, -time.Second: false,
	} {
		_, err := New(Options{Lease: lease})
		if err == nil {
			t.Fatal("nothing that is required was given")
		}
		if refused := strings.Contains(err.Error(), "Lease is "); refused == ok {
			t.Errorf("lease %s: %v", lease, err)
		}
	}
}

// The tail of a batch, and a receive whose answer came late.
func TestNothingIsPostedOnALeaseThatEndedWhileItWasReceived(t *testing.T) { // R1
	inBubble(t, func(b *bench) {
		var sent []queue.Sent
		for range queue.MaxReceive {
			sent = append(sent, b.send("x"))
		}
		late := &lateQueues{Service: b.queues, by: 5 * time.Second}
		b.queues.on("renew", always(failBefore)) // or the first renewal would make it good
		_, stop := b.start(func(o *Options) {
			o.Queues = late
			o.Lease = 4 * time.Second
			o.PollMin, o.PollMax = time.Hour, time.Hour
		})
		time.Sleep(7 * time.Second)
		want(t, "POSTs", b.sender.count(), 0)
		stop()
		for _, s := range sent {
			want(t, "charged", b.delivery(s, "wh_a").Charged, 0)
			if state := b.delivery(s, "wh_a").State; state.Terminal() {
				t.Errorf("ended as %s", state)
			}
		}
		want(t, "messages left", b.total(testQueue), queue.MaxReceive)
	})
}

// lateQueues answers each receive later than storage did.
type lateQueues struct {
	queue.Service
	by time.Duration
}

func (s *lateQueues) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return lateQueue{q, s.by}, err
}

type lateQueue struct {
	queue.Queue
	by time.Duration
}

func (q lateQueue) Receive(ctx context.Context, n int, lease time.Duration) ([]*queue.Message, error) {
	got, err := q.Queue.Receive(ctx, n, lease)
	time.Sleep(q.by)
	return got, err
}
