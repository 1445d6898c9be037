package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// Many held messages are looked at more rarely than few: all together cost the same.
func TestHeldMessagesAreLookedAtMoreRarelyTheMoreThereAre(t *testing.T) {
	for _, c := range []struct {
		held   int
		hosted bool
		want   time.Duration
	}{
		{0, false, time.Minute}, {200, false, time.Minute}, {1000, false, 5 * time.Minute},
		{50_000, false, 10 * time.Minute}, {0, true, 10 * time.Minute},
	} {
		if got := holdFor(c.held, c.hosted); got != c.want {
			t.Errorf("holdFor(%d, %t) = %s, want %s", c.held, c.hosted, got, c.want)
		}
	}
}

// However long it would wait, a held message is looked at again before the middle of what is left
// of its life, and with time for a look before it would be given up.
func TestAHeldMessageWaitsNeverPastTheMiddleOfItsLife(t *testing.T) {
	for _, c := range []struct{ life, lookGap, longest time.Duration }{
		{time.Minute, 0, 30 * time.Second},
		{5 * time.Minute, 0, 150 * time.Second},
		{12 * time.Minute, 0, 6 * time.Minute},
		{20 * time.Minute, 15 * time.Minute, 10 * time.Minute},
		{24 * time.Hour, 15 * time.Minute, 10 * time.Minute},
	} {
		bubble.Test(t, func(t *testing.T) {
			d, _ := newDeliverer(t, answers{})
			d.Hosted = func(string) bool { return true } // which waits for the longest
			m := received("m")
			m.ExpiresAt = m.InsertedAt.Add(c.life)
			o := d.Deliver(t.Context(), testQueue, m, Usual(m, c.lookGap), nil)
			want(t, "action", o.Action, policy.Hold)
			want(t, fmt.Sprintf("waits %s with a life of %s", o.Delay, c.life), o.Delay > c.longest-time.Second && o.Delay <= c.longest, true)
		})
	}
	bubble.Test(t, func(t *testing.T) {
		d, _ := newDeliverer(t, answers{})
		late := received("late")
		late.InsertedAt, late.ExpiresAt = time.Now().Add(-44*time.Minute), time.Now().Add(16*time.Minute)
		o := d.Deliver(t.Context(), testQueue, late, Usual(late, 15*time.Minute), nil)
		want(t, "waits no longer than until the last look", o.Delay > 0 && o.Delay <= time.Minute, true)
	})
}

// A message that lives for less than policy.ExpiryMargin waits for a webhook that is busy like any
// other, until the last half of its life.
func TestAShortLivedMessageWaitsForABusyWebhook(t *testing.T) {
	for _, c := range []struct{ life, margin time.Duration }{
		{4 * time.Second, 2 * time.Second}, {20 * time.Second, 10 * time.Second},
		{time.Minute, policy.ExpiryMargin}, {time.Hour, policy.ExpiryMargin},
	} {
		bubble.Test(t, func(t *testing.T) {
			m := received("m")
			m.ExpiresAt = m.InsertedAt.Add(c.life)
			want(t, fmt.Sprintf("margin of a life of %s", c.life), Usual(m, 0).Postponed, c.margin)
			p := &parcel{m: m}
			del := tables.Delivery{}
			p.hold(&del, policy.WebhookBusy, time.Second, Usual(m, 0).Postponed)
			want(t, fmt.Sprintf("state at the beginning of a life of %s", c.life), del.State, tables.Held)
			m.InsertedAt = m.InsertedAt.Add(-c.life + c.margin - time.Second)
			m.ExpiresAt = m.InsertedAt.Add(c.life)
			p.hold(&del, policy.WebhookBusy, time.Second, Usual(m, 0).Postponed)
			want(t, fmt.Sprintf("state at the end of a life of %s", c.life), del.State, tables.DeadLettering)
		})
	}
}
