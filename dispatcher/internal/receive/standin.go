package receive

import (
	"context"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
)

const (
	// lateReceive is when a receive that storage has not answered is late, lateTimes that it takes so many times
	// as long as usual: then another one is made meanwhile.
	lateReceive = 250 * time.Millisecond
	lateTimes   = 4
	// tookWeight is how many receives tell how long they take as a rule.
	tookWeight = 8
)

// unlessLate starts a stand-in when the receive that is to be made is late: one storage transaction in a
// thousand or so takes seconds, and what is on the queue would wait for it (C68). answered has to be
// called when it has ended. There is none where storage did not answer the receive before either.
func (p *poller) unlessLate(ctx context.Context) (answered func()) {
	after := p.lateAfter()
	if after == 0 {
		return func() {}
	}
	late, end := context.WithCancel(ctx)
	begun := make(chan struct{})
	t := time.AfterFunc(after, func() { defer close(begun); p.startReceiver(func() { p.standIn(ctx, late) }) })
	return func() {
		end()
		if !t.Stop() {
			<-begun
		}
	}
}

func (p *poller) lateAfter() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.poll.Err != nil || p.usual == 0 {
		return 0
	}
	return max(lateReceive, lateTimes*p.usual)
}

// standIn receives until the receive that is late has ended, and late with it.
func (p *poller) standIn(ctx, late context.Context) {
	for empty := 0; ; {
		n := p.seats.Acquire(late)
		if n == 0 {
			return
		}
		got, err := p.receiveAndStart(ctx, n)
		if err != nil {
			return
		}
		if empty++; got > 0 {
			empty = 0
		} else if !retry.Sleep(late, pollPause(empty, p.PollMin, p.longestPause())) {
			return
		}
	}
}
