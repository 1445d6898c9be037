package sqlite

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
)

//go:embed schema.sql
var schema string

const (
	// schemaVersion is the user_version that this program writes and reads.
	schemaVersion = 1
	// applicationID marks the file as ours; schema.sql writes it.
	applicationID = 1886152037
)

// prepareFile makes sure that the file has our schema. It runs under the write
// lock, so that processes that open a new file together make it once.
func prepareFile(ctx context.Context, conn *sql.Conn) (err error) {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		end := "COMMIT"
		if err != nil {
			end = "ROLLBACK"
		}
		if _, endErr := conn.ExecContext(context.WithoutCancel(ctx), end); err == nil {
			err = endErr
		}
	}()
	var version, application, objects int
	for query, into := range map[string]*int{
		"PRAGMA user_version":                &version,
		"PRAGMA application_id":              &application,
		"SELECT count(*) FROM sqlite_schema": &objects,
	} {
		if err := conn.QueryRowContext(ctx, query).Scan(into); err != nil {
			return err
		}
	}
	switch {
	case objects > 0 && application != applicationID:
		return errForeign
	case version > schemaVersion:
		return fmt.Errorf("the file was written by a newer pushlease (schema %d, this one knows %d): run that version, or name another file", version, schemaVersion)
	case version == schemaVersion:
		return nil
	}
	if _, err := conn.ExecContext(ctx, schema); err != nil {
		return fmt.Errorf("create schema: %w", err)
	}
	_, err = conn.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
	return err
}
