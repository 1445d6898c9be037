package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// street sends to webhooks by the kind that their id begins with, and keeps what became of
// messages for the good ones.
type street struct {
	receivers receivers

	mu     sync.Mutex
	waited []time.Duration // from when a message was sent to its POST
	last   time.Time
}

func (s *street) Send(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
	kind, _, _ := strings.Cut(w.ID, "_")
	if kind == "good" {
		var sent time.Time
		if err := sent.UnmarshalText(r.Body[len(`{"at":"`) : len(r.Body)-len(`"}`)]); err != nil {
			panic(err)
		}
		s.mu.Lock()
		s.last = time.Now()
		s.waited = append(s.waited, s.last.Sub(sent))
		s.mu.Unlock()
	}
	return s.receivers[kind].send(ctx)
}

func (s *street) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waited)
}

// p99 is of the last n POSTs to the good ones.
func (s *street) p99(n int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := slices.Sorted(slices.Values(s.waited[len(s.waited)-n:]))
	return last[n*99/100]
}

// neighbourhood is some queues with good webhooks, and what is beside them.
type neighbourhood struct {
	queues int
	good   int    // webhooks of each queue
	bad    string // kind of one more on each queue; none when empty
	apart  bool   // it is on a queue of its own
}

const (
	saturating = 400 // messages of a backlog
	steady     = 200 // messages that come at steadyPause after it
)

// measure returns how long the good webhooks took for a backlog, and the 99th percentile
// of what messages waited that came steadily after it, nearly as fast as they are taken.
func (n neighbourhood) measure(t *testing.T) (backlog, p99 time.Duration) {
	t.Helper()
	inBubble(t, func(b *bench) {
		timeout := webhook.Result{ErrorClass: string(policy.ClassTimeout)}
		s := &street{receivers: receivers{
			"good": {takes: after(20 * time.Millisecond), answer: answers(200)},
			"hang": {takes: after(30 * time.Second), answer: func(time.Time) webhook.Result { return timeout }},
			"slow": {takes: after(time.Second), answer: answers(200)},
			"busy": {takes: after(5 * time.Millisecond), answer: func(time.Time) webhook.Result {
				return webhook.Result{Status: 429, RetryAfter: "20"}
			}},
		}}
		if err := b.db.DeleteWebhook(b.t.Context(), b.webhook.ID, b.webhook.ETag); err != nil {
			t.Fatal(err)
		}
		on := func(queueName string) func(*tables.Registration) {
			return func(r *tables.Registration) { limited(nil)(r); r.Queue = queueName }
		}
		var names, apart []string
		for q := range n.queues {
			name := fmt.Sprint("street-", q)
			names = append(names, name)
			for i := range n.good {
				b.register(fmt.Sprintf("good_%d_%d", q, i), on(name))
			}
			if n.apart {
				name = fmt.Sprint("apart-", q)
				apart = append(apart, name)
			}
			if n.bad != "" {
				b.register(fmt.Sprintf("%s_%d", n.bad, q), on(name))
			}
		}
		send := func(i int) {
			for _, list := range [][]string{names, apart} {
				if len(list) == 0 {
					continue
				}
				text := fmt.Appendf(nil, `{"at":%q}`, time.Now().Format(time.RFC3339Nano))
				if _, err := b.queue(list[i%len(list)]).Send(b.t.Context(), text, queue.SendOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range saturating {
			send(i)
		}
		start := time.Now()
		d, stop := b.start(func(o *Options) { o.Sender = s })
		for s.count() < saturating*n.good && time.Since(start) < time.Hour {
			time.Sleep(5 * time.Millisecond)
		}
		backlog = s.last.Sub(start)
		time.Sleep(time.Second) // the last of the backlog is still in flight
		for i := range steady {
			send(i)
			d.Wake(names[i%len(names)])
			time.Sleep(time.Millisecond)
		}
		for s.count() < (saturating+steady)*n.good && time.Since(start) < time.Hour {
			time.Sleep(5 * time.Millisecond)
		}
		p99 = s.p99(steady * n.good)
		want(t, "dead letters", len(b.deadLetters()), 0)
		stop()
		wantAtRest(t, d)
	})
	return backlog, p99
}

// What a webhook that takes nothing, or is slow, costs its neighbours: at most a tenth of
// their rate, and of the time that their messages wait.
func TestABadWebhookCostsItsNeighboursNothing(t *testing.T) {
	one := neighbourhood{queues: 1, good: 1}
	many := neighbourhood{queues: 10, good: 9}
	with := func(n neighbourhood, bad string, apart bool) neighbourhood {
		n.bad, n.apart = bad, apart
		return n
	}
	type figures struct{ took, p99 time.Duration }
	alone := map[neighbourhood]figures{}
	for _, n := range []neighbourhood{one, many} {
		took, p99 := n.measure(t)
		alone[n] = figures{took, p99}
	}
	for name, pair := range map[string][2]neighbourhood{
		"hangs":                            {one, with(one, "hang", false)},
		"takes a second":                   {one, with(one, "slow", false)},
		"answers 429":                      {one, with(one, "busy", false)},
		"hangs on its own queue":           {one, with(one, "hang", true)},
		"takes a second, on its own queue": {one, with(one, "slow", true)},
		"one in ten hangs":                 {many, with(many, "hang", false)},
		"one in ten takes a second":        {many, with(many, "slow", false)},
	} {
		t.Run(name, func(t *testing.T) {
			before := alone[pair[0]]
			took, p99 := pair[1].measure(t)
			t.Logf("a backlog took %s alone and %s beside it; p99 %s and %s", before.took, took, before.p99, p99)
			if took > before.took*11/10 {
				t.Errorf("a backlog took %s alone and %s beside it", before.took, took)
			}
			if p99 > before.p99*11/10 {
				t.Errorf("p99 was %s alone and is %s beside it", before.p99, p99)
			}
		})
	}
}

// What is held beside a POST goes into its record.
func TestWhatIsHeldCostsItsNeighbourNoTransaction(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.register("wh_b", func(r *tables.Registration) { r.Enabled = false })
		b.register("wh_c", limited(nil))
		rs := receivers{
			"wh_a": {takes: after(20 * time.Millisecond), answer: answers(200)},
			"wh_c": {takes: after(0), answer: func(time.Time) webhook.Result { return webhook.Result{Status: 429, RetryAfter: "3600"} }},
		}
		_, stop := b.start(func(o *Options) { o.Sender = rs })
		defer stop()
		b.send("x")
		time.Sleep(5 * time.Second)
		records := b.store.count("record")
		start := time.Now()
		sent := b.send("y")
		time.Sleep(5 * time.Second)
		want(t, "records", b.store.count("record")-records, 1)
		rs["wh_a"].mu.Lock()
		want(t, "wait", rs["wh_a"].at[1].Sub(start) <= 3*time.Second, true)
		rs["wh_a"].mu.Unlock()
		for id, state := range map[string]tables.State{"wh_a": tables.Delivered, "wh_b": tables.Held, "wh_c": tables.Held} {
			want(t, "state of "+id, b.delivery(sent, id).State, state)
		}
	})
}
