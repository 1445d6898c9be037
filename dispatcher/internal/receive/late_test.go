package receive

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// What comes back near its end is looked for when it does, and then more and more often.
func TestLooksForWhatComesBackLateComeMoreOftenTowardsItsEnd(t *testing.T) {
	l, now := newLate(), time.Now()
	const usual = 10 * time.Minute
	note := func(back, end time.Duration) {
		l.note("orders", &queue.Message{InsertedAt: now.Add(-24 * time.Hour), ExpiresAt: now.Add(end)}, back)
	}
	wait := func(after time.Duration) time.Duration {
		return l.wait("orders", now.Add(after), usual).Round(time.Second)
	}
	want(t, "nothing comes back", wait(0), usual)
	note(5*time.Minute, 50*time.Minute)
	want(t, "before it does", wait(2*time.Minute), 3*time.Minute+time.Second)
	want(t, "long before its end", wait(10*time.Minute), 4*time.Minute)
	want(t, "towards it", wait(40*time.Minute), time.Minute)
	want(t, "shortly before it", wait(49*time.Minute), guardInterval)
	note(6*time.Minute, 12*time.Minute)
	want(t, "another one ends earlier", wait(7*time.Minute), 30*time.Second)
	want(t, "nobody knows what ends next", wait(13*time.Minute), guardInterval)
	want(t, "all have ended", wait(51*time.Minute), usual)
}
