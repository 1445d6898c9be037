package delivery

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook/content"
)

// errStaleReplay: the pointer's dead letter is gone, or its replay was finished or
// asked for anew.
var errStaleReplay = errors.New("replay pointer without a replay")

// opener decodes messages.
type opener struct{ *Options }

// parcel is a message that was not opened yet.
func (o opener) parcel(queueName string, m *queue.Message, terms Terms, grant *admission.Grant) *parcel {
	return &parcel{
		m: m, instance: o.Instance, receivedAt: time.Now(), text: m.Text, insertedAt: m.InsertedAt,
		key:     tables.MessageKey{Queue: queueName, MessageID: m.ID, Day: m.InsertedAt},
		setting: o.Encoding(queueName), terms: terms, grant: grant,
	}
}

// open decodes a message. An error that wraps queue.ErrUndecodable, queue.ErrNewer or
// errStaleReplay concerns this message; any other means that storage could not be
// asked.
func (o opener) open(ctx context.Context, p *parcel) (err error) {
	if p.body, err = queue.Decode(p.setting, p.text); err != nil {
		p.hash = bodyHash(p.text)
		return fmt.Errorf("decode: %w", err)
	}
	if p.body.Replay != nil {
		if err := o.openReplay(ctx, p, *p.body.Replay); err != nil {
			return err
		}
	}
	if p.body.ContentType == "" {
		p.body.ContentType = queue.DefaultContentType(p.body.Bytes)
	}
	p.hash = bodyHash(p.body.Bytes)
	p.content = content.Read(p.body.Bytes, p.body.ContentType)
	p.event = o.eventOf(p)
	return nil
}

// openReplay loads what a replay pointer stands for: the original text under the
// original id, as a new generation, for the dead letter's webhook only.
func (o opener) openReplay(ctx context.Context, p *parcel, r queue.Replay) error {
	owner, _, ok := tables.SplitDeadLetterID(r.DeadLetter)
	if !ok || owner != p.key.Queue {
		return errStaleReplay
	}
	row, err := retry.Get(ctx, retry.Call, func(ctx context.Context) (tables.DeadLetter, error) {
		return o.DeadLetters.GetDeadLetter(ctx, r.DeadLetter)
	})
	if errors.Is(err, tables.ErrNotFound) {
		return errStaleReplay
	}
	if err != nil {
		return fmt.Errorf("load dead letter %s: %w", r.DeadLetter, err)
	}
	if row.ReplayToken == "" || subtle.ConstantTimeCompare([]byte(row.ReplayToken), []byte(r.Token)) != 1 {
		return errStaleReplay
	}
	if row.Status == tables.Waiting && time.Since(p.m.InsertedAt) > replayStepTime {
		row = o.showReplaying(ctx, row)
	}
	p.replay = &row
	p.key.MessageID = row.MessageID // Day stays the pointer's: the original's records may have expired
	p.generation = row.Generation + row.Replays
	p.text, p.insertedAt = row.Text, row.InsertedAt
	if setting, err := queue.ParseEncoding(row.Encoding); err == nil && row.Reason != policy.Undecodable {
		// The same bytes as before, whatever the queue is set to by now. What could
		// not be read is replayed because the setting was put right.
		p.setting = setting
	}
	if p.body, err = queue.Decode(p.setting, row.Text); err != nil {
		p.hash = bodyHash(row.Text)
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// replayStepTime is how long asking for a replay takes at most.
const replayStepTime = 20 * time.Second

// showReplaying says on a dead letter that its replay is under way, where who asked for it
// died before that. Nothing depends on it but what is shown.
func (o opener) showReplaying(ctx context.Context, row tables.DeadLetter) tables.DeadLetter {
	next := row
	next.Status = tables.Replaying
	saved, err := retry.Get(ctx, retry.Once, func(ctx context.Context) (tables.DeadLetter, error) {
		return o.DeadLetters.UpdateDeadLetter(ctx, next)
	})
	if err != nil {
		return row
	}
	return saved
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
