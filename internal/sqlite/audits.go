package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/pushlease/pushlease/tables"
)

const (
	putAuditSQL     = "INSERT OR REPLACE INTO audits (id, audit) VALUES (?, ?)"
	listAuditsSQL   = "SELECT id, audit FROM audits WHERE id >= ? AND id < ? AND id > ? ORDER BY id LIMIT ?"
	expireAuditsSQL = "DELETE FROM audits WHERE id >= ?"
)

const auditCursor = "u."

// PutAudit implements tables.Audits.
func (db *DB) PutAudit(ctx context.Context, a tables.Audit) error {
	stored, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("put audit: %w", err)
	}
	err = db.write(ctx, serviceTable, "put_audit", func(tx *tx) error {
		_, err := tx.exec(putAuditSQL, a.ID, string(stored))
		return err
	})
	if err != nil {
		return fmt.Errorf("put audit: %w", err)
	}
	return nil
}

// ListAudits implements tables.Audits.
func (db *DB) ListAudits(ctx context.Context, f tables.AuditFilter, page tables.Page) ([]tables.Audit, tables.Cursor, error) {
	if err := checkPage(page); err != nil {
		return nil, "", err
	}
	last, ours := strings.CutPrefix(string(page.After), auditCursor)
	if !ours && page.After != "" {
		return nil, "", fmt.Errorf("list audits: %w", tables.ErrBadCursor)
	}
	first, end := f.Span()
	var audits []tables.Audit
	var next tables.Cursor
	looked := 0
	q := query{text: listAuditsSQL, args: []any{first, end, last, scanBound + 1}}
	err := db.read(ctx, serviceTable, "list_audits", q, func(scan func(...any) error) (bool, error) {
		if len(audits) == page.Limit || looked == scanBound {
			next = tables.Cursor(auditCursor + last)
			return false, nil
		}
		var stored string
		if err := scan(&last, &stored); err != nil {
			return false, err
		}
		looked++
		var a tables.Audit
		if json.Unmarshal([]byte(stored), &a) == nil && a.ID == last && f.Matches(a) {
			audits = append(audits, a)
		}
		return true, nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("list audits: %w", err)
	}
	return audits, next, nil
}

// ExpireAudits implements tables.Audits.
func (db *DB) ExpireAudits(ctx context.Context, before time.Time) (n int64, err error) {
	_, end := tables.AuditFilter{From: before}.Span()
	err = db.write(ctx, serviceTable, "expire_audits", func(tx *tx) (err error) {
		n, err = tx.exec(expireAuditsSQL, end)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("expire audits: %w", err)
	}
	return n, nil
}
