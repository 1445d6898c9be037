package azuretable_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable"
	"github.com/pushlease/pushlease/tables/tablestest"
	"github.com/pushlease/pushlease/webhook"
)

var today = time.Date(2026, 11, 26, 22, 15, 30, 123_000_000, time.UTC)

func record(id string, number int) tables.Record {
	key := tables.MessageKey{Queue: "orders", MessageID: id, Day: today}
	return tables.Record{
		Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "wh", State: tables.Pending, Attempts: number}},
		Attempts:   []tables.Attempt{{MessageKey: key, WebhookID: "wh", Number: number, StartedAt: today, Status: 500}},
	}
}

func hook(id string) tables.Registration {
	return tables.Registration{Webhook: webhook.Webhook{ID: id, Queue: "orders", URL: "https://example.com/"}, Enabled: true}
}

func deadLetter(id string) tables.DeadLetter {
	key := record(id, 1).Deliveries[0].MessageKey
	return tables.DeadLetter{ID: tables.DeadLetterID(key, "wh", 0, today), MessageKey: key, WebhookID: "wh", Status: tables.Waiting, DeadLetteredAt: today, Text: []byte("text")}
}

// behindProxy opens a store behind a proxy of its own.
func behindProxy(t *testing.T, opts azuretable.Options) (*azuritetest.Proxy, *azuretable.Store) {
	t.Helper()
	proxy := azuritetest.Start(t).Proxy(t)
	return proxy, open(t, proxy.ConnectionString(), opts)
}

func TestContractWithEmptyPagesEverywhere(t *testing.T) {
	t.Parallel()
	azurite := azuritetest.Start(t)
	tablestest.Run(t, func(t *testing.T) tables.Store {
		proxy := azurite.Proxy(t)
		proxy.Fault(azuritetest.Match{Operation: "query"}, azuritetest.EmptyPages(3))
		return open(t, proxy.ConnectionString(), azuretable.Options{})
	})
}

func TestContractWhileEveryFirstAnswerOfAKindIsLost(t *testing.T) {
	t.Parallel()
	azurite := azuritetest.Start(t)
	tablestest.Run(t, func(t *testing.T) tables.Store {
		proxy := azurite.Proxy(t)
		// But for deletes: of those, one that was repeated can't know whether there was a row.
		for _, operation := range []string{"create-table", "insert", "replace", "batch", "get", "query", "list-tables", "delete-table"} {
			proxy.Fault(azuritetest.Match{Service: "table", Operation: operation, From: 1, To: 1}, azuritetest.FailAfter())
		}
		return open(t, proxy.ConnectionString(), azuretable.Options{})
	})
}

func TestAWriteWhoseAnswerWasLostIsNotAConflictWithItself(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	once := func(operation string) {
		proxy.Heal()
		proxy.Fault(azuritetest.Match{Operation: operation, From: 1, To: 1}, azuritetest.FailAfter())
	}
	if _, err := s.PutWebhook(t.Context(), hook("other")); err != nil {
		t.Fatal(err)
	}
	once("insert")
	r, err := s.PutWebhook(t.Context(), hook("wh"))
	if err != nil {
		t.Fatalf("insert: %v", err)
	}
	once("replace")
	r.Enabled = false
	if r, err = s.PutWebhook(t.Context(), r); err != nil {
		t.Fatalf("replace: %v", err)
	}
	if got, err := s.GetWebhook(t.Context(), "wh"); err != nil || got.Enabled || got.ETag != r.ETag {
		t.Errorf("GetWebhook = %+v, %v; want the ETag that PutWebhook returned", got, err)
	}
	once("delete-entity")
	if err := s.DeleteWebhook(t.Context(), "wh", r.ETag); err != nil {
		t.Errorf("delete: %v", err)
	}
	once("insert")
	d, err := s.PutDeadLetter(t.Context(), deadLetter("m"))
	if err != nil || d.ETag == "" {
		t.Fatalf("put dead letter: %v, ETag %q", err, d.ETag)
	}
	once("replace")
	if _, err := s.UpdateDeadLetter(t.Context(), d); err != nil {
		t.Errorf("update dead letter: %v", err)
	}
	once("batch")
	if err := s.Record(t.Context(), record("m", 1)); err != nil {
		t.Errorf("record: %v", err)
	}
}

// A process that writes a dead letter which is there already, and can't read it, has an error and goes on.
func TestADeadLetterThatIsThereAndCanNotBeReadIsAnError(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	d, err := s.PutDeadLetter(t.Context(), deadLetter("m"))
	if err != nil {
		t.Fatal(err)
	}
	proxy.Fault(azuritetest.Match{Operation: "get"}, azuritetest.FailBefore(http.StatusForbidden, "AuthorizationFailure"))
	if again, err := s.PutDeadLetter(t.Context(), deadLetter("m")); !errors.Is(err, tables.ErrDenied) {
		t.Errorf("the second one = %+v, %v; want ErrDenied", again, err)
	}
	proxy.Heal()
	if again, err := s.PutDeadLetter(t.Context(), deadLetter("m")); err != nil || again.ETag != d.ETag {
		t.Errorf("the third one = %+v, %v; want the one that is there", again, err)
	}
}

func TestAConflictWithSomeoneElseStaysOneAfterALostRequest(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	r, err := s.PutWebhook(t.Context(), hook("wh"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutWebhook(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	proxy.Fault(azuritetest.Match{Operation: "replace", From: 1, To: 1}, azuritetest.CutBefore())
	proxy.Fault(azuritetest.Match{Operation: "insert", From: 1, To: 1}, azuritetest.CutBefore())
	if _, err := s.PutWebhook(t.Context(), r); !errors.Is(err, tables.ErrConflict) {
		t.Errorf("replace = %v, want ErrConflict", err)
	}
	other := hook("wh")
	other.URL = "https://elsewhere.example/"
	if _, err := s.PutWebhook(t.Context(), other); !errors.Is(err, tables.ErrExists) {
		t.Errorf("insert = %v, want ErrExists", err)
	}
}

func TestTwoHundredFiftyRecordsTakeFewTransactions(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	if err := s.Record(t.Context(), record("m0", 1)); err != nil { // creates the table
		t.Fatal(err)
	}
	logBatches := func() (n int) {
		for _, r := range proxy.Requests() {
			if r.Operation == "batch" && r.BodySize > 0 {
				n++
			}
		}
		return n
	}
	before := logBatches()
	var wg sync.WaitGroup
	for i := range 250 {
		r := record(fmt.Sprint("m", i), 2)
		r.Attempts = nil // the index would add transactions
		wg.Go(func() {
			if err := s.Record(t.Context(), r); err != nil {
				t.Errorf("Record: %v", err)
			}
		})
	}
	wg.Wait()
	if n := logBatches() - before; n > 50 {
		t.Errorf("250 records took %d transactions, want far fewer", n)
	}
	// The same key twice in a row: the last one is what stays.
	for _, number := range []int{3, 4} {
		if err := s.Record(t.Context(), record("m7", number)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 250 {
		want := 2
		if i == 7 {
			want = 4
		}
		ds, err := s.Load(t.Context(), record(fmt.Sprint("m", i), 1).Deliveries[0].MessageKey)
		if err != nil || len(ds) != 1 || ds[0].Attempts != want {
			t.Fatalf("message %d: %+v, %v; want %d attempts", i, ds, err, want)
		}
	}
}

func TestThrottlingIsRepeatedOnceAndThenReported(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	if err := s.Record(t.Context(), record("m", 1)); err != nil {
		t.Fatal(err)
	}
	key := record("m", 1).Deliveries[0].MessageKey
	for _, operation := range []string{"query", "batch"} {
		proxy.Heal()
		proxy.Fault(azuritetest.Match{Operation: operation, From: 1, To: 1}, azuritetest.Throttle())
		if ds, err := s.Load(t.Context(), key); err != nil || len(ds) != 1 {
			t.Errorf("Load after one 503 of %s: %d rows, %v", operation, len(ds), err)
		}
		if err := s.Record(t.Context(), tables.Record{Deliveries: record("m", 1).Deliveries}); err != nil {
			t.Errorf("Record after one 503 of %s: %v", operation, err)
		}
	}
	proxy.Heal()
	proxy.Fault(azuritetest.Match{Service: "table"}, azuritetest.Throttle())
	before := proxy.Count("table", "")
	if _, err := s.Load(t.Context(), key); err == nil || !strings.Contains(err.Error(), "503 ServerBusy") || errors.Is(err, tables.ErrNotFound) {
		t.Errorf("Load = %v, want status and code", err)
	}
	if _, _, err := s.Message(t.Context(), "", "m"); err == nil || errors.Is(err, tables.ErrNotFound) {
		t.Errorf("Message = %v, want an error that is not ErrNotFound", err)
	}
	if n := proxy.Count("table", "") - before; n > 4 {
		t.Errorf("two calls made %d requests, want at most 4", n)
	}
}

func TestMessageIsNotFoundOnlyWhenEveryTableWasAsked(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	for i := range 6 {
		r := record("m", 1)
		r.Deliveries[0].Day = today.Add(-time.Duration(i) * 24 * time.Hour)
		r.Attempts = nil
		if err := s.Record(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Message(t.Context(), "", "unknown"); !errors.Is(err, tables.ErrNotFound) {
		t.Errorf("Message = %v, want ErrNotFound", err)
	}
	proxy.Fault(azuritetest.Match{Operation: "query", From: 3}, azuritetest.FailBefore(http.StatusForbidden, "AuthorizationFailure"))
	if _, _, err := s.Message(t.Context(), "", "unknown"); err == nil || errors.Is(err, tables.ErrNotFound) {
		t.Errorf("Message with a table that can't be asked = %v, want another error than ErrNotFound", err)
	}
}

func TestAMessageOfAnotherProcessIsFoundDespiteTheCachedList(t *testing.T) {
	azurite := azuritetest.Start(t)
	prefix := azuritetest.Name("shared")
	a, b := openAs(t, azurite.ConnectionString(), azuretable.Options{Prefix: prefix}), openAs(t, azurite.ConnectionString(), azuretable.Options{Prefix: prefix})
	if _, _, err := a.Message(t.Context(), "", "m"); !errors.Is(err, tables.ErrNotFound) {
		t.Fatalf("Message = %v, want ErrNotFound", err)
	}
	if err := b.Record(t.Context(), record("m", 1)); err != nil {
		t.Fatal(err)
	}
	if ds, as, err := a.Message(t.Context(), "", "m"); err != nil || len(ds) != 1 || len(as) != 1 {
		t.Errorf("Message = %d deliveries, %d attempts, %v; want one of each", len(ds), len(as), err)
	}
}

func TestAnEmptyStoreCostsOneRequestAList(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	for range 5 {
		if as, next, err := s.Attempts(t.Context(), tables.AttemptFilter{}, tables.Page{Limit: 10}); err != nil || len(as) != 0 || next != "" {
			t.Fatalf("Attempts = %d rows, cursor %q, %v", len(as), next, err)
		}
	}
	if n := proxy.Count("table", ""); n != 1 {
		t.Errorf("5 lists of an empty store made %d requests, want 1", n)
	}
}

func TestAListIsBoundedAndGoesOnBehindItsCursor(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	if err := s.Record(t.Context(), record("m", 1)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Attempts(t.Context(), tables.AttemptFilter{}, tables.Page{Limit: 1}); err != nil {
		t.Fatal(err) // the index is written now
	}
	proxy.Fault(azuritetest.Match{Operation: "query"}, azuritetest.EmptyPages(45))
	before := proxy.Count("table", "query")
	var found, pages int
	page := tables.Page{Limit: 10}
	for {
		as, next, err := s.Attempts(t.Context(), tables.AttemptFilter{}, page)
		if err != nil {
			t.Fatal(err)
		}
		found += len(as)
		pages++
		if n := proxy.Count("table", "query") - before; n > 25*pages {
			t.Fatalf("%d pages made %d requests", pages, n)
		}
		if next == "" {
			break
		}
		page.After = next
	}
	if found != 1 || pages < 3 {
		t.Errorf("%d rows on %d pages, want 1 row and at least 3 pages", found, pages)
	}
}

// The attempts of all webhooks are in several partitions, and one list: each once, newest first, however long its pages are.
func TestAListOfAllWebhooksIsOneOfSeveralPartitions(t *testing.T) {
	s := openEdited(t)
	const attempts = 11
	write := func(i int) {
		r := record(fmt.Sprint("m", i), 1)
		r.Attempts[0].StartedAt = today.Add(time.Duration(i) * 10 * time.Minute) // over three hours, and midnight
		if err := s.Record(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Attempts(t.Context(), tables.AttemptFilter{}, tables.Page{Limit: 1}); err != nil { // which has the index written
			t.Fatal(err)
		}
	}
	for i := range attempts {
		write(i)
	}
	write(4)                    // once more, in another partition
	for looks := 0; ; looks++ { // each of which waits for what is to be written
		as, _, err := s.Attempts(t.Context(), tables.AttemptFilter{}, tables.Page{Limit: 2 * attempts})
		if err != nil || looks == 60 {
			t.Fatalf("%d attempts are listed, %v", len(as), err)
		}
		if len(as) == attempts {
			break
		}
	}
	for _, partition := range []string{"all~", "all1~", "all2~"} {
		s.edit(s.prefix+"Recent20261126", partition+"01", nil) // it has rows of the hour of 22
	}
	for _, f := range []tables.AttemptFilter{{}, {From: today.Add(30 * time.Minute), Until: today.Add(90 * time.Minute)}, {WebhookID: "wh"}} {
		for _, limit := range []int{1, 2, 4, attempts, attempts + 1} {
			page, last, n := tables.Page{Limit: limit}, attempts, 0
			if !f.Until.IsZero() {
				last = 9
			}
			for more := true; more; n++ {
				as, next, err := s.Attempts(t.Context(), f, page)
				if err != nil || len(as) > page.Limit || n > attempts {
					t.Fatalf("page %d of %d: %d attempts, %v", n, page.Limit, len(as), err)
				}
				for _, a := range as {
					if last--; a.MessageID != fmt.Sprint("m", last) {
						t.Fatalf("%+v, %d a page: %s, want m%d", f, page.Limit, a.MessageID, last)
					}
				}
				page.After, more = next, next != ""
			}
			if first := map[bool]int{true: 0, false: 3}[f.From.IsZero()]; last != first {
				t.Errorf("%+v, %d a page: the last is m%d, want m%d", f, page.Limit, last, first)
			}
		}
	}
	_, of, err := s.Attempts(t.Context(), tables.AttemptFilter{}, tables.Page{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	all, err := base64.RawURLEncoding.DecodeString(string(of))
	one, _, found := strings.Cut(string(all), `,"o":`)
	if err != nil || !found {
		t.Fatalf("the cursor is %s, %v", all, err)
	}
	older := tables.Cursor(base64.RawURLEncoding.EncodeToString([]byte(one + "}"))) // of when this list had one shard
	if _, _, err := s.Attempts(t.Context(), tables.AttemptFilter{}, tables.Page{Limit: 1, After: older}); !errors.Is(err, tables.ErrBadCursor) {
		t.Errorf("the cursor of an older version: %v", err)
	}
	if _, _, err := s.Attempts(t.Context(), tables.AttemptFilter{WebhookID: "wh"}, tables.Page{Limit: 1, After: of}); !errors.Is(err, tables.ErrBadCursor) {
		t.Errorf("the cursor of another list: %v", err)
	}
}

func TestTransactionsAreCountedOncePerRequest(t *testing.T) {
	var mu sync.Mutex
	counts := make(map[string]int)
	var failed atomic.Int64
	proxy, s := behindProxy(t, azuretable.Options{OnTransaction: func(service, operation string, status int, err error) {
		if service != "table" || (status == 0) != (err != nil) {
			t.Errorf("OnTransaction(%q, %q, %d, %v)", service, operation, status, err)
		}
		if err != nil {
			failed.Add(1)
		}
		mu.Lock()
		defer mu.Unlock()
		counts[operation]++
	}})
	proxy.Fault(azuritetest.Match{Operation: "insert", From: 2, To: 2}, azuritetest.FailAfter())
	if err := s.Record(t.Context(), record("m", 1)); err != nil {
		t.Fatal(err)
	}
	r, err := s.PutWebhook(t.Context(), hook("wh"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.PutWebhook(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ListWebhooks(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteWebhook(t.Context(), "wh", ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Attempts(t.Context(), tables.AttemptFilter{}, tables.Page{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Expire(t.Context(), today.Add(48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	total := 0
	for _, operation := range []string{"batch", "create-table", "insert", "replace", "query", "delete", "list-tables", "delete-table", "get"} {
		seen := proxy.Count("table", operation)
		if operation == "delete" {
			seen = proxy.Count("table", "delete-entity")
		}
		if counts[operation] != seen {
			t.Errorf("%s counted %d times, the proxy saw %d", operation, counts[operation], seen)
		}
		total += counts[operation]
	}
	if total != proxy.Count("table", "") || failed.Load() != 1 {
		t.Errorf("%d requests counted, %d without an answer; the proxy saw %d, of which it cut 1", total, failed.Load(), proxy.Count("table", ""))
	}
}

func TestRecordsAreKeptWhileTheIndexCannotBeWritten(t *testing.T) {
	var dropped atomic.Int64
	proxy, s := behindProxy(t, azuretable.Options{OnDropped: func(rows int) { dropped.Add(int64(rows)) }})
	if err := s.Record(t.Context(), tables.Record{Deliveries: record("m", 1).Deliveries}); err != nil {
		t.Fatal(err)
	}
	// Every table but the one of the deliveries is out of reach.
	proxy.Fault(azuritetest.Match{Operation: "create-table"}, azuritetest.FailBefore(http.StatusForbidden, "AuthorizationFailure"))
	if err := s.Record(t.Context(), record("m", 1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if dropped.Load() != 2 {
		t.Errorf("%d rows reported as dropped, want 2", dropped.Load())
	}
	if ds, as, err := s.Message(t.Context(), "orders", "m"); err != nil || len(ds) != 1 || len(as) != 1 {
		t.Errorf("Message = %d deliveries, %d attempts, %v; want both records", len(ds), len(as), err)
	}
}

func TestCloseGivesUpOnTheIndexWhenItsTimeEnds(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	if err := s.Record(t.Context(), tables.Record{Deliveries: record("m", 1).Deliveries}); err != nil {
		t.Fatal(err)
	}
	proxy.Fault(azuritetest.Match{Operation: "create-table"}, azuritetest.FailBefore(http.StatusConflict, "TableBeingDeleted"))
	if err := s.Record(t.Context(), record("m", 1)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close = %v, want the deadline", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("second Close = %v", err)
	}
}
