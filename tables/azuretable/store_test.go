package azuretable_test

import (
	"context"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable"
	"github.com/pushlease/pushlease/tables/tablestest"
)

// open opens a store with tables of its own.
func open(t *testing.T, connection string, opts azuretable.Options) *azuretable.Store {
	t.Helper()
	opts.Prefix = azuritetest.Name("t")
	return openAs(t, connection, opts)
}

func openAs(t *testing.T, connection string, opts azuretable.Options) *azuretable.Store {
	t.Helper()
	cfg, err := azureconn.Parse(connection)
	if err != nil {
		t.Fatal(err)
	}
	s, err := azuretable.Open(cfg, opts)
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

func TestContract(t *testing.T) {
	azurite := azuritetest.Start(t)
	tablestest.Run(t, func(t *testing.T) tables.Store { return open(t, azurite.ConnectionString(), azuretable.Options{}) })
}
