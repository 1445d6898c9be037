package tables

import (
	"context"
	"regexp"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/webhook"
)

// Registration is a webhook as it is registered: where to send, what its answers
// mean, and whether it is sent to at all.
type Registration struct {
	webhook.Webhook
	Policy policy.Policy `json:"policy"`
	// Flow is zero in rows of before there was any; see policy.Flow.OrDefault.
	Flow    policy.Flow `json:"flow,omitzero"`
	Enabled bool        `json:"enabled"`
	// DisabledReason says why it is not enabled: "operator", "gone" (it answered
	// 410), "failing" (for too long, see policy.AutoDisable), "rule" or "receiver";
	// DisabledAt since when.
	DisabledReason string    `json:"disabled_reason,omitempty"`
	DisabledAt     time.Time `json:"disabled_at,omitzero"`
	// ResetAt is when an operator last enabled it or gave it another URL: what was known
	// before of how it fares counts no more, in any instance. Zero when nobody did.
	ResetAt   time.Time `json:"reset_at,omitzero"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	// RequestHash is that of the request which made it under an Idempotency-Key, and the id
	// is made of that key; empty otherwise.
	RequestHash string `json:"request_hash,omitempty"`
	// ETag changes with every write. It is the store's, opaque, and never part of
	// what is stored.
	ETag string `json:"-"`
}

// Webhooks remembers registrations. Safe for concurrent use.
type Webhooks interface {
	// PutWebhook writes r and returns it with its new ETag. With an empty r.ETag it
	// inserts, and returns ErrExists when the id is taken; otherwise it replaces
	// the row only while its ETag is still r.ETag, and returns ErrConflict
	// when it was changed, ErrNotFound when it is gone. A repeated insert of the same
	// row whose first answer was lost is not an ErrExists.
	PutWebhook(ctx context.Context, r Registration) (Registration, error)

	// GetWebhook returns one registration, or ErrNotFound.
	GetWebhook(ctx context.Context, id string) (Registration, error)

	// ListWebhooks returns all registrations in ascending order of id. A row that
	// can't be read is left out and named in the error list, so that one bad
	// row never hides the others.
	ListWebhooks(ctx context.Context) ([]Registration, []RowError, error)

	// DeleteWebhook removes a registration if its ETag is still etag (an empty etag
	// removes any). ErrConflict or ErrNotFound as for PutWebhook. It leaves a trace, also of one
	// that is gone: every process that uses the store knows by it that the webhook is not missed.
	DeleteWebhook(ctx context.Context, id, etag string) error
}

// RowError names a row that could not be read. Err never holds its content.
type RowError struct {
	ID  string
	Err error
	// Queue is the one that the webhook was registered on, where something of the row still says so.
	Queue string
}

var queueMember = regexp.MustCompile(`"queue"\s*:\s*"([a-z0-9-]{3,63})"`)

// QueueNamed is the queue that a registration names that can't be read; empty where it names none.
func QueueNamed(stored []byte) string {
	if m := queueMember.FindSubmatch(stored); m != nil {
		return string(m[1])
	}
	return ""
}
