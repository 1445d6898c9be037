package azuretable

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/pushlease/pushlease/tables"
)

// roundTrip encodes columns the way they travel and reads them back.
func roundTrip(t *testing.T, c columns) entity {
	t.Helper()
	r, err := c.row("p", "r")
	if err != nil {
		t.Fatal(err)
	}
	e, err := parseEntity(rowJSON(r))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestColumnsComeBack(t *testing.T) {
	c := columns{}
	texts := map[string]string{
		"Plain": "it's <a> & \"b\"", "Emoji": "🙂", "Lines": " a\r\n\tb ", "Nul": "a\x00b", "C1": "a\u0085b", "NonCharacter": "\uffff",
		"Broken": "\xff\xfe", "Long": strings.Repeat("é", 40_000),
	}
	for name, s := range texts {
		c.exact(name, s)
	}
	numbers := map[string]int{"Zero": 0, "Small": -3, "MaxInt32": math.MaxInt32, "Large": math.MaxInt32 + 1, "Max": math.MaxInt}
	for name, n := range numbers {
		c.number(name, n)
	}
	at := time.Date(1, 1, 1, 0, 0, 0, 1e6, time.UTC)
	c.time("Early", at)
	c.time("Never", time.Time{})
	c.duration("Duration", math.MaxInt64)
	c.flag("Yes", true)
	c.flag("No", false)
	e := roundTrip(t, c)
	for name, s := range texts {
		if got := e.text(name); got != s {
			t.Errorf("%s = %.40q, want %.40q", name, got, s)
		}
	}
	for name, n := range numbers {
		if got := e.number(name); got != n {
			t.Errorf("%s = %d, want %d", name, got, n)
		}
	}
	if !e.time("Early").Equal(at) || !e.time("Never").IsZero() {
		t.Errorf("times = %v, %v", e.time("Early"), e.time("Never"))
	}
	if e.duration("Duration") != math.MaxInt64 || !e.flag("Yes") || e.flag("No") {
		t.Error("duration or flag did not come back")
	}
}

func TestNoStringPropertyIsLongerThanTheServiceTakes(t *testing.T) {
	c := columns{}
	c.exact("A", strings.Repeat("🙂", 100_000))
	c.exact("B", strings.Repeat("a", 32<<10))
	c.text("C", strings.Repeat("🙂", 100_000), maxDescription)
	for name, v := range roundTrip(t, c).columns {
		switch v := v.(type) {
		case string:
			if n := len(utf16.Encode([]rune(v))); n > 32<<10 {
				t.Errorf("%s has %d UTF-16 units", name, n)
			}
		default:
			if b, _ := json.Marshal(v); len(b) > 4*maxBinary/3+8 {
				t.Errorf("%s has %d bytes", name, len(b))
			}
		}
	}
	if got := roundTrip(t, c).text("A"); got != strings.Repeat("🙂", 100_000) {
		t.Errorf("a long string came back as %d bytes", len(got))
	}
}

func TestBinaryIsSplitAt64KiB(t *testing.T) {
	for n, parts := range map[int]int{0: 0, 1: 1, maxBinary: 1, maxBinary + 1: 2, 3 * maxBinary: 3} {
		c := columns{}
		want := bytes.Repeat([]byte{0xff}, n)
		c.binary("B", want)
		if got := len(roundTrip(t, c).columns); got != parts {
			t.Errorf("%d bytes are in %d properties, want %d", n, got, parts)
		}
		if got := roundTrip(t, c).binary("B"); !bytes.Equal(got, want) {
			t.Errorf("%d bytes came back as %d", n, len(got))
		}
	}
	c := columns{}
	c.binary("B", make([]byte, 1<<20))
	if _, err := c.row("p", "r"); !errors.Is(err, errRowTooLarge) {
		t.Errorf("a row of 1 MiB = %v, want errRowTooLarge", err)
	}
}

// C86: each kind of column, absent, and with each type that another program may write.
func TestMissingColumnsReadAsZeroAndForeignTypesAreNoted(t *testing.T) {
	// The service answers null for a column that was asked for and is missing.
	e := func() entity {
		e, err := parseEntity([]byte(`{"PartitionKey":"p","RowKey":"r","Null":null,"Text":"text","Int":3,"Flag":true,"Half":1.5,"Whole":4.0,
			"Date@odata.type":"Edm.DateTime","Date":"2026-01-01T00:00:00Z","Bytes@odata.type":"Edm.Binary","Bytes":"YQ==","Long@odata.type":"Edm.Int64","Long":"5"}`))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for read, takes := range map[string]struct {
		read func(e entity, name string) any
		want map[string]any // what reads as something
		none any
	}{
		"text":   {func(e entity, n string) any { return e.text(n) }, map[string]any{"Text": "text", "Bytes": "a"}, ""},
		"binary": {func(e entity, n string) any { return string(e.binary(n)) }, map[string]any{"Text": "text", "Bytes": "a"}, ""},
		"number": {func(e entity, n string) any { return e.number(n) }, map[string]any{"Int": 3, "Whole": 4, "Long": 5}, 0},
		"time":   {func(e entity, n string) any { return e.time(n) }, map[string]any{"Int": time.UnixMilli(3).UTC(), "Whole": time.UnixMilli(4).UTC(), "Long": time.UnixMilli(5).UTC()}, time.Time{}},
		"flag":   {func(e entity, n string) any { return e.flag(n) }, map[string]any{"Flag": true}, false},
	} {
		for _, name := range []string{"Absent", "Null", "Text", "Int", "Flag", "Half", "Whole", "Date", "Bytes", "Long"} {
			e := e()
			got := takes.read(e, name)
			want, ok := takes.want[name]
			if !ok {
				want = takes.none
			}
			if got != want {
				t.Errorf("%s of %s = %v, want %v", read, name, got, want)
			}
			err, silent := e.damage(), ok || name == "Absent" || name == "Null"
			if (err == nil) != silent || err != nil && (!errors.Is(err, tables.ErrDamaged) || !strings.Contains(err.Error(), name)) {
				t.Errorf("%s of %s: damage is %v, want it named: %t", read, name, err, !silent)
			}
		}
	}
	if _, err := parseEntity([]byte(`{"PartitionKey":3,"Secret":"s3cret"`)); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error of a malformed row = %v, want one without content", err)
	}
}

// FuzzText encodes texts: each comes back, in one line of ASCII.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "it's", "a\"b\\c", "\r\n--changeset\r\n", "é🙂\u2028", "\x00\x7f", "\xff\xc3", "\ufffd\uffff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := appendText(nil, s)
		for _, c := range b {
			if c < 0x20 || c > 0x7e {
				t.Fatalf("%q is encoded with a byte %#x", s, c)
			}
		}
		var got string
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%q is encoded as %s: %v", s, b, err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) && got != want {
			t.Errorf("%q came back as %q", want, got)
		}
		var c columns
		c.exact("A", s)
		if got := roundTrip(t, c).text("A"); got != s {
			t.Errorf("column %q came back as %q", s, got)
		}
	})
}

func TestARecordHasEachKeyOnce(t *testing.T) {
	s := &Store{names: names{prefix: "p", partitions: 1}}
	key := tables.MessageKey{Queue: "orders", MessageID: "id-1", Day: time.Now()}
	first := tables.Attempt{MessageKey: key, WebhookID: "wh_1", Number: 1, Status: 500, StartedAt: time.Now()}
	again, next := first, first
	again.Status, next.Number = 200, 2
	_, rows, _, err := s.encodeRecord(tables.Record{Attempts: []tables.Attempt{first, next, again}})
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v; want 2", len(rows), err)
	}
	if rows[0].RK != attemptKey(first) || !strings.Contains(string(rows[0].Columns), `"Status":200`) {
		t.Errorf("kept %s with %s, want the last one", rows[0].RK, rows[0].Columns)
	}
}

// C86: how other programs write the text of a dead letter.
func TestATextThatIsAStringIsItsBytes(t *testing.T) {
	read := func(more string) tables.DeadLetter {
		e, err := parseEntity([]byte(`{"PartitionKey":"orders","RowKey":"r","Queue":"orders","MessageID":"m"` + more + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return e.deadLetter()
	}
	// No row is without these.
	whole := map[string]string{"DeadLetteredAtMs": `,"DeadLetteredAtMs@odata.type":"Edm.Int64","DeadLetteredAtMs":"1764374400000"`, "Status": `,"Status":"waiting"`}
	at := whole["DeadLetteredAtMs"] + whole["Status"]
	if d := read(at + `,"Text":"{\"n\":1}"`); string(d.Text) != `{"n":1}` || d.Damaged != nil {
		t.Errorf("as a string: %q, %v", d.Text, d.Damaged)
	}
	if d := read(at); len(d.Text) != 0 || d.Damaged != nil {
		t.Errorf("absent: %q, %v", d.Text, d.Damaged)
	}
	for _, column := range []string{"Text", "Status", "Size", "DeadLetteredAtMs", "Replays"} {
		more := `,"` + column + `":true`
		for name, text := range whole {
			if name != column {
				more += text
			}
		}
		if d := read(more); !errors.Is(d.Damaged, tables.ErrDamaged) || !strings.Contains(d.Damaged.Error(), column) {
			t.Errorf("%s of another type: %v, want it named", column, d.Damaged)
		}
	}
}
