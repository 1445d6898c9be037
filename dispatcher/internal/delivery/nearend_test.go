package delivery

import (
	"testing"
	"time"

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
			p.m.Lease.Renewed("r", time.Now().Add(-time.Hour), time.Minute)
			got := d.afterOthers(t.Context(), p, decided)
			want(t, "dead letters", lettersOf(got), tt.letters)
			want(t, "action", got.Action, policy.Complete)
			want(t, "the replay ends", got.ReplayEnds != nil, true)
		})
	}
}
