package azurestandin_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/azurestandin"
	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/queue/azurequeue"
	"github.com/pushlease/pushlease/queue/queuetest"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable"
	"github.com/pushlease/pushlease/tables/tablestest"
)

func TestMain(m *testing.M) {
	azuritetest.AtOnce(8)
	os.Exit(m.Run())
}

func start(t *testing.T, latency time.Duration) (*azurestandin.Server, azureconn.Config) {
	t.Helper()
	s, err := azurestandin.Start(t.Context(), latency)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	cfg, err := azureconn.Parse(s.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	return s, cfg
}

func openQueues(t *testing.T, cfg azureconn.Config) *azurequeue.Service {
	t.Helper()
	q, err := azurequeue.Open(cfg, azurequeue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q
}

func TestItsQueuesFulfilTheContract(t *testing.T) {
	t.Parallel()
	_, cfg := start(t, 0)
	queuetest.Run(t, queuetest.Harness{
		Open:     func(t *testing.T) queue.Service { return openQueues(t, cfg) },
		Advance:  time.Sleep,
		Parallel: true,
	})
}

func TestItsTablesFulfilTheContract(t *testing.T) {
	t.Parallel()
	_, cfg := start(t, 0)
	var n atomic.Int64
	tablestest.Run(t, func(t *testing.T) tables.Store { return openTables(t, cfg, fmt.Sprintf("t%d", n.Add(1))) })
}

func openTables(t *testing.T, cfg azureconn.Config, prefix string) tables.Store {
	t.Helper()
	s, err := azuretable.Open(cfg, azuretable.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// A cursor that names a place of the service's own which that refuses is a bad cursor, and no fault of storage; Azurite takes any.
func TestACursorThatTheServiceRefusesIsABadOne(t *testing.T) {
	_, cfg := start(t, 0)
	s := openTables(t, cfg, "cursor")
	if err := s.PutAudit(t.Context(), tables.Audit{ID: tables.AuditID(time.Now(), "a"), At: time.Now(), Action: tables.QueueDeleted}); err != nil {
		t.Fatal(err)
	}
	after := tables.Cursor(base64.RawURLEncoding.EncodeToString([]byte(`{"np":"x","nr":"y"}`)))
	if _, _, err := s.ListAudits(t.Context(), tables.AuditFilter{}, tables.Page{Limit: 1, After: after}); !errors.Is(err, tables.ErrBadCursor) {
		t.Errorf("ListAudits: %v, want ErrBadCursor", err)
	}
}

func TestRequestsAreCountedByOperation(t *testing.T) {
	s, cfg := start(t, 0)
	q, err := openQueues(t, cfg).Queue("orders")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first one creates the queue
		if _, err := q.Send(t.Context(), []byte("a"), queue.SendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.Reset()
	ms, err := q.Receive(t.Context(), 32, time.Minute)
	if err != nil || len(ms) != 3 {
		t.Fatalf("received %d, %v", len(ms), err)
	}
	for _, m := range ms {
		if err := q.Renew(t.Context(), m, time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := q.Complete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	got := s.Counts()
	if len(got) != 3 || got["queue receive"] != 1 || got["queue update"] != 3 || got["queue delete"] != 3 {
		t.Errorf("counts = %v", got)
	}
}

func TestItAnswersLate(t *testing.T) {
	s, cfg := start(t, 30*time.Millisecond)
	q := openQueues(t, cfg)
	begun := time.Now()
	if _, err := q.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 30*time.Millisecond {
		t.Errorf("an answer after %v, want not before 30ms", took)
	}
	s.SetLatency(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := q.List(ctx); err == nil {
		t.Error("an answer came an hour early")
	}
}

func tableClient(t *testing.T, cfg azureconn.Config, name string) *aztables.Client {
	t.Helper()
	cred, err := aztables.NewSharedKeyCredential(cfg.Account, cfg.Key())
	if err != nil {
		t.Fatal(err)
	}
	service, err := aztables.NewServiceClientWithSharedKey(cfg.TableURL, cred, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := service.CreateTable(t.Context(), name, nil); err != nil {
		t.Fatal(err)
	}
	return service.NewClient(name)
}

func row(pk, rk, more string) []byte {
	return fmt.Appendf(nil, `{"PartitionKey":%q,"RowKey":%q%s}`, pk, rk, more)
}

func TestATransactionIsOfOnePartitionOf100DistinctRowsAndAllOrNone(t *testing.T) {
	_, cfg := start(t, 0)
	c := tableClient(t, cfg, "rules")
	add := func(keys ...string) []aztables.TransactionAction {
		var actions []aztables.TransactionAction
		for _, k := range keys {
			pk, rk, _ := strings.Cut(k, "/")
			actions = append(actions, aztables.TransactionAction{ActionType: aztables.TransactionTypeAdd, Entity: row(pk, rk, "")})
		}
		return actions
	}
	many := func(n int) (keys []string) {
		for i := range n {
			keys = append(keys, fmt.Sprintf("many/%03d", i))
		}
		return keys
	}
	for _, tt := range []struct {
		name string
		keys []string
		ok   bool
	}{
		{"two rows", []string{"a/1", "a/2"}, true},
		{"two partitions", []string{"b/1", "c/1"}, false},
		{"one row twice", []string{"b/1", "b/1"}, false},
		{"a row that is there", []string{"a/3", "a/1"}, false},
		{"100 rows", many(100), true},
		{"101 rows", append(many(100), "many/x"), false},
		{"a key with a slash", []string{`b/x\y`}, false},
	} {
		_, err := c.SubmitTransaction(t.Context(), add(tt.keys...), nil)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v, want ok %t", tt.name, err, tt.ok)
		}
	}
	for _, k := range []string{"b/1", "a/3", "many/x"} {
		pk, rk, _ := strings.Cut(k, "/")
		if _, err := c.GetEntity(t.Context(), pk, rk, nil); err == nil {
			t.Errorf("%s was written by a transaction that was refused", k)
		}
	}
}

func TestMergeReplaceAndETags(t *testing.T) {
	_, cfg := start(t, 0)
	c := tableClient(t, cfg, "etags")
	if _, err := c.AddEntity(t.Context(), row("p", "r", `,"A":1,"B":"b"`), nil); err != nil {
		t.Fatal(err)
	}
	first, err := c.GetEntity(t.Context(), "p", "r", nil)
	if err != nil {
		t.Fatal(err)
	}
	etag := first.ETag
	if _, err := c.UpdateEntity(t.Context(), row("p", "r", `,"A":2`), &aztables.UpdateEntityOptions{UpdateMode: aztables.UpdateModeMerge, IfMatch: &etag}); err != nil {
		t.Fatal(err)
	}
	second, err := c.GetEntity(t.Context(), "p", "r", nil)
	if err != nil || !bytes.Contains(second.Value, []byte(`"A":2`)) || !bytes.Contains(second.Value, []byte(`"B":"b"`)) {
		t.Errorf("after a merge: %s, %v", second.Value, err)
	}
	if _, err := c.DeleteEntity(t.Context(), "p", "r", &aztables.DeleteEntityOptions{IfMatch: &etag}); status(err) != http.StatusPreconditionFailed {
		t.Errorf("a delete with an old ETag: %v, want 412", err)
	}
	if _, err := c.UpdateEntity(t.Context(), row("p", "none", ""), nil); status(err) != http.StatusNotFound {
		t.Errorf("an update of a missing row: %v, want 404", err)
	}
	long := row("p", "long", `,"A":"`+strings.Repeat("x", 32<<10+1)+`"`)
	if _, err := c.AddEntity(t.Context(), long, nil); status(err) != http.StatusBadRequest {
		t.Errorf("a text of over 32K characters: %v, want 400", err)
	}
}

func status(err error) int {
	var answer *azcore.ResponseError
	if err != nil && errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

func TestPagesContinueWhereTheyEnded(t *testing.T) {
	_, cfg := start(t, 0)
	c := tableClient(t, cfg, "pages")
	for i := range 25 {
		if _, err := c.AddEntity(t.Context(), row(fmt.Sprint("p", i%3), fmt.Sprintf("%02d", i), fmt.Sprintf(`,"N":%d`, i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	top, where := int32(4), "N ge 5 and PartitionKey ge 'p1'"
	pager := c.NewListEntitiesPager(&aztables.ListEntitiesOptions{Top: &top, Filter: &where})
	rows, pages := 0, 0
	for pager.More() {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Entities) > int(top) {
			t.Fatalf("a page of %d rows", len(page.Entities))
		}
		rows += len(page.Entities)
		pages++
	}
	if rows != 13 || pages != 4 {
		t.Errorf("%d rows in %d pages, want 13 in 4", rows, pages)
	}
	unknown := "N ge 5 or N le 3"
	if _, err := c.NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: &unknown}).NextPage(t.Context()); err == nil {
		t.Error("a filter that is not understood was answered")
	}
}
