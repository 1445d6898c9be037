package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook/content"
)

// opener decodes messages.
type opener struct{ *Options }

// parcel is a message that was not opened yet.
func (o opener) parcel(queueName string, m *queue.Message, terms Terms, grant *admission.Grant) *parcel {
	return &parcel{
		m: m, instance: o.Instance, receivedAt: time.Now(), text: m.Text, insertedAt: m.InsertedAt,
		key:     tables.MessageKey{Queue: queueName, MessageID: m.ID, Day: m.InsertedAt},
		setting: o.Encoding(queueName), terms: terms, slack: lookSlack(m, o.LookGap(queueName)), grant: grant,
	}
}

// open decodes a message. An error that wraps queue.ErrUndecodable, queue.ErrNewer,
// errStaleReplay or errAltered concerns this message; any other means that storage could not be
// asked.
func (o opener) open(ctx context.Context, p *parcel) (err error) {
	if p.body, err = queue.Decode(p.setting, p.text); err != nil {
		p.hash = tables.BodyHash(p.text)
		return fmt.Errorf("decode: %w", err)
	}
	if p.body.Replay != nil {
		if err := o.openReplay(ctx, p, *p.body.Replay); err != nil {
			return err
		}
	}
	p.body.ContentType = queue.ContentTypeOf(p.setting, p.body)
	p.hash = tables.BodyHash(p.body.Bytes)
	p.content = content.Read(p.body.Bytes, p.body.ContentType)
	p.event = o.eventOf(p)
	return nil
}

// eventOf names the event that a parcel carries, for deduplication; empty when it is told
// apart by its message id alone.
//
// The event's own id counts before the publisher's idempotency key: the same event may
// also come by another way. The key counts on every queue, since its publisher asked for it.
func (o opener) eventOf(p *parcel) string {
	switch {
	case o.ByEvent(p.key.Queue) && p.content.Event != nil:
		return tables.ClaimKey("event", p.key.Queue, p.content.Event.Key())
	case p.body.IdempotencyKey != "":
		return tables.ClaimKey("idempotency key", p.key.Queue, p.body.IdempotencyKey)
	}
	return ""
}
