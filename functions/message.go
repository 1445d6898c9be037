package functions

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// delivered is one message as the host handed it over.
type delivered struct {
	message *queue.Message
	// until is when the receipt may become stale, because the host renews the lease.
	until time.Time
	// doubtful: the message's own text may have overwritten its id or receipt.
	doubtful bool
}

var guid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// hostRenews is how long before the end of the lease that it received with the host
// renews it (half of 10 minutes; not a setting of the host).
const hostRenews = 5 * time.Minute

// readMessage reads a queue trigger's invocation. An error means that this is not what
// the host sends.
func readMessage(inv invocation, f Function) (delivered, error) {
	body, binary, err := inv.message(f.Binding)
	if err != nil {
		return delivered{}, err
	}
	id, receipt, count := inv.meta("Id"), inv.meta("PopReceipt"), inv.count("DequeueCount")
	d := delivered{doubtful: overwritten(body, binary, id, receipt)}
	if d.doubtful {
		d.message = &queue.Message{Text: body}
		return d, nil
	}
	next := inv.time("NextVisibleTime")
	switch {
	case !guid.MatchString(id):
		return d, errors.New("the Id in the invocation's Metadata is no message id")
	case receipt == "" || count < 1 || next.IsZero():
		return d, errors.New("the invocation's Metadata lacks PopReceipt, DequeueCount or NextVisibleTime")
	}
	d.until = next.Add(-hostRenews) // by storage's clock
	d.message = &queue.Message{
		ID: id, Text: body, DequeueCount: count,
		InsertedAt: inv.time("InsertionTime"), ExpiresAt: inv.time("ExpirationTime"),
		Lease: queue.NewLease(receipt, time.Now(), 0), // its length is for the handler to set
	}
	return d, nil
}

// overwritten reports whether Metadata can be the message's own words. The host merges
// the members of a text that looks like a JSON object into it, and its idea of
// JSON is wider than Go's: so any text with a brace is doubtful, but for an
// envelope exactly as we write it, which has no such member. A binary value is never
// merged; should a host do so all the same, then id or receipt stand in the body,
// where no producer can have known them.
func overwritten(body []byte, binary bool, id, receipt string) bool {
	if !binary && bytes.IndexByte(body, '{') >= 0 && !canonical(body) {
		return true
	}
	return id != "" && bytes.Contains(body, []byte(id)) || receipt != "" && bytes.Contains(body, []byte(receipt))
}

// canonical reports whether text is an envelope of ours, to the byte.
func canonical(text []byte) bool {
	b, err := queue.Decode(queue.EncodingNone, text)
	if err != nil || b.Encoding == queue.EncodingNone {
		return false
	}
	again, err := envelope(queue.EncodingNone, b)
	return err == nil && bytes.Equal(again, text)
}

// envelope wraps what a text stands for. The result stands for the same under every
// setting, and overwrites nothing.
func envelope(setting queue.Encoding, b queue.Body) ([]byte, error) {
	if b.Replay != nil {
		return queue.EncodeReplay(setting, *b.Replay)
	}
	return queue.EncodeEnvelope(setting, b)
}

// wrapped is the text to put on the queue in place of one that is doubtful.
func wrapped(setting queue.Encoding, text []byte) ([]byte, error) {
	b, err := queue.Decode(setting, text)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return envelope(setting, b)
}
