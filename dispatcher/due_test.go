package dispatcher

import (
	"testing"
	"time"
)

func TestRetriesAreOnTimeHoweverRarelyTheQueueIsPolled(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(500, 500, 500, 200)
		_, stop := b.start(func(o *Options) { o.PollMax = 30 * time.Second })
		time.Sleep(5 * time.Minute) // the queue is idle, and polled rarely
		b.send(`{"a":1}`)
		time.Sleep(10 * time.Minute)
		stop()
		posts := b.sender.posts
		want(t, "POSTs", len(posts), 4)
		for i, delay := range []time.Duration{5 * time.Second, 20 * time.Second, 80 * time.Second} {
			if late := posts[i+1].at.Sub(posts[i].at) - delay; late < 0 || late > time.Second {
				t.Errorf("attempt %d came %s late", i+2, late)
			}
		}
	})
}

// Many messages that are due do not make a storage that fails be asked more often.
func TestDueTimesDoNotCutTheBackoffShort(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(500)
		_, stop := b.start(func(o *Options) { o.PollMax = 30 * time.Second })
		for range 100 {
			b.send(`{"a":1}`)
			time.Sleep(100 * time.Millisecond)
		}
		b.queues.on("receive", always(failBefore))
		before := b.queues.count("receive")
		time.Sleep(5 * time.Minute)
		if n := b.queues.count("receive") - before; n > 30 {
			t.Errorf("%d failing receives in five minutes", n)
		}
		stop()
	})
}
