package azuretable_test

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable"
	"github.com/pushlease/pushlease/webhook"
)

// C85: a table that another program drops, also when an empty one takes its place.
func TestATableOfWebhooksThatIsDroppedIsNoEmptyList(t *testing.T) {
	t.Parallel()
	azurite := azuritetest.Start(t)
	s, prefix := storeOf(t, azurite)
	reg := tables.Registration{Webhook: webhook.Webhook{ID: "w", Queue: "orders"}}
	if _, err := s.PutWebhook(t.Context(), reg); err != nil {
		t.Fatal(err)
	}
	if all, _, err := s.ListWebhooks(t.Context()); err != nil || len(all) != 1 {
		t.Fatalf("%d webhooks, %v", len(all), err)
	}
	service := serviceOf(t, azurite)
	if _, err := service.DeleteTable(t.Context(), prefix+"Webhooks", nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ListWebhooks(t.Context()); !errors.Is(err, tables.ErrVanished) {
		t.Errorf("ListWebhooks = %v when the table is gone, want ErrVanished", err)
	}
	if _, err := service.CreateTable(t.Context(), prefix+"Webhooks", nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ListWebhooks(t.Context()); !errors.Is(err, tables.ErrVanished) {
		t.Errorf("ListWebhooks = %v when an empty table is there, want ErrVanished", err)
	}
	if _, err := s.PutWebhook(t.Context(), reg); err != nil {
		t.Fatal(err)
	}
	if all, _, err := s.ListWebhooks(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%d webhooks, %v when it was registered again", len(all), err)
	}
}

// C85: several that another process deletes are not missed, a deletion releases no other webhook of its queue,
// and a table that was emptied while no process ran is missed by what was met.
func TestADeletionByAnotherProcessLeavesATraceOfEachWebhook(t *testing.T) {
	t.Parallel()
	azurite := azuritetest.Start(t)
	s, prefix := storeOf(t, azurite)
	ids := []string{"wh_a", "wh_b", "wh_c", "wh_d"}
	for _, id := range ids {
		if _, err := s.PutWebhook(t.Context(), tables.Registration{Webhook: webhook.Webhook{ID: id, Queue: "orders"}}); err != nil {
			t.Fatal(err)
		}
	}
	missed := func(s *azuretable.Store) (ids string) {
		t.Helper()
		_, bad, err := s.ListWebhooks(t.Context())
		var gone *tables.VanishedError
		if errors.As(err, &gone) {
			bad, err = gone.Missed, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range bad {
			ids += e.ID + " "
		}
		return ids
	}
	missed(s)
	second := reopen(t, azurite, prefix)
	for _, id := range ids[:2] {
		if err := second.DeleteWebhook(t.Context(), id, ""); err != nil {
			t.Fatal(err)
		}
	}
	if got := missed(s); got != "" {
		t.Errorf("missed are %s, which were deleted", got)
	}
	table := serviceOf(t, azurite).NewClient(prefix + "Webhooks")
	for _, id := range ids[2:] {
		if _, err := table.DeleteEntity(t.Context(), "webhooks", id, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := missed(s); got != "wh_c wh_d " {
		t.Errorf("missed are %s, which another program has deleted", got)
	}
	if err := second.DeleteWebhook(t.Context(), "wh_c", ""); !errors.Is(err, tables.ErrNotFound) {
		t.Errorf("DeleteWebhook of one that is gone = %v", err)
	}
	if got := missed(s); got != "wh_d " {
		t.Errorf("missed are %s when one of them was deleted", got)
	}
	if err := s.PutHealth(t.Context(), tables.Health{WebhookID: "wh_c", Instance: "i", UpdatedAt: time.Now()}, tables.Health{WebhookID: "wh_d", Instance: "i", UpdatedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if got := missed(reopen(t, azurite, prefix)); got != "wh_d " {
		t.Errorf("missed after a start are %s", got)
	}
	if n, err := s.ExpireHealth(t.Context(), time.Now().Add(tables.TraceOutlives+time.Hour)); err != nil || n != 2 {
		t.Errorf("ExpireHealth = %d, %v", n, err)
	}
	rest := table.NewListEntitiesPager(nil)
	for rest.More() {
		if page, err := rest.NextPage(t.Context()); err != nil || len(page.Entities) > 0 {
			t.Fatalf("%d rows stay, %v", len(page.Entities), err)
		}
	}
}

// C86: a row that a tool has damaged hides no other, and says of which queue it is.
func TestARegistrationThatAnotherProgramDamagesTellsItsQueue(t *testing.T) {
	t.Parallel()
	s, prefix := storeOf(t, azuritetest.Start(t))
	for _, id := range []string{"wh1", "wh2", "wh3"} {
		if _, err := s.PutWebhook(t.Context(), tables.Registration{Webhook: webhook.Webhook{ID: id, Queue: "orders"}}); err != nil {
			t.Fatal(err)
		}
	}
	table := serviceOf(t, azuritetest.Start(t)).NewClient(prefix + "Webhooks")
	for _, row := range []string{
		`{"PartitionKey":"webhooks","RowKey":"wh1","Queue":"orders","Registration":"{whsec_hidden"}`,
		`{"PartitionKey":"webhooks","RowKey":"wh2","Queue":3,"Registration":"{\"id\":\"wh2\",\"queue\":\"orders\",whsec_hidden"}`,
	} {
		if _, err := table.UpsertEntity(t.Context(), []byte(row), &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeReplace}); err != nil {
			t.Fatal(err)
		}
	}
	all, bad, err := s.ListWebhooks(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != "wh3" || len(bad) != 2 {
		t.Fatalf("ListWebhooks = %v, bad %v, %v", all, bad, err)
	}
	for _, e := range bad {
		if e.Queue != "orders" || !errors.Is(e.Err, tables.ErrDamaged) || strings.Contains(e.Err.Error(), "hidden") {
			t.Errorf("%s is of queue %q, %v", e.ID, e.Queue, e.Err)
		}
	}
}

// storeOf is a store with tables of its own.
func storeOf(t *testing.T, azurite *azuritetest.Azurite) (s *azuretable.Store, prefix string) {
	t.Helper()
	prefix = azuritetest.Name("t")
	return reopen(t, azurite, prefix), prefix
}

// reopen is the store of another process.
func reopen(t *testing.T, azurite *azuritetest.Azurite, prefix string) *azuretable.Store {
	t.Helper()
	cfg, err := azureconn.Parse(azurite.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	s, err := azuretable.Open(cfg, azuretable.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	return s
}

// serviceOf is what another program has.
func serviceOf(t *testing.T, azurite *azuritetest.Azurite) *aztables.ServiceClient {
	t.Helper()
	key, err := aztables.NewSharedKeyCredential(azurite.Account, azurite.Key)
	if err != nil {
		t.Fatal(err)
	}
	service, err := aztables.NewServiceClientWithSharedKey(azurite.TableURL, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return service
}

// A webhook that is registered while a list is on its way is not in it: of two lists the one whose answer is
// late is not judged after the one that began when the webhook was there.
func TestARegistrationBetweenTwoListsIsNotTakenForRemoved(t *testing.T) {
	removed := make(chan string, 1)
	proxy, s := behindProxy(t, azuretable.Options{OnRemoved: func(id, _ string) { removed <- id }})
	list := func() {
		if _, bad, err := s.ListWebhooks(t.Context()); err != nil || len(bad) > 0 {
			t.Errorf("ListWebhooks: %v, %v", bad, err)
		}
	}
	put := func(id string) {
		if _, err := s.PutWebhook(t.Context(), hook(id)); err != nil {
			t.Fatal(err)
		}
	}
	put("first")
	list()
	before := proxy.Count("table", "query")
	proxy.Fault(azuritetest.Match{Operation: "query", From: 1, To: 1}, azuritetest.Late(2*time.Second))
	var late sync.WaitGroup
	late.Go(list)
	for proxy.Count("table", "query") == before {
		runtime.Gosched()
	}
	put("second")
	list()
	late.Wait()
	list()
	select {
	case id := <-removed:
		t.Errorf("%s is said to be removed", id)
	default:
	}
}
