package azurequeue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/queueerror"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/queue"
)

// errQueueExists: a queue of this name is there, with other metadata.
var errQueueExists = errors.New("queue exists")

// translate turns an error of the SDK into one of the contract. None of the
// SDK's own text gets through: it holds URLs with signatures and receipts, and
// whole answers.
func (c *call) translate(ctx, bounded context.Context, timeout time.Duration, err error) error {
	what := c.operation
	if c.queue != "" {
		what += " in queue " + c.queue
	}
	var refused *azcore.ResponseError
	var noToken *tokenError
	ended := bounded.Err() != nil
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("%s: %w", what, refusal(c.operation, refused))
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, ctx.Err())
	case errors.As(err, &noToken):
		return fmt.Errorf("%s: %w", what, noToken.translate())
	case c.answered && ended:
		return fmt.Errorf("%s: the answer was not complete after %v", what, timeout)
	case c.answered:
		return fmt.Errorf("%s: the answer was cut or is not readable", what)
	case c.err == nil && ended:
		return fmt.Errorf("%s: %w", what, unsent(fmt.Errorf("no token after %v", timeout)))
	case c.err == nil:
		return fmt.Errorf("%s: the request could not be made", what)
	case c.unsent() && ended:
		return fmt.Errorf("%s: %w", what, unsent(fmt.Errorf("no connection after %v", timeout)))
	case c.unsent():
		return fmt.Errorf("%s: %w", what, unsent(c.err))
	case ended:
		return fmt.Errorf("%s: no answer after %v", what, timeout)
	}
	return fmt.Errorf("%s: no answer: %w", what, c.err)
}

// meansError is an error that is one of the contract's, but has words of its own: storage
// that was not asked is neither busy, nor has it denied anything.
type meansError struct{ own, contract error }

func (e *meansError) Error() string   { return e.own.Error() }
func (e *meansError) Unwrap() []error { return []error{e.own, e.contract} }

// unsent says that storage was not asked, so that nothing took effect.
func unsent(why error) error { return &meansError{why, queue.ErrBusy} }

// translate: nothing was sent to storage. A token service that is busy or
// silent is ErrBusy, one that refuses is ErrDenied.
func (e *tokenError) translate() error {
	var failed *azidentity.AuthenticationFailedError
	switch {
	case errors.Is(e.err, context.DeadlineExceeded):
		return unsent(errors.New("no token: the token service did not answer in time"))
	case errors.As(e.err, &failed) && failed.RawResponse == nil:
		return unsent(errors.New("no token: the token service can't be reached"))
	case errors.As(e.err, &failed):
		refused := &azureconn.TokenRefusedError{Status: failed.RawResponse.StatusCode}
		why := fmt.Errorf("no token: %w", refused)
		if refused.Status == http.StatusTooManyRequests || refused.Status >= http.StatusInternalServerError {
			return unsent(why)
		}
		return &meansError{why, queue.ErrDenied}
	}
	return &meansError{errors.New("no token: no Entra credential is available here; assign a managed identity, or set AZURE_TOKEN_CREDENTIALS"), queue.ErrDenied}
}

// refusal translates an answer that says no.
func refusal(operation string, r *azcore.ResponseError) error {
	status := fmt.Sprintf("status %d", r.StatusCode)
	if code := safeCode(r.ErrorCode); code != "" {
		status += " " + code
	}
	wrap := func(sentinel error) error { return fmt.Errorf("%w (%s)", sentinel, status) }
	switch code := queueerror.Code(r.ErrorCode); {
	case r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%w (%s)%s", queue.ErrDenied, status, denialHint(operation, r))
	case code == queueerror.QueueNotFound:
		return wrap(queue.ErrQueueNotFound)
	case isStaleReceipt(operation, r):
		return wrap(queue.ErrLeaseLost)
	case code == queueerror.QueueBeingDeleted, code == queueerror.QueueDisabled,
		code == queueerror.ServerBusy, r.StatusCode == http.StatusTooManyRequests:
		return wrap(queue.ErrBusy)
	case code == queueerror.QueueAlreadyExists:
		return wrap(errQueueExists)
	case code == queueerror.MessageTooLarge, code == queueerror.RequestBodyTooLarge,
		r.StatusCode == http.StatusRequestEntityTooLarge:
		return wrap(queue.ErrTooLarge)
	case code == queueerror.InvalidQueryParameterValue, code == queueerror.OutOfRangeQueryParameterValue:
		return &outOfRangeError{status: status, date: dateOf(r)}
	}
	return errors.New("storage answered " + status)
}

// outOfRangeError: storage does not take a value of the request. Of what we send that can only be how
// long a message is to be hidden, and then because it ends before.
type outOfRangeError struct {
	status string
	date   time.Time // by storage's clock, in whole seconds; zero where the answer has none
}

func (e *outOfRangeError) Error() string { return "storage answered " + e.status }

// left is for how long a message can be hidden that ends then: for MinLease, or until a second before its
// end, since the date is up to a second old, and the next request takes a moment.
func (e *outOfRangeError) left(end time.Time) (left time.Duration, ends bool) {
	if end.IsZero() || e.date.IsZero() {
		return 0, false
	}
	return max(end.Sub(e.date).Truncate(time.Second)-time.Second, queue.MinLease), true
}

// dateOf is when storage answered, by its own clock; zero where that can't be read.
func dateOf(r *azcore.ResponseError) time.Time {
	if r.RawResponse == nil {
		return time.Time{}
	}
	date, err := http.ParseTime(r.RawResponse.Header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return date
}

// isStaleReceipt: the receipt belongs to nobody's lease any more. The real
// service says 404 MessageNotFound, its documentation (and Azurite) also 400
// PopReceiptMismatch, and 400 InvalidQueryParameterValue for a receipt that it
// can't read.
func isStaleReceipt(operation string, r *azcore.ResponseError) bool {
	if operation != opRenew && operation != opAbandon && operation != opComplete {
		return false
	}
	switch queueerror.Code(r.ErrorCode) {
	case queueerror.MessageNotFound, queueerror.PopReceiptMismatch:
		return true
	case queueerror.InvalidQueryParameterValue:
		body, err := runtime.Payload(r.RawResponse)
		return err == nil && strings.Contains(strings.ToLower(string(body)), "<queryparametername>popreceipt<")
	}
	return false
}

// bigSkew is far below the 15 minutes that the service tolerates, and far
// above what a request takes.
const bigSkew = 2 * time.Minute

// denialHint names the two causes that the service's own answer doesn't.
func denialHint(operation string, r *azcore.ResponseError) string {
	if date := dateOf(r); !date.IsZero() {
		if skew := time.Since(date).Round(time.Second); skew.Abs() > bigSkew {
			ahead := "ahead of"
			if skew < 0 {
				ahead = "behind"
			}
			return fmt.Sprintf(": this machine's clock is %v %s storage's; set it right", skew.Abs(), ahead)
		}
	}
	if r.ErrorCode == "AuthorizationPermissionMismatch" && (operation == opRenew || operation == opAbandon) {
		return ": the identity needs the role Storage Queue Data Contributor; Message Processor may not renew"
	}
	return ""
}

var codeLike = regexp.MustCompile(`^[A-Za-z0-9]{1,64}$`)

// safeCode lets only what looks like an error code into a text: it comes from
// a header that anything on the way may have written.
func safeCode(code string) string {
	if codeLike.MatchString(code) {
		return code
	}
	return ""
}
