// Package delivery decides about one message: what was done about it before, which webhooks it
// is due to, what they answer, and what that comes to. It neither renews a lease nor settles.
package delivery

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/journal"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/registry"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// Sender makes the POST.
type Sender interface {
	Send(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result
}

// DeadLetters are where a replay finds what it replays, and a copy its dead letter.
type DeadLetters interface {
	GetDeadLetter(ctx context.Context, id string) (tables.DeadLetter, error)
	HasLostDeadLetters(ctx context.Context, of time.Time) (bool, error)
	UpdateDeadLetter(ctx context.Context, d tables.DeadLetter) (tables.DeadLetter, error)
}

// Options are what delivering needs of others.
type Options struct {
	Sender      Sender
	DeadLetters DeadLetters
	Registry    *registry.Registry
	Journal     *journal.Journal
	Claims      *claims.Claims
	Flows       *flow.Flows
	Leases      *lease.Leases
	Completer   *settle.Completer
	PutOffs     *admission.PutOffs
	Meter       *meter.Instruments
	Spans       meter.Spans
	Log         *slog.Logger

	// These are as in dispatcher.Options.
	Encoding                       func(queueName string) queue.Encoding
	ByEvent, KeepUnmatched, Hosted func(queueName string) bool
	LookGap                        func(queueName string) time.Duration
	Instance                       string

	// MorePosts is how many POSTs the process makes at once beyond the first few of each message.
	MorePosts int
	// Disable switches a webhook off because of what it answered, unless it has begun anew
	// since it had this resetAt.
	Disable func(ctx context.Context, webhookID string, resetAt time.Time, reason policy.Reason)
	// Write outlives the work: records are written while that is cut short.
	Write context.Context
}

// writing is the context for records: it carries ctx's trace, not its end.
func (o *Options) writing(ctx context.Context) context.Context {
	return trace.ContextWithSpan(o.Write, trace.SpanFromContext(ctx))
}

// Outcome is what delivering a message came to.
type Outcome = settle.Outcome

// ownFault gives the message back because of us.
func ownFault(m *queue.Message, reason policy.Reason) *Outcome {
	return &Outcome{Action: policy.NoVerdict, Reason: reason, Delay: settle.OwnFaultDelay(m)}
}
