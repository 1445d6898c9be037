package dispatcher

import (
	"testing"
	"time"
)

func TestQueueTellsWhatShareWasDeadLetteredLately(t *testing.T) {
	inBubble(t, func(b *bench) { // R4
		b.sender.answer = statuses(400)
		d, stop := b.start(rarely)
		defer stop()
		status := func(what string, handled, deadLettered int) {
			t.Helper()
			s := d.Queue(testQueue)
			want(t, what+": handled", s.Handled, handled)
			want(t, what+": dead-lettered", s.DeadLettered, deadLettered)
		}
		status("at first", 0, 0)
		b.send("x")
		time.Sleep(2 * time.Minute)
		status("one refused", 1, 1)
		b.sender.answer = statuses(200)
		time.Sleep(time.Hour)
		b.send("x")
		b.send("y")
		time.Sleep(2 * time.Minute)
		status("two delivered in the next hour", 3, 1)
		time.Sleep(time.Hour)
		status("an hour later", 2, 0)
		time.Sleep(3 * time.Hour)
		status("much later", 0, 0)
	})
}
