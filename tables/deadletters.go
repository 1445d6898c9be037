package tables

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// DeadLetterStatus says what became of a dead letter.
type DeadLetterStatus string

// The statuses of a dead letter.
const (
	// Waiting for an operator.
	Waiting DeadLetterStatus = "waiting"
	// Replaying: a replay was asked for and has not ended yet.
	Replaying DeadLetterStatus = "replaying"
	// Replayed: the replay has ended: it was delivered, or became a dead letter of
	// its own.
	Replayed DeadLetterStatus = "replayed"
)

// MendStatus makes of a status that there is not, since another program has changed the row, the one that the row has to
// count as: else it were in no list of those that wait, no count and no replay by filter, and for ever. It is being
// replayed where it has the token of a replay. False says that it was mended.
func (d *DeadLetter) MendStatus() bool {
	switch d.Status {
	case Waiting, Replaying, Replayed:
		return true
	}
	if d.Status = Waiting; d.ReplayToken != "" {
		d.Status = Replaying
	}
	return false
}

// DeadLetter is a message that was given up for one webhook, with everything
// needed to understand it and to send it again.
type DeadLetter struct {
	// ID is made by DeadLetterID; it finds the row and orders the list.
	ID string
	MessageKey
	// WebhookID is empty when the message as a whole was given up.
	WebhookID string
	// Generation of the delivery that was given up.
	Generation int
	Status     DeadLetterStatus
	Reason     policy.Reason
	// Description is one sentence for a person.
	Description string
	// Attempts of that generation, and what the last one gave.
	Attempts       int
	LastStatus     int
	LastErrorClass policy.ErrorClass
	FirstAt        time.Time
	LastAt         time.Time
	// DeadLetteredAt is when it was decided.
	DeadLetteredAt time.Time
	// Text is the queue message's stored text, exactly as received. Lists leave
	// it out.
	Text []byte
	// Encoding is the queue's setting when it was received, which reads Text.
	Encoding string
	Size     int
	BodyHash string
	// DequeueCount and InsertedAt are the queue message's.
	DequeueCount int64
	InsertedAt   time.Time
	// CopiedToQueue names the queue that holds a copy; empty when none was made
	// yet.
	CopiedToQueue string
	// ReplayToken is the secret of the replay under way; never shown.
	ReplayToken string
	// Replays counts the replays that were asked for; ReplayedAt is the last one.
	Replays    int
	ReplayedAt time.Time
	Instance   string
	// ETag is the store's.
	ETag string
	// Damaged is an ErrDamaged that names what could not be read, where another program
	// has changed the row. It is never written.
	Damaged error
}

// PoisonSuffix names the queue that holds copies of a queue's dead letters, as the
// Functions tooling expects it.
const PoisonSuffix = "-poison"

// PoisonQueue is the queue for the copy of a dead letter of this queue; empty where there is none, since the
// queue is one itself, or its name leaves no room for the suffix.
func PoisonQueue(of string) string {
	const longest = 63
	if strings.HasSuffix(of, PoisonSuffix) || len(of)+len(PoisonSuffix) > longest {
		return ""
	}
	return of + PoisonSuffix
}

// Copy is the record of the copy of d that was put on a poison queue: under the id of the copy it names
// the dead letter. Who receives the copy knows by it whose message that is.
func (d *DeadLetter) Copy(queueName, id string, insertedAt, expiresAt time.Time) Delivery {
	return Delivery{
		MessageKey: MessageKey{Queue: queueName, MessageID: id, Day: insertedAt}, State: Published, DeadLetterID: d.ID,
		UpdatedAt: insertedAt.UTC(), ExpiresAt: expiresAt, Encoding: d.Encoding, Size: d.Size, BodyHash: d.BodyHash, Instance: d.Instance,
	}
}

// DeadLetterID makes the id of a dead letter from what never changes, so that a
// repeated step finds the row that it already wrote. at is when it was decided.
// The id names its queue, and its second half sorts newest first.
func DeadLetterID(key MessageKey, webhookID string, generation int, at time.Time) string {
	return fmt.Sprintf("%s.%013d-%s", key.Queue, maxMillis-at.UnixMilli(), whose(key, webhookID, generation))
}

// whose is the part of a dead letter's id that says whose message it is.
func whose(key MessageKey, webhookID string, generation int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", key.Queue, key.MessageID, webhookID, generation))
	return hex.EncodeToString(sum[:8])
}

// maxMillis inverts times so that newer ones sort first; it has 13 digits.
const maxMillis = 9_999_999_999_999

// DeadLetterAt is when a dead letter was decided, by the second half of its id; zero where that does not say it.
func DeadLetterAt(order string) time.Time {
	inverted, _, _ := strings.Cut(order, "-")
	ms, err := strconv.ParseInt(inverted, 10, 64)
	if err != nil {
		return time.Time{}
	}
	at, _ := TimeOf(maxMillis - ms)
	return at
}

// SplitDeadLetterID returns the two halves of an id: the queue, and the part that
// orders dead letters of all queues newest first. ok is false for what
// DeadLetterID can't have made.
func SplitDeadLetterID(id string) (queue, order string, ok bool) {
	queue, order, ok = strings.Cut(id, ".")
	if !ok || queue == "" || len(queue) > 63 || len(order) != 13+1+16 || order[13] != '-' {
		return "", "", false
	}
	for i := range len(queue) {
		if c := queue[i]; c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return "", "", false
		}
	}
	for i := range len(order) {
		c := order[i]
		if i != 13 && (c < '0' || c > '9') && (i < 13 || c < 'a' || c > 'f') {
			return "", "", false
		}
	}
	return queue, order, true
}

// DeadLetters remembers dead letters until they are replayed, deleted or cleaned
// up. Safe for concurrent use.
type DeadLetters interface {
	// PutDeadLetter durably inserts d and returns the row with its ETag. When the id
	// is already there the row is left as it is and returned, without an error:
	// repeating the step never resurrects or overwrites.
	PutDeadLetter(ctx context.Context, d DeadLetter) (DeadLetter, error)

	// UpdateDeadLetter replaces the row while its ETag is still d.ETag and returns
	// it with the new one. ErrConflict or ErrNotFound. A d without Text, as lists
	// return it, keeps the text that is there.
	UpdateDeadLetter(ctx context.Context, d DeadLetter) (DeadLetter, error)

	// GetDeadLetter returns one row with its Text, or ErrNotFound.
	GetDeadLetter(ctx context.Context, id string) (DeadLetter, error)

	// HasLostDeadLetters reports whether dead letters whose rows were there at that time went with their table, which another
	// program has dropped: of one that is not found then nobody knows that it was deleted.
	HasLostDeadLetters(ctx context.Context, of time.Time) (bool, error)

	// ListDeadLetters lists rows newest first, without Text.
	ListDeadLetters(ctx context.Context, f DeadLetterFilter, page Page) ([]DeadLetter, Cursor, error)

	// DeleteDeadLetter removes a row if its ETag is still etag (an empty etag removes
	// any). ErrConflict or ErrNotFound.
	DeleteDeadLetter(ctx context.Context, id, etag string) error
}

// Answer is what the last attempt gave: a status or an error class; empty without one.
func (d DeadLetter) Answer() string {
	if d.LastStatus != 0 {
		return strconv.Itoa(d.LastStatus)
	}
	return string(d.LastErrorClass)
}

// Cause is the description without what differs from message to message, which follows its
// first colon: "The webhook answered 503: attempt 8 of 8 failed, …".
func (d DeadLetter) Cause() string {
	cause, _, _ := strings.Cut(d.Description, ": ")
	return strings.TrimSuffix(cause, ".")
}

// DeadLetterFilter narrows a list of dead letters; zero fields do not narrow.
type DeadLetterFilter struct {
	Queue     string
	WebhookID string
	MessageID string
	Reason    policy.Reason
	Status    DeadLetterStatus
	// Answer and Cause are those of the methods of DeadLetter.
	Answer string
	Cause  string
	// From is inclusive, Until exclusive; both about DeadLetteredAt.
	From  time.Time
	Until time.Time
}

// Matches reports whether d passes f.
func (f DeadLetterFilter) Matches(d DeadLetter) bool {
	switch {
	case f.Queue != "" && f.Queue != d.Queue,
		f.WebhookID != "" && f.WebhookID != d.WebhookID,
		f.MessageID != "" && f.MessageID != d.MessageID,
		f.Reason != "" && f.Reason != d.Reason,
		f.Status != "" && f.Status != d.Status,
		f.Answer != "" && f.Answer != d.Answer(),
		f.Cause != "" && f.Cause != d.Cause(),
		!f.From.IsZero() && d.DeadLetteredAt.Before(f.From),
		!f.Until.IsZero() && !d.DeadLetteredAt.Before(f.Until):
		return false
	}
	return true
}
