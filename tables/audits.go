package tables

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// AuditsRetention is how long it stays known who changed what.
const AuditsRetention = 90 * 24 * time.Hour

// AuditAction is what was done.
type AuditAction string

// The actions.
const (
	WebhookCreated     AuditAction = "webhook.created"
	WebhookChanged     AuditAction = "webhook.changed"
	WebhookEnabled     AuditAction = "webhook.enabled"
	WebhookDisabled    AuditAction = "webhook.disabled"
	WebhookDeleted     AuditAction = "webhook.deleted"
	QueueDeleted       AuditAction = "queue.deleted"
	DeadLetterDeleted  AuditAction = "dead_letter.deleted"
	DeadLetterReplayed AuditAction = "dead_letter.replayed"
	DeadLettersPurged  AuditAction = "dead_letters.purged"
	ReplayStarted      AuditAction = "replay.started"
	ReplayCanceled     AuditAction = "replay.canceled"
)

// AuditActions are all actions.
func AuditActions() []AuditAction {
	return []AuditAction{
		WebhookCreated, WebhookChanged, WebhookEnabled, WebhookDisabled, WebhookDeleted, QueueDeleted,
		DeadLetterDeleted, DeadLetterReplayed, DeadLettersPurged, ReplayStarted, ReplayCanceled,
	}
}

// Audit is one change that was made, and who made it. It holds names and ids, and the value of nothing that was set.
type Audit struct {
	// ID puts the newest first: AuditID makes it.
	ID     string      `json:"id"`
	At     time.Time   `json:"at"`
	Action AuditAction `json:"action"`
	// Key names the API key of who asked for it; empty where none are set, and where pushlease did it by itself, for
	// Reason.
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Instance is the process that did it, and RequestID the request, as its log names it.
	Instance     string `json:"instance,omitempty"`
	RequestID    string `json:"request_id,omitempty"`
	Queue        string `json:"queue,omitempty"`
	WebhookID    string `json:"webhook_id,omitempty"`
	DeadLetterID string `json:"dead_letter_id,omitempty"`
	ReplayID     string `json:"replay_id,omitempty"`
	// Fields are the settings that were changed.
	Fields []string `json:"fields,omitempty"`
	// Count is how many messages or dead letters it was about, where that is known.
	Count int64 `json:"count,omitempty"`
	// Filter is what was asked for, as JSON, where it was about whatever a filter matches.
	Filter json.RawMessage `json:"filter,omitempty"`
}

// AuditID makes the id of what a request changed. A request changes one thing.
func AuditID(at time.Time, requestID string) string { return auditPlace(at) + "-" + requestID }

// maxMicros inverts times as maxMillis does; it has 16 digits.
const maxMicros = maxMillis*1000 + 999

// auditPlace begins the ids of what was changed in that microsecond.
func auditPlace(at time.Time) string {
	return fmt.Sprintf("%016d", maxMicros-min(max(at.UnixMicro(), 0), maxMicros))
}

// AuditFilter narrows a list; zero fields do not narrow.
type AuditFilter struct {
	Queue     string
	WebhookID string
	Action    AuditAction
	Key       string
	// From is inclusive, Until exclusive.
	From  time.Time
	Until time.Time
}

// Matches reports whether a passes f.
func (f AuditFilter) Matches(a Audit) bool {
	switch {
	case f.Queue != "" && f.Queue != a.Queue,
		f.WebhookID != "" && f.WebhookID != a.WebhookID,
		f.Action != "" && f.Action != a.Action,
		f.Key != "" && f.Key != a.Key,
		!f.From.IsZero() && a.At.Before(f.From),
		!f.Until.IsZero() && !a.At.Before(f.Until):
		return false
	}
	return true
}

// Span is between which ids all lie that the filter's times take, the first one included. Matches tells those
// apart that are there besides.
func (f AuditFilter) Span() (first, end string) {
	first, end = "", auditPlace(time.Time{})+"."
	if !f.Until.IsZero() {
		first = auditPlace(f.Until.Add(time.Millisecond)) // to which times are kept
	}
	if !f.From.IsZero() {
		end = auditPlace(f.From) + "." // which sorts after the hyphen
	}
	return first, end
}

// Audits remembers who changed what. It is never about what becomes of a message. Safe for concurrent use.
type Audits interface {
	// PutAudit writes a row. It may be repeated.
	PutAudit(ctx context.Context, a Audit) error

	// ListAudits lists rows newest first. A page may be short, or empty, before the last one. Rows that another program
	// has changed so that they can't be read are left out.
	ListAudits(ctx context.Context, f AuditFilter, page Page) ([]Audit, Cursor, error)

	// ExpireAudits removes the rows from before that time, and returns how many.
	ExpireAudits(ctx context.Context, before time.Time) (int64, error)
}
