package azuretable

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// batchAnswer is an answer to a transaction as the service writes it.
func batchAnswer(parts ...string) string {
	var b strings.Builder
	b.WriteString("--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_1\r\n\r\n")
	for _, p := range parts {
		b.WriteString("--changesetresponse_1\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n" + p + "\r\n")
	}
	b.WriteString("--changesetresponse_1--\r\n--batchresponse_1--\r\n")
	return b.String()
}

const written = "HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\nDataServiceVersion: 1.0;\r\n\r\n"

// innerFailure is what stands in the answer for all rows when one fails.
func innerFailure(status int, code, message string) string {
	return fmt.Sprintf("HTTP/1.1 %d Reason\r\nContent-Type: application/json;odata=minimalmetadata\r\n\r\n"+
		`{"odata.error":{"code":"%s","message":{"lang":"en-US","value":"%s\nRequestId:1\nTime:2026-11-26T00:00:00Z"}}}`, status, code, message)
}

func TestTheInnerStatusOfATransactionDecides(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		code   string
		body   string
		want   storageError
	}{
		{"all written", 202, "", batchAnswer(written, written), storageError{}},
		{"a row is refused", 202, "", batchAnswer(innerFailure(400, "PropertyValueTooLarge", "1:The property value exceeds the maximum")),
			storageError{status: 400, code: "PropertyValueTooLarge", index: 1}},
		{"the row has two digits", 202, "", batchAnswer(innerFailure(409, "EntityAlreadyExists", "99:The specified entity already exists.")),
			storageError{status: 409, code: "EntityAlreadyExists", index: 99}},
		{"no row is named", 202, "", batchAnswer(innerFailure(400, "InvalidInput", "One of the request inputs is not valid.")),
			storageError{status: 400, code: "InvalidInput", index: -1}},
		{"the table is missing", 202, "", batchAnswer(innerFailure(404, "TableNotFound", "0:The table specified does not exist.")),
			storageError{status: 404, code: "TableNotFound", index: 0}},
		{"outer failure", 503, "", `{"odata.error":{"code":"ServerBusy","message":{"lang":"en-US","value":"The server is busy."}}}`,
			storageError{status: 503, code: "ServerBusy", index: -1}},
		{"outer failure without a body", 502, "", "", storageError{status: 502, index: -1}},
		{"code in the header only", 403, "AuthorizationFailure", "<Error/>", storageError{status: 403, code: "AuthorizationFailure", index: -1}},
		{"nothing inside", 202, "", "", storageError{index: -1, cause: errBadAnswer}},
		{"lines end with LF only", 202, "", strings.ReplaceAll(batchAnswer(written, written), "\r\n", "\n"), storageError{}},
		{"what looks like a status is within an answer", 202, "", batchAnswer(written + "HTTP/1.1 204 No Content\r\n"), storageError{index: -1, cause: errBadAnswer}},
		{"a failure after successes", 202, "", batchAnswer(written, innerFailure(500, "InternalError", "1:Server encountered an internal error.")),
			storageError{status: 500, code: "InternalError", index: 1}},
		{"one of two", 202, "", batchAnswer(written), storageError{index: -1, cause: errBadAnswer}},
		{"not a transaction", 200, "", "<html>login</html>", storageError{index: -1, cause: errBadAnswer}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := transactionErr(tt.status, tt.code, []byte(tt.body), 2)
			if tt.want == (storageError{}) {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			tt.want.operation = transaction
			var got *storageError
			if !errors.As(err, &got) || *got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
