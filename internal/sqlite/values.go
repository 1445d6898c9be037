package sqlite

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// millis is how rows hold times; 0 is the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	t, _ := tables.TimeOf(ms)
	return t
}

// timeScanner reads what millis wrote.
type timeScanner struct {
	into *time.Time
	name string
	of   *misread // nil where nobody asks
}

func timeOf(into *time.Time) timeScanner { return timeScanner{into: into} }

// Scan implements sql.Scanner.
func (s timeScanner) Scan(v any) error {
	ms, ok := v.(int64)
	if !ok {
		return fmt.Errorf("a time is stored as %T", v)
	}
	if *s.into, ok = tables.TimeOf(ms); !ok && s.of != nil {
		*s.of = append(*s.of, s.name)
	}
	return nil
}

// misread are the columns of a row that hold what no version writes: another program has.
type misread []string

func (m *misread) time(name string, into *time.Time) timeScanner {
	return timeScanner{into, name, m}
}

// flagScanner reads what flag wrote.
type flagScanner struct {
	into *bool
	name string
	of   *misread
}

func (m *misread) flag(name string, into *bool) flagScanner { return flagScanner{into, name, m} }

// Scan implements sql.Scanner.
func (s flagScanner) Scan(v any) error {
	if *s.into = v == int64(1); !*s.into && v != int64(0) {
		*s.of = append(*s.of, s.name)
	}
	return nil
}

// dayOf is the UTC day of t, counted from 1970.
func dayOf(t time.Time) int64 {
	const perDay = 24 * 60 * 60
	s := t.Unix()
	if s < 0 {
		s -= perDay - 1
	}
	return s / perDay
}

// newETag returns one that no row ever had.
func newETag() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// scanBound is the most rows that one page looks at. A filter that few rows pass then
// gives a short page, with a cursor, and not a long wait.
const scanBound = 5000

const (
	// expireAtOnce bounds how many rows one operation removes, so that its
	// neighbours in the transaction do not wait long.
	expireAtOnce = 500
	// endAtOnce bounds how many messages one operation ends, for the same reason.
	endAtOnce = 100
)

func checkPage(p tables.Page) error {
	if p.Limit < 1 || p.Limit > tables.MaxPage {
		return fmt.Errorf("a page of %d rows is out of bounds: it has 1 to %d", p.Limit, tables.MaxPage)
	}
	return nil
}

// leaseLength rounds a lease up to whole seconds and refuses what is out of bounds.
func leaseLength(lease time.Duration) (time.Duration, error) {
	if rounded := wholeSeconds(lease); lease > 0 && rounded <= queue.MaxLease {
		return rounded, nil
	}
	return 0, fmt.Errorf("a lease of %v is out of bounds: it lasts %v to %v", lease, queue.MinLease, queue.MaxLease)
}

func delayLength(delay time.Duration) (time.Duration, error) {
	if rounded := wholeSeconds(delay); delay >= 0 && rounded <= queue.MaxDelay {
		return rounded, nil
	}
	return 0, fmt.Errorf("a delay of %v is out of bounds: it lasts 0s to %v", delay, queue.MaxDelay)
}

func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}
