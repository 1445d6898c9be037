package sqlite

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// inWriter runs f as one write, in a table of one column of any type.
func inWriter(t *testing.T, f func(tx *tx) error) error {
	t.Helper()
	return openNew(t).writer.do(t.Context(), "", false, func(tx *tx) error {
		if _, err := tx.exec("CREATE TABLE IF NOT EXISTS kept (n INTEGER PRIMARY KEY, v ANY NOT NULL) STRICT"); err != nil {
			return err
		}
		return f(tx)
	})
}

func TestValuesComeBackAsTheyWere(t *testing.T) {
	long := strings.Repeat("long ", scratchBlock/4) // more than one block of scratch
	texts := []string{"", "a", "nul \x00 inside", "\xff\xfe", "ü…", long}
	err := inWriter(t, func(tx *tx) error {
		for i, v := range texts {
			if _, err := tx.exec("INSERT INTO kept VALUES (?, ?)", 2*i, v); err != nil {
				return err
			}
			if _, err := tx.exec("INSERT INTO kept VALUES (?, ?)", 2*i+1, []byte(v)); err != nil {
				return err
			}
		}
		for i, v := range texts {
			var text string
			var kind policy.Reason
			if err := tx.row("SELECT v, v FROM kept WHERE n = ?", []any{2 * i}, &text, &kind); err != nil || text != v || string(kind) != v {
				t.Errorf("text %d of %d bytes came back as %d and %d bytes, %v", i, len(v), len(text), len(kind), err)
			}
			var blob []byte
			if err := tx.row("SELECT v FROM kept WHERE n = ?", []any{2*i + 1}, &blob); err != nil || blob == nil || !bytes.Equal(blob, []byte(v)) {
				t.Errorf("blob %d came back as %d bytes, %v", i, len(blob), err)
			}
		}
		var yes, no bool
		var d time.Duration
		var n int
		var at time.Time
		now := time.UnixMilli(1_700_000_000_123).UTC()
		if err := tx.row("SELECT ?, ?, ?, ?, ?", []any{true, false, time.Hour, -7, millis(now)}, &yes, &no, &d, &n, timeOf(&at)); err != nil {
			return err
		}
		if !yes || no || d != time.Hour || n != -7 || !at.Equal(now) {
			t.Errorf("got %t %t %s %d %s", yes, no, d, n, at)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestStatementIsGoodAgainAfterAnError(t *testing.T) {
	err := inWriter(t, func(tx *tx) error {
		const insert = "INSERT INTO kept VALUES (?, ?)"
		for _, args := range [][]any{{1}, {1, 2, 3}, {1, struct{}{}}, {"not a number", 1}} {
			if _, err := tx.exec(insert, args...); err == nil {
				t.Errorf("%v was taken", args)
			}
		}
		if n, err := tx.exec(insert, 1, "good"); n != 1 || err != nil {
			t.Errorf("afterwards %d rows, %v", n, err)
		}
		if _, err := tx.exec(insert, 1, "again"); err == nil {
			t.Error("the key was taken twice")
		}
		if n, err := tx.exec(insert, 2, "good"); n != 1 || err != nil {
			t.Errorf("afterwards %d rows, %v", n, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMessageIDsSortByTime(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_123)
	last := ""
	for i := range 5000 {
		id := newMessageID(now.Add(time.Duration(i) * time.Millisecond))
		if id <= last || len(id) != 26 || strings.ToLower(id) != id {
			t.Fatalf("%s follows %s", id, last)
		}
		last = id
	}
	if a, b := newMessageID(now), newMessageID(now); a == b || a[:9] != b[:9] {
		t.Errorf("%s and %s were made in one millisecond", a, b)
	}
}
