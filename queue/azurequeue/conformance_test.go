package azurequeue_test

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/queue/azurequeue"
	"github.com/pushlease/pushlease/queue/queuetest"
)

// open opens the account that a connection string names.
func open(t testing.TB, connection string, opts azurequeue.Options) *azurequeue.Service {
	t.Helper()
	s, err := azurequeue.Open(parse(t, connection), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func parse(t testing.TB, connection string) azureconn.Config {
	t.Helper()
	cfg, err := azureconn.Parse(connection)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestAzuriteFulfilsTheContract(t *testing.T) {
	t.Parallel()
	a := azuritetest.Start(t)
	queuetest.Run(t, queuetest.Harness{
		Open:     func(t *testing.T) queue.Service { return open(t, a.ConnectionString(), azurequeue.Options{}) },
		Advance:  time.Sleep,
		Parallel: true,
	})
}

// The real service answers a stale receipt differently, marks its XML with a
// BOM, and keeps no order.
func TestTheRealServicesHabitsFulfilTheContract(t *testing.T) {
	t.Parallel()
	p := azuritetest.Start(t).Proxy(t)
	p.Fault(azuritetest.Match{Service: "queue"}, azuritetest.BOM())
	p.Fault(azuritetest.Match{Operation: "receive"}, azuritetest.Reorder())
	queuetest.Run(t, queuetest.Harness{
		Open:     func(t *testing.T) queue.Service { return open(t, p.ConnectionString(), azurequeue.Options{}) },
		Advance:  time.Sleep,
		Parallel: true,
	})
}
