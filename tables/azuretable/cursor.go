package azuretable

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pushlease/pushlease/tables"
)

const (
	// maxRequests bounds the requests of one page of a list. A page that hits it
	// is short and has a cursor.
	maxRequests = 20
	// pageRows is how many rows one request asks for at least: a filter may leave
	// out many.
	pageRows = 100
)

func checkLimit(limit int) error {
	if limit < 1 || limit > tables.MaxPage {
		return fmt.Errorf("limit %d: use 1 to %d", limit, tables.MaxPage)
	}
	return nil
}

// position is a place between two rows of a list: behind the row (Partition, Row)
// of a day's table, or before the partitions after Partition when Row is empty.
// Rows are only ever added before or behind it, never moved, so it stays good.
// Lists that have no days or partitions leave those empty.
type position struct {
	Day       string `json:"d,omitempty"`
	Partition string `json:"p,omitempty"`
	Row       string `json:"r,omitempty"`
	// NextPartition and NextRow are where the service goes on, when it gave up on
	// looking for rows behind the position half-way.
	NextPartition string `json:"np,omitempty"`
	NextRow       string `json:"nr,omitempty"`
}

// place is where a list of several shards is in each of them; a list of one shard has the first alone. The zero position is the
// end of one.
type place struct {
	position
	Others []position `json:"o,omitempty"`
}

// begins reports whether it is the beginning.
func (p place) begins() bool { return p.position == position{} && len(p.Others) == 0 }

// shards are the positions of n shards; ok is false where it is the place of another list.
func (p place) shards(n int) (all []position, ok bool) {
	if len(p.Others) != n-1 {
		return nil, false
	}
	return append([]position{p.position}, p.Others...), true
}

const maxCursor = 4 << 10

func (p position) token() token { return token{pk: p.NextPartition, rk: p.NextRow} }

func (p position) withToken(t token) position {
	p.NextPartition, p.NextRow = t.pk, t.rk
	return p
}

func (p position) cursor() tables.Cursor { return place{position: p}.cursor() }

func (p place) cursor() tables.Cursor {
	b, err := json.Marshal(p)
	if err != nil { // strings always encode
		panic(err)
	}
	return tables.Cursor(base64.RawURLEncoding.EncodeToString(b))
}

// parsePosition reads the cursor of a list of one shard; an empty one is the beginning. What it returns is
// safe within a filter.
func parsePosition(c tables.Cursor) (position, error) {
	p, err := parsePlace(c)
	if err == nil && len(p.Others) > 0 {
		err = tables.ErrBadCursor // of another list
	}
	return p.position, err
}

func parsePlace(c tables.Cursor) (place, error) {
	if c == "" {
		return place{}, nil
	}
	if len(c) > maxCursor {
		return place{}, tables.ErrBadCursor
	}
	b, err := base64.RawURLEncoding.DecodeString(string(c))
	if err != nil {
		return place{}, tables.ErrBadCursor
	}
	var p place
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil || dec.More() {
		return place{}, tables.ErrBadCursor
	}
	going := false
	for _, one := range append(p.Others, p.position) {
		if (one.Day != "" && !validDay(one.Day)) || !safeKey(one.Partition) || !safeKey(one.Row) || (one.Day == "") != (one.Partition == "") && one.Row == "" {
			return place{}, tables.ErrBadCursor
		}
		going = going || one != position{}
	}
	if !going {
		return place{}, tables.ErrBadCursor
	}
	return p, nil
}
