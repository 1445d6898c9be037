package azurequeue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"

	"github.com/pushlease/pushlease/queue"
)

// azureQueue implements queue.Queue.
type azureQueue struct {
	transport *transport
	name      string
	client    *azqueue.QueueClient
	deleter   *deleter // nil where the SDK deletes
}

func (q *azureQueue) Name() string { return q.name }

func (q *azureQueue) do(ctx context.Context, operation string, request func(context.Context) error) error {
	return q.transport.do(ctx, operation, q.name, request)
}

func (q *azureQueue) Receive(ctx context.Context, limit int, lease time.Duration) ([]*queue.Message, error) {
	if limit < 1 || limit > queue.MaxReceive {
		return nil, fmt.Errorf("%s: max is %d, it must be 1 to %d", opReceive, limit, queue.MaxReceive)
	}
	granted, err := checkLease(opReceive, lease)
	if err != nil {
		return nil, err
	}
	var answer []received
	start := time.Now()
	err = q.do(ctx, opReceive, func(ctx context.Context) (err error) {
		answer, err = q.dequeue(ctx, limit, granted)
		return err
	})
	if err != nil {
		return nil, err
	}
	messages := make([]*queue.Message, 0, len(answer))
	for _, m := range answer {
		// Without these two it can't be settled: it comes back when its lease ends.
		if m.id == "" || m.receipt == "" {
			continue
		}
		messages = append(messages, &queue.Message{
			ID: m.id, Text: m.text, DequeueCount: m.dequeueCount, InsertedAt: m.inserted.UTC(), ExpiresAt: expiry(&m.expires),
			Lease: queue.NewLease(m.receipt, start, granted),
		})
	}
	return messages, nil
}

// dequeue returns what readMessagesPolicy has read of the answer, or what the SDK has.
func (q *azureQueue) dequeue(ctx context.Context, limit int, lease time.Duration) ([]received, error) {
	answer, err := q.client.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{
		NumberOfMessages: new(int32(limit)), VisibilityTimeout: new(seconds(lease)),
	})
	if c := callFrom(ctx); err != nil || c.read {
		return c.messages, err
	}
	var messages []received
	for _, m := range answer.Messages {
		if m != nil {
			messages = append(messages, received{
				id: value(m.MessageID), receipt: value(m.PopReceipt), text: []byte(value(m.MessageText)),
				dequeueCount: value(m.DequeueCount), inserted: value(m.InsertionTime), expires: value(m.ExpirationTime),
			})
		}
	}
	return messages, nil
}

func (q *azureQueue) Renew(ctx context.Context, m *queue.Message, lease time.Duration) error {
	return q.hide(ctx, opRenew, m, lease)
}

// Hide implements queue.Queue.
func (q *azureQueue) Hide(ctx context.Context, m *queue.Message, delay time.Duration) error {
	return q.hide(ctx, opAbandon, m, delay)
}

// hide is a renewal, for whatever it is made.
func (q *azureQueue) hide(ctx context.Context, operation string, m *queue.Message, lease time.Duration) error {
	visibility, err := checkLease(operation, lease)
	if err != nil {
		return err
	}
	g, err := q.updateToTheEnd(ctx, operation, m, visibility)
	if err != nil {
		return err
	}
	m.Lease.Renewed(g.receipt, g.start, g.visibility)
	return nil
}

func (q *azureQueue) Abandon(ctx context.Context, m *queue.Message, delay time.Duration) error {
	if delay < 0 || delay > queue.MaxDelay {
		return fmt.Errorf("%s: delay is %v, it must be 0 to %v", opAbandon, delay, queue.MaxDelay)
	}
	// The new receipt is dropped: the lease has ended, and nobody may settle
	// the message with it.
	_, err := q.updateToTheEnd(ctx, opAbandon, m, wholeSeconds(delay))
	return err
}

// granted is what storage answered to an update that was begun at start.
type granted struct {
	receipt    string
	start      time.Time
	visibility time.Duration
}

// updateToTheEnd hides the message for visibility from now on; the old receipt is void. The content is kept.
//
// The service's page says that a message can't be hidden until after its end. The service has done
// so whenever somebody looked; where it refuses, the message is hidden for what it has left.
func (q *azureQueue) updateToTheEnd(ctx context.Context, operation string, m *queue.Message, visibility time.Duration) (granted, error) {
	if err := checkID(operation, m.ID); err != nil {
		return granted{}, err
	}
	g, err := q.update(ctx, operation, m, visibility)
	var refused *outOfRangeError
	if errors.As(err, &refused) {
		if left, ends := refused.left(m.ExpiresAt); ends && left < visibility {
			return q.update(ctx, operation, m, left)
		}
	}
	return g, err
}

// update is the only caller of UpdateMessage, which always sends content, and
// erases the message when that is empty (azure-sdk-for-go#23092). The REST API
// keeps the content of a message when the request has no body (azure-rest-api-
// specs#10477), so keepBodyPolicy takes it out. Without an explicit visibility
// the SDK would send 0 and so end the lease.
func (q *azureQueue) update(ctx context.Context, operation string, m *queue.Message, visibility time.Duration) (granted, error) {
	start := time.Now()
	var answer azqueue.UpdateMessageResponse
	err := q.do(ctx, operation, func(ctx context.Context) (err error) {
		answer, err = q.client.UpdateMessage(ctx, m.ID, m.Lease.Receipt(), "", &azqueue.UpdateMessageOptions{
			VisibilityTimeout: new(seconds(visibility)),
		})
		return err
	})
	if err != nil {
		return granted{}, err
	}
	if answer.PopReceipt == nil {
		return granted{}, fmt.Errorf("%s in queue %s: the answer has no new receipt", operation, q.name)
	}
	return granted{*answer.PopReceipt, start, visibility}, nil
}

func (q *azureQueue) Complete(ctx context.Context, m *queue.Message) error {
	if err := checkID(opComplete, m.ID); err != nil {
		return err
	}
	return q.do(ctx, opComplete, func(ctx context.Context) error {
		if q.deleter != nil {
			return q.deleter.delete(ctx, m.ID, m.Lease.Receipt())
		}
		_, err := q.client.DeleteMessage(ctx, m.ID, m.Lease.Receipt(), nil)
		return err
	})
}

// checkID refuses what can't be the id of a message. It becomes a part of the address: with
// none, a delete clears the queue, and with ".." it would be the queue that is deleted. The
// service's ids are UUIDs, but an id can also come from a host that took it from a body.
func checkID(operation, id string) error {
	if id == "" || len(id) > maxID {
		return fmt.Errorf("%s: %w: %d bytes are no message's id", operation, queue.ErrLeaseLost, len(id))
	}
	for _, c := range []byte(id) {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '-':
		default:
			return fmt.Errorf("%s: %w: no message's id has the byte %#x", operation, queue.ErrLeaseLost, c)
		}
	}
	return nil
}

// maxID is far above the 36 bytes of the service's ids.
const maxID = 128

func (q *azureQueue) Send(ctx context.Context, text []byte, opts queue.SendOptions) (queue.Sent, error) {
	options, err := sendOptions(opts)
	if err != nil {
		return queue.Sent{}, err
	}
	switch {
	case len(text) > queue.MaxTextBytes:
		return queue.Sent{}, fmt.Errorf("%s to queue %s: %w: %d bytes, at most %d", opSend, q.name, queue.ErrTooLarge, len(text), queue.MaxTextBytes)
	case !queue.XMLSafe(text):
		// The SDK would replace what XML can't carry, without a word.
		return queue.Sent{}, fmt.Errorf("%s to queue %s: %w: encode it as base64", opSend, q.name, queue.ErrUnsendable)
	}
	sent, err := q.put(ctx, string(text), options)
	if !errors.Is(err, queue.ErrQueueNotFound) {
		return sent, err
	}
	if err := q.create(ctx); err != nil {
		return queue.Sent{}, err
	}
	return q.put(ctx, string(text), options)
}

func (q *azureQueue) put(ctx context.Context, text string, options *azqueue.EnqueueMessageOptions) (queue.Sent, error) {
	var answer azqueue.EnqueueMessagesResponse
	err := q.do(ctx, opSend, func(ctx context.Context) (err error) {
		answer, err = q.client.EnqueueMessage(ctx, text, options)
		return err
	})
	if err != nil {
		return queue.Sent{}, err
	}
	if len(answer.Messages) != 1 || answer.Messages[0] == nil {
		return queue.Sent{}, fmt.Errorf("%s to queue %s: the answer names %d messages instead of one", opSend, q.name, len(answer.Messages))
	}
	m := answer.Messages[0]
	return queue.Sent{
		ID:         value(m.MessageID),
		InsertedAt: value(m.InsertionTime).UTC(),
		ExpiresAt:  expiry(m.ExpirationTime),
	}, nil
}

// create makes the queue. One that is there already is fine, whatever its
// metadata.
func (q *azureQueue) create(ctx context.Context) error {
	err := q.do(ctx, opCreate, func(ctx context.Context) error {
		_, err := q.client.Create(ctx, nil)
		return err
	})
	if errors.Is(err, errQueueExists) {
		return nil
	}
	return err
}

func (q *azureQueue) Peek(ctx context.Context, limit int) ([]queue.Peeked, error) {
	if limit < 1 || limit > queue.MaxReceive {
		return nil, fmt.Errorf("%s: max is %d, it must be 1 to %d", opPeek, limit, queue.MaxReceive)
	}
	answer, err := q.peek(ctx, limit)
	if err != nil {
		return nil, err
	}
	peeked := make([]queue.Peeked, 0, len(answer.Messages))
	for _, m := range answer.Messages {
		if m == nil {
			continue
		}
		peeked = append(peeked, queue.Peeked{
			ID: value(m.MessageID), InsertedAt: value(m.InsertionTime).UTC(), ExpiresAt: expiry(m.ExpirationTime),
			Text: []byte(value(m.MessageText)),
		})
	}
	return peeked, nil
}

func (q *azureQueue) peek(ctx context.Context, limit int) (answer azqueue.PeekMessagesResponse, err error) {
	err = q.do(ctx, opPeek, func(ctx context.Context) (err error) {
		answer, err = q.client.PeekMessages(ctx, &azqueue.PeekMessagesOptions{NumberOfMessages: new(int32(limit))})
		return err
	})
	return answer, err
}

// Depth takes two transactions, or one for an empty queue: the service counts
// hidden messages and estimates, so up to 32 visible ones are peeked at.
func (q *azureQueue) Depth(ctx context.Context) (queue.Depth, error) {
	var properties azqueue.GetQueuePropertiesResponse
	err := q.do(ctx, opDepth, func(ctx context.Context) (err error) {
		properties, err = q.client.GetProperties(ctx, nil)
		return err
	})
	if err != nil {
		return queue.Depth{}, err
	}
	if properties.ApproximateMessagesCount == nil {
		return queue.Depth{}, fmt.Errorf("%s of queue %s: the answer has no count", opDepth, q.name)
	}
	// "Approximate" is never lower than the actual number. Source: Get Queue
	// Metadata.
	total := int64(*properties.ApproximateMessagesCount)
	if total == 0 {
		return queue.Depth{}, nil
	}
	peeked, err := q.peek(ctx, queue.MaxReceive)
	if err != nil {
		return queue.Depth{}, err
	}
	visible := int64(len(peeked.Messages))
	return queue.Depth{Total: max(total, visible), Visible: visible}, nil
}

func checkLease(operation string, lease time.Duration) (time.Duration, error) {
	// Anything above nothing is rounded up to MinLease.
	if lease <= 0 || lease > queue.MaxLease {
		return 0, fmt.Errorf("%s: lease is %v, it must be %v to %v", operation, lease, queue.MinLease, queue.MaxLease)
	}
	return wholeSeconds(lease), nil
}

func sendOptions(opts queue.SendOptions) (*azqueue.EnqueueMessageOptions, error) {
	if opts.Delay < 0 || opts.Delay > queue.MaxDelay {
		return nil, fmt.Errorf("%s: Delay is %v, it must be 0 to %v", opSend, opts.Delay, queue.MaxDelay)
	}
	delay, ttl := wholeSeconds(opts.Delay), opts.TTL
	if ttl == 0 {
		ttl = queue.DefaultTTL
	}
	options := &azqueue.EnqueueMessageOptions{VisibilityTimeout: new(seconds(delay)), TimeToLive: new(int32(-1))}
	if ttl == queue.NoExpiry {
		return options, nil
	}
	if ttl = wholeSeconds(ttl); ttl <= delay {
		return nil, fmt.Errorf("%s: TTL is %v, it must be NoExpiry, or longer than Delay (%v)", opSend, opts.TTL, delay)
	}
	*options.TimeToLive = seconds(ttl)
	return options, nil
}

// wholeSeconds rounds up: storage counts nothing shorter.
func wholeSeconds(d time.Duration) time.Duration {
	if whole := d.Truncate(time.Second); whole < d {
		return whole + time.Second
	}
	return d.Truncate(time.Second)
}

func seconds(d time.Duration) int32 {
	return int32(min(int64(d/time.Second), math.MaxInt32))
}

// expiry turns the service's way to say never (the year 9999) into the zero
// time.
func expiry(t *time.Time) time.Time {
	if t == nil || t.Year() >= 9999 {
		return time.Time{}
	}
	return t.UTC()
}

// value is what p points to, or nothing: any element of an answer may be missing.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
