// Package receive takes messages from queues: it polls those whose webhooks can be sent to, guards
// the others against messages that expire unseen, and takes over what is published here.
package receive

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/delivery"
	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/journal"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/registry"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// Attempts lists attempts, as tables.History does.
type Attempts interface {
	Attempts(ctx context.Context, f tables.AttemptFilter, page tables.Page) ([]tables.Attempt, tables.Cursor, error)
}

// Options are what receiving needs of others.
type Options struct {
	Queues   queue.Service
	Registry *registry.Registry
	Flows    *flow.Flows
	Journal  *journal.Journal
	// Attempts are those on record.
	Attempts  Attempts
	Measure   *lease.Measure
	Admission *admission.Admission
	Meter     *meter.Instruments
	Tracer    trace.Tracer
	Log       *slog.Logger

	// These are as in dispatcher.Options.
	Hosted                            func(queueName string) bool
	LookGap                           func(queueName string) time.Duration
	Concurrency                       int // the most that a guard receives at a time; of pollers Admission knows it
	PollMin, PollMax, RegistryRefresh time.Duration
	Pollers                           func() int
	Instance                          string
	// Write outlives the work: records are written while that is cut short.
	Write context.Context

	// Handle walks one message from the received lease to the settled message, and returns
	// how settling ended. Refuse gives back one that is not begun.
	Handle func(work context.Context, q queue.Queue, m *queue.Message, terms delivery.Terms, g *admission.Grant) settle.Result
	Refuse func(q queue.Queue, m *queue.Message)
}
