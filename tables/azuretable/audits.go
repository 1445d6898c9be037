package azuretable

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// auditsPartition has all rows of the table of audits, newest first.
const auditsPartition = "audits"

// auditPages bounds how many pages of the service are read for one that has a row.
const auditPages = 10

// PutAudit implements tables.Audits.
func (s *Store) PutAudit(ctx context.Context, a tables.Audit) error {
	if err := s.client.put(ctx, s.auditsTable(), auditsPartition, a.ID, auditColumns(a)); err != nil {
		return fmt.Errorf("put audit: %w", err)
	}
	return nil
}

func auditColumns(a tables.Audit) columns {
	c := columns{}
	c.time("AtMs", a.At)
	c.exact("Action", string(a.Action))
	c.exact("Key", a.Key)
	c.exact("Reason", a.Reason)
	c.exact("Instance", a.Instance)
	c.exact("RequestID", a.RequestID)
	c.exact("Queue", a.Queue)
	c.exact("WebhookID", a.WebhookID)
	c.exact("DeadLetterID", a.DeadLetterID)
	c.exact("ReplayID", a.ReplayID)
	c.exact("Fields", strings.Join(a.Fields, " "))
	c.long("Count", a.Count)
	c.exact("Filter", string(a.Filter))
	return c
}

func (e entity) audit() tables.Audit {
	return tables.Audit{
		ID: e.rk, At: e.time("AtMs"), Action: tables.AuditAction(e.text("Action")), Key: e.text("Key"), Reason: e.text("Reason"),
		Instance: e.text("Instance"), RequestID: e.text("RequestID"), Queue: e.text("Queue"), WebhookID: e.text("WebhookID"),
		DeadLetterID: e.text("DeadLetterID"), ReplayID: e.text("ReplayID"), Fields: strings.Fields(e.text("Fields")),
		Count: e.long("Count"), Filter: json.RawMessage(e.text("Filter")),
	}
}

// ListAudits implements tables.Audits.
func (s *Store) ListAudits(ctx context.Context, f tables.AuditFilter, page tables.Page) ([]tables.Audit, tables.Cursor, error) {
	err := checkLimit(page.Limit)
	if err != nil {
		return nil, "", err
	}
	at, err := parsePosition(page.After)
	if err == nil && (at.Day != "" || at.Partition != "" || at.Row != "") {
		err = tables.ErrBadCursor // of another list
	}
	var audits []tables.Audit
	given := at.token()
	for n := 0; err == nil && len(audits) == 0 && n < auditPages; n++ {
		var rows []entity
		var next token
		rows, next, err = s.client.page(ctx, query{table: s.auditsTable(), filter: auditsOf(f), top: page.Limit}, at.token())
		if at.token() == given && given != (token{}) && isRefused(err) {
			err = tables.ErrBadCursor
		}
		for _, e := range rows {
			a := e.audit()
			if e.damage() == nil && json.Valid(append(a.Filter, ' ')) == (len(a.Filter) > 0) && f.Matches(a) {
				audits = append(audits, a)
			}
		}
		if at = at.withToken(next); next == (token{}) {
			break
		}
	}
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("list audits: %w", err)
	case at == (position{}):
		return audits, "", nil
	}
	return audits, at.cursor(), nil
}

// auditsOf leaves to the service what surely is a text column.
func auditsOf(f tables.AuditFilter) filter {
	first, end := f.Span()
	q := filter{}.partition(auditsPartition).where("RowKey", "ge", first).where("RowKey", "lt", end)
	for column, value := range map[string]string{"Queue": f.Queue, "WebhookID": f.WebhookID, "Action": string(f.Action), "Key": f.Key} {
		if value != "" && carriesUnchanged(value) {
			q = q.where(column, "eq", value)
		}
	}
	return q
}

// ExpireAudits implements tables.Audits.
func (s *Store) ExpireAudits(ctx context.Context, before time.Time) (int64, error) {
	_, end := tables.AuditFilter{From: before}.Span()
	rows, err := s.client.all(ctx, query{table: s.auditsTable(), filter: filter{}.partition(auditsPartition).where("RowKey", "ge", end), columns: []string{"AtMs"}})
	var n int64
	if err == nil {
		n, err = s.client.removeAll(ctx, s.auditsTable(), rows)
	}
	if err != nil {
		return n, fmt.Errorf("expire audits: %w", err)
	}
	return n, nil
}
