// Package azuretable remembers deliveries, attempts, webhooks, dead letters and claims
// in Azure Table Storage.
//
// Tables, all beginning with a prefix:
//
//   - Webhooks: one partition; a registration is JSON in a binary property.
//   - Log<yyyymmdd>, by the UTC day of the message: deliveries and attempts. All
//     rows of a message are in one partition, so that one transaction commits
//     them; expiry drops whole tables.
//   - Recent<yyyymmdd>, by the UTC day of the attempt: a copy of each attempt,
//     newest first, for lists over all messages. It is written in the
//     background, many attempts at a time, and best effort; nothing but lists
//     depends on it.
//   - DeadLetters: a partition for each queue.
//   - Audits: one partition; who changed what, newest first.
//   - Claims<week>, by the time of the claim, in weeks since 1970: one row for a key.
//     Expiry drops whole tables.
//
// Tables are created when the first row is written. Every request is billed, so
// rows that are waiting travel together (see internal/commit).
package azuretable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable/internal/commit"
)

// Options of a Store.
type Options struct {
	// Prefix begins the name of every table: a letter, then letters and digits,
	// at most 40. Default "pushlease".
	Prefix string
	// Partitions is the number of partitions of a day's deliveries and attempts, 1 to
	// 64; default 1. One takes about 2,000 rows a second, which is 1,000 messages; with
	// fewer, more rows share a transaction. Rows are found through it, so it must be the
	// same in all processes, and must not change while messages are under way.
	Partitions int
	// ManagedIdentityClientID picks one user-assigned managed identity when the
	// account is used with an Entra identity. Empty means what azidentity's
	// DefaultAzureCredential finds.
	ManagedIdentityClientID string
	// Transport sends the requests; nil means TCP. For tests.
	Transport http.RoundTripper
	// OnTransaction, when set, is called once for each request on the wire, from
	// many goroutines. service is "table"; operation is batch, query, get,
	// insert, replace, delete, list-tables, create-table or delete-table;
	// status is 0 and err set when there was no answer.
	OnTransaction func(service, operation string, status int, err error)
	// OnDropped, when set, is called with the number of rows that are missing
	// from the index of recent attempts, because it could not be written or
	// did not keep up. The records themselves are not affected.
	OnDropped func(rows int)
	// OnLost, when set, is called with the name of a table that this store has used and that another
	// program has dropped, with what it held.
	OnLost func(table string)
	// Retention is for how long records are kept: who drops a table of one of these days takes away what
	// is needed.
	Retention time.Duration
	// OnUnfinished, when set, is told how many messages of a queue had no outcome, though their life was over, when
	// this store dropped the table that knew of them; at least that many unless whole.
	OnUnfinished func(queue string, messages int, whole bool)
	// OnRemoved is told of registrations as tables.Traces.Removed is.
	OnRemoved func(webhookID, queue string)
}

var validPrefix = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,39}$`)

func (o Options) withDefaults() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = "pushlease"
	}
	if o.Partitions == 0 {
		o.Partitions = 1
	}
	var errs []error
	if !validPrefix.MatchString(o.Prefix) {
		errs = append(errs, fmt.Errorf("table prefix %q: use a letter, then letters and digits, at most 40", o.Prefix))
	}
	if o.Partitions < 1 || o.Partitions > 64 {
		errs = append(errs, fmt.Errorf("partitions %d: use 1 to 64", o.Partitions))
	}
	return o, errors.Join(errs...)
}

// Store implements tables.Store. Safe for concurrent use.
type Store struct {
	names
	client  *client
	commits commit.Committer
	recent  *recentIndex
	listing *listing
	watch   *watch
	// queues holds the queues whose name is known to be in the DeadLetters table, and since when.
	queues sync.Map
	census tables.Census
	// removed and unfinished are OnRemoved and OnUnfinished of the Options.
	removed    func(webhookID, queue string)
	unfinished func(queue string, messages int, whole bool)
}

var _ tables.Store = (*Store)(nil)

// Open returns a Store over the table service of cfg. It makes no network
// call, so it works while the service is away. Since tables come and go by day,
// an identity needs the role Storage Table Data Contributor, and a SAS must be
// one of the account, not of a table.
func Open(cfg azureconn.Config, opts Options) (*Store, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open table storage: %w", err)
	}
	c, err := newClient(cfg, opts.ManagedIdentityClientID, newTransport(opts.Transport, opts.OnTransaction))
	if err != nil {
		return nil, fmt.Errorf("open table storage: %w", err)
	}
	n := names{prefix: opts.Prefix, partitions: opts.Partitions}
	s := &Store{names: n, client: c, listing: &listing{client: c, names: n}, removed: opts.OnRemoved, unfinished: opts.OnUnfinished}
	s.watch = &watch{
		kept:    func(table string, now time.Time) bool { return n.watched(opts.Retention, table, now) },
		missing: func() { s.queues.Clear(); s.listing.forget() },
		lost:    opts.OnLost,
	}
	c.seen, c.made = s.watch.saw, s.listing.forget
	s.recent = newRecentIndex(c.submit, opts.OnDropped)
	s.commits = commit.Committer{Submit: c.submit, Message: orderOf}
	return s, nil
}

// Lanes returns how many transactions of records are under way, and how many began so far beside others of their partition that
// were late.
func (s *Store) Lanes() (underWay int, stalls int64) { return s.commits.Lanes() }

// Close writes what is waiting for the index of recent attempts, or gives up on
// it when ctx ends first. Call it once nothing else uses the store.
func (s *Store) Close(ctx context.Context) error {
	err := s.recent.close(ctx)
	s.client.close()
	if err != nil {
		return fmt.Errorf("write the index of recent attempts: %w", err)
	}
	return nil
}
