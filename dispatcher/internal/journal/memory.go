package journal

import (
	"container/list"
	"sync"
	"time"
	"unique"

	"github.com/pushlease/pushlease/tables"
)

const (
	// memorySize bounds the deliveries remembered, memoryAge how long.
	memorySize = 20_000
	memoryAge  = time.Hour
	// maxUnwritten bounds the attempts of one delivery that wait to be written: with a
	// snippet each of them takes up to 2 KiB. Those beyond are counted as lost.
	maxUnwritten = 8
)

// memory holds the newest known state of the deliveries that this process worked
// on. It is the first tier when the store can't be asked, and keeps records
// that could not be written until they can. Bounded in number and age: what was written makes
// room for what was not, and unwritten records go only when there are more than memorySize of them.
type memory struct {
	began time.Time

	mu    sync.Mutex
	byKey map[memoryKey]*list.Element
	// written and unwritten are lists of *remembered, least recently changed first. Each
	// is in one of them: in unwritten while the store lacks a row of it.
	written, unwritten *list.List
}

// memoryKey names a delivery as the store does, whose records are kept by day: a
// replay on another day has rows of its own.
type memoryKey struct {
	of      unique.Handle[ofWebhook]
	message string
	day     int64
}

// ofWebhook is what the keys of a webhook's deliveries have in common.
type ofWebhook struct{ queue, webhook string }

type remembered struct {
	key   memoryKey
	at    time.Duration // since the memory began
	known known
	rows  *tables.Record // rows that the store did not take; nil when there are none
	waits bool           // it is in unwritten
}

func (r *remembered) delivery() tables.Delivery { return r.known.delivery(r.key.message) }

func newMemory() *memory {
	return &memory{began: time.Now(), byKey: map[memoryKey]*list.Element{}, written: list.New(), unwritten: list.New()}
}

func keyOf(del *tables.Delivery) memoryKey {
	return memoryKeyOf(del.MessageKey, del.WebhookID)
}

func memoryKeyOf(k tables.MessageKey, webhookID string) memoryKey {
	const day = 24 * 60 * 60
	return memoryKey{unique.Make(ofWebhook{k.Queue, webhookID}), k.MessageID, k.Day.Unix() / day}
}

// remember notes the state of rec's deliveries. Unless written, the rows are
// kept to be written later; lost counts unwritten records and attempts that had to make room.
func (m *memory) remember(rec tables.Record, written bool) (lost int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Since(m.began)
	for i := range rec.Deliveries {
		del := &rec.Deliveries[i]
		r, before := m.get(keyOf(del))
		r.at = now
		went := false // someone here went on meanwhile
		if before {
			newest := r.delivery()
			went = newest.Newer(del)
		}
		if !went {
			r.known = know(del)
		}
		switch {
		case !written, r.rows != nil && len(r.rows.Attempts) > 0:
			lost += r.await(rec.Attempts, written)
		case !went:
			r.rows = nil
		}
		m.place(r)
	}
	return lost + m.evict(now)
}

// get returns the entry of a key, which is made if need be. m.mu is held.
func (m *memory) get(k memoryKey) (r *remembered, before bool) {
	if e, ok := m.byKey[k]; ok {
		return e.Value.(*remembered), true
	}
	r = &remembered{key: k}
	m.byKey[k] = m.written.PushBack(r)
	return r, false
}

// place puts an entry at the end of the list where it belongs. m.mu is held.
func (m *memory) place(r *remembered) {
	e, from, to := m.byKey[r.key], m.written, m.written
	if r.waits {
		from = m.unwritten
	}
	if r.waits = r.rows != nil; r.waits {
		to = m.unwritten
	}
	if from == to {
		to.MoveToBack(e)
	} else {
		from.Remove(e)
		m.byKey[r.key] = to.PushBack(r)
	}
}

// evict makes room: what is written first, by age and number, and what is not only where
// there is too much of that alone. m.mu is held.
func (m *memory) evict(now time.Duration) (lost int) {
	for e := m.written.Front(); e != nil; e = m.written.Front() {
		if len(m.byKey) <= memorySize && now-e.Value.(*remembered).at < memoryAge {
			break
		}
		delete(m.byKey, m.written.Remove(e).(*remembered).key)
	}
	for ; m.unwritten.Len() > memorySize; lost++ {
		delete(m.byKey, m.unwritten.Remove(m.unwritten.Front()).(*remembered).key)
	}
	return lost
}

// await makes what r holds wait to be written, with the attempts that wait already and,
// unless they are written, those of attempts that are about it; lost counts those beyond maxUnwritten.
func (r *remembered) await(attempts []tables.Attempt, written bool) (lost int) {
	newest := r.delivery()
	u := &tables.Record{Deliveries: []tables.Delivery{newest}}
	if r.rows != nil {
		u.Attempts = r.rows.Attempts
	}
	for i := range attempts {
		switch a := &attempts[i]; {
		case written || a.WebhookID != newest.WebhookID:
		case len(u.Attempts) == maxUnwritten:
			lost++
		default:
			u.Attempts = append(u.Attempts, *a)
		}
	}
	r.rows = u
	return lost
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
		known := e.Value.(*remembered).delivery()
		if i, ok := at[id]; !ok {
			stored = append(stored, known)
		} else if known.Newer(&stored[i]) {
			stored[i] = known
		}
	}
	return stored
}

// waiting returns a copy of the records that wait to be written.
func (m *memory) waiting() []tables.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	recs := make([]tables.Record, 0, m.unwritten.Len())
	for e := m.unwritten.Front(); e != nil; e = e.Next() {
		recs = append(recs, *e.Value.(*remembered).rows)
	}
	return recs
}

// wrote notes that rec is in the store. Where the delivery went on meanwhile, its
// newer state may have been written before rec was: it is written once more.
func (m *memory) wrote(rec tables.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rec.Deliveries {
		e, ok := m.byKey[keyOf(&rec.Deliveries[i])]
		if !ok {
			continue
		}
		switch r := e.Value.(*remembered); {
		case r.delivery() == rec.Deliveries[i]:
			r.known = know(&noneMissing(rec).Deliveries[i]) // as it was written
			r.rows = nil
			m.place(r)
		case r.rows == nil:
			r.rows = &tables.Record{Deliveries: []tables.Delivery{r.delivery()}}
			m.place(r)
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
			m.unwritten.MoveToBack(e)
		}
	}
}

// waits reports whether the store lacks a record of the message, or of what it points to: the rows of a replay are the
// original's, with the time of its pointer.
func (m *memory) waits(key tables.MessageKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	day := memoryKeyOf(key, "").day
	for e := m.unwritten.Front(); e != nil; e = e.Next() {
		r := e.Value.(*remembered)
		of := &r.rows.Deliveries[0]
		if of.Queue == key.Queue && (of.MessageID == key.MessageID && r.key.day == day || of.Day.Equal(key.Day)) {
			return true
		}
	}
	return false
}

// count counts the records that wait to be written.
func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unwritten.Len()
}
