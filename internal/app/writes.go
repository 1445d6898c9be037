package app

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// failedWrites is how many writes in a row have to fail before storage counts as one that
	// can't be written.
	failedWrites = 3
	// failedWriteAge is how long that counts when nothing was written since.
	failedWriteAge = time.Minute
)

// writes watches whether an account can be written, by what becomes of each request.
// Reading may go on where writing does not: roles and firewalls differ, and a service may be
// out of space. Safe for concurrent use.
type writes struct {
	mu       sync.Mutex
	services map[string]*failing
}

// failing is a row of failed writes to one service.
type failing struct {
	n           int
	since, last time.Time
	status      int
}

// writeOperations are the ones that write, as the adapters name them.
var writeOperations = map[string]bool{
	"send": true, "renew": true, "abandon": true, "complete": true, "create": true,
	"batch": true, "insert": true, "replace": true, "delete": true, "create-table": true,
}

// note is told of each request. Storage that refuses one for what it says, such as a receipt
// that is out of date, can be written.
func (w *writes) note(service, operation string, status int, err error) {
	if !writeOperations[operation] {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	denied := status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests
	if err == nil && status < http.StatusInternalServerError && !denied {
		delete(w.services, service)
		return
	}
	now := time.Now()
	f := w.services[service]
	if f == nil {
		f = &failing{since: now}
		if w.services == nil {
			w.services = map[string]*failing{}
		}
		w.services[service] = f
	}
	f.n, f.last, f.status = f.n+1, now, status
}

// fault says that the last writes failed; nil when they did not, or when that is long ago.
func (w *writes) fault(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, service := range []string{"queue", "table"} {
		f := w.services[service]
		if f == nil || f.n < failedWrites || time.Since(f.last) >= failedWriteAge {
			continue
		}
		why := "it did not answer: check the network, and the state of the account"
		switch {
		case f.status == http.StatusUnauthorized || f.status == http.StatusForbidden:
			why = fmt.Sprintf("it answered %d: check the role (Storage %s Data Contributor), the key or signature, and the account's firewall", f.status, map[string]string{"queue": "Queue", "table": "Table"}[service])
		case f.status > 0:
			why = fmt.Sprintf("it answered %d: storage is busy or has a fault of its own, which the account's metrics show", f.status)
		}
		return fmt.Errorf("the last %d writes to the %s service failed, since %s: %s", f.n, service, f.since.UTC().Format(time.RFC3339), why)
	}
	return nil
}
