package receive

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// The pauses of an empty queue are PollMax on average: each receive is paid.
func TestPausesOfAnEmptyQueueVaryAroundTheirLength(t *testing.T) {
	const first, limit = 100 * time.Millisecond, 30 * time.Second
	for n := 1; n < 40; n++ {
		length := limit
		if n < 10 {
			length = min(limit, first<<(n-1))
		}
		var sum time.Duration
		for range 1000 {
			got := pollPause(n, first, limit)
			if got < max(first, length*3/4) || got > length*5/4 {
				t.Fatalf("pause %d is %s, want %s give or take a quarter", n, got, length)
			}
			sum += got
		}
		if mean := sum / 1000; n > 1 && (mean < length*97/100 || mean > length*103/100) {
			t.Errorf("pause %d is %s on average, want %s", n, mean, length)
		}
	}
	if got := pollPause(40, time.Hour, time.Hour); got < time.Hour {
		t.Errorf("a pause of %s is below the shortest", got)
	}
}

// Each of several processes looks as many times more rarely: what all of them cost together, and how long a
// message waits, stays. A queue that nobody has published to yet is an idle one.
func TestProcessesThatPollTogetherLookAsOftenAsOne(t *testing.T) {
	for _, there := range []bool{true, false} {
		for _, pollers := range []int{0, 1, 4} {
			looksTogether(t, pollers, there)
		}
	}
}

func looksTogether(t *testing.T, pollers int, there bool) {
	t.Helper()
	inBubble(t, func(o *Options) {
		o.PollMax = 5 * time.Second
		o.Pollers = func() int { return pollers }
	}, func(b *bench) {
		b.register(true)
		if there {
			b.send(1, queue.SendOptions{})
		}
		stop := b.start()
		time.Sleep(10 * time.Minute) // longer than a lease
		looks, last := 0, time.Time{}
		for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			p, _ := b.Poll(testQueue)
			for _, at := range []time.Time{p.At, p.ErrAt} {
				if at.After(last) {
					looks, last = looks+1, at
				}
			}
		}
		stop()
		usual := 720 / max(pollers, 1)
		if looks < usual*8/10 || looks > usual*12/10 {
			t.Errorf("%d processes, the queue is there %v: this one looked %d times in an hour, want about %d", pollers, there, looks, usual)
		}
	})
}
