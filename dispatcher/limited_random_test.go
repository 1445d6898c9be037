package dispatcher

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/webhook"
)

// picky refuses single messages, or at random, whatever the pace.
type picky struct {
	refuses func(n int) bool

	mu             sync.Mutex
	taken          map[int]bool
	posts, refused int
}

func (p *picky) Send(_ context.Context, _ *webhook.Webhook, req webhook.Request) webhook.Result {
	start := time.Now()
	var body struct{ N int }
	if err := json.Unmarshal(req.Body, &body); err != nil {
		panic(err)
	}
	time.Sleep(20 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.posts++
	res := webhook.Result{Status: 200, StartedAt: start, Duration: time.Since(start)}
	if p.refuses(body.N) {
		p.refused++
		res.Status = 429
	} else {
		p.taken[body.N] = true
	}
	return res
}

// sent is how many POSTs there were.
func (p *picky) sent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.posts
}

func (p *picky) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.taken)
}

// A receiver that refuses 30 % of its POSTs at random gets its messages all the same, and none of
// them becomes a dead letter.
func TestAReceiverThatRefusesAtRandomGetsItsMessages(t *testing.T) {
	inBubble(t, func(b *bench) {
		limited(nil)(&b.webhook)
		b.webhook = b.update(b.webhook)
		rng := rand.New(rand.NewPCG(1, 2))
		r := &picky{refuses: func(int) bool { return rng.Float64() < 0.3 }, taken: map[int]bool{}}
		const messages = 2000
		b.sendNumbered(messages)
		d, stop := b.start(func(o *Options) { o.Sender = r })
		time.Sleep(5 * time.Minute)
		t.Logf("%d of %d after 5 minutes, with %d POSTs", r.count(), messages, r.sent())
		if r.count() < messages/2 {
			t.Errorf("%d of %d messages were taken within 5 minutes", r.count(), messages)
		}
		time.Sleep(2 * time.Hour)
		want(t, "messages that were taken", r.count(), messages)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "dead letters", len(b.deadLetters()), 0)
		stop()
		wantAtRest(t, d)
	})
}

// A receiver that refuses most of its POSTs at random is not driven to a standstill: within half a minute it is
// known that the pace is not the reason.
func TestAReceiverThatRefusesMostAtRandomIsSentMoreSoon(t *testing.T) {
	for _, share := range []float64{0.7, 0.9} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				limited(nil)(&b.webhook)
				b.webhook = b.update(b.webhook)
				rng := rand.New(rand.NewPCG(1, 2))
				r := &picky{taken: map[int]bool{}}
				r.refuses = func(int) bool { return r.posts > 5 && rng.Float64() < share } // what takes nothing at first is broken
				b.sendNumbered(400)
				d, stop := b.start(func(o *Options) { o.Sender = r })
				known := 0
				for ; known < 30; known++ {
					if st, _ := d.Webhook("wh_a"); st.Pace.Noise > 0 {
						break
					}
					time.Sleep(time.Second)
				}
				time.Sleep(10 * time.Second)
				t.Logf("known after %d s; %d taken 10 s later, of %d POSTs", known, r.count(), r.sent())
				if known == 30 || r.count() < 20 {
					t.Errorf("known after %d s; %d were taken 10 s later, want 20", known, r.count())
				}
				want(t, "dead letters", len(b.deadLetters()), 0)
				stop()
			})
		})
	}
}

// Two instances find out together that a receiver refuses most of its POSTs at random: none holds what the other is refused for
// the sign of a limit. When they do is chance: of twenty backlogs one is sent at less than this rate still, and the rate is that of three.
func TestTwoInstancesFindOutThatMostIsRefusedAtRandom(t *testing.T) {
	const backlogs = 3
	taken := 0
	for seed := range uint64(backlogs) {
		inBubble(t, func(b *bench) {
			limited(nil)(&b.webhook)
			b.webhook = b.update(b.webhook)
			rng := rand.New(rand.NewPCG(1, 2+seed))
			r := &picky{taken: map[int]bool{}}
			r.refuses = func(int) bool { return r.posts > 5 && rng.Float64() < 0.7 }
			b.sendNumbered(400)
			for _, name := range []string{"one", "two"} {
				_, stop := b.start(func(o *Options) { o.Sender, o.Instance = r, name })
				defer stop()
			}
			time.Sleep(30 * time.Second)
			before := r.count()
			time.Sleep(5 * time.Second)
			t.Logf("%d taken in 30 s, and %d in the next 5 s, of %d POSTs", before, r.count()-before, r.sent())
			taken += r.count() - before
			want(t, "dead letters", len(b.deadLetters()), 0)
		})
	}
	if taken < 15*backlogs {
		t.Errorf("%d were taken in the last 5 s of %d backlogs, want 15 of each", taken, backlogs)
	}
}

// A quota of one customer is met before anything was taken: what the others have is found soon, though it comes behind
// all of the refused ones.
func TestAQuotaThatIsMetFirstHoldsUpTheOthersForAMinuteOrTwo(t *testing.T) {
	inBubble(t, func(b *bench) {
		limited(nil)(&b.webhook)
		b.webhook = b.update(b.webhook)
		const over, others = 20, 200
		r := &picky{refuses: func(n int) bool { return n < over }, taken: map[int]bool{}}
		_, stop := b.start(func(o *Options) { o.Sender = r })
		defer stop()
		for i := range over + others {
			b.send(fmt.Sprintf(`{"n":%d}`, i))
			if i == over {
				time.Sleep(2 * time.Second)
			}
		}
		time.Sleep(2 * time.Minute)
		want(t, "taken of the others", r.count(), others)
		want(t, "dead letters", len(b.deadLetters()), 0)
	})
}

// A receiver with a limit refuses at once, and works on what it takes: refusals come before anything was taken, and
// none of them is the message's fault, also where it has one attempt.
func TestTheFirstRefusalsOfASlowReceiverMakeNoDeadLetters(t *testing.T) {
	inBubble(t, func(b *bench) {
		limited(nil)(&b.webhook)
		b.webhook.Policy.MaxAttempts = 1
		b.webhook = b.update(b.webhook)
		for i := range 40 {
			b.send(fmt.Sprintf(`{"n":%d}`, i))
		}
		r := &quick{allows: strictly(50*time.Millisecond, 503)}
		d, stop := b.start(func(o *Options) { o.Sender = r })
		time.Sleep(time.Minute)
		want(t, "dead letters", len(b.deadLetters()), 0)
		want(t, "messages left", b.total(testQueue), 0)
		stop()
		wantAtRest(t, d)
	})
}

// quick refuses at once, and takes 300 ms for an answer to what it takes.
type quick struct {
	mu     sync.Mutex
	allows func(time.Time) webhook.Result
}

func (q *quick) Send(context.Context, *webhook.Webhook, webhook.Request) webhook.Result {
	start := time.Now()
	q.mu.Lock()
	res := q.allows(start)
	q.mu.Unlock()
	if res.Status == 200 {
		time.Sleep(300 * time.Millisecond)
	} else {
		time.Sleep(5 * time.Millisecond)
	}
	res.StartedAt, res.Duration = start, time.Since(start)
	return res
}

// A receiver that refuses single messages, each time, as for a quota of one of its customers, is
// sent the others as they come. (Where it is sent nothing else for more than a minute it counts
// as broken: docs/adr/0055-limited-is-not-broken.md.)
func TestAReceiverThatRefusesSingleMessagesGetsTheOthersAsTheyCome(t *testing.T) {
	inBubble(t, func(b *bench) {
		limited(nil)(&b.webhook)
		b.webhook = b.update(b.webhook)
		r := &picky{refuses: func(n int) bool { return n%5 == 3 }, taken: map[int]bool{}}
		d, stop := b.start(func(o *Options) { o.Sender = r })
		const messages = 600
		for i := range messages {
			b.send(fmt.Sprintf(`{"n":%d}`, i))
			time.Sleep(200 * time.Millisecond)
		}
		if r.count() < messages*4/5*8/10 {
			t.Errorf("%d of %d were taken when the last one came", r.count(), messages*4/5)
		}
		time.Sleep(5 * time.Minute)
		if r.count() < messages*4/5*99/100 {
			t.Errorf("%d of %d were taken 5 minutes after the last one came", r.count(), messages*4/5)
		}
		stop()
		wantAtRest(t, d)
	})
}
