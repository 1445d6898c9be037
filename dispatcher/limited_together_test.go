package dispatcher

import (
	"testing"
	"time"
)

// Two instances receive a queue whose messages go to a webhook with a limit and to one without. The second one has everything soon, and then
// all that is left is held for the first, half of it by the instance that follows the other one: the limit is used all the same. Which of the two
// leads is found by chance: of some 60 backlogs one is sent at two thirds of the limit in this time, and the share is that of three backlogs.
func TestTwoInstancesSendWhatIsHeldForALimitedWebhook(t *testing.T) {
	const backlogs = 3
	taken, refused := 0, 0
	for range backlogs {
		inBubble(t, func(b *bench) {
			limited(nil)(&b.webhook)
			b.webhook = b.update(b.webhook)
			b.register("wh_b", limited(nil))
			var c limitCount
			both := receivers{
				"wh_a": {takes: after(time.Millisecond), answer: c.by(strictly(50*time.Millisecond, 503))},
				"wh_b": {takes: after(5 * time.Millisecond), answer: answers(200)},
			}
			const messages = 1400
			b.sendNumbered(messages)
			for _, name := range []string{"one", "two"} {
				_, stop := b.start(func(o *Options) { o.Sender, o.Instance = both, name })
				defer stop()
			}
			time.Sleep(30 * time.Second) // the rate is found by then
			want(t, "POSTs to the webhook without a limit", both["wh_b"].count(), messages)
			ok, no := c.over(35 * time.Second)
			t.Logf("%.0f %% of the limit, %.1f %% refused", 100*float64(ok)/(20*35), 100*float64(no)/float64(ok+no))
			taken, refused = taken+ok, refused+no
			want(t, "dead letters", len(b.deadLetters()), 0)
		})
	}
	share, vain := float64(taken)/(backlogs*20*35), float64(refused)/float64(taken+refused)
	if share < 0.75 || vain > 0.2 {
		t.Errorf("%.0f %% of the limit and %.1f %% refused, want 75 and at most 20", 100*share, 100*vain)
	}
}
