package azurequeue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/queue/azurequeue"
)

// TestALeaseThatSomebodyElseTook: under the Functions host the message was received by the
// host, and all that is known here is its id and receipt. With them it can be given
// back, its content is kept, and the host's own delete then fails.
func TestALeaseThatSomebodyElseTook(t *testing.T) {
	t.Parallel()
	a := azuritetest.Start(t)
	host, err := open(t, a.ConnectionString(), azurequeue.Options{}).Queue(azuritetest.Name("foreign-"))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := open(t, a.ConnectionString(), azurequeue.Options{}).Queue(host.Name())
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"popReceipt":"x","text":"☃"}`
	if _, err := host.Send(t.Context(), []byte(body), queue.SendOptions{}); err != nil {
		t.Fatal(err)
	}
	received, err := host.Receive(t.Context(), 1, 10*time.Minute)
	if err != nil || len(received) != 1 {
		t.Fatalf("%d messages, %v", len(received), err)
	}
	m := received[0]
	told := &queue.Message{ID: m.ID, Lease: queue.NewLease(m.Lease.Receipt(), time.Now(), 4*time.Minute)}
	if err := ours.Abandon(t.Context(), told, 0); err != nil {
		t.Fatalf("give back: %v", err)
	}
	if err := host.Complete(t.Context(), m); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("the host's delete: %v", err)
	}
	if err := ours.Abandon(t.Context(), told, 0); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("give back twice: %v", err)
	}
	again, err := host.Receive(t.Context(), 1, 10*time.Minute)
	if err != nil || len(again) != 1 || string(again[0].Text) != body || again[0].DequeueCount != 2 {
		t.Fatalf("%v, %+v", err, again)
	}
	m = again[0]
	stale := &queue.Message{ID: m.ID, Lease: queue.NewLease(m.Lease.Receipt(), time.Now(), 4*time.Minute)}
	if err := host.Renew(t.Context(), m, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := ours.Abandon(t.Context(), stale, time.Minute); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("give back after the host has renewed: %v", err)
	}
	if err := host.Complete(t.Context(), m); err != nil {
		t.Errorf("the host's delete after that: %v", err)
	}
}
