package dispatcher

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// receipts notes the receipt that each renewal and each delete was made with, and the
// one that each renewal gave.
type receipts struct {
	queue.Service
	mu               sync.Mutex
	renewed, deleted []string
	given            []string
	latency          time.Duration // of every call
	refuse           func(ctx context.Context, renewal int) error
	renewals         int
}

func (s *receipts) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return receiptQueue{q, s}, err
}

func (s *receipts) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewals
}

type receiptQueue struct {
	queue.Queue
	s *receipts
}

func (q receiptQueue) Receive(ctx context.Context, n int, lease time.Duration) ([]*queue.Message, error) {
	got, err := q.Queue.Receive(ctx, n, lease)
	time.Sleep(q.s.latency)
	return got, err
}

func (q receiptQueue) Renew(ctx context.Context, m *queue.Message, lease time.Duration) error {
	q.s.mu.Lock()
	q.s.renewals++
	n := q.s.renewals
	q.s.renewed = append(q.s.renewed, m.Lease.Receipt())
	q.s.mu.Unlock()
	time.Sleep(q.s.latency)
	if q.s.refuse != nil {
		if err := q.s.refuse(ctx, n); err != nil {
			return err
		}
	}
	err := q.Queue.Renew(ctx, m, lease)
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	q.s.given = append(q.s.given, m.Lease.Receipt())
	return err
}

func (q receiptQueue) Complete(ctx context.Context, m *queue.Message) error {
	q.s.mu.Lock()
	q.s.deleted = append(q.s.deleted, m.Lease.Receipt())
	q.s.mu.Unlock()
	time.Sleep(q.s.latency)
	return q.Queue.Complete(ctx, m)
}

func (q receiptQueue) Abandon(ctx context.Context, m *queue.Message, delay time.Duration) error {
	time.Sleep(q.s.latency)
	return q.Queue.Abandon(ctx, m, delay)
}

// C01 with its values. That receipts with + / = reach storage as they are is tested
// where they are written into URLs: azurequeue, TestEveryCallSendsTheNewestReceiptExactly.
func TestDeleteIsMadeWithTheReceiptOfTheLastRenewal(t *testing.T) {
	inBubble(t, func(b *bench) {
		seen := &receipts{Service: b.queues}
		b.sender.takes = 7 * time.Second
		_, stop := b.start(func(o *Options) { o.Queues = seen; o.Lease = 2 * time.Second })
		b.send("x")
		time.Sleep(7*time.Second + 6*time.Second)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "messages left", b.total(testQueue), 0)
		if len(seen.given) < 3 {
			t.Fatalf("%d renewals, want at least 3", len(seen.given))
		}
		want(t, "deletes", len(seen.deleted), 1)
		want(t, "receipt of the delete", seen.deleted[0], seen.given[len(seen.given)-1])
		for i, receipt := range seen.renewed[1:] {
			want(t, "receipt of a renewal", receipt, seen.given[i])
			if seen.given[i+1] == seen.given[i] {
				t.Error("a renewal gave no new receipt")
			}
		}
	})
}

// C02 (a): nobody goes on renewing what is lost, and it is told once.
func TestRenewalEndsWithTheFirstDefinitiveAnswer(t *testing.T) {
	inBubble(t, func(b *bench) {
		var c *counters
		seen := &receipts{Service: b.queues, refuse: func(_ context.Context, n int) error {
			if n == 2 {
				return queue.ErrLeaseLost
			}
			return nil
		}}
		b.sender.takes = time.Hour
		d, stop := b.start(func(o *Options) {
			o.Queues = seen
			o.Lease = 10 * time.Second
			o.PollMin, o.PollMax = time.Hour, time.Hour
			c = newCounters(o)
		})
		time.Sleep(time.Second)
		b.send("x")
		d.Wake(testQueue)
		time.Sleep(10 * time.Minute) // less than until the next receive
		want(t, "renewals in ten minutes", seen.count(), 2)
		want(t, "lost", c.sum(t, "pushlease.lease.lost", "kind", "lost"), 1)
		want(t, "lost in all", c.sum(t, "pushlease.lease.lost"), 1)
		if n := handling(); n > 0 {
			t.Errorf("%d goroutines are left of the handling", n)
		}
		stop()
		want(t, "log lines", strings.Count(b.log.String(), `"lease lost:`), 1)
		want(t, "POSTs", b.sender.count(), 1)
	})
}

// handling counts the goroutines that handle a message.
func handling() (n int) {
	for _, stack := range strings.Split(stacks(), "\n\n") {
		for _, function := range []string{"(*Lease).act(", "(*Dispatcher).handle(", "(*Dispatcher).post"} {
			if strings.Contains(stack, function) {
				n++
				break
			}
		}
	}
	return n
}

// stacks are those of all goroutines.
func stacks() string {
	text := make([]byte, 1<<20)
	return string(text[:runtime.Stack(text, true)])
}

// C02 (a): within a second of the end of the handling, whatever ended it.
func TestNoGoroutineOutlivesTheHandling(t *testing.T) { // R7: on success, failure, panic and cancellation
	tests := []struct {
		name   string
		answer func(webhook.Request, int) webhook.Result
		rest   time.Duration // until it is received again, at least
	}{
		{"success", statuses(200), 10 * time.Minute},
		{"failure", statuses(500), 10 * time.Minute},
		{"refusal", statuses(400), 10 * time.Minute},
		{"panic", func(webhook.Request, int) webhook.Result { panic("in the sender") }, 500 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.Policy.Backoff.Initial = policy.Duration(time.Hour)
				b.update(b.webhook)
				b.sender.takes, b.sender.answer = 12*time.Second, tt.answer
				d, stop := b.start(func(o *Options) { o.Lease = 10 * time.Second; o.PollMin, o.PollMax = time.Hour, time.Hour })
				time.Sleep(time.Second)
				b.send("x")
				d.Wake(testQueue)
				time.Sleep(11 * time.Second)
				if n := handling(); n != 1 { // its lease is kept without one, and its only POST made in it
					t.Errorf("%d goroutines handle the message, want 1", n)
				}
				if renewals := b.queues.count("renew"); renewals != 2 {
					t.Errorf("%d renewals while the POST ran, want 2", renewals)
				}
				time.Sleep(time.Second + time.Second) // the handling ends at 12 s
				if n := handling(); n > 0 {
					t.Errorf("%d goroutines are left of the handling", n)
				}
				time.Sleep(tt.rest)
				want(t, "renewals after the end", b.queues.count("renew"), 2)
				stop()
				want(t, "POSTs", b.sender.count(), 1)
			})
		})
	}
}

func TestCancellationEndsRenewingQuietly(t *testing.T) { // R7
	inBubble(t, func(b *bench) {
		b.sender.takes = time.Hour
		_, stop := b.start(func(o *Options) { o.Lease = 10 * time.Second; o.Drain = 3 * time.Second })
		sent := b.send("x")
		time.Sleep(12 * time.Second)
		renewals := b.queues.count("renew")
		stop()
		if n := b.queues.count("renew") - renewals; n > 1 {
			t.Errorf("%d renewals in a stop of 3 s", n)
		}
		for _, line := range strings.Split(b.log.String(), "\n") {
			if strings.Contains(line, "renewal") || strings.Contains(line, "lease lost") || strings.Contains(line, `"level":"ERROR"`) {
				t.Errorf("logged: %s", line)
			}
		}
		want(t, "reason", b.delivery(sent, "wh_a").Reason, policy.Stopping)
		want(t, "charged", b.delivery(sent, "wh_a").Charged, 0)
	})
}

// C02 (b): silence is not loss. Renewals are blocked for two leases, nobody else
// receives, and the final delete is made and accepted.
func TestSilentLeaseIsToldApartFromALostOne(t *testing.T) {
	for _, how := range []struct {
		name   string
		refuse func(context.Context, int) error
	}{
		{"refused", func(context.Context, int) error { return queue.ErrBusy }},
		{"not answered", func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }},
	} {
		t.Run(how.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				var c *counters
				seen := &receipts{Service: b.queues, refuse: how.refuse}
				b.queues.on("receive", func(n int) fault {
					if n > 1 {
						return failBefore
					}
					return 0
				})
				b.sender.takes = 20 * time.Second
				b.send("x")
				_, stop := b.start(func(o *Options) { o.Queues = seen; o.Lease = 10 * time.Second; c = newCounters(o) })
				time.Sleep(time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), 1)
				want(t, "messages left", b.total(testQueue), 0)
				want(t, "silent", c.sum(t, "pushlease.lease.lost", "kind", "silent"), 1)
				want(t, "of any kind", c.sum(t, "pushlease.lease.lost"), 1)
				want(t, "deleted", c.sum(t, "pushlease.messages.deleted", "result", "deleted"), 1)
			})
		})
	}
}

// A holder that went silent, and could tell nobody, finds that another process has delivered
// meanwhile.
func TestFencedLeaseLeavesWhatTheOtherRecorded(t *testing.T) {
	inBubble(t, func(b *bench) {
		var c *counters
		seen := &receipts{Service: b.queues, refuse: func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }}
		slow := senderFunc(func(ctx context.Context, _ webhook.Request) webhook.Result {
			if !retry.Sleep(ctx, 40*time.Second) {
				return webhook.Result{ErrorClass: string(policy.ClassCanceled)}
			}
			return webhook.Result{Status: 500}
		})
		first := func(o *Options) {
			untold := &faultyStore{Store: b.db}
			untold.on("note", firstCalls(retry.Call.Tries, failBefore))
			o.Queues, o.Store, o.Sender, o.Lease, o.Concurrency, c = seen, untold, slow, 10*time.Second, 1, newCounters(o)
		}
		sent := b.send("x")
		_, stopFirst := b.start(first)
		time.Sleep(time.Second)
		_, stopSecond := b.start(nil)
		time.Sleep(time.Minute)
		stopFirst()
		stopSecond()
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "fenced", c.sum(t, "pushlease.lease.lost", "kind", "fenced"), 1)
		want(t, "silent", c.sum(t, "pushlease.lease.lost", "kind", "silent"), 1)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "dead letters", len(b.deadLetters()), 0)
	})
}

// C03 (a): 200 messages held at once, a lease of 6 s, answers after 20 s, and storage
// that takes 300 ms for every call. A second reader looks ten times a second.
func TestSecondReaderNeverSeesAMessageThatIsHeld(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.takes = 20 * time.Second
		for range 200 {
			b.send("x")
		}
		slow := &receipts{Service: b.queues, latency: 300 * time.Millisecond}
		_, stop := b.start(func(o *Options) { o.Queues = slow; o.Lease = 6 * time.Second; o.Concurrency = 200 })
		for b.sender.count() < 200 {
			time.Sleep(100 * time.Millisecond)
		}
		q := b.queue(testQueue)
		for range 300 {
			got, err := q.Receive(b.t.Context(), queue.MaxReceive, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) > 0 {
				t.Fatalf("%d messages were received by a second reader", len(got))
			}
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		want(t, "POSTs", b.sender.count(), 200)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// C03 (b): visible again after the delay, neither at once nor at the end of the lease.
func TestAbandonedMessageIsVisibleAfterItsDelay(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(500)
		b.send("x") // first, since the next receive is an hour after the first
		start := time.Now()
		_, stop := b.start(func(o *Options) { o.Lease = time.Minute; o.PollMin, o.PollMax = time.Hour, time.Hour })
		q := b.queue(testQueue)
		for {
			time.Sleep(100 * time.Millisecond)
			depth, err := q.Depth(b.t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if visible := time.Since(start); depth.Visible > 0 || visible > 2*time.Minute {
				if visible < 5*time.Second || visible > 7*time.Second {
					t.Errorf("visible again after %s, want 5 s", visible)
				}
				break
			}
		}
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		for _, name := range policy.PresetNames() { // no default lets a message come back at once
			p, err := policy.Preset(name)
			if err != nil {
				t.Fatal(err)
			}
			if dec := p.Decide(policy.Try{Now: start, FirstAt: start, Response: policy.Response{Status: 500}}); dec.Action == policy.Abandon && dec.Delay <= 0 {
				t.Errorf("preset %s gives back without a delay", name)
			}
		}
	})
}

// C04: (a) 503, 503, 204; (b) a try that took effect without an answer, then 404; (c)
// no delete for two leases.
func TestFailedDeleteIsTriedAgainAndNeverASecondPost(t *testing.T) {
	tests := []struct {
		name  string
		rule  func(start time.Time) func(int) fault
		tries int // at least
	}{
		{"a: refused twice", func(time.Time) func(int) fault { return firstCalls(2, failBefore) }, 3},
		{"b: answer lost, then gone", func(time.Time) func(int) fault { return firstCalls(1, answerLost) }, 2},
		{"c: refused for two leases", func(start time.Time) func(int) fault {
			return func(int) fault {
				if time.Since(start) < 12*time.Second {
					return failBefore
				}
				return 0
			}
		}, 5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				var c *counters
				b.queues.on("complete", tt.rule(time.Now()))
				d, stop := b.start(func(o *Options) { o.Lease = 6 * time.Second; c = newCounters(o) })
				_, stopOther := b.start(func(o *Options) { o.Lease = 6 * time.Second }) // would take what comes back
				b.send("x")
				time.Sleep(2 * time.Minute)
				stop()
				stopOther()
				want(t, "POSTs", b.sender.count(), 1)
				want(t, "messages left", b.total(testQueue), 0)
				if n := b.queues.count("complete"); n < tt.tries || n > tt.tries+5 {
					t.Errorf("%d tries, want at least %d", n, tt.tries)
				}
				want(t, "lease warnings", strings.Count(b.log.String(), "lease lost")+strings.Count(b.log.String(), "lease was lost"), 0)
				want(t, "leases lost", c.sum(t, "pushlease.lease.lost"), 0)
				want(t, "duplicates", c.sum(t, "pushlease.messages.duplicate"), 0)
				want(t, "failed", statusOf(d, testQueue).Deletions.Failed, 0)
			})
		})
	}
}

// C05: the record of attempt 1 can't be written, ever. The attempts are counted
// nevertheless, and the gap is marked.
func TestLostAttemptRecordIsMarkedAndCounted(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.webhook.Policy.MaxAttempts = 3
		b.update(b.webhook)
		b.sender.answer = statuses(500)
		store := &withoutAttempt{Store: b.store, number: 1}
		var c *counters
		_, stop := b.start(func(o *Options) { o.Store = store; c = newCounters(o) })
		sent := b.send("x")
		time.Sleep(10 * time.Minute)
		want(t, "POSTs", b.sender.count(), 3)
		want(t, "messages left", b.total(testQueue), 0)
		list := b.deadLetters()
		want(t, "dead letters", len(list), 1)
		want(t, "attempts", list[0].Attempts, 3)
		want(t, "reason", list[0].Reason, policy.MaxDeliveryCountExceeded)
		del := b.delivery(sent, "wh_a")
		want(t, "state", del.State, tables.DeadLettered)
		want(t, "records missing", del.MissingRecords, 1)
		want(t, "attempts recorded", len(b.attempts(sent)), 2)
		want(t, "records that waited", c.sum(t, "pushlease.records.deferred"), 1)
		stop()
	})
}

// withoutAttempt refuses every record with the attempt of one number.
type withoutAttempt struct {
	Store
	number int
}

func (s *withoutAttempt) Record(ctx context.Context, r tables.Record) error {
	for _, a := range r.Attempts {
		if a.Number == s.number {
			return errBefore
		}
	}
	return s.Store.Record(ctx, r)
}

func TestRenewalAtHalfOfWhatWasGrantedAndAFaultIsAWarning(t *testing.T) { // R7
	inBubble(t, func(b *bench) {
		b.webhook.Timeout = 10 * time.Minute
		b.update(b.webhook)
		b.queues.on("renew", func(n int) fault {
			if n == 2 {
				return failBefore
			}
			return 0
		})
		b.sender.takes = 9 * time.Minute
		_, stop := b.start(func(o *Options) { o.Lease = 5 * time.Minute; o.Drain = time.Hour })
		sent := b.send("x")
		time.Sleep(2*time.Minute + 29*time.Second)
		want(t, "renewals before half of the lease", b.queues.count("renew"), 0)
		time.Sleep(2 * time.Second)
		want(t, "renewals at half of the lease", b.queues.count("renew"), 1)
		time.Sleep(10 * time.Minute)
		stop()
		want(t, "warnings", strings.Count(b.log.String(), "lease renewal failed"), 1)
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// What is held waits for the POST beside it to be recorded. When someone else has gone on
// with the message in that time, what they recorded stands: also when the message came back.
func TestWhatIsHeldBesideAPOSTNeverReplacesWhatOthersRecordedMeanwhile(t *testing.T) {
	for name, comesBack := range map[string]bool{"the lease is over": false, "the message came back": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.webhook.Timeout = 250 * time.Second
				b.update(b.webhook)
				b.register("wh_b", nil)
				silent, receiving := &faultyQueues{Service: b.db.Queues()}, &outage{}
				silent.on("renew", always(failBefore))
				slow, forgetful := &scripted{takes: 240 * time.Second, answer: statuses(200)}, &faultyStore{Store: b.db}
				forgetful.on("put_health", always(failBefore)) // the second does not learn of the pause
				d, stop := b.start(func(o *Options) { o.Queues, o.Store, o.Sender, o.Instance = silent, forgetful, slow, "first" })
				time.Sleep(time.Second)
				d.flows.Get("wh_b").AskPause(20*time.Minute, time.Now())
				sent := b.send("x")
				time.Sleep(5 * time.Second)
				want(t, "POSTs of the first", slow.count(), 1)
				silent.on("receive", receiving.rule(failBefore))
				_, stopOther := b.start(func(o *Options) { o.Sender, o.Instance = &scripted{answer: statuses(500)}, "second" })
				time.Sleep(90 * time.Second)
				stopOther()
				before := b.delivery(sent, "wh_b")
				want(t, "the second made attempts", before.Attempts > 0, true)
				if comesBack {
					receiving.end()
				}
				time.Sleep(160 * time.Second)
				want(t, "to the slow one", b.delivery(sent, "wh_a").State, tables.Delivered)
				now := b.delivery(sent, "wh_b")
				want(t, "state", now.State, before.State)
				want(t, "attempts", now.Attempts, before.Attempts)
				want(t, "it came back", strings.Contains(b.log.String(), "a message came back"), comesBack)
				stop()
			})
		})
	}
}

// Storage is silent until the first one's lease has ended, its tables too. The second POST can't
// be avoided, nor denied.
func TestTwoHoldersLeaveTwoAttemptsOnRecord(t *testing.T) { // C64, C113
	inBubble(t, func(b *bench) {
		b.webhook.Timeout = 250 * time.Second
		b.update(b.webhook)
		silent, receiving := &faultyQueues{Service: b.db.Queues()}, &outage{}
		silent.on("renew", always(failBefore))
		untold := &faultyStore{Store: b.db}
		untold.on("note", firstCalls(retry.Call.Tries, failBefore))
		receiver := &scripted{takes: 90 * time.Second, answer: statuses(200)}
		_, stop := b.start(func(o *Options) {
			o.Queues, o.Store, o.Instance, o.Sender = silent, untold, "first", receiver
		})
		sent := b.send("x")
		time.Sleep(5 * time.Second)
		silent.on("receive", receiving.rule(failBefore))
		_, stopOther := b.start(func(o *Options) { o.Instance, o.Sender = "second", receiver })
		time.Sleep(4 * time.Minute)
		stop()
		stopOther()
		made := map[string]int64{}
		for _, a := range b.attempts(sent) {
			made[a.Instance] = a.DequeueCount
			want(t, a.Instance+" says that its lease had ended", strings.Contains(a.Explanation, "lease had ended"), a.Instance == "first")
		}
		want(t, "attempts", len(made), 2)
		want(t, "receives of the first", made["first"], 1)
		want(t, "receives of the second", made["second"], 2)
		want(t, "numbers that the receiver was told", fmt.Sprint(receiver.numbers()), "[1 2]")
		want(t, "numbers on record", fmt.Sprint(b.numbers(sent)), "[1 2]")
	})
}

// The first one had its answer long before its lease ended, and could put it on record only after the second
// had POSTed the message too.
func TestAnAttemptThatIsWrittenAfterItsLeaseSaysSo(t *testing.T) { // C113
	inBubble(t, func(b *bench) {
		queues, store, cut := &faultyQueues{Service: b.db.Queues()}, &faultyStore{Store: b.db}, &outage{}
		sent := b.send("x")
		_, stop := b.start(func(o *Options) {
			o.Queues, o.Store, o.Instance = queues, store, "first"
			o.Sender = &scripted{takes: 2 * time.Second, answer: statuses(204)}
		})
		time.Sleep(time.Second)
		for _, call := range []string{"receive", "renew", "complete", "abandon", "peek"} {
			queues.on(call, cut.rule(failBefore))
		}
		for _, call := range []string{"record", "load", "note"} {
			store.on(call, cut.rule(failBefore))
		}
		time.Sleep(5 * time.Second)
		_, stopOther := b.start(func(o *Options) {
			o.Instance = "second"
			o.Sender = &scripted{takes: time.Second, answer: statuses(204)}
		})
		time.Sleep(3 * time.Minute)
		cut.end()
		time.Sleep(time.Minute)
		stop()
		stopOther()
		attempts := b.attempts(sent)
		want(t, "attempts", len(attempts), 2)
		for _, a := range attempts {
			said := regexp.MustCompile(`Written late, 3m\d+s after the answer`).MatchString(a.Explanation)
			if said != (a.Instance == "first") {
				t.Errorf("the attempt of the %s says: %s", a.Instance, a.Explanation)
			}
		}
	})
}

// lateRecord is a store whose first record takes so long, whatever its caller waits for, as one of
// a process that stands still. after is called before the record is written.
type lateRecord struct {
	Store
	late  time.Duration
	once  sync.Once
	after func()
}

func (s *lateRecord) Record(ctx context.Context, r tables.Record) error {
	s.once.Do(func() {
		time.Sleep(s.late)
		s.after()
	})
	return s.Store.Record(context.WithoutCancel(ctx), r)
}

// A process stands still between an answer and its record, for longer than its lease. Another one
// ends the delivery meanwhile: there is one end, and not a dead letter of each.
func TestProcessThatStoodStillMakesNoDeadLetterOfWhatAnotherEnded(t *testing.T) {
	for name, second := range map[string]struct {
		status, letters int
		state           tables.State
	}{"given up": {400, 1, tables.DeadLettered}, "delivered": {200, 0, tables.Delivered}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				silent, renewing := &faultyQueues{Service: b.db.Queues()}, &outage{}
				silent.on("renew", renewing.rule(failBefore))
				standing := &lateRecord{Store: b.db, late: 80 * time.Second, after: renewing.end}
				_, stop := b.start(func(o *Options) {
					o.Queues, o.Store, o.Instance, o.Sender = silent, standing, "first", &scripted{answer: statuses(400)}
				})
				sent := b.send("x")
				time.Sleep(5 * time.Second)
				receiving := &outage{}
				silent.on("receive", receiving.rule(failBefore))
				_, stopOther := b.start(func(o *Options) { o.Instance, o.Sender = "second", &scripted{answer: statuses(second.status)} })
				time.Sleep(4 * time.Minute)
				stop()
				stopOther()
				want(t, "attempts", len(b.attempts(sent)), 2)
				want(t, "dead letters", len(b.deadLetters()), second.letters)
				want(t, "state", b.delivery(sent, "wh_a").State, second.state)
				want(t, "messages left", b.total(testQueue), 0)
			})
		})
	}
}
