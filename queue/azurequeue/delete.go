package azurequeue

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/pushlease/pushlease/internal/azureconn"
)

var errBadAddress = errors.New("the queue service's address is not valid")

// deleter makes the requests that delete messages: one for each message that is delivered.
// The SDK takes several times the CPU for making, signing and passing on such a request.
type deleter struct {
	// messages is the address of the queue's messages, with a slash at the end.
	messages url.URL
	// bare has what all requests have in common, but for headers.
	bare *http.Request
	// key signs, and sas is part of the address: one of the two.
	key       *sharedKey
	sas       string
	transport *transport
}

// newDeleter returns nil when deletes have to be the SDK's: it keeps the tokens of an
// identity, and answers what the service asks about them.
func newDeleter(cfg azureconn.Config, key *sharedKey, queueName string, t *transport) (*deleter, error) {
	if cfg.Credential == azureconn.Identity {
		return nil, nil
	}
	u, err := url.Parse(cfg.QueueURL + "/" + queueName + "/messages/")
	if err != nil {
		return nil, errBadAddress // err quotes it
	}
	return &deleter{messages: *u, bare: &http.Request{Method: http.MethodDelete, Host: u.Host}, key: key, sas: cfg.SAS(), transport: t}, nil
}

// request is one that deletes the message under the receipt.
func (d *deleter) request(ctx context.Context, id, receipt string) *http.Request {
	u := d.messages
	u.Path, u.RawPath = u.Path+id, ""
	u.RawQuery = receiptParameter + "=" + url.QueryEscape(receipt)
	h := http.Header{"User-Agent": {application}, "X-Ms-Version": {queuesVersion}, "Accept": {"application/xml"}}
	if d.key != nil {
		d.key.sign(h, http.MethodDelete, &u, receipt)
	} else {
		u.RawQuery += "&" + d.sas
	}
	req := d.bare.WithContext(ctx) // a copy
	req.URL, req.Header = &u, h
	return req
}

// delete sends one delete. An answer that says no is an azcore.ResponseError, as it
// would be from the SDK.
func (d *deleter) delete(ctx context.Context, id, receipt string) error {
	c := callFrom(ctx)
	resp, err := d.transport.send(c, d.request(c.traced(ctx), id, receipt))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or its error was told
	if resp.StatusCode == http.StatusNoContent {
		return nil // which has no body
	}
	if _, err := runtime.Payload(resp); err != nil {
		return err
	}
	return runtime.NewResponseError(resp)
}
