// Package azurequeue is Azure Storage Queues as a queue.Service.
//
// It uses azqueue v1.0.1 and works around what is unsafe in it for a leased
// queue: the SDK's retries repeat calls whose answer was lost (messages sent
// twice, receipts lost for good), and its UpdateMessage erases the content.
// Here every call is one request, nothing is repeated by the SDK or by
// net/http, and errors tell apart "refused", "not sent" and "unknown" (see
// queue.Ambiguous). "Visibility timeout" and "pop receipt" are the service's
// names for lease and receipt; they stay in this package.
package azurequeue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/queue"
)

// Service is one account's queues.
type Service struct {
	cfg       azureconn.Config
	key       *sharedKey // nil without one
	client    *azqueue.ServiceClient
	transport *transport
}

var _ queue.Service = (*Service)(nil)

// Open prepares the account's queues for use. It makes no network call.
func Open(cfg azureconn.Config, opts Options) (*Service, error) {
	if cfg.QueueURL == "" {
		return nil, errors.New("azure queues: the connection string names no queue service; add QueueEndpoint")
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("azure queues: %w", err)
	}
	s := &Service{cfg: cfg, transport: newTransport(opts)}
	if cfg.Credential == azureconn.SharedKey {
		if s.key, err = newSharedKey(cfg.Account, cfg.Key()); err != nil {
			return nil, fmt.Errorf("azure queues: %w", err)
		}
	}
	if s.client, err = newClient(cfg, opts, s.transport); err != nil {
		return nil, fmt.Errorf("azure queues: %w", err)
	}
	return s, nil
}

func newClient(cfg azureconn.Config, opts Options, t *transport) (*azqueue.ServiceClient, error) {
	// Made anew for each client: the SDK adds its own policies to it.
	options := &azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{
		Retry:           policy.RetryOptions{MaxRetries: -1},
		Telemetry:       policy.TelemetryOptions{ApplicationID: application},
		Transport:       t,
		PerCallPolicies: []policy.Policy{keepBodyPolicy{}, readMessagesPolicy{}},
	}}
	switch cfg.Credential {
	case azureconn.SharedKey:
		key, err := azqueue.NewSharedKeyCredential(cfg.Account, cfg.Key())
		if err != nil {
			return nil, errors.New("AccountKey is not base64")
		}
		return azqueue.NewServiceClientWithSharedKeyCredential(cfg.QueueURL, key, options)
	case azureconn.SAS:
		return azqueue.NewServiceClientWithNoCredential(cfg.QueueURL+"?"+cfg.SAS(), options)
	case azureconn.Identity:
		tokens, err := newTokens(opts.ManagedIdentityClientID)
		if err != nil {
			return nil, err
		}
		return azqueue.NewServiceClient(cfg.QueueURL, tokens, options)
	}
	return nil, fmt.Errorf("credential %v is not supported", cfg.Credential)
}

// Close gives the idle connections back. Calls in flight go on.
func (s *Service) Close() { (&http.Client{Transport: s.transport.base}).CloseIdleConnections() }

// ClockAhead is how far the clock here is ahead of storage's, to a few seconds; negative
// when it is behind, and not known before storage has answered once.
func (s *Service) ClockAhead() (ahead time.Duration, known bool) { return s.transport.clock.compared() }

// Queue returns the named queue without asking storage for anything.
func (s *Service) Queue(name string) (queue.Queue, error) {
	if err := queue.ValidateName(name); err != nil {
		return nil, err
	}
	d, err := newDeleter(s.cfg, s.key, name, s.transport)
	if err != nil {
		return nil, err
	}
	return &azureQueue{transport: s.transport, name: name, client: s.client.NewQueueClient(name), deleter: d}, nil
}

// maxPages bounds List: at 5,000 queues a page, five million queues.
const maxPages = 1000

// List returns the names of all queues, in ascending order. It takes one
// transaction per 5,000 queues.
func (s *Service) List(ctx context.Context) ([]string, error) {
	names := []string{}
	pager := s.client.NewListQueuesPager(nil)
	for range maxPages {
		var page azqueue.ListQueuesResponse
		err := s.transport.do(ctx, opList, "", func(ctx context.Context) (err error) {
			page, err = pager.NextPage(ctx)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, q := range page.Queues {
			if q != nil && q.Name != nil {
				names = append(names, *q.Name)
			}
		}
		// An empty page with a continuation is not the end.
		if !pager.More() {
			slices.Sort(names)
			return names, nil
		}
	}
	return nil, fmt.Errorf("%s: the list does not end after %d pages", opList, maxPages)
}

// Delete implements queue.Service. It takes one transaction, and with onlyEmpty one more.
func (s *Service) Delete(ctx context.Context, name string, onlyEmpty bool) error {
	q, err := s.Queue(name)
	if err != nil {
		return err
	}
	if onlyEmpty {
		depth, err := q.Depth(ctx)
		if err != nil {
			return err
		}
		if depth.Total > 0 {
			return fmt.Errorf("%s of queue %s: %w", opDelete, name, queue.ErrNotEmpty)
		}
	}
	return s.transport.do(ctx, opDelete, name, func(ctx context.Context) error {
		_, err := s.client.DeleteQueue(ctx, name, nil)
		return err
	})
}
