package claims

import (
	"container/list"
	"sync"
	"time"

	"github.com/pushlease/pushlease/tables"
)

const (
	// memorySize bounds the claims remembered, memoryAge how long.
	memorySize = 20_000
	memoryAge  = time.Hour
)

// events is the first tier of deduplication by event: the claims that this process has
// taken or met lately. It spares the store the questions about copies that come close
// together, and knows duplicates while the store is away. Bounded by memorySize and
// memoryAge.
type events struct {
	mu     sync.Mutex
	byKey  map[string]*list.Element
	oldest *list.List // of *eventEntry, least recently changed first
}

type eventEntry struct {
	tables.Claim
	at time.Time
}

func newEvents() *events { return &events{byKey: map[string]*list.Element{}, oldest: list.New()} }

// begin notes mine, unless another message of this process has the event: then that one's
// claim is returned, and won is false.
func (e *events) begin(mine tables.Claim, now time.Time) (current tables.Claim, won bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known, ok := e.get(mine.Key, now); ok && known.Owner != mine.Owner && (known.State == tables.Done || known.Until.After(now)) {
		return known, false
	}
	mine.State = tables.Claimed
	e.put(mine, now)
	return mine, true
}

// learn takes in what the store said about mine.
func (e *events) learn(mine, current tables.Claim, won bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case current.State == tables.Done && current.BodyHash == mine.BodyHash:
		e.put(current, time.Now())
	case !won: // the store is asked again
		e.drop(mine)
	}
}

// finish notes that mine's message was delivered.
func (e *events) finish(mine tables.Claim) {
	e.mu.Lock()
	defer e.mu.Unlock()
	mine.State = tables.Done
	if known, ok := e.get(mine.Key, time.Now()); !ok || known.Owner == mine.Owner {
		e.put(mine, time.Now())
	}
}

// keep notes until when mine lasts.
func (e *events) keep(mine tables.Claim) {
	e.mu.Lock()
	defer e.mu.Unlock()
	mine.State = tables.Claimed
	if known, ok := e.get(mine.Key, time.Now()); ok && known.Owner == mine.Owner && known.State != tables.Done {
		e.put(mine, time.Now())
	}
}

// forget drops mine.
func (e *events) forget(mine tables.Claim) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(mine)
}

func (e *events) get(key string, now time.Time) (tables.Claim, bool) {
	el, ok := e.byKey[key]
	if !ok {
		return tables.Claim{}, false
	}
	entry := el.Value.(*eventEntry)
	return entry.Claim, now.Sub(entry.at) < memoryAge
}

func (e *events) put(c tables.Claim, now time.Time) {
	el, ok := e.byKey[c.Key]
	if !ok {
		el = e.oldest.PushBack(&eventEntry{})
		e.byKey[c.Key] = el
	}
	*el.Value.(*eventEntry) = eventEntry{Claim: c, at: now}
	e.oldest.MoveToBack(el)
	for el := e.oldest.Front(); el != nil; el = e.oldest.Front() {
		entry := el.Value.(*eventEntry)
		if e.oldest.Len() <= memorySize && now.Sub(entry.at) < memoryAge {
			break
		}
		e.oldest.Remove(el)
		delete(e.byKey, entry.Key)
	}
}

func (e *events) drop(mine tables.Claim) {
	if el, ok := e.byKey[mine.Key]; ok && el.Value.(*eventEntry).Owner == mine.Owner {
		e.oldest.Remove(el)
		delete(e.byKey, mine.Key)
	}
}
