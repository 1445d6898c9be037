package sqlite

import (
	"database/sql"
	"fmt"
	"reflect"
	"time"

	"modernc.org/libc"
	engine "modernc.org/sqlite/lib"
)

// scratch is memory outside of Go's for what one run of a statement is given.
type scratch struct {
	block      uintptr
	size, used int
	more       []uintptr // further blocks, where one did not suffice
}

const scratchBlock = 64 << 10

// put makes room for n bytes, which is good until reset: its address, and the same room to
// be written to; nil when memory is out.
func (m *scratch) put(tls *libc.TLS, n int) (uintptr, []byte) {
	if m.used+n > m.size {
		if m.block != 0 {
			m.more = append(m.more, m.block)
		}
		m.size, m.used = max(scratchBlock, n), 0
		if m.block = engine.Xsqlite3_malloc(tls, int32(m.size)); m.block == 0 {
			m.size = 0
			return 0, nil
		}
	}
	p := m.block + uintptr(m.used)
	m.used += n
	return p, libc.GoBytes(p, n)
}

// reset makes the room free for the next run.
func (m *scratch) reset(tls *libc.TLS) {
	m.used = 0
	for _, p := range m.more {
		engine.Xsqlite3_free(tls, p)
	}
	m.more = m.more[:0]
}

func (m *scratch) free(tls *libc.TLS) {
	m.reset(tls)
	engine.Xsqlite3_free(tls, m.block)
	m.block, m.size = 0, 0
}

// statement is a prepared statement. Arguments are bound in order by text, blob and
// number; then exec or query runs it, which makes it ready for the next arguments.
type statement struct {
	c      *connection
	handle uintptr
	params int32
	bound  int32
	rc     int32 // the first bind that failed
}

func (s *statement) note(rc int32) {
	if rc != engine.SQLITE_OK && s.rc == engine.SQLITE_OK {
		s.rc = rc
	}
}

func (s *statement) number(v int64) *statement {
	s.bound++
	s.note(engine.Xsqlite3_bind_int64(s.c.tls, s.handle, s.bound, v))
	return s
}

func (s *statement) text(v string) *statement {
	s.bound++
	p, room := s.c.texts.put(s.c.tls, len(v)+1) // never of no length: that would be NULL
	if room == nil {
		s.note(engine.SQLITE_NOMEM)
		return s
	}
	copy(room, v)
	s.note(engine.Xsqlite3_bind_text(s.c.tls, s.handle, s.bound, p, int32(len(v)), 0))
	return s
}

func (s *statement) blob(v []byte) *statement {
	s.bound++
	p, room := s.c.texts.put(s.c.tls, len(v)+1)
	if room == nil {
		s.note(engine.SQLITE_NOMEM)
		return s
	}
	copy(room, v)
	s.note(engine.Xsqlite3_bind_blob(s.c.tls, s.handle, s.bound, p, int32(len(v)), 0))
	return s
}

// exec runs the statement to its end and returns how many rows it changed.
func (s *statement) exec() (int64, error) {
	if err := s.query(func(*statement) error { return nil }); err != nil {
		return 0, err
	}
	return int64(engine.Xsqlite3_changes(s.c.tls, s.c.db)), nil
}

// query runs the statement and calls each for every row. An error of each ends it. Each
// must not run another statement.
func (s *statement) query(each func(s *statement) error) (err error) {
	rc := s.rc
	if s.bound != s.params {
		rc = engine.SQLITE_MISUSE
	}
	for rc == engine.SQLITE_OK {
		if rc = engine.Xsqlite3_step(s.c.tls, s.handle); rc != engine.SQLITE_ROW {
			break
		}
		if err = each(s); err != nil {
			break
		}
		rc = engine.SQLITE_OK
	}
	if err == nil && rc != engine.SQLITE_DONE {
		err = s.c.failure(rc)
	}
	engine.Xsqlite3_reset(s.c.tls, s.handle) // repeats the error of the run
	s.c.texts.reset(s.c.tls)
	s.bound, s.rc = 0, engine.SQLITE_OK
	return err
}

// columnNumber reads an integer of the current row.
func (s *statement) columnNumber(i int) int64 {
	return engine.Xsqlite3_column_int64(s.c.tls, s.handle, int32(i))
}

// columnText copies a text, or a blob, of the current row.
func (s *statement) columnText(i int) string { return string(s.columnRaw(i)) }

// columnBlob copies a blob, or a text, of the current row; never nil.
func (s *statement) columnBlob(i int) []byte { return append([]byte{}, s.columnRaw(i)...) }

// columnRaw is good until the next step.
func (s *statement) columnRaw(i int) []byte {
	p := engine.Xsqlite3_column_blob(s.c.tls, s.handle, int32(i))
	if p == 0 {
		return nil
	}
	return libc.GoBytes(p, int(engine.Xsqlite3_column_bytes(s.c.tls, s.handle, int32(i))))
}

// bindAll binds what few statements have need of, at the price of an allocation for each.
func (s *statement) bindAll(args []any) *statement {
	for _, a := range args {
		switch v := a.(type) {
		case string:
			s.text(v)
		case []byte:
			s.blob(v)
		case int64:
			s.number(v)
		case int:
			s.number(int64(v))
		default:
			s.bindKind(reflect.ValueOf(a))
		}
	}
	return s
}

// bindKind binds a value of a type that has a name of its own.
func (s *statement) bindKind(v reflect.Value) {
	switch {
	case v.Kind() == reflect.String:
		s.text(v.String())
	case v.CanInt():
		s.number(v.Int())
	case v.Kind() == reflect.Bool:
		s.flag(v.Bool())
	default:
		s.note(engine.SQLITE_MISMATCH)
	}
}

// time binds what millis makes of t.
func (s *statement) time(t time.Time) *statement { return s.number(millis(t)) }

// flag binds 1 for true.
func (s *statement) flag(v bool) *statement {
	if v {
		return s.number(1)
	}
	return s.number(0)
}

// scan reads the columns of the current row, as sql.Rows would.
func (s *statement) scan(into ...any) error {
	for i, p := range into {
		switch p := p.(type) {
		case *string:
			*p = s.columnText(i)
		case *[]byte:
			*p = s.columnBlob(i)
		case *int64:
			*p = s.columnNumber(i)
		case sql.Scanner:
			if err := p.Scan(s.columnNumber(i)); err != nil {
				return err
			}
		default:
			if err := s.scanKind(i, reflect.ValueOf(p).Elem()); err != nil {
				return err
			}
		}
	}
	return nil
}

// scanKind reads a column into a variable of a type that has a name of its own.
func (s *statement) scanKind(i int, v reflect.Value) error {
	switch {
	case v.Kind() == reflect.String:
		v.SetString(s.columnText(i))
	case v.CanInt():
		v.SetInt(s.columnNumber(i))
	case v.Kind() == reflect.Bool:
		v.SetBool(s.columnNumber(i) != 0)
	default:
		return fmt.Errorf("column %d can't be read into %s", i, v.Type())
	}
	return nil
}
