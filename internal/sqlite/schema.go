package sqlite

import (
	_ "embed"
	"fmt"
)

var (
	//go:embed schema.sql
	schema1 string
	//go:embed schema2.sql
	schema2 string
	//go:embed schema3.sql
	schema3 string
	//go:embed schema4.sql
	schema4 string
	//go:embed schema5.sql
	schema5 string
	//go:embed schema6.sql
	schema6 string
	//go:embed schema7.sql
	schema7 string
	//go:embed schema8.sql
	schema8 string
	//go:embed schema9.sql
	schema9 string
	//go:embed schema10.sql
	schema10 string
	//go:embed schema11.sql
	schema11 string
	//go:embed schema12.sql
	schema12 string
	//go:embed schema13.sql
	schema13 string
	//go:embed schema14.sql
	schema14 string
	//go:embed schema15.sql
	schema15 string
	//go:embed schema16.sql
	schema16 string
	//go:embed schema17.sql
	schema17 string
	//go:embed schema18.sql
	schema18 string
)

// schemas lead from an empty file to the newest schema; a file of version n has had the
// first n. What files were made with is never changed: another one is added.
var schemas = []string{schema1, schema2, schema3, schema4, schema5, schema6, schema7, schema8, schema9, schema10, schema11, schema12, schema13, schema14, schema15, schema16, schema17, schema18}

// applicationID marks the file as ours; schema.sql writes it.
const applicationID = 1886152037

// schemaVersion is the user_version that this program writes and reads.
func schemaVersion() int { return len(schemas) }

// prepareFile makes sure that the file has our schema, and brings one that an older
// program made up to date. It runs under the write lock, so that processes that open
// a file together do it once.
func prepareFile(conn *connection) (err error) {
	if err := conn.script("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		end := "COMMIT"
		if err != nil {
			end = "ROLLBACK"
		}
		if endErr := conn.script(end); err == nil {
			err = endErr
		}
	}()
	var version, application, objects int64
	for query, into := range map[string]*int64{
		"PRAGMA user_version":                &version,
		"PRAGMA application_id":              &application,
		"SELECT count(*) FROM sqlite_schema": &objects,
	} {
		if err := conn.row(query, nil, into); err != nil {
			return err
		}
	}
	newest := int64(len(schemas))
	switch {
	case objects > 0 && application != applicationID:
		return errForeign
	case version > newest:
		return fmt.Errorf("the file was written by a newer pushlease (schema %d, this one knows %d): run that version, or name another file", version, newest)
	case version == newest:
		return nil
	}
	for i, statements := range schemas[version:] {
		if err := conn.script(statements); err != nil {
			return fmt.Errorf("create schema %d: %w", int(version)+i+1, err)
		}
	}
	return conn.script(setVersion())
}

// ofOurSchema refuses to take on messages when another process has brought the file up to a newer
// schema: this one does not know all of its records any more, and might POST again what they say was
// delivered. What is in hand is recorded and settled all the same.
func (t *tx) ofOurSchema() error {
	version, err := t.newerSchema()
	if err == nil && version > 0 {
		return fmt.Errorf("a newer pushlease has opened the file meanwhile (schema %d, this one knows %d): nothing is received here any more; restart this process with that version", version, schemaVersion())
	}
	return err
}

// newerSchema is the schema of the file where a newer version has opened it meanwhile; zero else.
func (t *tx) newerSchema() (version int64, err error) {
	err = t.row("PRAGMA user_version", nil, &version)
	if version <= int64(schemaVersion()) {
		version = 0
	}
	return version, err
}

// setVersion marks the file as one of the newest schema.
func setVersion() string { return fmt.Sprintf("PRAGMA user_version = %d", schemaVersion()) }
