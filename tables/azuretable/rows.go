package azuretable

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable/internal/commit"
)

// Limits of the service for one property and one row. A row is kept well
// below its limit, since names and types of properties count too.
const (
	maxBinary = 64 << 10
	maxRow    = 900 << 10
)

// appendKeys appends the beginning of the row's JSON object: columns and a brace are
// its rest.
func appendKeys(b []byte, r commit.Row) []byte {
	b = append(b, `{"PartitionKey":`...)
	b = appendText(b, r.PK)
	b = append(b, `,"RowKey":`...)
	return appendText(b, r.RK)
}

// rowJSON is the row as a JSON object.
func rowJSON(r commit.Row) []byte { return append(append(appendKeys(nil, r), r.Columns...), '}') }

// columns are a row's properties on their way into a row. Zero values are left out:
// rows are always replaced whole. Each name is added once.
type columns struct {
	json []byte
	// size is about what the service counts.
	size int
}

// columnsSize is room for the columns of most rows, so that they are not moved while
// they are added to.
const columnsSize = 768

func (c *columns) name(name string) {
	if c.json == nil {
		c.json = make([]byte, 0, columnsSize)
	}
	c.json = append(c.json, ',', '"')
	c.json = append(c.json, name...)
	c.json = append(c.json, '"', ':')
}

// typed adds the type of a column whose JSON does not tell it.
func (c *columns) typed(name, edm string) {
	c.name(name + "@odata.type")
	c.json = append(c.json, '"')
	c.json = append(c.json, edm...)
	c.json = append(c.json, '"')
}

// text adds a text for people, cut at max UTF-16 units.
func (c *columns) text(name, s string, max int) {
	c.exact(name, tables.CutText(s, max))
}

// exact adds a string that comes back as it is. What a string property might not
// carry unchanged is stored as binary.
func (c *columns) exact(name, s string) {
	switch {
	case s == "":
	case len(s) < 32<<10 && carriesUnchanged(s):
		c.name(name)
		c.json = appendText(c.json, s)
		c.size += 2 * len(s)
	default:
		c.binary(name, []byte(s))
	}
}

func carriesUnchanged(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 0x20 && r != '\t' && r != '\n' && r != '\r') || (r >= 0x7f && r < 0xa0) || r&0xfffe == 0xfffe
	})
}

// binary adds bytes, split over as many properties as they need: name,
// name1, name2 and so on.
func (c *columns) binary(name string, b []byte) {
	c.size += len(b)
	for i := 0; len(b) > 0; i++ {
		n := min(len(b), maxBinary)
		c.typed(part(name, i), "Edm.Binary")
		c.name(part(name, i))
		c.json = append(c.json, '"')
		c.json = base64.StdEncoding.AppendEncode(c.json, b[:n])
		c.json = append(c.json, '"')
		b = b[n:]
	}
}

func part(name string, i int) string {
	if i == 0 {
		return name
	}
	return fmt.Sprintf("%s%d", name, i)
}

func (c *columns) number(name string, v int) {
	switch {
	case v == 0:
	case v > math.MaxInt32 || v < math.MinInt32:
		c.int64(name, int64(v))
	default:
		c.name(name)
		c.json = strconv.AppendInt(c.json, int64(v), 10)
	}
}

func (c *columns) long(name string, v int64) {
	if v != 0 {
		c.int64(name, v)
	}
}

// int64 adds a number, also when it is zero.
func (c *columns) int64(name string, v int64) {
	c.typed(name, "Edm.Int64")
	c.name(name)
	c.json = append(c.json, '"')
	c.json = strconv.AppendInt(c.json, v, 10)
	c.json = append(c.json, '"')
}

// time adds a time as UTC milliseconds; a zero time is left out. Edm.DateTime
// would neither keep the zero time nor times before 1601.
func (c *columns) time(name string, t time.Time) {
	if !t.IsZero() {
		c.int64(name, t.UnixMilli())
	}
}

func (c *columns) duration(name string, d time.Duration) { c.long(name, int64(d)) }

func (c *columns) flag(name string, v bool) {
	if v {
		c.name(name)
		c.json = append(c.json, "true"...)
	}
}

// appendText appends s as a JSON string in ASCII, on one line: nothing in it can end a
// line of the request around it, and no reader can cut a character in two. Invalid
// UTF-8 becomes U+FFFD.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0 // of what goes as it is
	for i := 0; i < len(s); {
		if c := s[i]; c >= 0x20 && c < 0x7f && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[start:i]...)
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = appendUnit(appendUnit(b, high), low)
		default:
			b = appendUnit(b, r)
		}
		i += n
		start = i
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// appendUnit appends one UTF-16 unit, escaped.
func appendUnit(b []byte, u rune) []byte {
	return append(b, '\\', 'u', hexDigits[u>>12&15], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
}

var errRowTooLarge = errors.New("row is larger than the 1 MiB that Table Storage takes")

// row puts the columns under their keys.
func (c columns) row(pk, rk string) (commit.Row, error) {
	if c.size > maxRow {
		return commit.Row{}, errRowTooLarge
	}
	return commit.Row{PK: pk, RK: rk, Columns: c.json}, nil
}

// entity is a row as it was read. Its accessors give the zero value for a column that is
// missing or of another type: a row that another program has written must not hide the
// others. Those of another type are noted, so that what depends on them can be refused.
type entity struct {
	pk, rk, etag string
	// changedAt is storage's; zero where it was not asked for.
	changedAt time.Time
	columns   map[string]any
	wrong     *[]string
}

func parseEntity(b []byte) (entity, error) {
	var e aztables.EDMEntity
	if err := json.Unmarshal(b, &e); err != nil {
		return entity{}, errors.New("row is malformed") // err may quote content
	}
	return entity{
		pk: e.PartitionKey, rk: e.RowKey, etag: e.ETag, changedAt: time.Time(e.Timestamp).UTC(), columns: e.Properties, wrong: new([]string),
	}, nil
}

// absent reports whether a column is missing. The SDK makes a number, 0, of the null that the
// service answers for one.
func (e entity) absent(name string) bool {
	v := e.columns[name]
	return v == nil || v == int32(0)
}

// misread notes a column that is there, and of another type.
func (e entity) misread(name string) {
	if !e.absent(name) {
		e.note(name)
	}
}

// note notes a column that does not say what was written.
func (e entity) note(name string) {
	if !slices.Contains(*e.wrong, name) {
		*e.wrong = append(*e.wrong, name)
	}
}

// damage names the columns read so far that have another type than was written; nil when
// none has.
func (e entity) damage() error {
	if e.wrong == nil || len(*e.wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%w: not to be read is %s", tables.ErrDamaged, strings.Join(*e.wrong, ", "))
}

func (e entity) text(name string) string {
	if s, ok := e.columns[name].(string); ok {
		return s
	}
	return string(e.binary(name))
}

// binary also takes a string for its bytes: that is how other programs write one.
func (e entity) binary(name string) []byte {
	var b []byte
	for i := 0; ; i++ {
		switch next := e.columns[part(name, i)].(type) {
		case aztables.EDMBinary:
			b = append(b, next...)
		case string:
			b = append(b, next...)
		default:
			e.misread(part(name, i))
			return b
		}
	}
}

// long takes every kind of whole number.
func (e entity) long(name string) int64 {
	switch v := e.columns[name].(type) {
	case int32:
		return int64(v)
	case aztables.EDMInt64:
		return int64(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
	}
	e.misread(name)
	return 0
}

func (e entity) number(name string) int { return int(e.long(name)) }

func (e entity) time(name string) time.Time {
	if e.absent(name) {
		return time.Time{}
	}
	ms := e.long(name)
	t, ok := tables.TimeOf(ms)
	if !ok {
		e.note(name)
	}
	return t
}

// notAhead is a time at which we wrote the row. One that another program has set to the future is that of
// its change: a row that is always new would stand for an instance that is always there.
func (e entity) notAhead(name string) time.Time {
	at := e.time(name)
	if !e.changedAt.IsZero() && at.After(e.changedAt.Add(claimSkew)) {
		return e.changedAt
	}
	return at
}

func (e entity) duration(name string) time.Duration { return time.Duration(e.long(name)) }

func (e entity) flag(name string) bool {
	v, ok := e.columns[name].(bool)
	if !ok {
		e.misread(name)
	}
	return v
}
