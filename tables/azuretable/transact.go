package azuretable

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/pushlease/pushlease/tables/azuretable/internal/commit"
)

const transaction = "transaction"

// submit writes up to 100 rows of one partition, each replaced whole,
// all or none. Repeating it is harmless, and it does so once.
func (c *client) submit(ctx context.Context, table string, rows []commit.Row) error {
	return c.withTable(ctx, table, func() error {
		return twice(ctx, func() error { return c.transact(ctx, table, rows) })
	})
}

// put writes one row, whatever was there.
func (c *client) put(ctx context.Context, table, pk, rk string, cols columns) error {
	r, err := cols.row(pk, rk)
	if err != nil {
		return err
	}
	return c.submit(ctx, table, []commit.Row{r})
}

func (c *client) transact(ctx context.Context, table string, rows []commit.Row) error {
	req, err := runtime.NewRequest(ctx, http.MethodPost, c.batches.url())
	if err != nil {
		return storageErr(ctx, transaction, err)
	}
	req.Raw().Header.Set("x-ms-version", tablesVersion)
	req.Raw().Header.Set("DataServiceVersion", "3.0")
	req.Raw().Header.Set("Accept", rowFormat)
	body := bytes.NewReader(c.batches.body(table, rows))
	if err := req.SetBody(streaming.NopCloser(body), c.batches.contentType()); err != nil {
		return storageErr(ctx, transaction, err)
	}
	resp, err := c.pipeline.Do(req)
	if err != nil {
		return storageErr(ctx, transaction, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or its error was told
	answer, err := runtime.Payload(resp)
	if err != nil {
		return storageErr(ctx, transaction, err)
	}
	return transactionErr(resp.StatusCode, resp.Header.Get("x-ms-error-code"), answer, len(rows))
}

var errBadAnswer = errors.New("the answer is incomplete")

var (
	innerCode  = regexp.MustCompile(`"code"\s*:\s*"([A-Za-z]+)"`)
	innerIndex = regexp.MustCompile(`"value"\s*:\s*"(\d{1,3}):`)
)

// transactionErr reads the answer to a transaction of n rows. Its own status and
// code say only whether the request was read: what happened is inside, a status
// for each row on success or a single one on failure, whose message begins with
// the number of the row. An answer without any status inside is no success.
func transactionErr(status int, code string, body []byte, n int) error {
	e := &storageError{operation: transaction, index: -1}
	answered, failure := innerStatuses(body)
	if failure != 0 {
		status = failure
	}
	switch {
	case status < http.StatusMultipleChoices && answered == n:
		return nil
	case status < http.StatusMultipleChoices:
		e.cause = errBadAnswer
		return e
	}
	e.status, e.code = status, safeCode(code)
	if m := innerCode.FindSubmatch(body); m != nil {
		e.code = safeCode(string(m[1]))
	}
	if m := innerIndex.FindSubmatch(body); m != nil {
		e.index, _ = strconv.Atoi(string(m[1]))
	}
	return e
}

// innerStatuses counts the answers inside the answer to a transaction, and returns the
// last status that is a failure; 0 when there is none. An answer begins with its status
// line, right after the empty line that ends the headers of its part.
func innerStatuses(body []byte) (n, failure int) {
	const (
		inAnswer = iota
		inHeaders
		atStatus
	)
	for state := inAnswer; len(body) > 0; {
		line, rest, _ := bytes.Cut(body, []byte("\n"))
		line, body = bytes.TrimSuffix(line, []byte("\r")), rest
		switch {
		case bytes.HasPrefix(line, []byte("--")): // a boundary
			state = inHeaders
		case state == inHeaders && len(line) == 0:
			state = atStatus
		case state == atStatus:
			state = inAnswer
			if status := statusOf(line); status != 0 {
				n++
				if status >= http.StatusMultipleChoices {
					failure = status
				}
			}
		}
	}
	return n, failure
}

// statusOf reads a status line; 0 when it is none.
func statusOf(line []byte) int {
	rest, found := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	if !found || len(rest) < 3 {
		return 0
	}
	status, err := strconv.Atoi(string(rest[:3]))
	if err != nil || status < 100 {
		return 0
	}
	return status
}
