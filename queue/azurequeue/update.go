package azurequeue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"

	"github.com/pushlease/pushlease/queue"
)

// update hides the message for visibility from now on and returns its new
// receipt; the old one is void. The content is kept.
//
// It is the only caller of UpdateMessage, which always sends content, and
// erases the message when that is empty (azure-sdk-for-go#23092). The REST API
// keeps the content of a message when the request has no body (azure-rest-api-
// specs#10477), so keepBodyPolicy takes it out. Without an explicit visibility
// the SDK would send 0 and so end the lease.
func (q *azureQueue) update(ctx context.Context, operation string, m *queue.Message, visibility time.Duration) (receipt string, err error) {
	if err := checkID(operation, m.ID); err != nil {
		return "", err
	}
	var answer azqueue.UpdateMessageResponse
	err = q.do(ctx, operation, func(ctx context.Context) (err error) {
		answer, err = q.client.UpdateMessage(ctx, m.ID, m.Lease.Receipt(), "", &azqueue.UpdateMessageOptions{
			VisibilityTimeout: new(seconds(visibility)),
		})
		return err
	})
	if err != nil {
		return "", err
	}
	if answer.PopReceipt == nil {
		return "", fmt.Errorf("%s in queue %s: the answer has no new receipt", operation, q.name)
	}
	return *answer.PopReceipt, nil
}

// keepBodyPolicy sends updates without a body. Requests are signed after it,
// so the signature covers what is sent.
type keepBodyPolicy struct{}

func (keepBodyPolicy) Do(req *policy.Request) (*http.Response, error) {
	raw := req.Raw()
	if operation := callFrom(raw.Context()).operation; operation != opRenew && operation != opAbandon {
		return req.Next()
	}
	if err := req.SetBody(nil, ""); err != nil {
		return nil, err
	}
	raw.GetBody = nil
	if raw.Body != nil || raw.ContentLength != 0 || req.Body() != nil {
		return nil, errors.New("the update would erase the message") // SDK changed
	}
	return req.Next()
}
