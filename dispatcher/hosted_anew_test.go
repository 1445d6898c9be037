package dispatcher

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// A text that is sent anew is on the queue as often as storage's answer was lost, and POSTed once.
func TestATextThatIsSentAnewUntilStorageAnswersIsPostedOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		const lost = 7
		text, err := queue.EncodeEnvelope(queue.EncodingNone, queue.Body{Bytes: []byte(`{"id":"x"}`), IdempotencyKey: "invocation"})
		if err != nil {
			t.Fatal(err)
		}
		b.queues.on("send", func(n int) fault {
			switch {
			case n == 3: // a refusal says nothing about the sends before it
				return failBefore
			case n <= lost:
				return answerLost
			}
			return 0
		})
		d, stop := b.startHosted()
		defer stop()
		q, err := b.queues.Queue(testQueue)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.SendAnew(b.t.Context(), q, text, time.Hour); err != nil {
			t.Fatal(err)
		}
		want(t, "on the queue", b.total(testQueue), lost)
		for range lost {
			want(t, "an invocation", b.hand(d, b.receiveOne()), invoked{"deleted", nil})
		}
		want(t, "POSTs", b.sender.count(), 1)
	})
}

// What storage refuses before it took effect is the host's to bring again; what storage never
// answers ends with the context, and is told as what it may become.
func TestASendAnewEndsWithARefusalOrItsContext(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, stop := b.startHosted()
		defer stop()
		q, err := b.queues.Queue(testQueue)
		if err != nil {
			t.Fatal(err)
		}
		b.queues.on("send", always(failBefore))
		if _, err := d.SendAnew(b.t.Context(), q, []byte("x"), 0); !errors.Is(err, queue.ErrBusy) {
			t.Errorf("refused: %v", err)
		}
		want(t, "sends", b.queues.count("send"), 1)
		b.queues.on("send", always(answerLost))
		ctx, cancel := context.WithTimeout(b.t.Context(), 4*time.Minute)
		defer cancel()
		start := time.Now()
		if _, err := d.SendAnew(ctx, q, []byte("x"), 0); !errors.Is(err, errLost) {
			t.Errorf("not answered: %v", err)
		}
		want(t, "it took", time.Since(start), 4*time.Minute)
	})
}
