package azuretable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/tables"
)

// storageError is what a request to the service ended with. It is made of the
// operation, the status and the code only: the SDK's own errors print URLs,
// which may hold a signature, and bodies, which may quote rows.
type storageError struct {
	operation string
	// status is 0 when there was no answer; cause then says why.
	status int
	code   string
	// index is the row of a transaction that the service refused; -1 when it
	// named none.
	index int
	cause error
}

func (e *storageError) Error() string {
	switch {
	case e.status == 0:
		return fmt.Sprintf("table storage: %s: no answer: %v", e.operation, e.cause)
	case e.code == "":
		return fmt.Sprintf("table storage: %s: status %d", e.operation, e.status)
	}
	return fmt.Sprintf("table storage: %s: status %d %s", e.operation, e.status, e.code)
}

func (e *storageError) Unwrap() error { return e.cause }

// Is makes an answer that refuses the credentials tables.ErrDenied.
func (e *storageError) Is(target error) bool {
	return target == tables.ErrDenied && (e.status == http.StatusUnauthorized || e.status == http.StatusForbidden)
}

// passing reports whether the same request may well succeed a moment later.
func (e *storageError) passing() bool {
	switch e.status {
	case 0, http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// refused reports whether the service refused the content of the request, so
// that repeating it is pointless.
func (e *storageError) refused() bool {
	return e.status == http.StatusBadRequest || e.status == http.StatusRequestEntityTooLarge ||
		(e.status == http.StatusConflict && e.code != string(aztables.TableBeingDeleted))
}

// Refusal implements what commit asks of an error.
func (e *storageError) Refusal() (row int, refused bool) { return e.index, e.refused() }

// storageErr turns the SDK's error into ours; nil stays nil. ctx is the caller's.
func storageErr(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	var answer *azcore.ResponseError
	switch {
	case errors.As(err, &answer):
		return &storageError{operation: operation, status: answer.StatusCode, code: safeCode(answer.ErrorCode), index: -1}
	case ctx.Err() != nil:
		return &storageError{operation: operation, index: -1, cause: ctx.Err()}
	}
	return &storageError{operation: operation, index: -1, cause: noAnswer(err)}
}

// rowErr gives err, of a request about one row, the sentinel of the contract. It
// is not part of storageErr because a query or a transaction that ends in 404
// never means that there is nothing.
func rowErr(err error) error {
	var e *storageError
	if !errors.As(err, &e) || e.cause != nil {
		return err
	}
	mapped := *e
	switch {
	case hasCode(err, string(aztables.ResourceNotFound), string(aztables.EntityNotFound), string(aztables.TableNotFound), string(aztables.TableBeingDeleted)):
		mapped.cause = tables.ErrNotFound
	case e.status == http.StatusPreconditionFailed:
		mapped.cause = tables.ErrConflict
	case e.code == string(aztables.EntityAlreadyExists):
		mapped.cause = tables.ErrExists
	}
	return &mapped
}

// passing reports whether the request that gave err may well succeed a moment
// later.
func passing(err error) bool {
	var e *storageError
	return errors.As(err, &e) && e.passing()
}

// noAnswer strips err to what can hold no URL: the SDK and net/http both name
// it in theirs.
func noAnswer(err error) error {
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		err = urlErr.Err
	}
	var netErr *net.OpError
	var dnsErr *net.DNSError
	var tokens *azidentity.AuthenticationFailedError
	var credential interface{ NonRetriable() }
	var plain *noAnswerError
	switch {
	case errors.As(err, &plain):
		return plain
	case errors.Is(err, context.Canceled):
		return &noAnswerError{text: "canceled"}
	case errors.Is(err, context.DeadlineExceeded): // of this try only
		return &noAnswerError{text: "none within " + tryTimeout.String()}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return io.ErrUnexpectedEOF
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.As(err, &dnsErr):
		return dnsErr
	case errors.As(err, &netErr):
		return netErr
	case errors.As(err, &tokens) && tokens.RawResponse != nil:
		refused := &azureconn.TokenRefusedError{Status: tokens.RawResponse.StatusCode}
		return &noAnswerError{"no token: " + refused.Error(), refused}
	case errors.As(err, &tokens):
		return &noAnswerError{text: "no token: the token service can't be reached"}
	case errors.As(err, &credential):
		return &noAnswerError{text: "no token: no Entra credential is available here; assign a managed identity, or set AZURE_TOKEN_CREDENTIALS"}
	}
	return &noAnswerError{text: fmt.Sprintf("%T", err)}
}

// noAnswerError is an error that noAnswer made. The transport makes it first,
// and the SDK hands it on.
type noAnswerError struct {
	text  string
	cause error // nil where the text says all
}

func (e *noAnswerError) Error() string { return e.text }
func (e *noAnswerError) Unwrap() error { return e.cause }

// safeCode keeps a hostile answer from writing what it likes into our errors.
func safeCode(code string) string {
	if len(code) > 64 || strings.ContainsFunc(code, func(r rune) bool {
		return r > 0x7f || !plainKeyByte(byte(r))
	}) {
		return "(unreadable code)"
	}
	return code
}

func hasCode(err error, codes ...string) bool {
	var e *storageError
	if errors.As(err, &e) {
		for _, c := range codes {
			if e.code == c {
				return true
			}
		}
	}
	return false
}

// tableMissing reports whether err says that the table isn't there, or not any
// more.
func tableMissing(err error) bool {
	return hasCode(err, string(aztables.TableNotFound), string(aztables.TableBeingDeleted))
}

// movedOn reports whether a conditional write failed because the row has changed.
func movedOn(err error) bool {
	return errors.Is(err, tables.ErrConflict) || errors.Is(err, tables.ErrNotFound)
}

func isRefused(err error) bool {
	var e *storageError
	return errors.As(err, &e) && e.refused()
}
