package azuretable

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/pushlease/pushlease/tables"
)

// twice calls f, and once more after a short pause when it failed in a way that
// may pass. Only for requests that may be repeated.
func twice(ctx context.Context, f func() error) error {
	err := f()
	if err == nil || !passing(err) || !sleep(ctx, 50*time.Millisecond+rand.N(50*time.Millisecond)) {
		return err
	}
	return f()
}

// sleep waits for d and reports whether ctx still lasts.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// writeColumn names the writer's token. When the answer to a write was lost, its
// repetition is refused as a conflict with itself; the token tells.
const writeColumn = "WriteID"

func newWriteID() string { return crand.Text() }

// insert adds a row and returns its ETag, or ErrExists. The columns are given
// rather than the row so that each call has its own token.
func (s *Store) insert(ctx context.Context, table, pk, rk string, c columns) (string, error) {
	const operation = "insert row"
	r, id, err := c.signed(pk, rk)
	if err != nil {
		return "", err
	}
	var etag azcore.ETag
	tries := 0
	err = s.withTable(ctx, table, func() error {
		return twice(ctx, func() error {
			tries++
			// Without the header the answer would repeat the whole row.
			quiet := policy.WithHTTPHeader(ctx, http.Header{"Prefer": {"return-no-content"}})
			resp, err := s.service.NewClient(table).AddEntity(quiet, r.json(), nil)
			etag = resp.ETag
			return storageErr(ctx, operation, err)
		})
	})
	if err = rowErr(err); tries > 1 && errors.Is(err, tables.ErrExists) {
		return s.ours(ctx, table, pk, rk, id, err)
	}
	return string(etag), err
}

// replace replaces a row while its ETag is still etag and returns the new one;
// ErrConflict or ErrNotFound.
func (s *Store) replace(ctx context.Context, table, pk, rk string, c columns, etag string) (string, error) {
	const operation = "replace row"
	r, id, err := c.signed(pk, rk)
	if err != nil {
		return "", err
	}
	var fresh azcore.ETag
	tries := 0
	err = rowErr(twice(ctx, func() error {
		tries++
		resp, err := s.service.NewClient(table).UpdateEntity(ctx, r.json(), &aztables.UpdateEntityOptions{
			IfMatch: to.Ptr(azcore.ETag(etag)), UpdateMode: aztables.UpdateModeReplace,
		})
		fresh = resp.ETag
		return storageErr(ctx, operation, err)
	}))
	if tries > 1 && errors.Is(err, tables.ErrConflict) {
		return s.ours(ctx, table, pk, rk, id, err)
	}
	return string(fresh), err
}

// signed encodes the columns with a token of their own.
func (c columns) signed(pk, rk string) (row, string, error) {
	id := newWriteID()
	c.exact(writeColumn, id)
	r, err := c.row(pk, rk)
	return r, id, err
}

// ours returns the row's ETag when an earlier try of the write id is what made
// it, and refusal otherwise: also when the row that stood in the way is gone by now.
func (s *Store) ours(ctx context.Context, table, pk, rk, id string, refusal error) (string, error) {
	e, err := s.get(ctx, table, pk, rk)
	switch {
	case errors.Is(err, tables.ErrNotFound):
		return "", refusal
	case err != nil:
		return "", err
	case e.text(writeColumn) != id:
		return "", refusal
	}
	return e.etag, nil
}

// get returns one row, or ErrNotFound.
func (s *Store) get(ctx context.Context, table, pk, rk string) (entity, error) {
	var resp aztables.GetEntityResponse
	began := time.Now()
	err := twice(ctx, func() (err error) {
		resp, err = s.service.NewClient(table).GetEntity(ctx, pk, rk, nil)
		return storageErr(ctx, "get row", err)
	})
	s.saw(table, began, err)
	if err = rowErr(err); err != nil {
		return entity{}, err
	}
	e, err := parseEntity(resp.Value)
	e.etag = string(resp.ETag)
	return e, err
}

// remove deletes a row if its ETag is still etag, any if etag is empty;
// ErrConflict or ErrNotFound.
func (s *Store) remove(ctx context.Context, table, pk, rk, etag string) error {
	if etag == "" {
		etag = string(azcore.ETagAny)
	}
	tries := 0
	err := rowErr(twice(ctx, func() error {
		tries++
		_, err := s.service.NewClient(table).DeleteEntity(ctx, pk, rk, &aztables.DeleteEntityOptions{IfMatch: to.Ptr(azcore.ETag(etag))})
		return storageErr(ctx, "delete row", err)
	}))
	if tries > 1 && errors.Is(err, tables.ErrNotFound) {
		return nil // the first try did it and its answer was lost
	}
	return err
}

// query asks for rows of one table in the order of their keys.
type query struct {
	table  string
	filter filter
	// columns to return; all when empty.
	columns []string
	// top bounds one page; 0 leaves it to the service (1,000).
	top int
	// etags asks for the rows' ETags.
	etags bool
}

// token is where the service goes on with a query; zero at its end.
type token struct{ pk, rk string }

// page returns rows and where to go on. There may be no rows although there is
// more. A table that does not exist has no rows.
func (s *Store) page(ctx context.Context, q query, from token) ([]entity, token, error) {
	opts := &aztables.ListEntitiesOptions{Filter: to.Ptr(q.filter.String())}
	if len(q.columns) > 0 {
		opts.Select = to.Ptr("PartitionKey,RowKey," + strings.Join(q.columns, ","))
	}
	if q.top > 0 {
		opts.Top = to.Ptr(int32(min(q.top, 1000)))
	}
	if q.etags { // the service adds ETags to lists with full metadata only
		opts.Format = to.Ptr(aztables.MetadataFormatFull)
	}
	if from.pk != "" {
		opts.NextPartitionKey = &from.pk
	}
	if from.rk != "" {
		opts.NextRowKey = &from.rk
	}
	var resp aztables.ListEntitiesResponse
	began := time.Now()
	err := twice(ctx, func() (err error) {
		resp, err = s.service.NewClient(q.table).NewListEntitiesPager(opts).NextPage(ctx)
		return storageErr(ctx, "query rows", err)
	})
	s.saw(q.table, began, err)
	if tableMissing(err) {
		return nil, token{}, nil
	}
	if err != nil {
		return nil, token{}, err
	}
	rows := make([]entity, 0, len(resp.Entities))
	for _, b := range resp.Entities {
		e, err := parseEntity(b)
		if err != nil {
			return nil, token{}, err
		}
		rows = append(rows, e)
	}
	return rows, token{pk: deref(resp.NextPartitionKey), rk: deref(resp.NextRowKey)}, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// all returns every row of a query, following the service however many empty
// pages it sends: only a missing token is the end.
func (s *Store) all(ctx context.Context, q query) ([]entity, error) {
	var rows []entity
	for from := (token{}); ; {
		more, next, err := s.page(ctx, q, from)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
		if next == (token{}) {
			return rows, nil
		}
		from = next
	}
}

// saw takes in what a request about a table ended with, and when it began.
func (s *Store) saw(table string, began time.Time, err error) {
	if missing := tableMissing(err); missing || err == nil {
		s.watch.saw(table, began, missing)
	}
}
