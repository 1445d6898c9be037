package tables

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Damage is what of a record can't be read, because another program has changed its row. It is
// never written.
type Damage struct {
	// Columns names it, as in "State, NextAtMs"; empty where all can be read.
	Columns string
	// Undecided is whether how far a delivery has come can't be told by what is left.
	Undecided bool
}

// NewDamage is about the columns that can't be read. Of a delivery decisive are those by which it is
// decided what becomes of its message; the others are for people.
func NewDamage(columns, decisive []string) Damage {
	return Damage{
		Columns:   strings.Join(columns, ", "),
		Undecided: slices.ContainsFunc(columns, func(c string) bool { return slices.Contains(decisive, c) }),
	}
}

// Err is an ErrDamaged of what is undecided; nil of anything else.
func (d Damage) Err() error {
	if !d.Undecided {
		return nil
	}
	return fmt.Errorf("%w: not to be read is %s", ErrDamaged, d.Columns)
}

// TimeOf reads milliseconds since 1970 of a row, where 0 is the zero time. ok is false for what no JSON can
// say, which no version writes.
func TimeOf(ms int64) (t time.Time, ok bool) {
	if ms == 0 {
		return time.Time{}, true
	}
	t = time.UnixMilli(ms).UTC()
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}, false
	}
	return t, true
}
