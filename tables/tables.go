package tables

import (
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// The errors of the contract. Adapters wrap them; test with errors.Is. Every
// other error means that the store could not be asked or did not answer, and
// that a write may or may not have taken effect.
var (
	// ErrNotFound: there is no such row.
	ErrNotFound = errors.New("not found")
	// ErrDenied: storage refused the credentials or their permissions. A store that has no
	// such thing never gives it.
	ErrDenied = errors.New("storage denied access")
	// ErrConflict: the row was changed since it was read.
	ErrConflict = errors.New("changed by someone else")
	// ErrExists: the id is taken by another row.
	ErrExists = errors.New("already exists")
	// ErrDamaged: another program has changed the row so that it can't be read.
	ErrDamaged = errors.New("another program has changed the row")
	// ErrBadCursor: the cursor is not one that this store gave.
	ErrBadCursor = errors.New("cursor is not valid")
)

// Cursor is where a list goes on; opaque, URL-safe, empty at the end.
// It stays good while rows come and go.
type Cursor string

// Page asks for a part of a list.
type Page struct {
	// Limit is the most rows to return: 1 to MaxPage.
	Limit int
	// After is the Cursor of the page before; empty for the first.
	After Cursor
}

// MaxPage is the most rows that one page may ask for.
const MaxPage = 500

// Store is everything that one store remembers.
type Store interface {
	Deliveries
	History
	Webhooks
	DeadLetters
	Claims
	LeftQueues
	Healths
	Jobs
	Instances
	Rollups
	Audits
}

// CutText cuts s at max UTF-16 code units, on a character boundary, and marks
// the cut with an ellipsis inside the limit. Invalid UTF-8 is replaced, since the
// result is text for people. Azure Table Storage counts string lengths in
// UTF-16 units; a longer one loses the whole row.
func CutText(s string, max int) string {
	units, keep := 0, 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		w := utf16.RuneLen(r)
		if w < 1 {
			w = 1
		}
		if units+w > max {
			return toValid(s[:keep]) + "…"
		}
		units += w
		i += n
		if units < max { // room for the mark
			keep = i
		}
	}
	return toValid(s)
}

func toValid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}
