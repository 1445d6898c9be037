package azuretable

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/pushlease/pushlease/tables"
)

// Limits of the service for one property and one row. A row is kept well
// below its limit, since names and types of properties count too.
const (
	maxBinary = 64 << 10
	maxRow    = 900 << 10
)

// row is one row, ready to be written.
type row struct {
	pk, rk string
	json   []byte
}

// columns are a row's properties. Zero values are left out: rows are always
// replaced whole.
type columns map[string]any

// text adds a text for people, cut at max UTF-16 units.
func (c columns) text(name, s string, max int) {
	c.exact(name, tables.CutText(s, max))
}

// exact adds a string that comes back as it is. What a string property might not
// carry unchanged is stored as binary.
func (c columns) exact(name, s string) {
	switch {
	case s == "":
	case len(s) < 32<<10 && carriesUnchanged(s):
		c[name] = s
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
func (c columns) binary(name string, b []byte) {
	for i := 0; len(b) > 0; i++ {
		n := min(len(b), maxBinary)
		c[part(name, i)] = aztables.EDMBinary(b[:n])
		b = b[n:]
	}
}

func part(name string, i int) string {
	if i == 0 {
		return name
	}
	return fmt.Sprintf("%s%d", name, i)
}

func (c columns) number(name string, v int) {
	switch {
	case v == 0:
	case v > math.MaxInt32 || v < math.MinInt32:
		c[name] = aztables.EDMInt64(v)
	default:
		c[name] = int32(v)
	}
}

func (c columns) long(name string, v int64) {
	if v != 0 {
		c[name] = aztables.EDMInt64(v)
	}
}

// time adds a time as UTC milliseconds; a zero time is left out. Edm.DateTime
// would neither keep the zero time nor times before 1601.
func (c columns) time(name string, t time.Time) {
	if !t.IsZero() {
		c[name] = aztables.EDMInt64(t.UnixMilli())
	}
}

func (c columns) duration(name string, d time.Duration) { c.long(name, int64(d)) }

func (c columns) flag(name string, v bool) {
	if v {
		c[name] = true
	}
}

var errRowTooLarge = errors.New("row is larger than the 1 MiB that Table Storage takes")

// row encodes the columns under their keys.
func (c columns) row(pk, rk string) (row, error) {
	size := 0
	for _, v := range c {
		switch v := v.(type) {
		case aztables.EDMBinary:
			size += len(v)
		case string:
			size += 2 * len(v)
		}
	}
	if size > maxRow {
		return row{}, errRowTooLarge
	}
	e := aztables.EDMEntity{Entity: aztables.Entity{PartitionKey: pk, RowKey: rk}, Properties: c}
	b, err := json.Marshal(e)
	if err != nil {
		return row{}, fmt.Errorf("encode row: %w", err)
	}
	return row{pk: pk, rk: rk, json: b}, nil
}

// entity is a row as it was read. Its accessors give the zero value for a
// column that is missing or of another type: a row that someone edited by hand
// must not hide the others.
type entity struct {
	pk, rk, etag string
	columns      map[string]any
}

func parseEntity(b []byte) (entity, error) {
	var e aztables.EDMEntity
	if err := json.Unmarshal(b, &e); err != nil {
		return entity{}, errors.New("row is malformed") // err may quote content
	}
	return entity{pk: e.PartitionKey, rk: e.RowKey, etag: e.ETag, columns: e.Properties}, nil
}

func (e entity) text(name string) string {
	if s, ok := e.columns[name].(string); ok {
		return s
	}
	return string(e.binary(name))
}

func (e entity) binary(name string) []byte {
	var b []byte
	for i := 0; ; i++ {
		next, ok := e.columns[part(name, i)].(aztables.EDMBinary)
		if !ok {
			return b
		}
		b = append(b, next...)
	}
}

func (e entity) long(name string) int64 {
	switch v := e.columns[name].(type) {
	case int32:
		return int64(v)
	case aztables.EDMInt64:
		return int64(v)
	}
	return 0
}

func (e entity) number(name string) int { return int(e.long(name)) }

func (e entity) time(name string) time.Time {
	if ms, ok := e.columns[name].(aztables.EDMInt64); ok {
		return time.UnixMilli(int64(ms)).UTC()
	}
	return time.Time{}
}

func (e entity) duration(name string) time.Duration { return time.Duration(e.long(name)) }

func (e entity) flag(name string) bool {
	v, _ := e.columns[name].(bool)
	return v
}
