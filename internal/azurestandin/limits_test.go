package azurestandin_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azurestandin"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable"
	"github.com/pushlease/pushlease/webhook"
)

// What is beyond a limit is refused without an effect, and each part has its own.
func TestWhatIsBeyondALimitIsRefusedWithoutAnEffect(t *testing.T) {
	t.Parallel()
	const limit = 10 // a second: sends on loopback take far less
	s, cfg := start(t, 0)
	service := openQueues(t, cfg)
	of := func(name string) queue.Queue {
		q, err := service.Queue(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Send(t.Context(), []byte("makes the queue"), queue.SendOptions{}); err != nil {
			t.Fatal(err)
		}
		return q
	}
	full, other := of("full"), of("other")
	s.SetLimits(azurestandin.Limits{Queue: limit})
	sent, refused := 1, 0
	for range 3 * limit {
		switch _, err := full.Send(t.Context(), []byte("x"), queue.SendOptions{}); {
		case err == nil:
			sent++
		case errors.Is(err, queue.ErrBusy):
			refused++
		default:
			t.Fatal(err)
		}
	}
	if refused < limit {
		t.Errorf("%d of %d sends were refused at a limit of %d a second", refused, 3*limit, limit)
	}
	if _, err := other.Send(t.Context(), []byte("x"), queue.SendOptions{}); err != nil {
		t.Errorf("another queue: %v", err)
	}
	received, err := full.Receive(t.Context(), 32, time.Minute)
	if err != nil || len(received) != sent {
		t.Errorf("%d messages are there (%v), want the %d that were not refused", len(received), err, sent)
	}
	s.SetLimits(azurestandin.Limits{})
	if _, err := full.Send(t.Context(), []byte("x"), queue.SendOptions{}); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

func TestPartitionsAndTheAccountHaveLimits(t *testing.T) {
	t.Parallel()
	s, cfg := start(t, 0)
	store, err := azuretable.Open(cfg, azuretable.Options{Prefix: "limits"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close(t.Context()) })
	if _, err := store.PutWebhook(t.Context(), tables.Registration{Webhook: webhook.Webhook{ID: "wh_there", Queue: "orders"}}); err != nil {
		t.Fatal(err)
	}
	for name, limits := range map[string]azurestandin.Limits{"partition": {Partition: 1}, "account": {Account: 1}} {
		s.SetLimits(limits)
		busy := 0
		for range 20 {
			if _, err := store.GetWebhook(t.Context(), "wh_there"); err != nil {
				busy++
			}
		}
		if busy == 0 {
			t.Errorf("%s: nothing was refused at one in a second", name)
		}
		s.SetLimits(azurestandin.Limits{})
	}
}

func TestTheTailIsLate(t *testing.T) {
	t.Parallel()
	s, cfg := start(t, 0)
	service := openQueues(t, cfg)
	q, err := service.Queue("tail")
	if err != nil {
		t.Fatal(err)
	}
	const late = 80 * time.Millisecond
	s.SetLimits(azurestandin.Limits{Tail: 1, TailLeast: late, TailMost: late})
	began := time.Now()
	if _, err := q.Send(t.Context(), []byte("x"), queue.SendOptions{}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < late {
		t.Errorf("it took %s, want %s at least", took, late)
	}
}
