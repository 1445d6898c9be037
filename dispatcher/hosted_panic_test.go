package dispatcher

import (
	"errors"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// An app goes on after a panic, so the message in which it came must not count as in work for
// ever: its next invocation delivers or settles it.
func TestAPanicLeavesNoMessageInWork(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.together.on("complete-recorded", firstCalls(1, panics))
		d, stop := b.run(b.options(func(*Options) {}), hostedAlone)
		defer stop()
		time.Sleep(time.Second)
		b.send("one")
		m := b.receiveOne()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("there was no panic")
				}
			}()
			b.hand(d, m)
		}()
		time.Sleep(11 * time.Minute)
		if got := b.hand(d, b.receiveOne()); got.err != nil || got.result != "deleted" {
			t.Errorf("%+v", got)
		}
		want(t, "messages in work", d.leases.InWork(), 0)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// A give-back whose answer was lost may have taken effect, or the host's own renewal came before it: answered 200, the host
// would delete a message that nobody POSTed by its newest receipt. After an error it releases it, which fails where the
// give-back took effect.
func TestAGiveBackOverTheLimitWhoseAnswerWasLostIsAnError(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, down, ended, stop := b.limited()
		defer stop()
		b.queues.on("abandon", firstCalls(1, answerLost))
		b.send("more")
		if got := b.hand(d, b.receiveOne()); !errors.Is(got.err, queue.ErrLeaseLost) || got.result != "" {
			t.Errorf("%+v", got)
		}
		down.end()
		<-ended
		<-ended
	})
}
