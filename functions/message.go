package functions

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/pushlease/pushlease/queue"
)

var guid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// readMessage reads a queue trigger's invocation. The message is doubtful where its own text may
// have overwritten its id or receipt: then it has no more than that text. An error means that
// this is not what the host sends.
func readMessage(inv invocation, f Function) (m *queue.Message, doubtful bool, err error) {
	body, binary, err := inv.message(f.Binding)
	if err != nil {
		return nil, false, err
	}
	id, receipt, count := inv.meta("Id"), inv.meta("PopReceipt"), inv.count("DequeueCount")
	if overwritten(body, binary, id, receipt) {
		return &queue.Message{Text: body}, true, nil
	}
	switch {
	case !guid.MatchString(id):
		return nil, false, errors.New("the Id in the invocation's Metadata is no message id")
	case receipt == "" || count < 1:
		return nil, false, errors.New("the invocation's Metadata lacks PopReceipt or DequeueCount")
	}
	inserted, insertedErr := inv.time("InsertionTime")
	expires, expiresErr := inv.time("ExpirationTime")
	if err := errors.Join(insertedErr, expiresErr); err != nil {
		return nil, false, err
	}
	return &queue.Message{
		ID: id, Text: body, DequeueCount: count, InsertedAt: inserted, ExpiresAt: expires,
		Lease: queue.NewLease(receipt, time.Now(), 0), // the host's, whose length is nothing to us
	}, false, nil
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

// leastLife is how long a message lives at least that is sent anew: clocks differ.
const leastLife = time.Minute

// life is what is left of the life of a message that is sent anew, or the usual one where the
// message's own words may say when it expires: a member of that name, as it is or with escapes.
func life(inv invocation, text []byte) time.Duration {
	const member = "ExpirationTime"
	if bytes.IndexByte(text, '\\') >= 0 || bytes.Contains(bytes.ToUpper(text), bytes.ToUpper([]byte(member))) {
		return queue.DefaultTTL
	}
	expires, err := time.Parse(time.RFC3339, inv.meta(member))
	switch {
	case err != nil:
		return queue.DefaultTTL
	case expires.Year() >= 9999:
		return queue.NoExpiry
	}
	return max(time.Until(expires), leastLife)
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

// wrapped is the text to put on the queue in place of one that is doubtful. All that is sent under
// the same name is POSTed once, however often the queue has it.
func wrapped(setting queue.Encoding, text []byte, name string) ([]byte, error) {
	b, err := queue.Decode(setting, text)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	b.IdempotencyKey = cmp.Or(b.IdempotencyKey, name) // its publisher's own says it already
	return envelope(setting, b)
}
