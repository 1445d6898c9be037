package azuretable_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

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
	t.Parallel()
	azurite := azuritetest.Start(t)
	tablestest.Run(t, func(t *testing.T) tables.Store { return open(t, azurite.ConnectionString(), azuretable.Options{}) })
}

func TestASignatureOfTheAccountIsEnough(t *testing.T) {
	azurite := azuritetest.Start(t)
	key, err := aztables.NewSharedKeyCredential(azurite.Account, azurite.Key)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := aztables.AccountSASSignatureValues{
		ExpiryTime: time.Now().Add(time.Hour), Permissions: "rwdlacu", Services: "t", ResourceTypes: "sco",
	}.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, "TableEndpoint="+azurite.TableURL+";SharedAccessSignature="+signature.Encode(), azuretable.Options{})
	if err := s.Record(t.Context(), record("m", 1)); err != nil {
		t.Fatal(err)
	}
	if as, _, err := s.Attempts(t.Context(), tables.AttemptFilter{}, tables.Page{Limit: 10}); err != nil || len(as) != 1 {
		t.Errorf("Attempts = %d rows, %v; want 1", len(as), err)
	}
	if _, err := s.Expire(t.Context(), today.Add(24*time.Hour)); err != nil {
		t.Errorf("Expire: %v", err)
	}
}

func TestOpenMakesNoCallAndChecksItsOptions(t *testing.T) {
	for _, connection := range []string{
		"AccountName=a;AccountKey=a2V5;TableEndpoint=http://127.0.0.1:1/a",
		"TableEndpoint=http://127.0.0.1:1/a;SharedAccessSignature=?sv=1&sig=x",
		"azure:myaccount",
	} {
		openAs(t, connection, azuretable.Options{
			OnTransaction: func(string, string, int, error) { t.Errorf("%.20s…: Open made a request", connection) },
		})
	}
	cfg, err := azureconn.Parse("AccountName=a;AccountKey=a2V5;TableEndpoint=http://127.0.0.1:1/a")
	if err != nil {
		t.Fatal(err)
	}
	queueOnly := cfg
	queueOnly.TableURL = ""
	for name, bad := range map[string]struct {
		cfg  azureconn.Config
		opts azuretable.Options
	}{
		"table prefix":  {cfg, azuretable.Options{Prefix: "1-x"}},
		"partitions":    {cfg, azuretable.Options{Partitions: 65}},
		"TableEndpoint": {queueOnly, azuretable.Options{}},
	} {
		if _, err := azuretable.Open(bad.cfg, bad.opts); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Open = %v, want an error that names %q", err, name)
		}
	}
}

func TestARecordOfLongTextsIsAlwaysWritten(t *testing.T) {
	s := open(t, azuritetest.Start(t).ConnectionString(), azuretable.Options{})
	var r tables.Record
	for i := range 100 {
		a := record("m", i+1).Attempts[0]
		tabs := strings.Repeat("\t", 200<<10) // which take six bytes each on the wire
		a.Error, a.Explanation, a.Instance = tabs, tabs, tabs
		a.Snippet = strings.Repeat("🙂", 50<<10)
		a.RetryAfter, a.RedirectHost = a.Error, a.Error
		r.Attempts = append(r.Attempts, a)
	}
	if err := s.Record(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	_, as, err := s.Message(t.Context(), "orders", "m")
	if err != nil || len(as) != 100 {
		t.Fatalf("Message = %d attempts, %v; want 100", len(as), err)
	}
	if n := len(as[0].Explanation); n > 300 {
		t.Errorf("the explanation has %d bytes: 100 such rows can't have fitted", n)
	}
	for _, a := range as {
		if !utf8.ValidString(a.Snippet) || a.Snippet == "" || a.Error == "" || a.Explanation == "" {
			t.Fatalf("attempt %d has texts of %d, %d and %d bytes", a.Number, len(a.Snippet), len(a.Error), len(a.Explanation))
		}
	}
}

func TestRecordsAreFoundInEveryPartition(t *testing.T) {
	s := open(t, azuritetest.Start(t).ConnectionString(), azuretable.Options{Partitions: 3})
	for i := range 12 {
		r := record(fmt.Sprint("m", i), 1)
		if err := s.Record(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if ds, err := s.Load(t.Context(), r.Deliveries[0].MessageKey); err != nil || len(ds) != 1 {
			t.Errorf("message %d: %d deliveries, %v; want one", i, len(ds), err)
		}
		if ds, as, err := s.Message(t.Context(), "", fmt.Sprint("m", i)); err != nil || len(ds) != 1 || len(as) != 1 {
			t.Errorf("message %d: %d deliveries, %d attempts, %v; want one of each", i, len(ds), len(as), err)
		}
	}
}
