package receive

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/queue"
)

func TestDueTimesAreKeptInOrderAndBounded(t *testing.T) {
	var d due
	now := time.UnixMilli(1_000_000)
	want(t, "none", d.next(now).IsZero(), true)
	for id, after := range map[string]time.Duration{"a": time.Minute, "b": 3 * time.Second, "c": 3*time.Second + time.Millisecond} {
		d.note(id, 1, now.Add(after))
	}
	want(t, "the first", d.next(now), time.UnixMilli(1_003_250))
	want(t, "the one after that has passed", d.next(now.Add(4*time.Second)), time.UnixMilli(1_060_250))
	for i := range 2 * maxDue {
		d.note(strconv.Itoa(i), 1, time.Now().Add(time.Duration(i+1)*time.Hour))
	}
	want(t, "kept", len(d.of), maxDue)
}

func TestWhatCameBackBeforeItsTimeIsNotLookedFor(t *testing.T) {
	var d due
	now := time.UnixMilli(1_000_000)
	d.note("a", 1, now.Add(3*time.Second))
	d.note("b", 1, now.Add(3*time.Second))
	d.note("c", 1, now.Add(time.Minute))
	d.back("a")
	want(t, "while another is due then", d.next(now), time.UnixMilli(1_003_250))
	d.back("b")
	d.back("b") // once is enough
	want(t, "the next one", d.next(now), time.UnixMilli(1_060_250))
	d.note("c", 2, now.Add(2*time.Minute))
	d.note("c", 1, now.Add(time.Minute)) // storage's answer to the giving back before came late
	want(t, "one that was given back again", d.next(now), time.UnixMilli(1_120_250))
	d.back("c")
	want(t, "none", d.next(now).IsZero(), true)
	want(t, "kept", len(d.of)+len(d.steps), 0)
}

// A look takes as long as storage takes, which may judge it before a message is visible and answer after.
func TestAMessageThatBecomesVisibleDuringALookIsLookedForAnew(t *testing.T) {
	var d due
	looked := time.UnixMilli(1_000_000)
	d.note("a", 1, looked.Add(time.Second))
	want(t, "visible while the look was under way", d.next(looked), time.UnixMilli(1_001_250))
	want(t, "a look that began after that", d.next(looked.Add(2*time.Second)).IsZero(), true)
}

// Storage hides a message for whole seconds. It is looked for when it is visible, and not before, however
// rarely the queue is polled otherwise.
func TestWhatIsGivenBackForAPartOfASecondIsLookedForWhenItIsVisible(t *testing.T) {
	for _, delay := range []time.Duration{20 * time.Second, 20*time.Second + time.Millisecond, 20*time.Second + 240*time.Millisecond, 20*time.Second + 999*time.Millisecond} {
		b := &bench{}
		var first time.Time
		var waited []time.Duration
		inBubble(t, func(o *Options) {
			o.PollMax = time.Hour
			o.Handle = func(ctx context.Context, q queue.Queue, m *queue.Message, terms delivery.Terms, g *admission.Grant) settle.Result {
				if first.IsZero() {
					first = time.Now()
					if err := q.Abandon(context.WithoutCancel(ctx), m, delay); err != nil {
						t.Error(err)
					}
					b.GivenBack(testQueue, m, delay, false)
					return settle.Abandoned
				}
				waited = append(waited, time.Since(first))
				return b.handle(ctx, q, m, terms, g)
			}
		}, func(made *bench) {
			*b = bench{Receiver: made.Receiver, t: made.t, db: made.db, answer: made.answer}
			b.register(true)
			b.send(1, queue.SendOptions{})
			stop := b.start()
			time.Sleep(10 * time.Minute)
			stop()
			if len(waited) != 1 || waited[0] > delay+1500*time.Millisecond {
				t.Errorf("given back for %s: received again after %v", delay, waited)
			}
		})
	}
}

// A message that another instance is to receive is not looked for: who gave it back would be the first to find it.
func TestWhatAnotherInstanceIsToReceiveIsNotLookedFor(t *testing.T) {
	for _, led := range []bool{false, true} {
		inBubble(t, func(*Options) {}, func(b *bench) {
			b.register(true)
			stop := b.start()
			defer stop()
			time.Sleep(time.Second)
			b.GivenBack(testQueue, &queue.Message{ID: "m", DequeueCount: 1}, time.Minute, led)
			if looks := !b.poller(testQueue).due.next(time.Now()).IsZero(); looks == led {
				t.Errorf("led %v: it is looked for: %v", led, looks)
			}
		})
	}
}
