package app

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strings"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// auditTimeout bounds the writing of a row.
const auditTimeout = 5 * time.Second

// audited is a store that remembers which webhooks pushlease has disabled by itself, beside what callers of the API have
// changed.
type audited struct {
	tables.Store
	instance string
	log      *slog.Logger
	// disabled is told before the row is written, which may take as long as storage does.
	disabled func()
}

// PutWebhook knows by its times that nobody asked for it: the API writes other reasons.
func (s audited) PutWebhook(ctx context.Context, r tables.Registration) (tables.Registration, error) {
	saved, err := s.Store.PutWebhook(ctx, r)
	if err != nil || saved.Enabled || saved.DisabledReason == "operator" || !saved.DisabledAt.Equal(saved.UpdatedAt) {
		return saved, err
	}
	s.disabled()
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	at := saved.DisabledAt.UTC().Truncate(time.Millisecond)
	c := tables.Audit{
		ID: tables.AuditID(at, strings.ToLower(rand.Text())), At: at, Action: tables.WebhookDisabled, Reason: saved.DisabledReason,
		Instance: s.instance, Queue: saved.Queue, WebhookID: saved.ID, Fields: []string{"enabled"},
	}
	if err := s.PutAudit(call, c); err != nil {
		s.log.Error("a webhook was disabled, and that could not be written to the audit", "webhook", saved.ID, "reason", saved.DisabledReason, "error", err)
	}
	return saved, nil
}
