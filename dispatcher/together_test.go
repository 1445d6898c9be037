package dispatcher

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

var _ RecordedCompletes = (*sqlite.Queues)(nil)

// faultyCompletes is the bench's store as one that completes and records in one step. A
// fault of either half is one of the whole.
type faultyCompletes struct {
	b *bench
	faults
	before func(m *queue.Message) // comes first
}

func (f *faultyCompletes) CompleteRecorded(ctx context.Context, queueName string, m *queue.Message, r tables.Record) error {
	if f.b.queues.ruled("complete") || f.b.store.ruled("record") {
		return errBefore
	}
	now := *m
	now.Lease = queue.NewLease(m.Lease.Receipt(), time.Now(), m.Lease.Granted()) // it is read when the call begins
	if f.before != nil {
		f.before(m)
	}
	return f.do("complete-recorded", func() error { return f.b.db.Queues().CompleteRecorded(ctx, queueName, &now, r) })
}

func TestLastRecordGoesWithTheDelete(t *testing.T) {
	inBubble(t, func(b *bench) {
		var c *counters
		d, stop := b.start(func(o *Options) { c = newCounters(o) })
		sent := b.send("x")
		time.Sleep(10 * time.Second)
		stop()
		want(t, "steps", b.together.count("complete-recorded"), 1)
		want(t, "records by themselves", b.store.count("record"), 0)
		want(t, "deletes by themselves", b.queues.count("complete"), 0)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "attempts", len(b.attempts(sent)), 1)
		want(t, "deletions", statusOf(d, testQueue).Deletions.Successful, 1)
		want(t, "counted", c.sum(t, "pushlease.messages.deleted", "result", "deleted"), 1)
	})
}

// What the other webhooks answered is durable while the last one is still at it.
func TestOnlyTheLastOfSeveralRecordsWaitsForTheDelete(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", nil)
		b.register("wh_c", nil)
		slow := senderFunc(func(ctx context.Context, r webhook.Request) webhook.Result {
			return webhook.Result{Status: 200}
		})
		_, stop := b.start(func(o *Options) {
			o.Sender = delaying{slow, map[string]time.Duration{"wh_b": 20 * time.Second, "wh_c": 10 * time.Second}}
		})
		sent := b.send("x")
		time.Sleep(15 * time.Second)
		want(t, "the first one's state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "the second one's state", b.delivery(sent, "wh_c").State, tables.Delivered)
		want(t, "the last one's state", b.delivery(sent, "wh_b").State, "")
		want(t, "messages left", b.total(testQueue), 1)
		time.Sleep(15 * time.Second)
		stop()
		want(t, "the last one's state", b.delivery(sent, "wh_b").State, tables.Delivered)
		want(t, "attempts", len(b.attempts(sent)), 3)
		want(t, "records by themselves", b.store.count("record"), 2)
		want(t, "steps", b.together.count("complete-recorded"), 1)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// delaying lets the POST to each webhook take as long as it says.
type delaying struct {
	Sender
	takes map[string]time.Duration
}

func (s delaying) Send(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
	time.Sleep(s.takes[w.ID])
	return s.Sender.Send(ctx, w, r)
}

// Where the message is not done with, or something else comes before its delete, the
// record is written first.
func TestRecordThatSomethingElseDependsOnIsWrittenFirst(t *testing.T) {
	tests := map[string]func(b *bench) func(*Options){
		"another webhook fails": func(b *bench) func(*Options) {
			b.register("wh_b", nil)
			answers := map[string]int{"wh_a": 200, "wh_b": 500}
			return func(o *Options) {
				o.Sender = sendFunc(func(w *webhook.Webhook) webhook.Result { return webhook.Result{Status: answers[w.ID]} })
			}
		},
		"another webhook is disabled": func(b *bench) func(*Options) {
			b.register("wh_b", func(r *tables.Registration) { r.Enabled = false })
			return nil
		},
		"the event is claimed": func(b *bench) func(*Options) {
			return func(o *Options) { o.ByEvent = func(string) bool { return true } }
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				_, stop := b.start(prepare(b))
				sent := b.send(`{"specversion":"1.0","id":"1","source":"/s","type":"t"}`)
				time.Sleep(2 * time.Second)
				stop()
				want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
				want(t, "steps", b.together.count("complete-recorded"), 0)
			})
		})
	}
	t.Run("a replay is to be ended", func(t *testing.T) {
		inBubble(t, func(b *bench) {
			b.sender.answer = statuses(400, 200)
			_, stop := b.start(nil)
			b.send("x")
			time.Sleep(10 * time.Second)
			b.replay(b.deadLetters()[0].ID, "token-1")
			time.Sleep(10 * time.Second)
			stop()
			want(t, "status", b.deadLetters()[0].Status, tables.Replayed)
			want(t, "steps", b.together.count("complete-recorded"), 0)
		})
	})
}

// sendFunc answers by webhook.
type sendFunc func(w *webhook.Webhook) webhook.Result

func (f sendFunc) Send(_ context.Context, w *webhook.Webhook, _ webhook.Request) webhook.Result {
	res := f(w)
	res.StartedAt = time.Now()
	return res
}

func TestStepThatFailedIsTakenApart(t *testing.T) {
	tests := []struct {
		name    string
		what    fault
		records int
		deletes int
		left    int64 // in the end
		result  string
		broken  string // the half that fails too
	}{
		{"before it took effect", failBefore, 1, 1, 0, "deleted", ""},
		{"after it took effect", answerLost, 1, 1, 0, "deleted", ""}, // the delete that follows finds nothing
		{"and records can't be written", failBefore, 0, 1, 0, "deleted", "record"},
		{"and deletes can't be made", failBefore, 1, 0, 1, "failed", "complete"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				var c *counters
				b.together.on("complete-recorded", always(tt.what))
				down := &outage{}
				switch tt.broken {
				case "record":
					b.store.on("record", down.rule(failBefore))
				case "complete":
					b.queues.on("complete", down.rule(failBefore))
				}
				d, stop := b.start(func(o *Options) { o.Drain = time.Second; c = newCounters(o) })
				sent := b.send("x")
				time.Sleep(40 * time.Second)
				want(t, "messages left", b.total(testQueue), tt.left)
				if tt.broken == "record" {
					want(t, "state", b.delivery(sent, "wh_a").State, "")
					down.end()
					time.Sleep(10 * time.Second) // it was kept, and is written now
				}
				want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
				want(t, "attempts", len(b.attempts(sent)), 1)
				stop()
				n := statusOf(d, testQueue).Deletions
				want(t, "deletions", n.Total, 1)
				want(t, "counted", c.sum(t, "pushlease.messages.deleted", "result", tt.result), 1)
				if tt.broken == "" {
					want(t, "records by themselves", b.store.count("record"), tt.records)
					want(t, "deletes by themselves", b.queues.count("complete"), tt.deletes)
				}
				want(t, "POSTs", b.sender.count(), 1)
			})
		})
	}
}

// The lease is lost after the answer: the record is written, and no other holder POSTs.
func TestRecordIsWrittenWhenTheLeaseIsLostAtTheDelete(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.together.before = func(m *queue.Message) { // somebody else deletes it
			if err := b.queue(testQueue).Complete(b.t.Context(), m); err != nil {
				t.Error(err)
			}
		}
		d, stop := b.start(nil)
		sent := b.send("x")
		time.Sleep(10 * time.Second)
		stop()
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "attempts", len(b.attempts(sent)), 1)
		n := statusOf(d, testQueue).Deletions
		want(t, "failed", n.Failed, 1)
		want(t, "failure", n.LastFailures[0].Error, "lease_lost")
		want(t, "records by themselves", b.store.count("record"), 0)
	})
}

// While storage is silent the lease ends, and this process receives the message anew. It
// is still in work: nothing tells by then that it was delivered.
func TestMessageThatComesBackBeforeItsLastRecordIsNotPostedAgain(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.queues.on("renew", always(failBefore))
		b.together.before = func(*queue.Message) { time.Sleep(4500 * time.Millisecond) }
		d, stop := b.start(func(o *Options) { o.Lease, o.PollMax = 2*time.Second, 500*time.Millisecond })
		sent := b.send("x")
		time.Sleep(time.Minute)
		stop()
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "attempts", len(b.attempts(sent)), 1)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "deletes that failed", statusOf(d, testQueue).Deletions.Failed, 0) // it was not left to come back once more
	})
}

// Whoever reads the log line of an attempt may rely on its record.
func TestAttemptIsLoggedOnceItIsOnRecord(t *testing.T) {
	inBubble(t, func(b *bench) {
		const line = `"msg":"attempt"`
		b.together.before = func(*queue.Message) {
			if strings.Contains(b.log.String(), line) {
				t.Error("the attempt is in the log before its record was written")
			}
		}
		_, stop := b.start(nil)
		b.send("x")
		time.Sleep(10 * time.Second)
		stop()
		want(t, "lines", strings.Count(b.log.String(), line), 1)
	})
}

// C95: what a person must mend stands in the log with the first attempt, not only when the message is given up.
func TestTheLogLineOfAnAttemptNamesTheCause(t *testing.T) {
	for cause, result := range map[string]webhook.Result{
		"the certificate has expired":                                  {ErrorClass: "tls", Error: "the certificate has expired"},
		"redirects are not followed; this one points to other.example": {Status: 301, RedirectHost: "other.example"},
		"": {Status: 503},
	} {
		inBubble(t, func(b *bench) {
			b.sender.answer = func(webhook.Request, int) webhook.Result { return result }
			_, stop := b.start(nil)
			b.send("x")
			time.Sleep(2 * time.Second)
			stop()
			if line := `"cause":"` + cause + `"`; !strings.Contains(b.log.String(), line) {
				t.Errorf("no line has %s", line)
			}
		})
	}
}
