package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushlease/pushlease/tables"
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
// A service can't be written when writes in a row failed. A refusal may be about one queue, for which the role is
// missing: the service refuses when it refuses two, or the only one. Of the queues only those count
// that this process has received from or written to, which names that callers think up are not.
// Safe for concurrent use.
type writes struct {
	mu sync.Mutex
	// services are those whose last writes failed, unanswered those whose last requests had no answer.
	services, unanswered map[string]*failing
	// queues are those that refused the last writes, each by itself; refused is the row of all that are known, since one was written.
	queues  map[string]*failing
	refused *failing
	// known is when queues were last received from or written to.
	known map[string]time.Time
	swept time.Time
}

const (
	// maxQueues bounds the queues that are remembered.
	maxQueues = 10_000
	// knownFor is how long a queue counts as one of several that this process has to do with.
	knownFor = 10 * time.Minute
)

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
func (w *writes) note(service, queueName, operation string, status int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case status > 0:
		delete(w.unanswered, service)
	case err != nil && !errors.Is(err, context.Canceled):
		w.unanswered = failed(w.unanswered, service, status)
	}
	queueName = strings.TrimSuffix(queueName, tables.PoisonSuffix)
	if writing := writeOperations[operation]; writing || operation == "receive" {
		if queueName != "" && err == nil && status < http.StatusMultipleChoices {
			w.knows(queueName)
		}
		if writing {
			w.wrote(service, queueName, status, err)
		}
	}
}

// knows notes that a queue was received from or written to. w.mu is held.
func (w *writes) knows(queueName string) {
	if w.known == nil {
		w.known = map[string]time.Time{}
	}
	if _, known := w.known[queueName]; known || len(w.known) < maxQueues {
		w.known[queueName] = time.Now()
	}
}

// wrote is about a write. w.mu is held.
func (w *writes) wrote(service, queueName string, status int, err error) {
	denied := status == http.StatusUnauthorized || status == http.StatusForbidden
	switch {
	case denied && queueName != "":
		w.refuse(queueName, status)
	case denied, err != nil, status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		w.services = failed(w.services, service, status)
	default:
		delete(w.services, service)
		if queueName != "" {
			delete(w.queues, queueName)
			w.refused = nil
		}
	}
}

// refuse is about a write that a queue refused. w.mu is held.
func (w *writes) refuse(queueName string, status int) {
	if w.known[queueName].IsZero() && w.queues[queueName] == nil && !w.room() {
		return
	}
	w.queues = failed(w.queues, queueName, status)
	if !w.known[queueName].IsZero() || len(w.known) == 0 {
		w.refused = w.refused.again(status)
	}
}

// room reports whether one more queue that is not known can be remembered. w.mu is held.
func (w *writes) room() bool {
	if len(w.queues) >= maxQueues && time.Since(w.swept) > time.Second { // each answer of storage waits for w.mu
		w.swept = time.Now()
		maps.DeleteFunc(w.queues, func(_ string, f *failing) bool { return time.Since(f.last) >= failedWriteAge })
	}
	return len(w.queues) < maxQueues
}

// failed adds a request to a row.
func failed[K comparable](rows map[K]*failing, key K, status int) map[K]*failing {
	if rows == nil {
		rows = map[K]*failing{}
	}
	rows[key] = rows[key].again(status)
	return rows
}

// again is the row with one more request.
func (f *failing) again(status int) *failing {
	now := time.Now()
	if f == nil {
		f = &failing{since: now}
	}
	f.n, f.last, f.status = f.n+1, now, status
	return f
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
		if service == "queue" && w.allRefuse() {
			f = w.refused
		}
		if away := w.unanswered[service]; away.lasts() && !f.lasts() {
			return fmt.Errorf("the last %d requests to the %s service had no answer, since %s: check the network, and the state of the account",
				away.n, service, away.since.UTC().Format(time.RFC3339))
		}
		if f.lasts() {
			return fmt.Errorf("the last %d writes to the %s service failed, since %s: %s", f.n, service, f.since.UTC().Format(time.RFC3339), f.why(service))
		}
	}
	return nil
}

// allRefuse reports whether refusals are the account's: of two queues that are known, of the only one, or while none is. w.mu is held.
func (w *writes) allRefuse() bool {
	if !w.refused.lasts() {
		return false
	}
	now, refusing, all := time.Now(), 0, 0
	for name, at := range w.known {
		if f := w.queues[name]; f != nil && !f.last.Before(w.refused.since) {
			refusing++
		}
		if now.Sub(at) < knownFor {
			all++
		}
	}
	return refusing >= min(2, all)
}

// partly names the queues that can't be written while storage as a whole can; "" where there is none.
func (w *writes) partly() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.allRefuse() {
		return ""
	}
	var refused []string
	for name, f := range w.queues {
		if f.lasts() {
			refused = append(refused, name)
		}
	}
	if len(refused) == 0 {
		return ""
	}
	slices.Sort(refused)
	f, others := w.queues[refused[0]], ""
	if len(refused) > 1 {
		others = fmt.Sprintf(", and so did those to %d others", len(refused)-1)
	}
	return fmt.Sprintf("the last %d writes to the queue %s failed, since %s%s: %s", f.n, refused[0], f.since.UTC().Format(time.RFC3339), others, f.why("queue"))
}

// why says what a row of failures may come of, and the cure.
func (f *failing) why(service string) string {
	switch {
	case f.status == http.StatusUnauthorized || f.status == http.StatusForbidden:
		return fmt.Sprintf("it answered %d: check the role (Storage %s Data Contributor), the key or signature, and the account's firewall", f.status, map[string]string{"queue": "Queue", "table": "Table"}[service])
	case f.status > 0:
		return fmt.Sprintf("it answered %d: storage is busy or has a fault of its own, which the account's metrics show", f.status)
	}
	return "it did not answer: check the network, and the state of the account"
}
