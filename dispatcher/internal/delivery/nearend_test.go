package delivery

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// A replay that was asked for one webhook has no word about the message as a whole: what was decided of that webhook stands, but for what another
// holder has delivered.
func TestNearItsEndAReplayToOneWebhookKeepsItsDeadLetter(t *testing.T) {
	for name, tt := range map[string]struct {
		there     bool
		meanwhile tables.State
		letters   string
	}{
		"its webhook is gone":                        {false, "", "[wh_b false]"},
		"its webhook is gone, and had the message":   {false, tables.Delivered, "[]"},
		"its POSTs end the process":                  {true, "", "[wh_b false]"},
		"its POSTs end the process, and one was got": {true, tables.Delivered, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			d, p, _ := givenUpNearTheEnd(t, true)
			p.replay, p.terms.Held = &tables.DeadLetter{MessageKey: p.key, WebhookID: "wh_b"}, time.Minute
			if p.targets = p.targets[1:]; !tt.there {
				p.targets = nil
			}
			decided := d.wholes.giveUpMessage(p, history{}, p.targets, policy.PoisonMessage)
			if !tt.there {
				decided = d.wholes.untaken(p, history{}, false)
			}
			if tt.meanwhile != "" {
				other := p.newDelivery("wh_b")
				other.State, other.UpdatedAt = tt.meanwhile, time.Now()
				d.Journal.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{other}})
			}
			got := d.afterOthers(t.Context(), p, decided)
			want(t, "dead letters", lettersOf(got), tt.letters)
			want(t, "action", got.Action, policy.Complete)
			want(t, "the replay ends", got.ReplayEnds != nil, true)
		})
	}
}

// Where nobody looks at the queue again in time, what ends by no answer is decided now, minutes before the end; else with the next receive.
func TestNearItsEndIsAskedByWhenSomebodyLooksAgain(t *testing.T) {
	d, _ := newDeliverer(t, answers{}, "wh_a")
	d.LookGap = func(string) time.Duration { return 4 * time.Minute }
	for left, anew := range map[time.Duration]bool{10 * time.Second: true, 4 * time.Minute: true, 5 * time.Minute: false} {
		m := received("m")
		m.InsertedAt, m.ExpiresAt = time.Now().Add(-time.Hour), time.Now().Add(left)
		o := d.deliverNow(t, m)
		had := tables.Delivery{MessageKey: o.Records[0].Deliveries[0].MessageKey, WebhookID: "wh_a", State: tables.Delivered, UpdatedAt: time.Now()}
		given := had
		given.State = tables.DeadLettering
		d.Journal.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{had}})
		decided := &Outcome{Action: policy.Complete, Records: records([]tables.Delivery{given}), DeadLetters: []settle.DeadLetter{{Delivery: given}}}
		want(t, left.String()+" before the end: decided anew", o.DecideAnew(t.Context(), decided), anew)
		want(t, left.String()+" before the end: dead letters of what another one delivered", len(decided.DeadLetters) == 0, anew)
	}
}
