package hosttest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"
)

// message is one that the host has leased.
type message struct {
	id, text, raw                  string
	dequeueCount                   int64
	inserted, expires, nextVisible time.Time
	firstReceipt                   string

	mu      sync.Mutex
	receipt string // the newest
}

// hostLease is how long the real host receives for.
const hostLease = 10 * time.Minute

// listener receives from one queue.
type listener struct {
	h      *Host
	l      life
	f      function
	client *azqueue.QueueClient
	poison *azqueue.QueueClient // nil for a poison queue itself
	freed  chan struct{}

	mu      sync.Mutex
	running int
}

func (h *Host) listen(l life, f function) {
	service, err := queueService(h.getenv(connection(f.binding)))
	if err != nil {
		h.halt(err)
		return
	}
	name := f.binding.QueueName
	r := &listener{h: h, l: l, f: f, client: service.NewQueueClient(name), freed: make(chan struct{}, 1)}
	if !strings.HasSuffix(name, "-poison") && len(name)+len("-poison") <= 63 {
		r.poison = service.NewQueueClient(name + "-poison")
	}
	l.calls.Add(1)
	l.work.Go(func() { defer l.calls.Done(); r.run() })
}

func connection(b binding) string {
	if b.Connection == "" {
		return "AzureWebJobsStorage"
	}
	return b.Connection
}

func queueService(connection string) (*azqueue.ServiceClient, error) {
	values := map[string]string{}
	for part := range strings.SplitSeq(connection, ";") {
		name, value, _ := strings.Cut(part, "=")
		values[name] = value
	}
	key, err := azqueue.NewSharedKeyCredential(values["AccountName"], values["AccountKey"])
	if err != nil {
		return nil, errors.New("the fake host takes connection strings with AccountName, AccountKey and QueueEndpoint only")
	}
	return azqueue.NewServiceClientWithSharedKeyCredential(values["QueueEndpoint"], key,
		&azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}})
}

// run receives a batch whenever no more than the threshold are in work.
func (r *listener) run() {
	wait := 100 * time.Millisecond
	for r.l.receiving.Err() == nil {
		if !r.room() {
			select {
			case <-r.freed:
			case <-r.l.receiving.Done():
			}
			continue
		}
		batch := r.receive()
		if len(batch) > 0 {
			wait = 100 * time.Millisecond
			continue
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, r.h.app.queues.pollMax)
		case <-r.l.receiving.Done():
		}
	}
}

func (r *listener) room() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running <= r.h.app.queues.threshold
}

func (r *listener) receive() []*message {
	lease := r.h.o.Lease
	answer, err := r.client.DequeueMessages(r.l.ctx, &azqueue.DequeueMessagesOptions{
		NumberOfMessages: new(int32(min(r.h.app.queues.batch, 32))), VisibilityTimeout: new(int32(lease.Seconds())),
	})
	if err != nil {
		return nil // missing, busy: later
	}
	var batch []*message
	for _, m := range answer.Messages {
		got := &message{
			id: *m.MessageID, raw: *m.MessageText, text: *m.MessageText, dequeueCount: *m.DequeueCount,
			inserted: *m.InsertionTime, expires: *m.ExpirationTime,
			nextVisible:  m.TimeNextVisible.Add(hostLease - lease + r.h.o.StoragesClock), // a shortened lease is told as the usual one
			firstReceipt: *m.PopReceipt, receipt: *m.PopReceipt,
		}
		batch = append(batch, got)
		r.mu.Lock()
		r.running++
		r.mu.Unlock()
		r.l.calls.Add(1)
		r.l.work.Go(func() {
			defer r.l.calls.Done()
			r.process(got)
			r.mu.Lock()
			r.running--
			r.mu.Unlock()
			select {
			case r.freed <- struct{}{}:
			default:
			}
		})
	}
	return batch
}

// process is QueueProcessor: begin, invoke beside renewing, complete.
func (r *listener) process(m *message) {
	if r.h.app.queues.base64 {
		decoded, err := base64.StdEncoding.DecodeString(m.text)
		if err != nil {
			r.complete(m, false) // the function never sees it
			return
		}
		m.text = string(decoded)
	}
	if m.dequeueCount > r.h.app.queues.maxDequeue {
		r.toPoison(m)
		return
	}
	stop := r.renew(m)
	data, metadata := queueData(r.f, m)
	err := r.h.invoke(r.l, r.f, data, metadata)
	stop()
	if r.l.ctx.Err() != nil {
		return // nobody settles it: it comes back when its lease ends
	}
	r.complete(m, err == nil)
}

// renew keeps the message, from the middle of each lease to the middle of the next.
func (r *listener) renew(m *message) (stop func()) {
	ctx, cancel := context.WithCancel(r.l.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-time.After(r.h.o.Lease / 2):
			case <-ctx.Done():
				return
			}
			if err := r.update(ctx, m, r.h.o.Lease); err != nil {
				if ctx.Err() == nil {
					r.check("renew", err) // a 5xx is not passed over here either
				}
				return
			}
		}
	})
	return func() { cancel(); running.Wait() }
}

func (r *listener) update(ctx context.Context, m *message, visibility time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	answer, err := r.client.UpdateMessage(ctx, m.id, m.receipt, m.raw, &azqueue.UpdateMessageOptions{VisibilityTimeout: new(int32(visibility.Seconds()))})
	if err == nil && answer.PopReceipt != nil {
		m.receipt = *answer.PopReceipt
	}
	return err
}

// complete deletes a message that was handled, and releases or poisons one that was not.
func (r *listener) complete(m *message, ok bool) {
	switch {
	case ok:
		r.delete(m)
	case r.poison == nil: // left as it is
	case m.dequeueCount >= r.h.app.queues.maxDequeue:
		r.toPoison(m)
	default:
		r.check("release", r.update(r.l.ctx, m, r.h.app.queues.delay))
	}
}

func (r *listener) delete(m *message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := r.client.DeleteMessage(r.l.ctx, m.id, m.receipt, nil)
	if err != nil {
		r.check("delete", err)
		r.h.mu.Lock()
		r.h.passed++
		r.h.mu.Unlock()
	}
}

func (r *listener) toPoison(m *message) {
	r.h.mu.Lock()
	r.h.poisoned = append(r.h.poisoned, m.id)
	r.h.mu.Unlock()
	if r.poison == nil {
		return
	}
	_, _ = r.poison.Create(r.l.ctx, nil) // it may be there
	if _, err := r.poison.EnqueueMessage(r.l.ctx, m.raw, nil); err != nil {
		r.check("poison", err)
		return
	}
	r.delete(m)
}

// check stops the host for every error that it does not pass over.
func (r *listener) check(what string, err error) {
	if err == nil || r.l.ctx.Err() != nil {
		return
	}
	var answer *azcore.ResponseError
	if errors.As(err, &answer) {
		switch fmt.Sprint(answer.StatusCode, " ", answer.ErrorCode) {
		case "400 PopReceiptMismatch", "404 MessageNotFound", "404 QueueNotFound", "409 QueueBeingDeleted":
			return
		}
	}
	r.h.halt(fmt.Errorf("%s in queue %s: %w", what, r.f.binding.QueueName, err))
}
