package azurestandin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf16"
)

const (
	maxRows        = 1000 // of one page
	maxBatchRows   = 100
	maxBatchBytes  = 4 << 20
	maxEntity      = 1 << 20
	maxKey         = 1 << 10
	maxStringUnits = 32 << 10
	maxBinaryBytes = 64 << 10
)

var (
	errNoTable       = &refusal{http.StatusNotFound, "TableNotFound"}
	errBeingDeleted  = &refusal{http.StatusConflict, "TableBeingDeleted"}
	errTableExists   = &refusal{http.StatusConflict, "TableAlreadyExists"}
	errNoEntity      = &refusal{http.StatusNotFound, "ResourceNotFound"}
	errEntityExists  = &refusal{http.StatusConflict, "EntityAlreadyExists"}
	errChanged       = &refusal{http.StatusPreconditionFailed, "UpdateConditionNotSatisfied"}
	errEntityTooBig  = &refusal{http.StatusBadRequest, "EntityTooLarge"}
	errValueTooBig   = &refusal{http.StatusBadRequest, "PropertyValueTooLarge"}
	errKey           = &refusal{http.StatusBadRequest, "OutOfRangeInput"}
	errMixed         = &refusal{http.StatusBadRequest, "CommandsInBatchActOnDifferentPartitions"}
	errDuplicateRow  = &refusal{http.StatusBadRequest, "InvalidDuplicateRow"}
	errBatchTooLarge = &refusal{http.StatusRequestEntityTooLarge, "RequestBodyTooLarge"}
)

// tableService is the account's tables, by their name in lower case: names are the same
// in either case.
type tableService struct {
	model *model
	etags atomic.Int64

	mu     sync.Mutex
	tables map[string]*table
	// deleted is when, by name.
	deleted map[string]time.Time
}

type table struct {
	name string

	mu         sync.Mutex
	partitions map[string]*partition
}

// partition holds rows by their key. Its order is made when somebody asks for it, so that
// writing alone costs nothing for it.
type partition struct {
	rows map[string]*entity
	// keys are in order but for the last fresh ones, and may have some that are gone.
	keys  []string
	fresh int
}

// entity is one row: a JSON object as its writer sent it.
type entity struct {
	pk, rk, etag string
	written      time.Time
	json         []byte
	// values are decoded when a filter or a merge asks for them.
	values map[string]any
}

func (s *tableService) find(name string) (*table, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tables[strings.ToLower(name)]; t != nil {
		return t, nil
	}
	return nil, errNoTable
}

func (s *tableService) create(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tables[strings.ToLower(name)] != nil {
		return errTableExists
	}
	if s.gone(name, s.model.Now()) {
		return errBeingDeleted
	}
	s.tables[strings.ToLower(name)] = &table{name: name, partitions: map[string]*partition{}}
	return nil
}

func (s *tableService) remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tables[strings.ToLower(name)] == nil {
		return errNoEntity
	}
	delete(s.tables, strings.ToLower(name))
	s.deleted[strings.ToLower(name)] = s.model.Now()
	return nil
}

func (s *tableService) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, t := range s.tables {
		names = append(names, t.name)
	}
	slices.Sort(names)
	return names
}

// newETag has the form of a real one.
func (s *tableService) newETag() string {
	return fmt.Sprintf(`W/"datetime'%019d'"`, s.etags.Add(1))
}

// change is one write of a row.
type change struct {
	method, pk, rk string
	// insert fails where the row is there.
	insert bool
	// ifMatch is "" for none, "*" for any row, or an ETag.
	ifMatch string
	json    []byte
}

// check finds out what is wrong with a change by itself.
func (c *change) check() error {
	for _, key := range []string{c.pk, c.rk} {
		if len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return strings.ContainsRune(`/\#?`, r) || r < 0x20 || r >= 0x7f && r < 0xa0 }) {
			return errKey
		}
	}
	if c.method == http.MethodDelete {
		return nil
	}
	switch c.json = bytes.TrimSpace(c.json); {
	case len(c.json) < 2 || c.json[0] != '{' || !json.Valid(c.json):
		return errInvalid
	case len(c.json) > maxEntity:
		return errEntityTooBig
	case len(c.json) > maxStringUnits: // else no value can be too long
		return checkValues(c.json)
	}
	return nil
}

func checkValues(row []byte) error {
	values, err := decode(row)
	if err != nil {
		return err
	}
	for name, v := range values {
		text, ok := v.(string)
		switch {
		case !ok:
		case values[name+odataType] == "Edm.Binary" && len(text)/4*3 > maxBinaryBytes+2:
			return errValueTooBig
		case values[name+odataType] == nil && len(utf16.Encode([]rune(text))) > maxStringUnits:
			return errValueTooBig
		}
	}
	return nil
}

const odataType = "@odata.type"

func decode(row []byte) (map[string]any, error) {
	var values map[string]any
	d := json.NewDecoder(bytes.NewReader(row))
	d.UseNumber()
	if err := d.Decode(&values); err != nil {
		return nil, errInvalid
	}
	return values, nil
}

// allowed checks a change against the row that is there. t.mu is held.
func (t *table) allowed(c *change) error {
	var there *entity
	if p := t.partitions[c.pk]; p != nil {
		there = p.rows[c.rk]
	}
	switch {
	case c.insert && there != nil:
		return errEntityExists
	case c.insert || c.ifMatch == "" && c.method != http.MethodDelete:
		return nil
	case there == nil:
		return errNoEntity
	case c.ifMatch != "*" && c.ifMatch != there.etag:
		return errChanged
	}
	return nil
}

// apply does what allowed allowed, and returns the new ETag. t.mu is held.
func (t *table) apply(c *change, etag string, now time.Time) (string, error) {
	p := t.partitions[c.pk]
	if c.method == http.MethodDelete {
		delete(p.rows, c.rk)
		return "", nil
	}
	if p == nil {
		p = &partition{rows: map[string]*entity{}}
		t.partitions[c.pk] = p
	}
	there := p.rows[c.rk]
	if there == nil {
		p.keys = append(p.keys, c.rk)
		p.fresh++
	}
	row := c.json
	if there != nil && (c.method == http.MethodPatch || c.method == "MERGE") {
		var err error
		if row, err = merged(there.json, row); err != nil {
			return "", err
		}
	}
	p.rows[c.rk] = &entity{pk: c.pk, rk: c.rk, etag: etag, written: now, json: row}
	return etag, nil
}

// merged is a row with the properties of another over its own.
func merged(under, over []byte) ([]byte, error) {
	values, err := decode(under)
	if err != nil {
		return nil, err
	}
	more, err := decode(over)
	if err != nil {
		return nil, err
	}
	for name, v := range more {
		values[name] = v
	}
	row, err := json.Marshal(values)
	if err != nil {
		return nil, errInvalid
	}
	return row, nil
}

// write makes all changes or none, and returns their ETags. at is the change that was
// refused.
func (s *tableService) write(tableName string, changes []*change, now time.Time) (etags []string, at int, err error) {
	t, err := s.find(tableName)
	if err != nil {
		return nil, 0, err
	}
	for i, c := range changes {
		if err := c.check(); err != nil {
			return nil, i, err
		}
	}
	if err := s.model.limits.rows(tableName, changes[0].pk, len(changes)); err != nil {
		return nil, 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range changes {
		if err := t.allowed(c); err != nil {
			return nil, i, err
		}
	}
	for i, c := range changes {
		etag, err := t.apply(c, s.newETag(), now)
		if err != nil {
			return nil, i, err
		}
		etags = append(etags, etag)
	}
	return etags, 0, nil
}

// get returns a row, or a refusal.
func (s *tableService) get(tableName, pk, rk string) (*entity, error) {
	t, err := s.find(tableName)
	if err != nil {
		return nil, err
	}
	if err := s.model.limits.rows(tableName, pk, 1); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.partitions[pk]; p != nil && p.rows[rk] != nil {
		return p.rows[rk], nil
	}
	return nil, errNoEntity
}

// sorted brings the keys into order.
func (p *partition) sorted() []string {
	if p.fresh > 0 {
		slices.Sort(p.keys)
		p.keys, p.fresh = slices.Compact(p.keys), 0
	}
	return p.keys
}

// place is where a page begins.
type place struct{ pk, rk string }

// query returns up to limit rows that pass the filter from a place on, and where the next
// page begins.
func (s *tableService) query(tableName string, f filter, from place, limit int) (rows []*entity, next *place, err error) {
	t, err := s.find(tableName)
	if err != nil {
		return nil, nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for pk := range t.partitions {
		if pk >= from.pk && f.allows("PartitionKey", pk) {
			names = append(names, pk)
		}
	}
	slices.Sort(names)
	for _, pk := range names {
		p := t.partitions[pk]
		start := f.least("RowKey")
		if pk == from.pk && from.rk > start {
			start = from.rk
		}
		keys := p.sorted()
		i, _ := slices.BinarySearch(keys, start)
		for _, rk := range keys[i:] {
			if f.past("RowKey", rk) {
				break
			}
			e := p.rows[rk]
			if e == nil || !f.takes(e) {
				continue
			}
			if len(rows) == limit {
				return rows, &place{pk, rk}, nil
			}
			rows = append(rows, e)
		}
	}
	return rows, nil, nil
}
