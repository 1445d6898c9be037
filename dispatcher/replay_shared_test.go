package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/queue"
)

// Two replays of one generation and day share a record (ADR 0029). The later one is delivered at its
// first attempt, the earlier one was at its second.
func TestALaterReplayIsNotTakenForTheEarlierOneOfItsGeneration(t *testing.T) {
	for name, restart := range map[string]bool{"in one process": false, "in another process": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.sender.answer = statuses(400, 400, 500, 200, 200, 200, 200)
				_, stop := b.start(nil)
				sent := b.send("x")
				time.Sleep(10 * time.Second)
				x := b.deadLetters()[0].ID
				b.replay(x, "token-1") // generation 1: 400
				time.Sleep(time.Minute)
				y := ""
				for _, dl := range b.deadLetters() {
					if dl.ID != x {
						y = dl.ID
					}
				}
				b.replay(y, "token-2") // generation 2: 500, 200
				time.Sleep(10 * time.Minute)
				want(t, "POSTs before", b.sender.count(), 4)
				if restart {
					stop()
					_, stop = b.start(func(o *Options) { o.Instance = "other" })
				}
				down := &outage{} // its end is not noted, so that the message comes back
				b.store.on("update-dead-letter", down.rule(failBefore))
				b.replay(x, "token-3") // generation 2 as well: 200
				time.Sleep(10 * time.Minute)
				down.end()
				time.Sleep(10 * time.Minute)
				stop()
				want(t, "POSTs", b.sender.count(), 5)
				d := b.delivery(sent, "wh_a")
				want(t, "attempts of the last replay", d.Attempts, 1)
				want(t, "its day", d.Day.After(time.Date(2000, 1, 1, 0, 11, 0, 0, time.UTC)), true)
			})
		})
	}
}

// A host brings a replay again of which this process alone knows that it was delivered.
func TestTheLimitRefusesNoReplayWhoseRecordTheStoreLacks(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400, 200)
		_, stopPolling := b.start(nil)
		b.send("x")
		time.Sleep(10 * time.Second)
		id := b.deadLetters()[0].ID
		stopPolling()

		down := &outage{}
		d, stop := b.run(b.options(func(o *Options) { o.MaxInFlight = 2 }), hostedAlone)
		defer stop()
		b.replay(id, "token-1")
		b.store.on("record", down.rule(failBefore))
		b.store.on("update-dead-letter", down.rule(failBefore))
		b.together.on("complete-recorded", down.rule(failBefore))
		pointer := b.receiveOne()
		if got := b.hand(d, pointer); got.result != settle.Abandoned {
			t.Fatalf("a replay whose end can't be noted: %+v", got)
		}
		want(t, "POSTs", b.sender.count(), 2)

		b.queues.on("complete", down.rule(failBefore))
		ended := make(chan invoked, 2)
		for range 2 { // as many as may be in hand
			b.send("stuck")
			m := b.receiveOne()
			go func() { ended <- b.hand(d, m) }()
			time.Sleep(time.Second)
		}
		var back *queue.Message
		for back == nil || back.ID != pointer.ID {
			time.Sleep(time.Second)
			if messages, err := b.queue(testQueue).Receive(b.t.Context(), 1, time.Hour); err != nil {
				t.Fatal(err)
			} else if len(messages) == 1 {
				back = messages[0]
			}
		}
		if got := b.hand(d, back); got.err != nil || got.result == settle.PutOff {
			t.Errorf("the replay that came back: %+v", got)
		}
		down.end()
		time.Sleep(time.Hour)
		<-ended
		<-ended
	})
}
