package dispatcher

import (
	"container/list"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/tables"
)

const (
	// memorySize bounds the deliveries remembered, memoryAge how long.
	memorySize = 20_000
	memoryAge  = time.Hour
	// maxUnwritten bounds the attempts of one delivery that wait to be written: with a
	// snippet each of them takes up to 2 KiB. Those beyond stay counted as missing.
	maxUnwritten = 8
	// flushEvery is how often records that could not be written are tried again.
	flushEvery = 5 * time.Second
	// flushFaults is how many records in a row may fail before a round ends.
	flushFaults = 3
)

// memory holds the newest known state of the deliveries that this process worked
// on. It is the first tier when the store can't be asked, and keeps records
// that could not be written until they can. Bounded in number and age; what falls
// out was either written or counted as lost.
type memory struct {
	mu     sync.Mutex
	byKey  map[memoryKey]*list.Element
	oldest *list.List // of *remembered, least recently changed first
}

// memoryKey names a delivery as the store does, whose records are kept by day: a
// replay on another day has rows of its own.
type memoryKey struct {
	queue, message, webhook string
	day                     int64
}

type remembered struct {
	key       memoryKey
	at        time.Time
	delivery  tables.Delivery
	unwritten *tables.Record // rows that the store did not take
}

func newMemory() *memory {
	return &memory{byKey: map[memoryKey]*list.Element{}, oldest: list.New()}
}

func keyOf(del *tables.Delivery) memoryKey {
	return memoryKeyOf(del.MessageKey, del.WebhookID)
}

func memoryKeyOf(k tables.MessageKey, webhookID string) memoryKey {
	const day = 24 * 60 * 60
	return memoryKey{k.Queue, k.MessageID, webhookID, k.Day.Unix() / day}
}

// remember notes the state of rec's deliveries. Unless written, the rows are
// kept for flushRecords; lost counts unwritten records that had to make room.
func (m *memory) remember(rec tables.Record, written bool) (lost int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for i := range rec.Deliveries {
		del := &rec.Deliveries[i]
		k := keyOf(del)
		e, ok := m.byKey[k]
		if !ok {
			e = m.oldest.PushBack(&remembered{key: k})
			m.byKey[k] = e
		}
		m.oldest.MoveToBack(e)
		r := e.Value.(*remembered)
		r.at = now
		went := ok && newer(&r.delivery, del) // someone here went on meanwhile
		if !went {
			r.delivery = *del
		}
		if written && (r.unwritten == nil || len(r.unwritten.Attempts) == 0) {
			if !went {
				r.unwritten = nil
			}
			continue
		}
		r.await(rec.Attempts, written)
	}
	for m.oldest.Len() > 0 {
		r := m.oldest.Front().Value.(*remembered)
		if m.oldest.Len() <= memorySize && (now.Sub(r.at) < memoryAge || r.unwritten != nil) {
			break
		}
		if r.unwritten != nil {
			lost++
		}
		m.oldest.Remove(m.oldest.Front())
		delete(m.byKey, r.key)
	}
	return lost
}

// await makes what r holds wait to be written, with the attempts that wait already and,
// unless they are written, those of attempts that are about it.
func (r *remembered) await(attempts []tables.Attempt, written bool) {
	u := &tables.Record{Deliveries: []tables.Delivery{r.delivery}}
	if r.unwritten != nil {
		u.Attempts = r.unwritten.Attempts
	}
	for i := range attempts {
		if a := &attempts[i]; !written && a.WebhookID == r.delivery.WebhookID && len(u.Attempts) < maxUnwritten {
			u.Attempts = append(u.Attempts, *a)
		}
	}
	r.unwritten = u
}

// merge lays what is remembered over what the store said: the newer state wins.
func (m *memory) merge(key tables.MessageKey, stored []tables.Delivery, webhooks []string) []tables.Delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := map[string]int{}
	for i, del := range stored {
		at[del.WebhookID] = i
	}
	for _, id := range webhooks {
		e, ok := m.byKey[memoryKeyOf(key, id)]
		if !ok {
			continue
		}
		known := e.Value.(*remembered).delivery
		if i, ok := at[id]; !ok {
			stored = append(stored, known)
		} else if newer(&known, &stored[i]) {
			stored[i] = known
		}
	}
	return stored
}

// newer reports whether a is a later state of the same delivery than b.
func newer(a, b *tables.Delivery) bool {
	switch {
	case a.Generation != b.Generation:
		return a.Generation > b.Generation
	case a.State.Rank() != b.State.Rank():
		return a.State.Rank() > b.State.Rank()
	case a.Attempts != b.Attempts:
		return a.Attempts > b.Attempts
	}
	return a.UpdatedAt.After(b.UpdatedAt)
}

// unwritten returns a copy of the records that wait to be written.
func (m *memory) unwritten() []tables.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	var recs []tables.Record
	for e := m.oldest.Front(); e != nil; e = e.Next() {
		if r := e.Value.(*remembered); r.unwritten != nil {
			recs = append(recs, *r.unwritten)
		}
	}
	return recs
}

// written notes that rec is in the store. Where the delivery went on meanwhile, its
// newer state may have been written before rec was: it is written once more.
func (m *memory) written(rec tables.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rec.Deliveries {
		e, ok := m.byKey[keyOf(&rec.Deliveries[i])]
		if !ok {
			continue
		}
		switch r := e.Value.(*remembered); {
		case r.delivery == rec.Deliveries[i]:
			r.unwritten = nil
		case r.unwritten == nil:
			r.unwritten = &tables.Record{Deliveries: []tables.Delivery{r.delivery}}
		}
	}
}

// putOff moves rec behind the others that wait, so that one that the store never
// takes does not keep them waiting.
func (m *memory) putOff(rec tables.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rec.Deliveries {
		if e, ok := m.byKey[keyOf(&rec.Deliveries[i])]; ok {
			m.oldest.MoveToBack(e)
		}
	}
}

// waiting counts the records that wait to be written.
func (m *memory) waiting() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for e := m.oldest.Front(); e != nil; e = e.Next() {
		if e.Value.(*remembered).unwritten != nil {
			n++
		}
	}
	return n
}

// flushRecords writes what could not be written before, until ctx ends.
func (d *Dispatcher) flushRecords(ctx context.Context) {
	t := time.NewTicker(flushEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		d.flushOnce(ctx)
	}
}

// flushLast is the last chance of what the store did not take so far. What it does
// not take now is missing from the records, which is told and counted.
func (d *Dispatcher) flushLast(ctx context.Context) {
	d.flushOnce(ctx)
	n := d.memory.waiting()
	if n > 0 {
		d.log.Error("records are lost: the store did not take them before the end", "records", n)
	}
	for range n {
		d.metrics.recordLost()
	}
}

// flushOnce writes what is waiting, until the store fails several times in a row.
func (d *Dispatcher) flushOnce(ctx context.Context) {
	faults := 0
	for _, rec := range d.memory.unwritten() {
		callCtx, cancel := context.WithTimeout(ctx, settleTimeout)
		err := d.writeLate(callCtx, noneMissing(rec))
		cancel()
		if err != nil {
			d.memory.putOff(rec)
			if faults++; faults == flushFaults || ctx.Err() != nil {
				return // the store still can't be asked; next round
			}
			continue
		}
		faults = 0
		d.memory.written(rec)
		d.log.Info("a record that could not be written before is written now",
			"queue", rec.Deliveries[0].Queue, "message", rec.Deliveries[0].MessageID, "webhook", rec.Deliveries[0].WebhookID)
	}
}

// noneMissing takes back that the attempts in rec are missing.
func noneMissing(rec tables.Record) tables.Record {
	rec.Deliveries = slices.Clone(rec.Deliveries)
	for i := range rec.Deliveries {
		del := &rec.Deliveries[i]
		del.MissingRecords = max(0, del.MissingRecords-attemptsOf(rec, del.WebhookID))
	}
	return rec
}

// writeLate writes an old record: its attempts, and its deliveries only where nobody
// went on meanwhile, since another process may have received the message again.
func (d *Dispatcher) writeLate(ctx context.Context, rec tables.Record) error {
	stored, err := d.o.Store.Load(ctx, rec.Deliveries[0].MessageKey)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	late := tables.Record{Attempts: rec.Attempts}
	for _, del := range rec.Deliveries {
		superseded := slices.ContainsFunc(stored, func(s tables.Delivery) bool {
			return s.WebhookID == del.WebhookID && newer(&s, &del)
		})
		if !superseded {
			late.Deliveries = append(late.Deliveries, del)
		}
	}
	if len(late.Deliveries)+len(late.Attempts) == 0 {
		return nil
	}
	if err := d.o.Store.Record(ctx, late); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}
