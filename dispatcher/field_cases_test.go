package dispatcher

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/internal/telemetry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// C29: five attempts with hours in between, a restart and a replay are six requests of
// one id, each signed at its own time.
func TestEachRequestIsSignedAnewUnderOneIDOverRestartsAndReplay(t *testing.T) {
	inBubble(t, func(b *bench) {
		secret := webhook.NewSecret(time.Now())
		var mu sync.Mutex
		var ids []string
		status := http.StatusInternalServerError
		receiver := webhooktest.NewReceiver(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			body, err := io.ReadAll(r.Body)
			if err == nil { // within 5 s of sending
				err = webhook.Verify([]string{secret.Key}, r.Header, body, time.Now(), 5*time.Second)
			}
			if err != nil || string(body) != `{"order":1}` {
				t.Errorf("request %d: %q, %v", len(ids)+1, body, err)
			}
			stamp, err := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
			if age := time.Since(time.Unix(stamp, 0)); err != nil || age < 0 || age > 5*time.Second {
				t.Errorf("request %d: signed %s ago, %v", len(ids)+1, age, err)
			}
			ids = append(ids, r.Header.Get("webhook-id"))
			w.WriteHeader(status)
		}))
		defer receiver.Close()
		b.webhook.URL, b.webhook.Secrets = "http://127.0.0.1/hook", []webhook.Secret{secret}
		b.webhook.Policy.MaxAttempts, b.webhook.Policy.MaxAge = 5, policy.Duration(48*time.Hour)
		b.webhook.Policy.Backoff = policy.Backoff{Delays: []policy.Duration{policy.Duration(3 * time.Hour)}}
		b.update(b.webhook)
		sender, err := webhook.NewSender(webhook.Options{
			Version: "test", Guard: webhook.GuardOptions{AllowPrivate: true}, DialContext: receiver.Dial,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer sender.Close()
		over := func(o *Options) { rarely(o); o.PollMax, o.Sender = 10*time.Minute, sender }
		_, stop := b.start(over)
		sent := b.send(`{"order":1}`)
		time.Sleep(8 * time.Hour) // three attempts
		stop()
		_, stop = b.start(over)
		time.Sleep(8 * time.Hour)
		want(t, "dead letters", len(b.deadLetters()), 1)
		mu.Lock()
		status = http.StatusOK
		mu.Unlock()
		b.replay(b.deadLetters()[0].ID, "token-1")
		time.Sleep(time.Hour)
		stop()
		want(t, "requests", len(ids), 6)
		for _, id := range ids {
			want(t, "webhook-id", id, sent.ID)
			want(t, "a dot in it", strings.Contains(id, "."), false)
		}
		want(t, "dead letter", b.deadLetters()[0].Status, tables.Replayed)
	})
}

// C37: 100,000 messages to 10,000 webhooks with an address of their own each. Series
// stay below the cap and nothing is kept for a message.
func TestMetricsStaySmallWhateverIsDelivered(t *testing.T) {
	const webhooks, messages = 10_000, 100_000
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	tel, err := telemetry.Start(t.Context(), telemetry.Options{LogOutput: io.Discard, LogFormat: "json"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	m, err := meter.New(tel.MeterProvider.Meter(""))
	if err != nil {
		t.Fatal(err)
	}
	deliver := func(from, to int) {
		for i := from; i < to; i++ {
			status := 200 + i%400
			att := tables.Attempt{
				MessageKey: tables.MessageKey{Queue: testQueue, MessageID: fmt.Sprint("message-", i)}, WebhookID: fmt.Sprint("wh_", i%webhooks),
				Status: status, Error: fmt.Sprint("error-text-", i), RedirectHost: fmt.Sprint("host-", i, ".example"),
				Duration: time.Duration(i) * time.Millisecond, Action: policy.Abandon, Reason: policy.RetryableError,
			}
			m.Received(testQueue, i%3 > 0)
			m.Attempted(t.Context(), &att, i%2 == 0)
			m.DeadLettered(testQueue, "", string(policy.Reasons()[i%len(policy.Reasons())]))
		}
	}
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	deliver(0, webhooks)
	before := heap()
	deliver(webhooks, messages)
	if after := heap(); after > before+2<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
	text := scrape(t, tel)
	perMetric := map[string]map[string]bool{}
	for line := range strings.Lines(text) {
		name, labels, ok := strings.Cut(line, "{")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		labels, _, _ = strings.Cut(labels, "}")
		labels, _, _ = strings.Cut(labels, `le="`)
		if perMetric[name] == nil {
			perMetric[name] = map[string]bool{}
		}
		perMetric[name][labels] = true
	}
	if len(perMetric) < 3 {
		t.Errorf("%d metrics with labels in\n%s", len(perMetric), text)
	}
	for name, series := range perMetric { // 501 webhooks, "other" being one, and 4 outcomes
		if len(series) > 501*4 {
			t.Errorf("%s has %d series", name, len(series))
		}
	}
	for _, bad := range []string{"message-", "error-text", "host-", ".example"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q is in the metrics", bad)
		}
	}
	if !strings.Contains(text, `webhook="other"`) {
		t.Error("what is above the cap is not counted")
	}
}

// C37: an installation of 500 queues and 10,000 webhooks. An alert can name each queue whose first message is
// dead-lettered, and what is scraped is not too much.
func TestEachOfManyQueuesIsNamedInTheMetrics(t *testing.T) {
	const queues, webhooks = 500, 10_000
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	tel, err := telemetry.Start(t.Context(), telemetry.Options{LogOutput: io.Discard, LogFormat: "json"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	m, err := meter.New(tel.MeterProvider.Meter(""))
	if err != nil {
		t.Fatal(err)
	}
	for i := range webhooks {
		m.Known(fmt.Sprint("queue-", i%queues), fmt.Sprint("wh_", i))
	}
	for i := range webhooks {
		queueName := fmt.Sprint("queue-", i%queues)
		m.Attempted(t.Context(), &tables.Attempt{MessageKey: tables.MessageKey{Queue: queueName}, WebhookID: fmt.Sprint("wh_", i), Status: 400, Action: policy.DeadLetter, Reason: policy.NonRetryableError, Duration: time.Second}, true)
		if i < queues {
			m.DeadLettered(queueName, fmt.Sprint("wh_", i), string(policy.NonRetryableError))
			m.Settled(t.Context(), meter.Settlement{Queue: queueName, Action: "complete", Reason: string(policy.NonRetryableError), Result: "deleted", DeadLettered: true, Took: time.Second, Granted: time.Minute})
		}
	}
	text := scrape(t, tel)
	for i := range queues {
		for _, series := range []string{`messages_deadlettered_total{queue="queue-%d",reason="NonRetryableError"} 1`, `messages_finished_total{queue="queue-%d",result="dead_lettered"} 1`} {
			if line := fmt.Sprintf("\npushlease_"+series+"\n", i); !strings.Contains(text, line) {
				t.Fatalf("there is no%s", line)
			}
		}
	}
	if strings.Contains(text, "otel_metric_overflow") {
		t.Error("some of it is counted without its labels")
	}
	if len(text) > 10_000_000 {
		t.Errorf("%d bytes are scraped", len(text))
	}
	t.Logf("%d bytes are scraped", len(text))
}

func scrape(t *testing.T, tel *telemetry.Telemetry) string {
	t.Helper()
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// C39: a message that is held in work for ten minutes is in flight all the time, and
// a hundred that wait for their next attempt are not.
func TestInFlightIsWhatIsAtWork(t *testing.T) {
	inBubble(t, func(b *bench) {
		reader := sdkmetric.NewManualReader()
		inFlight := func() int64 {
			var all metricdata.ResourceMetrics
			if err := reader.Collect(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			for _, m := range all.ScopeMetrics[0].Metrics {
				if g, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == "pushlease.messages.in_flight" {
					return g.DataPoints[0].Value
				}
			}
			return -1
		}
		b.webhook.Policy.Backoff = policy.Backoff{Delays: []policy.Duration{policy.Duration(time.Hour)}}
		b.update(b.webhook)
		b.sender.takes = 10 * time.Minute
		d, stop := b.start(func(o *Options) { o.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("") })
		b.send("slow")
		for range 9 {
			time.Sleep(time.Minute)
			want(t, "in flight", inFlight(), 1)
			want(t, "in flight, as the API shows it", statusOf(d, testQueue).InFlight, 1)
		}
		time.Sleep(2 * time.Minute)
		want(t, "in flight afterwards", inFlight(), 0)
		b.sender.takes, b.sender.answer = 0, statuses(500)
		for range 100 {
			b.send("fails")
		}
		time.Sleep(10 * time.Minute)
		want(t, "POSTs", b.sender.count(), 101)
		want(t, "messages left", b.total(testQueue), 100)
		want(t, "in flight while they wait", inFlight(), 0)
		stop()
	})
}
