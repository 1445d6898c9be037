package azuretable

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

const transaction = "transaction"

// submit writes up to maxBatchRows rows of one partition, each replaced whole,
// all or none. Repeating it is harmless, and it does so once.
func (s *Store) submit(ctx context.Context, table string, rows []row) error {
	return s.withTable(ctx, table, func() error {
		return twice(ctx, func() error { return s.transact(ctx, table, rows) })
	})
}

func (s *Store) transact(ctx context.Context, table string, rows []row) (err error) {
	actions := make([]aztables.TransactionAction, len(rows))
	for i, r := range rows {
		actions[i] = aztables.TransactionAction{ActionType: aztables.TransactionTypeInsertReplace, Entity: r.json}
	}
	// The SDK panics on an answer with an empty body.
	defer func() {
		if recover() != nil {
			err = &storageError{operation: transaction, index: -1, cause: errBadAnswer}
		}
	}()
	var resp *http.Response
	_, err = s.service.NewClient(table).SubmitTransaction(policy.WithCaptureResponse(ctx, &resp), actions, nil)
	if resp == nil || ctx.Err() != nil {
		return storageErr(ctx, transaction, err)
	}
	body, readErr := runtime.Payload(resp)
	if readErr != nil {
		return storageErr(ctx, transaction, readErr)
	}
	return transactionErr(resp.StatusCode, resp.Header.Get("x-ms-error-code"), body, len(rows))
}

var errBadAnswer = errors.New("the answer is incomplete")

var (
	innerStatus = regexp.MustCompile(`(?m)^HTTP/1\.1 (\d{3})`)
	innerCode   = regexp.MustCompile(`"code"\s*:\s*"([A-Za-z]+)"`)
	innerIndex  = regexp.MustCompile(`"value"\s*:\s*"(\d{1,3}):`)
)

// transactionErr reads the answer to a transaction of n rows. Its own status and
// code say only whether the request was read: what happened is inside, a status
// for each row on success or a single one on failure, whose message begins with
// the number of the row. The SDK takes an answer without any status inside for a
// success; it is none.
func transactionErr(status int, code string, body []byte, n int) error {
	e := &storageError{operation: transaction, index: -1}
	statuses := innerStatus.FindAllSubmatch(body, -1)
	for _, m := range statuses {
		inner, _ := strconv.Atoi(string(m[1]))
		if inner >= http.StatusMultipleChoices {
			status = inner
		}
	}
	switch {
	case status < http.StatusMultipleChoices && len(statuses) == n:
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
