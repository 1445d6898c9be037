package functions

import (
	"bytes"
	"errors"
	"regexp"
	"time"

	"github.com/pushlease/pushlease/queue"
)

var guid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// errOwnWords: the host merges the members of a text that looks like a JSON object into Metadata, and
// its idea of JSON is wider than Go's. So nothing is believed about any text with a brace. A binary
// value is never merged.
var errOwnWords = errors.New(`the host passes messages on as text, and this one's own words may stand in place of its id and receipt: nothing is POSTed, and the message stays on its queue; set "dataType": "binary" in the function's function.json, or package the app anew`)

// readMessage reads a queue trigger's invocation. An error means that this is not what the host
// sends, or that it can't be believed.
func readMessage(inv invocation, f Function) (*queue.Message, error) {
	body, binary, err := inv.message(f.Binding)
	if err != nil {
		return nil, err
	}
	if !binary && bytes.IndexByte(body, '{') >= 0 {
		return nil, errOwnWords
	}
	id, receipt, count := inv.meta("Id"), inv.meta("PopReceipt"), inv.count("DequeueCount")
	switch {
	case !guid.MatchString(id):
		return nil, errors.New("the Id in the invocation's Metadata is no message id")
	case receipt == "" || count < 1:
		return nil, errors.New("the invocation's Metadata lacks PopReceipt or DequeueCount")
	}
	inserted, insertedErr := inv.time("InsertionTime")
	expires, expiresErr := inv.time("ExpirationTime")
	if err := errors.Join(insertedErr, expiresErr); err != nil {
		return nil, err
	}
	return &queue.Message{
		ID: id, Text: body, DequeueCount: count, InsertedAt: inserted, ExpiresAt: expires,
		Lease: queue.NewLease(receipt, time.Now(), 0), // the host's, whose length is nothing to us
	}, nil
}
