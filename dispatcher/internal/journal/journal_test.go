package journal

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/tables"
)

// lateStore answers the first call with a fault, after which meanwhile is there.
type lateStore struct {
	tables.Deliveries
	calls     int
	meanwhile []tables.Delivery
	written   []tables.Delivery
	attempts  []tables.Attempt
}

func (s *lateStore) Record(_ context.Context, rec tables.Record) error {
	if s.calls++; s.calls == 1 {
		return errors.New("no answer")
	}
	s.written, s.attempts = append(s.written, rec.Deliveries...), append(s.attempts, rec.Attempts...)
	return nil
}

func (s *lateStore) Load(context.Context, tables.MessageKey) ([]tables.Delivery, error) {
	return s.meanwhile, nil
}

func newJournal(t *testing.T, s tables.Deliveries) *Journal {
	t.Helper()
	m, err := meter.New(noop.NewMeterProvider().Meter(""))
	if err != nil {
		t.Fatal(err)
	}
	return New(s, m, slog.New(slog.DiscardHandler))
}

// The record of a 2xx takes along what is held for other webhooks. Where its first try had no
// answer, someone else may have sent to those in the meantime: that stands.
func TestARepeatedRecordLeavesWhatWentOnElsewhere(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		key := tables.MessageKey{Queue: "orders", MessageID: "m"}
		s := &lateStore{meanwhile: []tables.Delivery{
			{MessageKey: key, WebhookID: "wh_a", State: tables.Pending, Attempts: 1, UpdatedAt: time.Now()},
			{MessageKey: key, WebhookID: "wh_b", State: tables.Pending, Attempts: 1, UpdatedAt: time.Now().Add(time.Second)},
		}}
		newJournal(t, s).Record(t.Context(), tables.Record{
			Deliveries: []tables.Delivery{
				{MessageKey: key, WebhookID: "wh_a", State: tables.Delivered, Attempts: 1, UpdatedAt: time.Now()},
				{MessageKey: key, WebhookID: "wh_b", State: tables.Held, UpdatedAt: time.Now()},
			},
			Attempts: []tables.Attempt{{MessageKey: key, WebhookID: "wh_a", Number: 1}},
		})
		if len(s.written) != 1 || s.written[0].WebhookID != "wh_a" || len(s.attempts) != 1 {
			t.Errorf("%+v with %d attempts were written, want what was delivered alone", s.written, len(s.attempts))
		}
	})
}

// What is remembered of a record that was written late is what was written: its attempts are
// missing no more.
func TestALateRecordIsRememberedAsItWasWritten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		key := tables.MessageKey{Queue: "orders", MessageID: "m"}
		s := &lateStore{}
		j := newJournal(t, s)
		j.memory.remember(tables.Record{
			Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "wh_a", State: tables.Pending, Attempts: 1, MissingRecords: 1}},
			Attempts:   []tables.Attempt{{MessageKey: key, WebhookID: "wh_a", Number: 1}},
		}, false)
		s.calls = 1
		j.Flush(t.Context())
		want(t, "written", len(s.written), 1)
		want(t, "missing in the store", s.written[0].MissingRecords, 0)
		want(t, "missing as remembered", j.memory.merge(key, nil, []string{"wh_a"})[0].MissingRecords, 0)
	})
}

// distantStore takes 10 ms for each call, and counts.
type distantStore struct {
	tables.Deliveries
	dead           atomic.Bool
	calls, written atomic.Int64
}

func (s *distantStore) call() error {
	s.calls.Add(1)
	time.Sleep(10 * time.Millisecond)
	if s.dead.Load() {
		return errors.New("no answer")
	}
	return nil
}

func (s *distantStore) Record(_ context.Context, rec tables.Record) error {
	err := s.call()
	if err == nil {
		s.written.Add(int64(len(rec.Deliveries)))
	}
	return err
}

func (s *distantStore) Load(context.Context, tables.MessageKey) ([]tables.Delivery, error) {
	return nil, s.call()
}

// After an outage of storage the records of all that was delivered meanwhile wait. They are durable
// before a stop ends, which gives them settleBound of the dispatcher: 10 s. While storage is away each round
// costs as many calls as before.
func TestAllThatWaitsIsWrittenBeforeAStopEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &distantStore{}
		j := newJournal(t, s)
		for n := range memorySize {
			j.memory.remember(tables.Record{Deliveries: []tables.Delivery{{
				MessageKey: tables.MessageKey{Queue: "orders", MessageID: strconv.Itoa(n)}, WebhookID: "wh_a", State: tables.Delivered, Attempts: 1,
			}}}, false)
		}
		s.dead.Store(true)
		j.Flush(t.Context())
		want(t, "calls while it is away", s.calls.Load(), 3)
		s.dead.Store(false)
		began := time.Now()
		j.Flush(t.Context())
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		want(t, "written", s.written.Load(), memorySize)
		want(t, "waiting", j.memory.count(), 0)
	})
}

// restingStore takes nothing until a moment.
type restingStore struct {
	tables.Deliveries
	until   time.Time
	written []tables.State
}

func (s *restingStore) Record(_ context.Context, rec tables.Record) error {
	if time.Now().Before(s.until) {
		return errors.New("locked")
	}
	for _, d := range rec.Deliveries {
		s.written = append(s.written, d.State)
	}
	return nil
}

func (s *restingStore) Load(context.Context, tables.MessageKey) ([]tables.Delivery, error) {
	return nil, nil
}

// The message is deleted after the record. A process that is killed then leaves nothing behind that says that the message
// is not over: a file can be locked for 15 seconds, by a process that stands still.
func TestWhatHasEndedIsOnRecordBeforeItsMessageIsDeleted(t *testing.T) {
	for state, waits := range map[tables.State]bool{tables.Delivered: true, tables.DeadLettered: true, tables.DeadLettering: false, tables.Pending: false} {
		t.Run(string(state), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := &restingStore{until: time.Now().Add(15 * time.Second)}
				newJournal(t, s).Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{{
					MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m"}, WebhookID: "wh_a", State: state,
				}}})
				want(t, "it is on record when the message goes on", len(s.written) == 1 && s.written[0] == state, waits)
			})
		})
	}
}
