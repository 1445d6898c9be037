package delivery

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// counted is a Sender that takes everything, and keeps the last request.
type counted struct {
	posts atomic.Int64
	last  webhook.Request
}

func (c *counted) Send(_ context.Context, _ *webhook.Webhook, r webhook.Request) webhook.Result {
	c.posts.Add(1)
	c.last = r
	return webhook.Result{Status: 200, StartedAt: time.Now(), Duration: time.Millisecond}
}

// asked is a dead letter whose replay was asked for with the token "t", and change alters it first.
func asked(t *testing.T, db *sqlite.DB, change func(*tables.DeadLetter)) tables.DeadLetter {
	t.Helper()
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	key, text := tables.MessageKey{Queue: testQueue, MessageID: "original", Day: at}, []byte(`{"n":1}`)
	row := tables.DeadLetter{
		ID: tables.DeadLetterID(key, "wh_a", 0, at), MessageKey: key, WebhookID: "wh_a", Status: tables.Replaying,
		Reason: policy.NonRetryableError, DeadLetteredAt: at, InsertedAt: at, Text: text, Encoding: "auto", Size: len(text),
		BodyHash: tables.BodyHash(text), ReplayToken: "t", Replays: 1, ReplayedAt: at,
	}
	if change != nil {
		change(&row)
	}
	row, err := db.PutDeadLetter(t.Context(), row)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// pointer is the message that stands for a replay.
func pointer(t *testing.T, deadLetter, token string) *queue.Message {
	t.Helper()
	text, err := queue.EncodeReplay(queue.EncodingAuto, queue.Replay{DeadLetter: deadLetter, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	m := received("pointer")
	m.Text = text
	return m
}

func TestAReplayIsSentUnderTheNameOfItsOriginalToItsWebhookAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		sender := &counted{}
		d, db := newDeliverer(t, sender, "wh_a", "wh_b")
		row := asked(t, db, func(row *tables.DeadLetter) { row.Status = tables.Waiting }) // who asked died before saying so
		o := d.deliverNow(t, pointer(t, row.ID, "t"))
		want(t, "POSTs", sender.posts.Load(), 1)
		want(t, "id", sender.last.MessageID, "original")
		want(t, "body", string(sender.last.Body), `{"n":1}`)
		want(t, "action", o.Action, policy.Complete)
		if o.ReplayEnds == nil || o.ReplayEnds.ID != row.ID {
			t.Errorf("what ends is %+v, want the replay of %s", o.ReplayEnds, row.ID)
		}
		want(t, "generation on record", o.Records[0].Deliveries[0].Generation, 1)
		now, err := db.GetDeadLetter(t.Context(), row.ID)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "status while it was under way", now.Status, tables.Replaying)
	})
}

// A pointer alone says nothing: anybody may have put it on the queue, long after its replay ended.
func TestAPointerIsBelievedByItsDeadLetterOnly(t *testing.T) {
	text := []byte("another text")
	for name, tt := range map[string]struct {
		change  func(*tables.DeadLetter)
		pointer func(tables.DeadLetter) (id, token string)
		token   string // on the row afterwards
	}{
		"another token":                   {nil, func(row tables.DeadLetter) (string, string) { return row.ID, "guessed" }, "t"},
		"a replay that has ended":         {func(row *tables.DeadLetter) { row.ReplayToken, row.Status = "", tables.Replayed }, func(row tables.DeadLetter) (string, string) { return row.ID, "" }, ""},
		"a dead letter that is not there": {nil, func(row tables.DeadLetter) (string, string) { return row.ID[:len(row.ID)-4] + "0000", "t" }, "t"},
		"one of another queue": {func(row *tables.DeadLetter) {
			row.Queue = "other"
			row.ID = tables.DeadLetterID(row.MessageKey, row.WebhookID, 0, row.DeadLetteredAt)
		}, func(row tables.DeadLetter) (string, string) { return row.ID, "t" }, "t"},
		"another text":    {func(row *tables.DeadLetter) { row.Text = text }, func(row tables.DeadLetter) (string, string) { return row.ID, "t" }, ""},
		"another webhook": {func(row *tables.DeadLetter) { row.WebhookID = "wh_b" }, func(row tables.DeadLetter) (string, string) { return row.ID, "t" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				sender := &counted{}
				d, db := newDeliverer(t, sender, "wh_a", "wh_b")
				row := asked(t, db, tt.change)
				id, token := tt.pointer(row)
				o := d.deliverNow(t, pointer(t, id, token))
				want(t, "POSTs", sender.posts.Load(), 0)
				want(t, "action", o.Action, policy.Complete)
				want(t, "reason", o.Reason, policy.ReplayEnded)
				want(t, "what ends", o.ReplayEnds == nil, true)
				now, err := db.GetDeadLetter(t.Context(), row.ID)
				if err != nil {
					t.Fatal(err)
				}
				want(t, "token on the row", now.ReplayToken, tt.token)
			})
		})
	}
}

// The replay of a message as a whole holds what can't be sent now. Where its dead letter is deleted before that is on record for the
// first time, the deletion finds nothing that it could end.
func TestWhatAReplayHoldsEndsWhereItsDeadLetterWasDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		deleted bool
		before  int // receives that are on record
		state   tables.State
	}{"it is there": {false, 0, tables.Held}, "deleted": {true, 0, tables.DeadLettered}, "the deletion ends what is on record": {true, 1, tables.Held}} {
		t.Run(name, func(t *testing.T) {
			d, db := newDeliverer(t, answers{}, "wh_a")
			row := asked(t, db, nil)
			if c.deleted {
				if err := db.DeleteDeadLetter(t.Context(), row.ID, ""); err != nil {
					t.Fatal(err)
				}
			}
			p := d.opener.parcel(testQueue, received("m"), Terms{}, nil)
			p.replay = &row
			held := p.newDelivery("wh_a")
			held.State, held.Excused = tables.Held, c.before
			p.keepHeld(held)
			list := d.posts.tickets.takeHeld(t.Context(), p)
			got := list[0].Deliveries[0]
			want(t, "state", got.State, c.state)
			want(t, "it names its dead letter", got.DeadLetterID == row.ID, c.state == tables.DeadLettered)
		})
	}
}
