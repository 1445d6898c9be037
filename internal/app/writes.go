package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// failedWrites is how many writes in a row have to fail before storage counts as one that
	// can't be written, and how many requests have to stay without an answer before it is away.
	failedWrites = 3
	// failedWriteAge is how long that counts when nothing was written since: an idle process writes
	// once a minute that it is there.
	failedWriteAge = 90 * time.Second
)

// writes watches whether an account can be written, by what becomes of each request.
// Reading may go on where writing does not: roles and firewalls differ, and a service may be
// out of space. Where nothing is written, reads that have no answer tell that storage is away.
// Safe for concurrent use.
type writes struct {
	mu sync.Mutex
	// services are those whose last writes failed, unanswered those whose last requests had no answer.
	services, unanswered map[string]*failing
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
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case status > 0:
		delete(w.unanswered, service)
	case err != nil && !errors.Is(err, context.Canceled):
		w.unanswered = failed(w.unanswered, service, status)
	}
	if !writeOperations[operation] {
		return
	}
	denied := status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests
	if err == nil && status < http.StatusInternalServerError && !denied {
		delete(w.services, service)
		return
	}
	w.services = failed(w.services, service, status)
}

// failed adds a request to the row of a service.
func failed(rows map[string]*failing, service string, status int) map[string]*failing {
	now := time.Now()
	if rows == nil {
		rows = map[string]*failing{}
	}
	f := rows[service]
	if f == nil {
		f = &failing{since: now}
		rows[service] = f
	}
	f.n, f.last, f.status = f.n+1, now, status
	return rows
}

// lasts reports whether a row is long and new enough to tell of a fault.
func (f *failing) lasts() bool {
	return f != nil && f.n >= failedWrites && time.Since(f.last) < failedWriteAge
}

// fault says that the last writes failed; nil when they did not, or when that is long ago.
func (w *writes) fault(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, service := range []string{"queue", "table"} {
		f := w.services[service]
		if away := w.unanswered[service]; away.lasts() && !f.lasts() {
			return fmt.Errorf("the last %d requests to the %s service had no answer, since %s: check the network, and the state of the account",
				away.n, service, away.since.UTC().Format(time.RFC3339))
		}
		if !f.lasts() {
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
