package azurequeue

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Options tune a Service. The zero value is good.
type Options struct {
	// Connections is how many calls run at the same time at most; as many idle
	// connections are kept for reuse. Zero means 64.
	Connections int
	// Timeout bounds one request, the reading of its answer included; the
	// caller's context wins when it ends sooner. Zero means 10 s.
	Timeout time.Duration
	// ManagedIdentityClientID picks one user-assigned managed identity when the
	// account is used with an Entra identity. Empty means what azidentity's
	// DefaultAzureCredential finds.
	ManagedIdentityClientID string
	// Transport sends the requests; nil means TCP. For tests.
	Transport http.RoundTripper
	// OnTransaction is called once for every request that went out on the wire,
	// which is what the service bills. queue is the name of the queue, empty for a request about
	// the account. operation is one of receive, renew,
	// abandon, complete, send, create, depth, peek, list and delete. status is 0 and
	// err tells why when no answer came. It is called from many goroutines and
	// must not block. Nil is allowed.
	OnTransaction func(queue, operation string, status int, err error)
}

func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.Connections < 0 {
		errs = append(errs, fmt.Errorf("option Connections is %d; it must not be negative", o.Connections))
	}
	if o.Timeout < 0 {
		errs = append(errs, fmt.Errorf("option Timeout is %v; it must not be negative", o.Timeout))
	}
	if o.Connections == 0 {
		o.Connections = 64
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.OnTransaction == nil {
		o.OnTransaction = func(string, string, int, error) {}
	}
	return o, errors.Join(errs...)
}
