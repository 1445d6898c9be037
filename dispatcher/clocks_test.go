package dispatcher

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// A webhook whose registration is dated by a clock that is ahead gets a message whose process was killed before anything was on
// record of it; one that was registered later than clocks may be apart does not.
func TestAWebhookThatWasRegisteredByAClockThatIsAheadGetsItsMessages(t *testing.T) { // I1
	for ahead, gets := range map[time.Duration]tables.State{50 * time.Second: tables.Delivered, 2 * time.Minute: ""} {
		inBubble(t, func(b *bench) {
			b.webhook.CreatedAt = time.Now().Add(ahead)
			b.webhook = b.update(b.webhook)
			b.register("wh_b", nil)
			b.sender.answer = statuses(503, 200)
			time.Sleep(10 * time.Second)
			sent := b.send("x")
			b.killedBeside(func(*Options) {}) // in the POST to wh_a, after the other one's answer
			b.sender.answer = statuses(200)
			_, stop := b.start(func(o *Options) { o.ClocksApart = tables.ClocksApart })
			time.Sleep(5 * time.Minute)
			stop()
			want(t, "state of the one that was tried", b.delivery(sent, "wh_b").State, tables.Delivered)
			want(t, "state of the one whose POST was killed", b.delivery(sent, "wh_a").State, gets)
			want(t, "messages left", b.total(testQueue), 0)
		})
	}
}
