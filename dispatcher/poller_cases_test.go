package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// refusingQueues answers receives as refuse says; nil passes them on.
type refusingQueues struct {
	queue.Service
	refuse func() error
	polls  atomic.Int64
}

func (s *refusingQueues) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return &refusingQueue{q, s}, err
}

type refusingQueue struct {
	queue.Queue
	s *refusingQueues
}

func (q *refusingQueue) Receive(ctx context.Context, n int, lease time.Duration) ([]*queue.Message, error) {
	q.s.polls.Add(1)
	if err := q.s.refuse(); err != nil {
		return nil, err
	}
	return q.Queue.Receive(ctx, n, lease)
}

// pollAges reads the gauge of the poller of testQueue, in seconds.
func pollAges(t *testing.T) (metric.Meter, func() float64) {
	meter, gauge := pollGauges(t)
	return meter, func() float64 { t.Helper(); return gauge("pushlease.poll.age") }
}

// pollGauges reads a gauge of the poller of testQueue.
func pollGauges(t *testing.T) (metric.Meter, func(name string) float64) {
	reader := sdkmetric.NewManualReader()
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter(""), func(name string) float64 {
		t.Helper()
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		for _, m := range all.ScopeMetrics[0].Metrics {
			if g, ok := m.Data.(metricdata.Gauge[float64]); ok && m.Name == name && len(g.DataPoints) == 1 {
				return g.DataPoints[0].Value
			}
		}
		t.Errorf("%s is not measured", name)
		return -1
	}
}

// faultScript is what storage answers to one receive after the other.
type faultScript struct {
	mu                             sync.Mutex
	busy, denied                   int
	refusedSince, goneSince, ended time.Time
}

// next is the answer to a receive: 20 × 503, 30 s of refused connections, 20 s without a
// queue, 10 × 403, and nil from then on.
func (s *faultScript) next() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	lasts := func(since *time.Time, bound time.Duration) bool {
		if since.IsZero() {
			*since = now
		}
		return now.Sub(*since) < bound
	}
	switch {
	case s.busy < 20:
		s.busy++
		return fmt.Errorf("receive: %w: 503 ServerBusy", queue.ErrBusy)
	case lasts(&s.refusedSince, 30*time.Second):
		return fmt.Errorf("receive: %w: connection refused", queue.ErrBusy)
	case lasts(&s.goneSince, 20*time.Second):
		return fmt.Errorf("receive: %w", queue.ErrQueueNotFound)
	case s.denied < 10:
		s.denied++
		return fmt.Errorf("receive: %w: 403 AuthenticationFailed", queue.ErrDenied)
	}
	if s.ended.IsZero() {
		s.ended = now
	}
	return nil
}

// over reports whether the next receive succeeds, and unready whether those before were
// refused, and not for want of a queue.
func (s *faultScript) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.denied == 10
}

func (s *faultScript) unready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy > 0 && s.goneSince.IsZero()
}

// C11, word for word: 20 × 503, 30 s of refused connections, a queue that is gone and
// made again, 10 × 403, and then all is well.
func TestPollerOutlivesAScriptOfFaultsAndReturnsToAllItsReceiversAtOnce(t *testing.T) {
	const concurrency, pollMax = 16, 10 * time.Second
	const longest = pollMax * 5 / 4 // the pause of an empty queue is PollMax on average
	inBubble(t, func(b *bench) {
		script := &faultScript{}
		s := &refusingQueues{Service: b.queues, refuse: script.next}
		b.sender.takes = time.Minute
		meter, age := pollAges(b.t)
		began := time.Now()
		d, stop := b.start(func(o *Options) {
			o.Queues, o.Concurrency, o.PollMax, o.Meter = s, concurrency, pollMax, meter
		})
		defer stop()
		for !script.over() {
			time.Sleep(time.Second)
			if name := "queue " + testQueue; script.unready() && d.Health()[name] == nil {
				t.Fatal("ready although nothing can be received")
			}
		}
		if got := age(); got < time.Since(began).Seconds()-1 {
			t.Errorf("the last poll that was answered is %.0f s ago, want the whole outage of %s", got, time.Since(began))
		}
		outage := time.Since(began)
		if n := s.polls.Load(); n > int64(outage/(pollMax/2))+10 {
			t.Errorf("%d polls in %s of faults: more than one in %s and a few", n, outage, pollMax/2)
		}
		for range concurrency {
			b.send("x")
		}
		time.Sleep(longest + time.Second)
		want(t, "POSTs that are open at the same time", b.sender.count(), concurrency)
		want(t, "in flight", statusOf(d, testQueue).InFlight, concurrency)
		want(t, "health", d.Health()["queue "+testQueue], nil)
		for _, p := range b.sender.posts {
			if late := p.at.Sub(script.ended); late > time.Second {
				t.Errorf("a POST began %s after the first receive that worked", late)
			}
		}
		time.Sleep(2 * time.Minute)
		if got := age(); got > longest.Seconds()+1 {
			t.Errorf("the last poll that was answered is %.0f s ago, want at most %s", got, longest)
		}
		want(t, "messages left", b.total(testQueue), 0)
		for _, text := range []string{"503 ServerBusy", "connection refused", "does not exist yet", "403 AuthenticationFailed"} {
			n := strings.Count(b.log.String(), text)
			if limit := int(outage/(10*time.Second)) + 1; n < 1 || n > limit {
				t.Errorf("%d lines about %q in %s, want 1 to %d", n, text, outage, limit)
			}
		}
	})
}

// A queue that is looked at once an hour: one receive that fails is no sign of trouble, and five minutes
// of them are, as an alert looks at age and pause.
func TestAReceiveIsOverdueFromItsOwnTimeOn(t *testing.T) {
	inBubble(t, func(b *bench) {
		var failing atomic.Bool
		s := &refusingQueues{Service: b.queues, refuse: func() error {
			if failing.Load() {
				return fmt.Errorf("receive: %w: 503 ServerBusy", queue.ErrBusy)
			}
			return nil
		}}
		meter, gauge := pollGauges(b.t)
		overdue := func() float64 { b.t.Helper(); return gauge("pushlease.poll.age") - gauge("pushlease.poll.pause") }
		d, stop := b.start(func(o *Options) { o.Queues, o.PollMax, o.Meter = s, time.Hour, meter })
		defer stop()
		b.send("x") // makes the queue
		time.Sleep(3 * time.Hour)
		looks := s.polls.Load()
		failing.Store(true)
		for s.polls.Load() == looks {
			time.Sleep(100 * time.Millisecond)
		}
		if got := overdue(); got > 1 {
			t.Errorf("after one failure a receive is overdue for %.0f s", got)
		}
		failing.Store(false)
		time.Sleep(2 * time.Minute)
		if got := overdue(); got > 1 {
			t.Errorf("after the failure a receive is overdue for %.0f s", got)
		}
		failing.Store(true)
		for looks = s.polls.Load(); s.polls.Load() == looks; {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(301 * time.Second)
		if got := overdue(); got < 300 || got > 310 {
			t.Errorf("after 301 s of failures a receive is overdue for %.0f s", got)
		}
		failing.Store(false)
		time.Sleep(3 * time.Hour) // the pause is an hour again
		failing.Store(true)
		d.Wake(testQueue) // a message was published
		time.Sleep(301 * time.Second)
		if got := overdue(); got < 300 || got > 310 {
			t.Errorf("301 s after it was woken a receive is overdue for %.0f s", got)
		}
	})
}

// C12: fifty messages are received, or wait for a slot, when the process is stopped.
func TestStopGivesBackFiftyMessagesAtOnceAndChargesNobody(t *testing.T) {
	for _, concurrency := range []int{64, 4} {
		inBubble(t, func(b *bench) {
			b.webhook.Policy.MaxAttempts = 1
			b.update(b.webhook)
			b.sender.takes = time.Hour
			_, stop := b.start(func(o *Options) { o.Drain, o.Concurrency, o.Lease = time.Second, concurrency, 10*time.Minute })
			sent := b.sendMany(50, queue.SendOptions{})
			time.Sleep(5 * time.Second)
			stop()
			time.Sleep(5 * time.Second)
			depth, err := b.queue(testQueue).Depth(b.t.Context())
			if err != nil || depth.Visible != 50 {
				t.Errorf("%d messages can be received 5 s after the stop, %v; want 50", depth.Visible, err)
			}
			for _, s := range sent {
				want(t, "charged", b.delivery(s, "wh_a").Charged, 0)
			}
			b.sender.takes = 0
			_, stop = b.start(nil)
			time.Sleep(10 * time.Second)
			stop()
			for _, s := range sent {
				want(t, "state", b.delivery(s, "wh_a").State, tables.Delivered)
			}
			want(t, "dead letters", len(b.deadLetters()), 0)
			want(t, "copies", b.total(testQueue+tables.PoisonSuffix), 0)
			want(t, "messages left", b.total(testQueue), 0)
		})
	}
}

// C14: what is valid as it stands arrives byte for byte, and what was encoded is decoded.
func TestTextsArriveByTheRuleOfTheirQueuesEncoding(t *testing.T) {
	const event = `[{"id":"1","eventType":"a","data":{"x":1}}]`
	for encoding, texts := range map[queue.Encoding]map[string]string{
		queue.EncodingNone: {"12345678": "12345678", event: event},
		queue.EncodingAuto: {"eyJhIjoxfQ==": `{"a":1}`, "12345678": "12345678", "abcd": "abcd", `{"a":1}`: `{"a":1}`},
	} {
		for text, body := range texts {
			inBubble(t, func(b *bench) {
				b.sendText([]byte(text), queue.SendOptions{})
				_, stop := b.start(func(o *Options) { o.Encoding = func(string) queue.Encoding { return encoding } })
				time.Sleep(5 * time.Second)
				stop()
				want(t, "POSTs", b.sender.count(), 1)
				if b.sender.count() == 1 {
					want(t, fmt.Sprintf("%s on a queue of %s", text, encoding), string(b.sender.posts[0].request.Body), body)
				}
			})
		}
	}
}

// C24: a policy that tries a 401 again delivers when the receiver lets us in again.
func TestPolicyThatRetriesA401DeliversAfterTwoMinutesOfIt(t *testing.T) {
	inBubble(t, func(b *bench) {
		began := time.Now()
		b.sender.answer = func(webhook.Request, int) webhook.Result {
			if time.Since(began) < 2*time.Minute {
				return webhook.Result{Status: 401}
			}
			return webhook.Result{Status: 200}
		}
		b.send("x")
		_, stop := b.start(nil)
		time.Sleep(5 * time.Minute)
		stop()
		want(t, "POSTs by the default table", b.sender.count(), 1)
		b.wantDeadLetters(1, policy.NonRetryableError)

		began = time.Now()
		b.webhook.Policy.Rules = []policy.Rule{{Match: "401", Action: "abandon"}}
		b.webhook = b.update(b.webhook)
		sent := b.send("y")
		_, stop = b.start(nil)
		time.Sleep(30 * time.Minute)
		stop()
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "dead letters", len(b.deadLetters()), 1)
	})
}

// C22 and C25, over the real sender: a redirect is a failed attempt and its target is
// never met; a receiver that drips, floods with 103 or says nothing has its message back
// after the deadline of 5 s, one attempt charged and its slot free.
func TestRedirectsAndStallsAreFailedAttempts(t *testing.T) {
	scripts := map[string]webhooktest.Script{
		"drip": webhooktest.Drip(time.Second), "103": webhooktest.Interim(time.Second), "silence": webhooktest.Silence,
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, location := range []string{"http://127.0.0.2/", "http://169.254.169.254/"} {
			scripts[fmt.Sprint(status, " ", location)] = webhooktest.Answer(
				fmt.Sprintf("HTTP/1.1 %d X\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", status, location))
		}
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.URL, b.webhook.Timeout = "http://127.0.0.1/hook", 5*time.Second
				b.webhook.Secrets = []webhook.Secret{webhook.NewSecret(time.Now())}
				b.webhook.Policy.Backoff = policy.Backoff{Delays: []policy.Duration{policy.Duration(time.Hour)}}
				b.webhook = b.update(b.webhook)
				wire := webhooktest.NewWire(b.t, script)
				var elsewhere atomic.Int64
				dial := func(ctx context.Context, network, address string) (_ net.Conn, err error) {
					if address != "127.0.0.1:80" {
						elsewhere.Add(1)
						return nil, errors.New("nobody is there")
					}
					return wire.Dial(ctx, network, address)
				}
				sender, err := webhook.NewSender(webhook.Options{Guard: webhook.GuardOptions{AllowPrivate: true}, DialContext: dial})
				if err != nil {
					b.t.Fatal(err)
				}
				defer sender.Close()
				d, stop := b.start(func(o *Options) { o.Sender, o.Concurrency = sender, 1 })
				defer stop()
				sent := b.send("x")
				time.Sleep(10 * time.Second)
				del := b.delivery(sent, "wh_a")
				want(t, "state", del.State, tables.Pending)
				want(t, "charged", del.Charged, 1)
				want(t, "in flight", statusOf(d, testQueue).InFlight, 0)
				want(t, "messages", b.total(testQueue), 1)
				want(t, "connections to elsewhere", elsewhere.Load(), 0)
				atts := b.attempts(sent)
				if len(atts) != 1 {
					b.t.Fatalf("%d attempts, want 1", len(atts))
				}
				if stalled := atts[0].Status == 0; stalled && (atts[0].ErrorClass != policy.ClassTimeout || atts[0].Duration < 4500*time.Millisecond || atts[0].Duration > 5500*time.Millisecond) {
					t.Errorf("%s after %s, want a timeout after 5 s", atts[0].ErrorClass, atts[0].Duration)
				}
				if del.NextAt.Sub(atts[0].StartedAt) < time.Hour {
					t.Errorf("tried again at %s, want the policy's hour later", del.NextAt)
				}
			})
		})
	}
}

// C17: 200 KB of emoji in the answer leave a record that can be read, and the retry goes on.
func TestHugeAnswerOfEmojiLeavesAReadableRecord(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.URL, b.webhook.Secrets = "http://127.0.0.1/hook", []webhook.Secret{webhook.NewSecret(time.Now())}
		b.webhook = b.update(b.webhook)
		huge := strings.Repeat("😀", 50<<10)
		receiver := webhooktest.NewReceiver(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("pushlease-attempt") == "1" {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, huge)
			}
		}))
		defer receiver.Close()
		sender, err := webhook.NewSender(webhook.Options{Guard: webhook.GuardOptions{AllowPrivate: true}, DialContext: receiver.Dial})
		if err != nil {
			b.t.Fatal(err)
		}
		defer sender.Close()
		_, stop := b.start(func(o *Options) { o.Sender = sender })
		sent := b.send("x")
		time.Sleep(time.Minute)
		stop()
		atts := b.attempts(sent)
		if len(atts) != 2 {
			b.t.Fatalf("%d attempts, want 2", len(atts))
		}
		snippet := atts[0].Snippet
		if cut := strings.TrimSuffix(snippet, "…"); cut == snippet || strings.Trim(cut, "😀") != "" || len(cut) == 0 || len(snippet) > 64<<10 {
			t.Errorf("the snippet has %d bytes: %.40q…", len(snippet), snippet)
		}
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
	})
}

// Of an event in the binary format everything but its data is in headers, which some receivers and
// the gateways before them show in what they answer.
func TestAnAnswerThatEchoesAnEventsHeadersIsRecordedWithoutThem(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.URL, b.webhook.Secrets, b.webhook.Format = "http://127.0.0.1/hook", []webhook.Secret{webhook.NewSecret(time.Now())}, content.FormatBinary
		b.webhook = b.update(b.webhook)
		receiver := webhooktest.NewReceiver(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "refused: ce-subject: "+r.Header.Get("ce-subject"))
		}))
		defer receiver.Close()
		sender, err := webhook.NewSender(webhook.Options{Guard: webhook.GuardOptions{AllowPrivate: true}, DialContext: receiver.Dial})
		if err != nil {
			b.t.Fatal(err)
		}
		defer sender.Close()
		_, stop := b.start(func(o *Options) { o.Sender = sender })
		sent := b.send(`{"specversion":"1.0","id":"1","source":"/s","type":"t","subject":"patient/jane.doe","data":{}}`)
		time.Sleep(time.Minute)
		stop()
		atts := b.attempts(sent)
		if len(atts) != 1 {
			b.t.Fatalf("%d attempts, want 1", len(atts))
		}
		want(t, "snippet", atts[0].Snippet, "refused: ce-subject: [redacted]")
	})
}

func TestAPollerThatWaitsForItsShareIsNotLate(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.takes = 10 * time.Minute
		meter, age := pollAges(t)
		_, stop := b.start(func(o *Options) { o.MaxInFlight, o.Meter = 2, meter })
		b.sendNumbered(3)
		time.Sleep(5 * time.Minute)
		want(t, "POSTs", b.sender.count(), 2)
		want(t, "age of the last poll", age(), 0)
		stop()
	})
}

func TestAQueueThatDoesNotExistYetIsNotLate(t *testing.T) {
	inBubble(t, func(b *bench) {
		meter, age := pollAges(t)
		_, stop := b.start(func(o *Options) { o.Meter = meter })
		defer stop()
		time.Sleep(10 * time.Minute)
		want(t, "age while there is no queue", age(), 0)
		b.send("x")
		time.Sleep(10 * time.Second)
		want(t, "POSTs", b.sender.count(), 1)
		b.queues.on("receive", always(failBefore))
		time.Sleep(10 * time.Minute)
		if got := age(); got < 590 {
			t.Errorf("age after 10 minutes of faults = %.0f s", got)
		}
	})
}

// C94: what was deleted while no process ran was in use by the records, which say what waited.
func TestAQueueThatWasDeletedBeforeTheStartIsGone(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(503)
		for range 3 {
			b.send("x")
		}
		_, stop := b.start(nil)
		time.Sleep(10 * time.Second)
		stop()
		var there atomic.Bool
		d, stop := b.start(func(o *Options) {
			o.Queues = &refusingQueues{Service: b.queues, refuse: func() error {
				if there.Load() {
					return nil
				}
				return queue.ErrQueueNotFound
			}}
		})
		defer stop()
		time.Sleep(time.Hour)
		want(t, "gone", statusOf(d, testQueue).GoneAt.IsZero(), false)
		want(t, "pending", strings.Contains(statusOf(d, testQueue).GoneText, "up to 3 messages"), true)
		want(t, "lines about a queue that is gone", strings.Count(b.log.String(), "somebody deleted it"), 1)
		want(t, "lines about a queue that is not there yet", strings.Count(b.log.String(), "does not exist yet"), 0)
		if err := d.Health()["queue "+testQueue]; !errors.Is(err, queue.ErrQueueNotFound) || !strings.Contains(err.Error(), "up to 3 messages") {
			t.Errorf("health: %v", err)
		}
		there.Store(true)
		time.Sleep(time.Minute)
		want(t, "health of a queue that is back", d.Health()["queue "+testQueue], nil)
		want(t, "text of a queue that is back", statusOf(d, testQueue).GoneText, "")
	})
}

// C94: a queue that is not there yet is told once, and one that somebody deletes with its time.
func TestAQueueThatIsDeletedIsToldApartFromOneThatIsNotThereYet(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.send("x") // makes the queue
		var there atomic.Bool
		d, stop := b.start(func(o *Options) {
			o.Queues = &refusingQueues{Service: b.queues, refuse: func() error {
				if there.Load() {
					return nil
				}
				return queue.ErrQueueNotFound
			}}
		})
		time.Sleep(time.Hour)
		want(t, "lines about a queue that is not there yet", strings.Count(b.log.String(), "does not exist yet"), 1)
		want(t, "gone", statusOf(d, testQueue).GoneAt.IsZero(), true)
		there.Store(true)
		time.Sleep(time.Minute)
		deleted := time.Now()
		there.Store(false)
		time.Sleep(time.Hour)
		want(t, "lines about a queue that is gone", strings.Count(b.log.String(), "somebody deleted it"), 1)
		at := statusOf(d, testQueue).GoneAt
		want(t, "gone at about that time", at.After(deleted) && at.Before(deleted.Add(time.Minute)), true)
		there.Store(true)
		time.Sleep(time.Minute)
		want(t, "gone", statusOf(d, testQueue).GoneAt.IsZero(), true)
		stop()
	})
}

// pages is a history of attempts, page by page; some are empty, as where a queue is one of many on a store that looks at a
// bounded number of rows.
type pages struct {
	Store
	pages [][]tables.Attempt
	asked int
}

func (p *pages) Attempts(_ context.Context, _ tables.AttemptFilter, page tables.Page) ([]tables.Attempt, tables.Cursor, error) {
	p.asked++
	at, _ := strconv.Atoi(string(page.After))
	if at == len(p.pages)-1 {
		return p.pages[at], "", nil
	}
	return p.pages[at], tables.Cursor(strconv.Itoa(at + 1)), nil
}

// C94: what is on record of a queue that is missing is read to its end, and where it is not, that is said.
func TestThePastOfAMissingQueueIsReadToItsEnd(t *testing.T) {
	waiting := func(page int) (list []tables.Attempt) {
		for i := range 400 {
			list = append(list, tables.Attempt{MessageKey: tables.MessageKey{MessageID: fmt.Sprint(page, i)}, WebhookID: "w", StartedAt: time.Now(), Action: policy.Abandon})
		}
		return list
	}
	many := func(n int) (list [][]tables.Attempt) {
		for i := range n {
			list = append(list, waiting(i))
		}
		return list
	}
	empty := make([][]tables.Attempt, 25)
	for name, c := range map[string]struct {
		pages [][]tables.Attempt
		gone  bool
		text  string
	}{
		"two pages":          {many(2), true, "up to 800 messages"},
		"more than is read":  {many(30), true, "4000 messages or more"},
		"empty pages before": {append(slices.Clone(empty), waiting(0)), true, "up to 400 messages"},
		"nothing":            {slices.Clone(empty), false, ""},
	} {
		inBubble(t, func(b *bench) {
			history := &pages{pages: c.pages}
			d, stop := b.start(func(o *Options) {
				history.Store = o.Store
				o.Store = history
				o.Queues = &refusingQueues{Service: b.queues, refuse: func() error { return queue.ErrQueueNotFound }}
			})
			defer stop()
			time.Sleep(time.Hour)
			want(t, name+": gone", !statusOf(d, testQueue).GoneAt.IsZero(), c.gone)
			want(t, name+": pending", strings.Contains(statusOf(d, testQueue).GoneText, c.text), true)
			want(t, name+": text", statusOf(d, testQueue).GoneText != "", c.gone)
			want(t, name+": lines about a queue that is not there yet", strings.Count(b.log.String(), "does not exist yet") > 0, !c.gone)
			if err := d.Health()["queue "+testQueue]; c.gone && (err == nil || !strings.Contains(err.Error(), c.text)) {
				t.Errorf("%s: health: %v", name, err)
			}
			if history.asked > len(c.pages) {
				t.Errorf("%s: %d pages of %d were asked for", name, history.asked, len(c.pages))
			}
		})
	}
}
