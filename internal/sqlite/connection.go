package sqlite

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"syscall"

	"modernc.org/libc"
	engine "modernc.org/sqlite/lib"
)

// connection is one connection to the file, without database/sql and the driver in
// between: its statements stay prepared, texts are copied once into memory that is used
// again, and columns are read where they lie. It waits for no lock, runs no goroutine
// and takes no context; one goroutine at a time may use it.
type connection struct {
	tls   *libc.TLS
	db    uintptr
	out   uintptr // room for the pointer that SQLite gives back
	texts scratch
	stmts map[string]*statement
}

// engineError is what SQLite says; code is its extended result code, and system what the
// operating system said when that was about a file.
type engineError struct {
	code   int
	text   string
	system syscall.Errno
}

func (e *engineError) Error() string { return fmt.Sprintf("%s (%d)", e.text, e.code) }

// openConnection opens the file, which has to be there.
func openConnection(path string) (*connection, error) {
	c := &connection{tls: libc.NewTLS(), stmts: make(map[string]*statement)}
	c.out = engine.Xsqlite3_malloc(c.tls, bits.UintSize/8)
	name, err := libc.CString(path)
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	defer libc.Xfree(c.tls, name)
	rc := engine.Xsqlite3_open_v2(c.tls, name, c.out, engine.SQLITE_OPEN_READWRITE|engine.SQLITE_OPEN_NOMUTEX, 0)
	c.db = c.pointer()
	if rc != engine.SQLITE_OK {
		return nil, errors.Join(c.failure(rc), c.close())
	}
	return c, nil
}

// pointer reads what SQLite has put into out.
func (c *connection) pointer() uintptr {
	const size = bits.UintSize / 8
	raw := libc.GoBytes(c.out, size)
	if size == 4 {
		return uintptr(binary.NativeEndian.Uint32(raw))
	}
	return uintptr(binary.NativeEndian.Uint64(raw))
}

// close finalizes all statements; a second call does nothing.
func (c *connection) close() error {
	if c.tls == nil {
		return nil
	}
	for _, s := range c.stmts {
		engine.Xsqlite3_finalize(c.tls, s.handle) // repeats the error of the last run
	}
	var err error
	if rc := engine.Xsqlite3_close_v2(c.tls, c.db); rc != engine.SQLITE_OK {
		err = c.failure(rc)
	}
	c.texts.free(c.tls)
	engine.Xsqlite3_free(c.tls, c.out)
	c.tls.Close()
	c.tls = nil
	return err
}

// failure makes an error of a result code.
func (c *connection) failure(rc int32) error {
	if c.db == 0 {
		return &engineError{code: int(rc), text: libc.GoString(engine.Xsqlite3_errstr(c.tls, rc))}
	}
	if extended := engine.Xsqlite3_extended_errcode(c.tls, c.db); extended&0xff == rc&0xff {
		rc = extended
	}
	e := &engineError{code: int(rc), text: libc.GoString(engine.Xsqlite3_errmsg(c.tls, c.db))}
	if rc&0xff == engine.SQLITE_IOERR {
		e.system = syscall.Errno(engine.Xsqlite3_system_errno(c.tls, c.db))
	}
	return e
}

// script runs statements that are not worth keeping.
func (c *connection) script(text string) error {
	start, err := libc.CString(text)
	if err != nil {
		return err
	}
	defer libc.Xfree(c.tls, start)
	if rc := engine.Xsqlite3_exec(c.tls, c.db, start, 0, 0, 0); rc != engine.SQLITE_OK {
		return c.failure(rc)
	}
	return nil
}

// prepare returns the statement of this text, which is made once.
func (c *connection) prepare(text string) (*statement, error) {
	if s, ok := c.stmts[text]; ok {
		return s, nil
	}
	start, err := libc.CString(text)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(c.tls, start)
	const keep = engine.SQLITE_PREPARE_PERSISTENT
	if rc := engine.Xsqlite3_prepare_v3(c.tls, c.db, start, int32(len(text)), keep, c.out, 0); rc != engine.SQLITE_OK {
		return nil, c.failure(rc)
	}
	s := &statement{c: c, handle: c.pointer()}
	s.params = engine.Xsqlite3_bind_parameter_count(c.tls, s.handle)
	c.stmts[text] = s
	return s, nil
}

// exec runs a statement to its end and returns how many rows it changed.
func (c *connection) exec(text string, args ...any) (int64, error) {
	s, err := c.prepare(text)
	if err != nil {
		return 0, err
	}
	return s.bindAll(args).exec()
}

// lastRow is the id of the row that was inserted last.
func (c *connection) lastRow() int64 { return engine.Xsqlite3_last_insert_rowid(c.tls, c.db) }

// row runs a query that gives at most one row; sql.ErrNoRows when it gives none.
func (c *connection) row(text string, args []any, into ...any) error {
	found := false
	err := c.rows(text, args, func(s *statement) error {
		found = true
		return s.scan(into...)
	})
	if err == nil && !found {
		return sql.ErrNoRows
	}
	return err
}

// rows runs a query and calls each for every row.
func (c *connection) rows(text string, args []any, each func(s *statement) error) error {
	s, err := c.prepare(text)
	if err != nil {
		return err
	}
	return s.bindAll(args).query(each)
}
