package delivery

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// Whoever waits for a POST of another holder looks at the message while it can still be saved: the last
// look at a host's queue comes up to six minutes late.
func TestNobodyWaitsForAPostPastTheLastLookAtItsMessage(t *testing.T) {
	for _, c := range []struct {
		life, lookGap, want time.Duration
	}{
		{7 * 24 * time.Hour, 6 * time.Minute, 101 * time.Second},
		{0, 6 * time.Minute, 101 * time.Second},
		{time.Minute, 0, 30 * time.Second},                                 // 30 s before its end
		{9 * time.Minute, 6 * time.Minute, 101 * time.Second},              // 9 min - 2 min 15 s - 30 s is later
		{80 * time.Second, 6 * time.Minute, 30 * time.Second},              // 80 s - 20 s - 30 s
		{40 * time.Second, 6 * time.Minute, 10 * time.Second},              // 40 s - 10 s - 20 s
		{2500 * time.Millisecond, 6 * time.Minute, 625 * time.Millisecond}, // it is over: POSTed twice rather than never
	} {
		bubble.Test(t, func(t *testing.T) {
			now := time.Now()
			m := &queue.Message{ID: "m", InsertedAt: now}
			if c.life > 0 {
				m.ExpiresAt = now.Add(c.life)
			}
			p := &parcel{m: m, key: tables.MessageKey{Queue: testQueue, MessageID: "m"}, slack: lookSlack(m, c.lookGap)}
			targets := []target{{registration: &tables.Registration{}, begun: now}}
			time.Sleep(2 * time.Second)
			list, until := p.underWayNow(targets)
			want(t, "deliveries", len(list), 1)
			want(t, "waited for until", until.Sub(now).Round(time.Second), c.want.Round(time.Second))
		})
	}
}

// Others are told of a POST, whose record counts its receive: what they receive from then on proves nothing against the message, and no later
// POST has the number of one that was made before.
func TestAReceiveWhoseLeaseOthersWereToldOfCountsOnce(t *testing.T) {
	d, db := newDeliverer(t, answers{"wh_a": webhook.Result{Status: 500}}, "wh_a")
	m := received("m")
	m.DequeueCount = 2 // and of the first receive nothing is known
	p := d.opener.parcel(testQueue, m, Terms{}, nil)
	if err := d.opener.open(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	targets := []target{{registration: &d.Registry.Of(testQueue)[0], begun: time.Now(), delivery: p.newDelivery("wh_a")}}
	want(t, "others were told", d.posts.tellOthers(t.Context(), p, targets).IsZero(), false)
	failed := p.newDelivery("wh_a") // by the second POST, if the first receive was one
	failed.Attempts, failed.Charged, failed.UpdatedAt = 1, 1, time.Now().Add(time.Second)
	d.Journal.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{failed}})
	m.DequeueCount = 3
	d.deliverAndRecord(t.Context(), t, m)
	_, attempts, err := db.Message(t.Context(), testQueue, m.ID)
	if err != nil || len(attempts) != 1 {
		t.Fatal(attempts, err)
	}
	want(t, "number of the third POST", attempts[0].Number, 3)
}
