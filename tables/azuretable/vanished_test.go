package azuretable_test

import (
	"errors"
	"testing"

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
	prefix := azuritetest.Name("t")
	cfg, err := azureconn.Parse(azurite.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	s, err := azuretable.Open(cfg, azuretable.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	reg := tables.Registration{Webhook: webhook.Webhook{ID: "w", Queue: "orders"}}
	if _, err := s.PutWebhook(t.Context(), reg); err != nil {
		t.Fatal(err)
	}
	if all, _, err := s.ListWebhooks(t.Context()); err != nil || len(all) != 1 {
		t.Fatalf("%d webhooks, %v", len(all), err)
	}
	key, err := aztables.NewSharedKeyCredential(azurite.Account, azurite.Key)
	if err != nil {
		t.Fatal(err)
	}
	service, err := aztables.NewServiceClientWithSharedKey(azurite.TableURL, key, nil)
	if err != nil {
		t.Fatal(err)
	}
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
