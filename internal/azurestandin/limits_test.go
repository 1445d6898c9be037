package azurestandin_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/internal/azurestandin"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable"
	"github.com/pushlease/pushlease/webhook"
)

// standing is a stand-in whose clock stands still: no bound has anything new, however long a test takes.
func standing(t *testing.T) (*azurestandin.Server, azureconn.Config) {
	t.Helper()
	now := time.Now()
	s := azurestandin.New(azurestandin.Options{Now: func() time.Time { return now }})
	at := azurestandin.InProcess
	for _, service := range []string{"queue", "table"} {
		server := httptest.NewServer(s.Handler(service))
		t.Cleanup(server.Close)
		at = strings.Replace(at, "http://"+service+".standin", server.URL, 1)
	}
	cfg, err := azureconn.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	return s, cfg
}

// What is beyond a limit is refused without an effect, and each part has its own.
func TestWhatIsBeyondALimitIsRefusedWithoutAnEffect(t *testing.T) {
	t.Parallel()
	const limit = 10
	s, cfg := standing(t)
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
	sent, refused := 0, 0
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
	if sent != limit || refused != 2*limit {
		t.Errorf("%d sends were taken and %d refused, want %d and %d", sent, refused, limit, 2*limit)
	}
	if _, err := other.Send(t.Context(), []byte("x"), queue.SendOptions{}); err != nil {
		t.Errorf("another queue: %v", err)
	}
	received, err := full.Receive(t.Context(), 32, time.Minute)
	if err != nil || len(received) != 1+limit {
		t.Errorf("%d messages are there (%v), want the first and the %d that were not refused", len(received), err, limit)
	}
	s.SetLimits(azurestandin.Limits{})
	if _, err := full.Send(t.Context(), []byte("x"), queue.SendOptions{}); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

func TestPartitionsAndTheAccountHaveLimits(t *testing.T) {
	t.Parallel()
	s, cfg := standing(t)
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
		taken := 0
		for range 20 {
			if _, err := store.GetWebhook(t.Context(), "wh_there"); err == nil {
				taken++
			}
		}
		if taken != 1 {
			t.Errorf("%s: %d were taken at one in a second", name, taken)
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
