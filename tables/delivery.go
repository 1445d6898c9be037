package tables

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// State is how far one delivery has come.
type State string

// The states of a delivery. Delivered, DeadLettered, Unmatched, Duplicate and Withdrawn are terminal within a
// generation: they never change, but that Withdrawn becomes Delivered where the deleted webhook's answer comes after all. A
// replay begins a new one, and so does a webhook that was deleted and is there again under its own id.
const (
	// Pending: not delivered yet; the next try is due at NextAt.
	Pending State = "pending"
	// Delivered: the webhook has taken the message.
	Delivered State = "delivered"
	// Held: parked until something outside changes.
	Held State = "held"
	// DeadLettering: decided, but its dead-letter row is not surely there yet.
	DeadLettering State = "dead_lettering"
	// DeadLettered: its dead-letter row is durable.
	DeadLettered State = "dead_lettered"
	// Published: sent through our API; a message-level record only.
	Published State = "published"
	// Unmatched: no webhook's filter takes the message; a message-level record only.
	Unmatched State = "unmatched"
	// Duplicate: the message's event was delivered with another message; on the message,
	// and on what was under way for single webhooks.
	Duplicate State = "duplicate"
	// Withdrawn: its webhook was deleted before it was delivered, and others settle
	// the message.
	Withdrawn State = "withdrawn"
)

// States lists every State.
func States() []State {
	return []State{Pending, Delivered, Held, DeadLettering, DeadLettered, Published, Unmatched, Duplicate, Withdrawn}
}

// next says which states follow each one within a generation, at once or in one record with the
// pending between them; the empty one is that of a delivery that nobody has seen.
// docs/state-machine.md draws it.
var next = map[State][]State{
	"":            {Published, Pending, Unmatched, Duplicate},
	Published:     {Pending, Unmatched, Duplicate, DeadLettered},
	Pending:       {Pending, Delivered, Held, DeadLettering, DeadLettered, Duplicate, Withdrawn},
	Held:          {Pending, Delivered, DeadLettering, DeadLettered, Duplicate, Withdrawn},
	DeadLettering: {DeadLettered},
	Delivered:     nil, DeadLettered: nil, Unmatched: nil, Duplicate: nil,
	Withdrawn: {Delivered}, // its POST was under way
}

// Next lists the states that follow s within a generation. A replay begins another generation,
// with Pending, after DeadLettered, and a webhook that is registered anew under its id after Withdrawn.
func (s State) Next() []State { return next[s] }

// Terminal reports whether nothing more will be sent in this generation: no way leads back to
// Pending.
func (s State) Terminal() bool {
	ways, known := next[s]
	return known && !slices.Contains(ways, Pending)
}

// Rank orders the states of one generation: a later one has a higher rank, or the same
// as long as nothing has ended. Of two processes that end a delivery at the same time
// the one that delivered it is believed. Delivery.Rank is that of a delivery.
func (s State) Rank() int {
	switch s {
	case Published:
		return 0
	case Withdrawn, Unmatched, Duplicate:
		return 2
	case DeadLettering:
		return 3
	case DeadLettered:
		return 4
	case Delivered:
		return 5
	}
	return 1
}

// MessageKey finds a message's records.
type MessageKey struct {
	// Queue is the queue that the message came from.
	Queue string
	// MessageID is the storage's id of the message first received; a replay
	// keeps it.
	MessageID string
	// Day is the insertion time of the queue message that carries it. It is
	// constant over redeliveries, so that records can be kept in tables by day.
	Day time.Time
}

// Delivery is one message times one webhook, and its state. A record whose
// WebhookID is empty is about the message itself (published, undecodable,
// poison, no webhook, unmatched, duplicate).
type Delivery struct {
	MessageKey
	WebhookID string
	// Generation is 0 at first and one more with each replay, and with a webhook that is
	// registered anew after the message was withdrawn from it.
	Generation int
	State      State
	// Reason of the last decision.
	Reason policy.Reason
	// Attempts counts all attempts of this generation, Charged those that count
	// against the policy's maximum, Waits those that were not charged because
	// the receiver asked to wait.
	Attempts int
	Charged  int
	Waits    int
	// Excused counts receives that ended without an attempt through no fault of
	// the message (its webhook could not be sent to, our storage), so that the poison guard
	// can leave them out.
	Excused int
	// MissingRecords counts attempts without a record of their own: it could not be
	// written, or the attempt began and left no outcome.
	MissingRecords int
	LastStatus     int
	LastErrorClass policy.ErrorClass
	// FirstAt and LastAt are when the first and last attempt began; zero before. An attempt for which no request
	// could be made, or no token could be had, is no first one.
	FirstAt time.Time
	LastAt  time.Time
	// NextAt is when the next try is due; zero when none is.
	NextAt time.Time
	// UpdatedAt is when this state was reached.
	UpdatedAt time.Time
	// ExpiresAt is the queue message's expiry; zero means never.
	ExpiresAt time.Time
	// About the message: how its text was read, the body's size and the first
	// 16 hex digits of its SHA-256.
	Encoding string
	Size     int
	BodyHash string
	// DeadLetterID is set from DeadLettering on, and always on a copy of a dead letter (see CopyOf).
	DeadLetterID string
	// SameEventAs is the message that had the event before; set for Duplicate, and while
	// this one waits for what becomes of that one.
	SameEventAs string
	// Instance is the process that wrote this.
	Instance string
	// Damage is the row's.
	Damage Damage
}

// IsOnlyDue reports whether nobody has begun with d so far: its message is due to the webhook, since it was inserted, and that is all.
func (d *Delivery) IsOnlyDue() bool {
	return d.State == Pending && d.Reason == "" && d.UpdatedAt.Equal(d.Day)
}

// Rank is that of d's state. What is only due is below all that is known otherwise: that a delivery is due undoes
// nothing, whoever says it, and whenever.
func (d *Delivery) Rank() int {
	if d.IsOnlyDue() {
		return 0
	}
	return d.State.Rank()
}

// OwedLetter is the id of the dead letter that a delivery in DeadLettering is owed. Where another program has changed
// it to what is none of this delivery's, it is made anew, the same each time: under another's id nothing would be kept.
func (d *Delivery) OwedLetter() string {
	of, order, ok := SplitDeadLetterID(d.DeadLetterID)
	if ok && of == d.Queue && strings.HasSuffix(order, whose(d.MessageKey, d.WebhookID, d.Generation)) {
		return d.DeadLetterID
	}
	return DeadLetterID(d.MessageKey, d.WebhookID, d.Generation, d.UpdatedAt)
}

// CopyOf is the dead letter of which the message is the copy on a poison queue; empty for every other
// message. The dead letter of a message names the message's own queue.
func (d *Delivery) CopyOf() string {
	if of, _, ok := SplitDeadLetterID(d.DeadLetterID); ok && of+PoisonSuffix == d.Queue {
		return d.DeadLetterID
	}
	return ""
}

// Newer reports whether d is a later state of the same delivery than old.
func (d *Delivery) Newer(old *Delivery) bool {
	switch {
	case d.Generation != old.Generation:
		return d.Generation > old.Generation
	case d.Rank() != old.Rank():
		return d.Rank() > old.Rank()
	case d.Attempts != old.Attempts:
		return d.Attempts > old.Attempts
	}
	return d.UpdatedAt.After(old.UpdatedAt)
}

// Attempt is the record of one try at the POST, a failed dial included.
type Attempt struct {
	MessageKey
	WebhookID  string
	Generation int
	// Number counts from 1 within the generation.
	Number    int
	StartedAt time.Time
	Duration  time.Duration
	// Status is 0 when there was no answer; ErrorClass and Error then say why.
	Status     int
	ErrorClass policy.ErrorClass
	Error      string
	// Snippet is the beginning of the answer's body as text, at most
	// MaxSnippetUnits long.
	Snippet string
	// RetryAfter is the answer's Retry-After as it came.
	RetryAfter string
	// RedirectHost is where a 3xx pointed.
	RedirectHost string
	// Redials counts connections tried again at once, not charged.
	Redials int
	// The decision.
	Action      policy.Action
	Reason      policy.Reason
	Charged     bool
	Delay       time.Duration
	NextAt      time.Time
	Explanation string
	// Instance is the process that made it, and part of what tells attempts apart: two
	// that hold one message, because a lease has ended, make attempts of one number.
	Instance string
	// DequeueCount is how often the message had been received then, this time included.
	DequeueCount int64
	// LeasedUntil is when the lease ended as it was known at the answer; it is not stored.
	LeasedUntil time.Time
	// AnsweredAt is when the attempt ended, also by the clock that nobody sets; it is not stored.
	AnsweredAt time.Time
	// Damage is the row's.
	Damage Damage
}

// MaxSnippetUnits is the longest snippet that is kept, in UTF-16 code units, the
// measure that Azure Table Storage counts in.
const MaxSnippetUnits = 1024

// Record is what is written together about one message, atomically.
type Record struct {
	Deliveries []Delivery
	Attempts   []Attempt
}

// Deliveries remembers how far each delivery has come. Safe for concurrent use.
type Deliveries interface {
	// Load returns all deliveries of one message, message-level records
	// included, in ascending order of webhook id. A message without records
	// gives an empty slice and no error. An error means that the store could not
	// be asked: never that there is nothing. ErrDamaged says that a row leaves undecided how
	// far its delivery has come.
	Load(ctx context.Context, key MessageKey) ([]Delivery, error)

	// Record durably writes rows that all belong to one message, all or none.
	// A delivery is replaced whole, unless the stored one is of a later generation or
	// rank: that one stays, whoever writes last, since a write may take effect long after it was
	// begun. An attempt is written once, and writing the same (webhook, generation, number,
	// instance) again replaces it. A first success (see Record.Rows) is replaced as a whole only:
	// its attempt alone changes nothing, and another delivered state stands where it has more attempts.
	// When Record returns nil the rows survive a crash. After an error they may or
	// may not be there; calling again with the same rows is harmless. At most 100 rows.
	Record(ctx context.Context, r Record) error

	// Note durably writes, beside what is stored, that its author is at work on deliveries of one
	// message. A note counts while nothing is newer (Delivery.Newer): it replaces no row, and undoes
	// nothing, however long after it was begun it takes effect. At most 100.
	Note(ctx context.Context, ds []Delivery) error
}

// History answers what happened. It may lag behind Deliveries by a moment.
type History interface {
	// Message returns everything recorded about a message id: its deliveries in
	// ascending order of webhook id, and its attempts in the order they began.
	// queue narrows the search when it is not empty. ErrNotFound when nothing is
	// known (never recorded, or older than the retention). A damaged row is there too, with its Damage.
	Message(ctx context.Context, queue, messageID string) ([]Delivery, []Attempt, error)

	// Attempts lists attempts newest first (by StartedAt, to the millisecond). A damaged row is
	// there too, with its Damage; a filter finds it by what can be read of it.
	Attempts(ctx context.Context, f AttemptFilter, page Page) ([]Attempt, Cursor, error)

	// Deliveries lists rows of deliveries, those of the newest UTC day of their messages first, as they were written: some say what a
	// newer row of the delivery has undone since (see ListDeliveries). Of one call only so many rows are looked at, so a page
	// may be short, or empty, before the last one. A damaged row is there too, with its Damage.
	Deliveries(ctx context.Context, f DeliveryFilter, page Page) ([]Delivery, Cursor, error)

	// Expire removes the records of messages whose Day is before the UTC day of
	// before, and returns how many rows (0 where the store can't count). What was
	// written at before or later stays, and so may all else of its Day: of a message that is
	// still tried it is known whom it was delivered to. Dead letters and webhooks
	// are not touched.
	Expire(ctx context.Context, before time.Time) (int64, error)
}

// AttemptFilter narrows a list of attempts; zero fields do not narrow.
type AttemptFilter struct {
	WebhookID string
	Queue     string
	MessageID string
	// Status matches exactly; StatusClass (1..5) matches its hundred.
	Status      int
	StatusClass int
	ErrorClass  policy.ErrorClass
	Action      policy.Action
	Reason      policy.Reason
	// From is inclusive, Until exclusive.
	From  time.Time
	Until time.Time
}

// Matches reports whether a passes f.
func (f AttemptFilter) Matches(a Attempt) bool {
	switch {
	case f.WebhookID != "" && f.WebhookID != a.WebhookID,
		f.Queue != "" && f.Queue != a.Queue,
		f.MessageID != "" && f.MessageID != a.MessageID,
		f.Status != 0 && f.Status != a.Status,
		f.StatusClass != 0 && f.StatusClass != a.Status/100,
		f.ErrorClass != "" && f.ErrorClass != a.ErrorClass,
		f.Action != "" && f.Action != a.Action,
		f.Reason != "" && f.Reason != a.Reason,
		!f.From.IsZero() && a.StartedAt.Before(f.From),
		!f.Until.IsZero() && !a.StartedAt.Before(f.Until):
		return false
	}
	return true
}

// DeliveryFilter narrows a list of deliveries; zero fields do not narrow.
type DeliveryFilter struct {
	Queue     string
	WebhookID string
	State     State
	// From is inclusive, Until exclusive; both about Day, when the message was put on its queue.
	From  time.Time
	Until time.Time
}

// Matches reports whether d passes f.
func (f DeliveryFilter) Matches(d Delivery) bool {
	switch {
	case f.Queue != "" && f.Queue != d.Queue,
		f.WebhookID != "" && f.WebhookID != d.WebhookID,
		f.State != "" && f.State != d.State,
		!f.From.IsZero() && d.Day.Before(f.From),
		!f.Until.IsZero() && !d.Day.Before(f.Until):
		return false
	}
	return true
}
