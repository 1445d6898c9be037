package azurequeue_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/sas"

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

func TestMain(m *testing.M) {
	azuritetest.AtOnce(8)
	os.Exit(m.Run())
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

// A signature has characters that every layer may escape once too often.
func TestASharedAccessSignatureIsAccepted(t *testing.T) {
	a := azuritetest.Start(t)
	key, err := azqueue.NewSharedKeyCredential(a.Account, a.Key)
	if err != nil {
		t.Fatal(err)
	}
	values := sas.AccountSignatureValues{
		Protocol: sas.ProtocolHTTPSandHTTP, ExpiryTime: time.Now().Add(time.Hour),
		Permissions:   (&sas.AccountPermissions{Read: true, Write: true, List: true, Add: true, Create: true, Update: true, Process: true, Delete: true}).String(),
		ResourceTypes: (&sas.AccountResourceTypes{Service: true, Container: true, Object: true}).String(),
	}
	for _, mark := range []string{"", "?"} {
		// Another expiry, another signature: some have '+' and '/', some not.
		for range 8 {
			values.ExpiryTime = values.ExpiryTime.Add(time.Second)
			signed, err := values.SignWithSharedKey(key)
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, "QueueEndpoint="+a.QueueURL+";SharedAccessSignature="+mark+signed.Encode(), azurequeue.Options{})
			q, err := s.Queue(azuritetest.Name("sas-"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := q.Send(t.Context(), []byte("a"), queue.SendOptions{}); err != nil {
				t.Fatal(err)
			}
			ms, err := q.Receive(t.Context(), 1, time.Minute)
			if err != nil || len(ms) != 1 {
				t.Fatalf("received %d, %v", len(ms), err)
			}
			if err := errors.Join(q.Renew(t.Context(), ms[0], time.Minute), q.Complete(t.Context(), ms[0])); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAWrongKeyIsDenied(t *testing.T) {
	a := azuritetest.Start(t)
	s := open(t, "AccountName="+a.Account+";AccountKey=d3Jvbmc=;QueueEndpoint="+a.QueueURL, azurequeue.Options{})
	if _, err := s.List(t.Context()); !errors.Is(err, queue.ErrDenied) {
		t.Errorf("List = %v, want ErrDenied", err)
	}
}
