package queue

import (
	"context"
	"time"
)

// Limits of the contract. They are those of Azure Storage Queues, so that what
// works on the embedded file works there too.
const (
	// MaxReceive is the most messages one Receive may ask for.
	MaxReceive = 32
	// MaxTextBytes is the most bytes one message's stored text may have.
	MaxTextBytes = 64 << 10
	// MaxLease is the longest lease, and MaxDelay the longest delay.
	MaxLease = 7 * 24 * time.Hour
	MaxDelay = 7 * 24 * time.Hour
	// MinLease is the shortest lease: storage counts whole seconds.
	MinLease = time.Second
	// NoExpiry as SendOptions.TTL keeps a message until it is settled.
	NoExpiry time.Duration = -1
	// DefaultTTL is used where SendOptions.TTL is zero.
	DefaultTTL = 7 * 24 * time.Hour
	// ReplayLife is how long after a replay was asked for the message that stands for it may be on
	// its queue, or in somebody's hands.
	ReplayLife = DefaultTTL + time.Hour
)

// Queue is one leased queue. All methods may be called concurrently. None
// retries: each is one storage transaction (but for a Send that creates the
// queue when it is missing, and a Renew near the message's end), so that the caller always knows whether a call
// may have taken effect (see Ambiguous). All return promptly when ctx ends.
//
// Every method but Send returns ErrQueueNotFound when the queue is not there.
type Queue interface {
	// Name is the queue's name in storage.
	Name() string

	// Receive takes up to max (1..MaxReceive) visible messages and hides them
	// for lease (rounded up to whole seconds, MinLease..MaxLease). It does not
	// wait for messages: an empty result and a nil error mean that none is
	// visible now. Order is roughly oldest first, never guaranteed. Each
	// receive adds one to a message's DequeueCount. No two receivers hold a
	// live lease on one message.
	//
	// When the call fails ambiguously, messages may be hidden until the lease
	// that was asked for ends; they come back by themselves.
	Receive(ctx context.Context, max int, lease time.Duration) ([]*Message, error)

	// Renew extends the lease to now + lease and replaces the receipt inside
	// m.Lease. The content is never re-sent nor changed. ErrLeaseLost is
	// definitive: the receipt is not valid any more and never will be again.
	// Where storage hides no message until after its end, the lease is as
	// long as the rest of its life, in whole seconds; so it is with Hide and
	// Abandon, and that takes a second transaction.
	Renew(ctx context.Context, m *Message, lease time.Duration) error

	// Complete removes the message. It uses the newest receipt, and is worth
	// trying after the lease has ended: storage accepts it as long as nobody
	// received the message since. ErrLeaseLost means that the receipt is stale
	// or the message is gone; the two can't be told apart, so a second Complete
	// also returns ErrLeaseLost.
	Complete(ctx context.Context, m *Message) error

	// Abandon ends the lease and shows the message again after delay (rounded
	// up to whole seconds, 0..MaxDelay), never before. The content is kept.
	// Errors as for Complete.
	Abandon(ctx context.Context, m *Message, delay time.Duration) error

	// Hide is Abandon that keeps the message's receipt: m.Lease ends with the delay, and
	// Abandon with it shows the message before, unless it was received meanwhile. delay is
	// rounded up to whole seconds, MinLease..MaxDelay.
	Hide(ctx context.Context, m *Message, delay time.Duration) error

	// Send appends a message with this stored text, which Encode made or which
	// was received before; it is stored byte for byte. The queue is created
	// when it is missing. ErrTooLarge when text is over MaxTextBytes,
	// ErrUnsendable when the queue can't carry it (see XMLSafe). It
	// returns the new message's id, insertion and expiry time. After an
	// ambiguous failure the message may or may not be there.
	Send(ctx context.Context, text []byte, opts SendOptions) (Sent, error)

	// Peek looks at up to max (1..MaxReceive) visible messages near the front,
	// roughly the oldest first, never guaranteed. It changes nothing: no lease, no
	// DequeueCount. An empty queue is an empty result and a nil error.
	Peek(ctx context.Context, max int) ([]Peeked, error)

	// Depth says how many messages the queue holds.
	Depth(ctx context.Context) (Depth, error)
}

// Service opens the queues of one store.
type Service interface {
	// Queue returns the named queue without asking storage for anything. It
	// returns an error that says what is wrong for a name that ValidateName
	// refuses.
	Queue(name string) (Queue, error)
	// List returns the names of all queues in the store, in ascending order.
	List(ctx context.Context) ([]string, error)
	// Delete removes the named queue with every message on it, held and delayed ones included. It
	// returns ErrQueueNotFound when there is none and, with onlyEmpty, ErrNotEmpty when a message
	// is on it. Where storage only estimates (see Depth), what is sent between its count and
	// the deletion is deleted too. A Send makes the queue anew. Storage may answer ErrBusy for
	// a while after a deletion, whatever it is asked.
	Delete(ctx context.Context, name string, onlyEmpty bool) error
}

// Message is one received message.
type Message struct {
	// ID is constant over redeliveries and unique within the store.
	ID string
	// Text is the stored text exactly as received: Decode turns it into a body.
	Text []byte
	// DequeueCount is how often the message was received, this time included.
	// It is not an attempt count: lost answers, restarts and lapsed leases
	// count too.
	DequeueCount int64
	// InsertedAt is constant over redeliveries.
	InsertedAt time.Time
	// ExpiresAt is when the message vanishes unless it is settled before; the
	// zero time means never. On a file it stays while it is held.
	ExpiresAt time.Time
	// Lease is the right to settle this message. It is owned by the message
	// and safe for concurrent use.
	Lease *Lease
}

// Peeked is a message that was looked at without being received.
type Peeked struct {
	ID         string
	InsertedAt time.Time
	// ExpiresAt is the zero time for a message that never expires.
	ExpiresAt time.Time
	Text      []byte
}

// SendOptions say when a sent message is visible and for how long it lives.
type SendOptions struct {
	// Delay hides the message at first (0..MaxDelay, whole seconds rounded up).
	Delay time.Duration
	// TTL is the message's life, in whole seconds: zero means DefaultTTL,
	// NoExpiry means for ever. It must be longer than Delay.
	TTL time.Duration
}

// Sent is what storage answered to a Send.
type Sent struct {
	ID         string
	InsertedAt time.Time
	// ExpiresAt is the zero time for a message that never expires.
	ExpiresAt time.Time
}

// Depth counts the messages of a queue.
type Depth struct {
	// Total counts all messages, leased and delayed ones included.
	Total int64
	// Visible counts those that a Receive would return now.
	Visible int64
	// Exact is false where storage only estimates Total, and where Visible is
	// capped at MaxReceive because storage can't count further.
	Exact bool
}
