package azuretable

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable/internal/commit"
)

// writeColumn names the writer's token. When the answer to a write was lost, its
// repetition is refused as a conflict with itself; the token tells.
const writeColumn = "WriteID"

func newWriteID() string { return crand.Text() }

// insert adds a row and returns its ETag, or ErrExists. The columns are given
// rather than the row so that each call has its own token.
func (c *client) insert(ctx context.Context, table, pk, rk string, cols columns) (string, error) {
	const operation = "insert row"
	r, id, err := cols.signed(pk, rk)
	if err != nil {
		return "", err
	}
	var etag azcore.ETag
	tries := 0
	err = c.withTable(ctx, table, func() error {
		return twice(ctx, func() error {
			tries++
			// Without the header the answer would repeat the whole row.
			quiet := policy.WithHTTPHeader(ctx, http.Header{"Prefer": {"return-no-content"}})
			resp, err := c.service.NewClient(table).AddEntity(quiet, rowJSON(r), nil)
			etag = resp.ETag
			return storageErr(ctx, operation, err)
		})
	})
	if err = rowErr(err); tries > 1 && errors.Is(err, tables.ErrExists) {
		return c.ours(ctx, table, pk, rk, id, err)
	}
	return string(etag), err
}

// replace replaces a row while its ETag is still etag and returns the new one;
// ErrConflict or ErrNotFound.
func (c *client) replace(ctx context.Context, table, pk, rk string, cols columns, etag string) (string, error) {
	const operation = "replace row"
	r, id, err := cols.signed(pk, rk)
	if err != nil {
		return "", err
	}
	var fresh azcore.ETag
	tries := 0
	err = rowErr(twice(ctx, func() error {
		tries++
		resp, err := c.service.NewClient(table).UpdateEntity(ctx, rowJSON(r), &aztables.UpdateEntityOptions{
			IfMatch: to.Ptr(azcore.ETag(etag)), UpdateMode: aztables.UpdateModeReplace,
		})
		fresh = resp.ETag
		return storageErr(ctx, operation, err)
	}))
	if tries > 1 && errors.Is(err, tables.ErrConflict) {
		return c.ours(ctx, table, pk, rk, id, err)
	}
	return string(fresh), err
}

// signed encodes the columns with a token of their own.
func (c columns) signed(pk, rk string) (commit.Row, string, error) {
	id := newWriteID()
	c.exact(writeColumn, id)
	r, err := c.row(pk, rk)
	return r, id, err
}

// ours returns the row's ETag when an earlier try of the write id is what made
// it, and refusal otherwise: also when the row that stood in the way is gone by now.
func (c *client) ours(ctx context.Context, table, pk, rk, id string, refusal error) (string, error) {
	e, err := c.get(ctx, table, pk, rk)
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
func (c *client) get(ctx context.Context, table, pk, rk string) (entity, error) {
	var resp aztables.GetEntityResponse
	began := time.Now()
	err := twice(ctx, func() (err error) {
		resp, err = c.service.NewClient(table).GetEntity(ctx, pk, rk, nil)
		return storageErr(ctx, "get row", err)
	})
	c.saw(table, began, err)
	if err = rowErr(err); err != nil {
		return entity{}, err
	}
	e, err := parseEntity(resp.Value)
	e.etag = string(resp.ETag)
	return e, err
}

// remove deletes a row if its ETag is still etag, any if etag is empty;
// ErrConflict or ErrNotFound.
func (c *client) remove(ctx context.Context, table, pk, rk, etag string) error {
	if etag == "" {
		etag = string(azcore.ETagAny)
	}
	tries := 0
	err := rowErr(twice(ctx, func() error {
		tries++
		_, err := c.service.NewClient(table).DeleteEntity(ctx, pk, rk, &aztables.DeleteEntityOptions{IfMatch: to.Ptr(azcore.ETag(etag))})
		return storageErr(ctx, "delete row", err)
	}))
	if tries > 1 && errors.Is(err, tables.ErrNotFound) {
		return nil // the first try did it and its answer was lost
	}
	return err
}

// removeAll deletes rows, and counts those that were there still.
func (c *client) removeAll(ctx context.Context, table string, rows []entity) (n int64, err error) {
	for _, e := range rows {
		switch err := c.remove(ctx, table, e.pk, e.rk, ""); {
		case err == nil:
			n++
		case !errors.Is(err, tables.ErrNotFound):
			return n, err
		}
	}
	return n, nil
}

// filter is an OData filter: comparisons joined by "and". It has no "or": the
// service would read the whole table for it.
type filter []string

func (f filter) String() string { return strings.Join(f, " and ") }

// where compares a text column. Quotes are doubled, so that no value can end
// the literal.
func (f filter) where(column, operator, value string) filter {
	return append(f[:len(f):len(f)], fmt.Sprintf("%s %s '%s'", column, operator, strings.ReplaceAll(value, "'", "''")))
}

func (f filter) whereNumber(column, operator string, value int) filter {
	return append(f[:len(f):len(f)], fmt.Sprintf("%s %s %d", column, operator, value))
}

func (f filter) whereTime(column, operator string, t time.Time) filter {
	return append(f[:len(f):len(f)], fmt.Sprintf("%s %s %dL", column, operator, t.UnixMilli()))
}

func (f filter) partition(pk string) filter { return f.where("PartitionKey", "eq", pk) }

// prefix selects the row keys that begin with prefix, which ends with the separator.
func (f filter) prefix(prefix string) filter {
	return f.where("RowKey", "ge", prefix).where("RowKey", "lt", prefix+separator+separator)
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
func (c *client) page(ctx context.Context, q query, from token) ([]entity, token, error) {
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
		resp, err = c.service.NewClient(q.table).NewListEntitiesPager(opts).NextPage(ctx)
		return storageErr(ctx, "query rows", err)
	})
	c.saw(q.table, began, err)
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

// all returns every row of a query, following the service however many empty
// pages it sends: only a missing token is the end.
func (c *client) all(ctx context.Context, q query) ([]entity, error) {
	var rows []entity
	for from := (token{}); ; {
		more, next, err := c.page(ctx, q, from)
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
