package journal

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/tables"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func TestStateThatIsNewerThanALateRecordIsWrittenAgain(t *testing.T) {
	m := newMemory()
	key := tables.MessageKey{Queue: "orders", MessageID: "m"}
	old := tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, State: tables.Pending, Attempts: 1}}}
	now := tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, State: tables.Delivered, Attempts: 2}}}
	m.remember(old, false)
	late := m.waiting()
	m.remember(now, true) // written before the late one was
	m.wrote(late[0])
	again := m.waiting()
	want(t, "records that wait", len(again), 1)
	want(t, "state", again[0].Deliveries[0].State, tables.Delivered)
	m.wrote(again[0])
	want(t, "records that wait", len(m.waiting()), 0)
}

// A process may work on a message twice: its lease was lost, and it received the message
// again before the first work had ended.
func TestMemoryKeepsTheNewestStateUntilItIsWritten(t *testing.T) {
	key := tables.MessageKey{Queue: "orders", MessageID: "m"}
	failed := tables.Record{
		Deliveries: []tables.Delivery{{MessageKey: key, State: tables.Pending, Attempts: 1}},
		Attempts:   []tables.Attempt{{MessageKey: key, Number: 1}},
	}
	delivered := tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, State: tables.Delivered, Attempts: 1}}}
	for _, written := range []bool{false, true} {
		m := newMemory()
		m.remember(delivered, false)
		m.remember(failed, written)
		waiting := m.waiting()
		if len(waiting) != 1 || waiting[0].Deliveries[0].State != tables.Delivered {
			t.Fatalf("what waits is %+v, want that the message was delivered", waiting)
		}
		want(t, "attempts that wait", len(waiting[0].Attempts), map[bool]int{false: 1, true: 0}[written])
		want(t, "known", m.merge(key, nil, []string{""})[0].State, tables.Delivered)
	}

	replay := failed // on another day it has rows of its own
	replay.Deliveries = []tables.Delivery{{MessageKey: key, Generation: 1, State: tables.Pending}}
	replay.Deliveries[0].Day = key.Day.AddDate(0, 0, 1)
	m := newMemory()
	m.remember(failed, false)
	m.remember(replay, true)
	want(t, "records that wait", len(m.waiting()), 1)
	want(t, "generation", m.waiting()[0].Deliveries[0].Generation, 0)
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// The store is away, and comes back for others before what waits is written.
func TestWhatWaitsForTheStoreIsNeverLostForWhatIsWritten(t *testing.T) { // C67
	m := newMemory()
	rec := func(id string, n int) tables.Record {
		return tables.Record{Deliveries: []tables.Delivery{{
			MessageKey: tables.MessageKey{Queue: "orders", MessageID: fmt.Sprint(id, n)}, State: tables.Delivered,
		}}}
	}
	lost := 0
	for n := range memorySize {
		lost += m.remember(rec("waits", n), false)
	}
	for n := range 500 {
		lost += m.remember(rec("written", n), true)
	}
	want(t, "lost", lost, 0)
	want(t, "waiting", len(m.waiting()), memorySize)
	for n := range 7 {
		lost += m.remember(rec("too many", n), false)
	}
	want(t, "lost when more wait than are kept", lost, 7)
	want(t, "waiting", len(m.waiting()), memorySize)
	want(t, "the oldest went", m.waiting()[0].Deliveries[0].MessageID, "waits7")
}

func TestAttemptsThatWaitBeyondWhatIsKeptAreCountedAsLost(t *testing.T) { // C67
	m := newMemory()
	key := tables.MessageKey{Queue: "orders", MessageID: "m"}
	lost := 0
	for n := range maxUnwritten + 3 {
		lost += m.remember(tables.Record{
			Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "wh_a", State: tables.Pending, Attempts: n + 1}},
			Attempts:   []tables.Attempt{{MessageKey: key, WebhookID: "wh_a", Number: n + 1}},
		}, false)
	}
	want(t, "lost", lost, 3)
	want(t, "attempts that wait", len(m.waiting()[0].Attempts), maxUnwritten)
}

func TestWhatIsWrittenIsForgottenByAgeAndWhatWaitsIsNot(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		key := tables.MessageKey{Queue: "orders", MessageID: "waits"}
		m.remember(tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, State: tables.Held}}}, false)
		m.remember(tables.Record{Deliveries: []tables.Delivery{{MessageKey: tables.MessageKey{Queue: "orders", MessageID: "old"}}}}, true)
		time.Sleep(memoryAge)
		key.MessageID = "new"
		m.remember(tables.Record{Deliveries: []tables.Delivery{{MessageKey: key}}}, true)
		want(t, "remembered", len(m.byKey), 2)
		want(t, "waiting", m.count(), 1)
	})
}

// Records that are lost are counted and said, at a limited rate: those that a dead store leaves no room for,
// and those that still wait at the end.
func TestLostRecordsAreCountedAndLogged(t *testing.T) { // C67
	bubble.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		reader := metric.NewManualReader()
		m, err := meter.New(metric.NewMeterProvider(metric.WithReader(reader)).Meter(""))
		if err != nil {
			t.Fatal(err)
		}
		s := &distantStore{}
		s.dead.Store(true)
		j := New(s, m, slog.New(slog.NewTextHandler(&log, nil)))
		rec := func(id string, attempts int) tables.Record {
			return tables.Record{Deliveries: []tables.Delivery{{
				MessageKey: tables.MessageKey{Queue: "orders", MessageID: id}, WebhookID: "wh_a", State: tables.Pending, Attempts: attempts,
			}}}
		}
		for n := range memorySize {
			j.memory.remember(rec(fmt.Sprint("waits", n), 1), false)
		}
		j.Record(t.Context(), rec("one too many", 1))
		want(t, "lines", strings.Count(log.String(), "records are lost"), 1)
		j.Record(t.Context(), rec("two too many", 1))
		want(t, "lines within the time of one", strings.Count(log.String(), "records are lost"), 1)
		time.Sleep(lossLogEvery)
		j.Record(t.Context(), rec("three too many", 1))
		want(t, "lines", strings.Count(log.String(), "records are lost"), 2)
		want(t, "the second counts what came between", strings.Contains(log.String(), "records=2 "), true)
		want(t, "counted", lostSoFar(t, reader), 3)
		j.TellLost()
		want(t, "the end is told", strings.Contains(log.String(), fmt.Sprint("records=", memorySize)), true)
		want(t, "counted at the end", lostSoFar(t, reader), 3+memorySize)
	})
}

// lostSoFar is what the metric of lost records says.
func lostSoFar(t *testing.T, reader metric.Reader) int64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	for _, one := range data.ScopeMetrics[0].Metrics {
		if sum, ok := one.Data.(metricdata.Sum[int64]); ok && one.Name == "pushlease.records.lost" {
			return sum.DataPoints[0].Value
		}
	}
	return 0
}

// Which messages the store lacks is looked up, however many wait: by the message, and for a replay
// by when its pointer was inserted. What is written, or had to go, is lacking no more.
func TestWhatTheStoreLacksIsLookedUp(t *testing.T) {
	m, now := newMemory(), time.Now().UTC().Truncate(time.Millisecond)
	key := func(n int) tables.MessageKey {
		return tables.MessageKey{Queue: "orders", MessageID: fmt.Sprint("m", n), Day: now.Add(time.Duration(n) * time.Millisecond)}
	}
	rec := func(n int, webhook string) tables.Record {
		return tables.Record{Deliveries: []tables.Delivery{{MessageKey: key(n), WebhookID: webhook, UpdatedAt: now}}}
	}
	pointer := func(n int) tables.MessageKey {
		k := key(n)
		k.MessageID = "pointer"
		return k
	}
	lacks := func(what string, k tables.MessageKey, lacking bool) { t.Helper(); want(t, what, m.waits(k), lacking) }
	m.remember(rec(1, "wh_a"), false)
	m.remember(rec(1, "wh_b"), false)
	m.remember(rec(2, "wh_a"), true)
	lacks("not written", key(1), true)
	lacks("by its time", pointer(1), true)
	lacks("written", key(2), false)
	m.remember(rec(1, "wh_a"), false) // again
	m.wrote(rec(1, "wh_a"))
	lacks("one of two written", key(1), true)
	m.wrote(rec(1, "wh_b"))
	lacks("both written", key(1), false)
	lacks("both written, by its time", pointer(1), false)
	for n := range memorySize + 1 {
		m.remember(rec(10+n, "wh_a"), false)
	}
	lacks("had to go", key(10), false)
	lacks("the newest", key(10+memorySize), true)
}
