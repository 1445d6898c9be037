// Package claims says which message has an event, where messages are told apart by the event
// that they carry. Memory is asked first, then the store.
package claims

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/tables"
)

// Margin is how long a claim on an event outlasts the work that it is for, so
// that settling and the clocks of others have room.
const Margin = tables.ClocksApart + 30*time.Second

// Claim is a claim on an event, to be ended when its message is settled.
type Claim struct {
	tables.Claim
	// Delivered: a webhook has taken the event, so another message with it is a
	// duplicate. Otherwise the event may be published again.
	Delivered bool
	ExpiresAt time.Time // the message
	// Replay: it is a replay's, which does not know who else has got the event. It is
	// never released, but lapses.
	Replay bool
	over   bool // its message is to be deleted
}

// lasting is the claim as the store keeps it. Once a webhook has taken the event, no copy
// may be POSTed to it while the message waits for its others, however long no process is
// there to keep the claim: it lasts as long as the message does. Memory does not know it
// for so long, since another process may end it.
func (c Claim) lasting() tables.Claim {
	until := c.ExpiresAt
	if until.IsZero() {
		until = c.At.Add(tables.ClaimWindow)
	}
	if c.Delivered && until.After(c.Until) {
		c.Until = until
	}
	return c.Claim
}

// Claims takes, keeps and ends claims. Safe for concurrent use.
type Claims struct {
	store  tables.Claims
	meter  *meter.Instruments
	log    *slog.Logger
	events *events

	mu   sync.Mutex
	late map[string]*Claim // what the store has not taken, by key and owner
}

// New makes one that has met no event yet.
func New(store tables.Claims, m *meter.Instruments, log *slog.Logger) *Claims {
	return &Claims{store: store, meter: m, log: log, events: newEvents(), late: make(map[string]*Claim)}
}

// Take claims an event. won is false when another message has it, whose claim current is
// then. With an error the store could not be asked; nobody in this process has the event.
func (cs *Claims) Take(ctx context.Context, mine Claim, now time.Time) (current tables.Claim, won bool, err error) {
	if current, won = cs.events.begin(mine.Claim, now); !won {
		return current, false, nil
	}
	err = retry.Do(ctx, retry.Call, func(ctx context.Context, _ int) (err error) {
		current, won, err = cs.store.Claim(ctx, mine.lasting(), now)
		return err
	})
	if err == nil {
		cs.events.learn(mine.Claim, current, won)
	}
	return current, won, err
}

// End ends the claim on an event before its message is deleted. Where a webhook has
// taken the event the claim is made a lasting one, since nothing else tells later. Otherwise
// the event may be published again.
func (cs *Claims) End(ctx context.Context, c *Claim) {
	if c == nil || c.Replay && !c.Delivered {
		return
	}
	ends, by := *c, retry.Call
	if ends.over = true; ends.Delivered {
		by = retry.Ended
		cs.events.note(ends.Claim, tables.Done)
	} else {
		cs.events.forget(ends.Claim)
	}
	cs.write(ctx, by, ends)
}

// Keep keeps others from the event while its message is given back for delay.
func (cs *Claims) Keep(ctx context.Context, c *Claim, delay, lease time.Duration) {
	if c == nil {
		return
	}
	kept := *c
	kept.Until = time.Now().Add(delay + lease + Margin)
	cs.events.note(kept.Claim, tables.Claimed)
	cs.write(ctx, retry.Once, kept)
}

// write writes how far c has come. Its message goes on all the same when the store can't: that a webhook has taken the event
// is written later then.
func (cs *Claims) write(ctx context.Context, by retry.Policy, c Claim) {
	err := retry.Do(ctx, by, func(ctx context.Context, _ int) error { return cs.put(ctx, c) })
	if err == nil {
		return
	}
	cs.mu.Lock()
	later := c.Delivered && len(cs.late) < memorySize
	if later {
		cs.late[c.Key+c.Owner] = &c
	}
	cs.mu.Unlock()
	cs.meter.ClaimsUnfinished.Add(meter.Labels{})
	cs.log.Warn("the claim on an event could not be kept or ended; when it has lapsed another message with the event is delivered, unless it is written before",
		"message", c.MessageID, "until", c.Until, "written_later", later, "error", err)
}

// put tries once to write how far c has come. It finishes a claim also where it is not there: because the store could not be
// asked before the POST, or because it had lapsed, and so has that of who took it over.
func (cs *Claims) put(ctx context.Context, c Claim) (err error) {
	switch {
	case !c.over:
		_, _, err = cs.store.Claim(ctx, c.lasting(), time.Now())
		return err
	case !c.Delivered:
		return cs.store.ReleaseClaim(ctx, c.Claim)
	}
	if err = cs.store.FinishClaim(ctx, c.Claim); !errors.Is(err, tables.ErrNotFound) && !errors.Is(err, tables.ErrConflict) {
		return err
	}
	if _, won, err := cs.store.Claim(ctx, c.Claim, time.Now()); err != nil || !won {
		return err
	}
	return cs.store.FinishClaim(ctx, c.Claim)
}

// WriteLate writes what could not be written before, until ctx ends.
func (cs *Claims) WriteLate(ctx context.Context) {
	for retry.Sleep(ctx, flushEvery) {
		cs.Flush(ctx)
	}
}

// Flush writes what could not be written before, until the store fails several times in a row.
func (cs *Claims) Flush(ctx context.Context) {
	cs.mu.Lock()
	waiting := slices.Collect(maps.Values(cs.late))
	cs.mu.Unlock()
	put := func(ctx context.Context, c *Claim) error { return cs.put(ctx, *c) }
	retry.Drain(ctx, waiting, put, func(c *Claim, err error) {
		cs.mu.Lock()
		defer cs.mu.Unlock()
		if name := c.Key + c.Owner; err == nil && cs.late[name] == c {
			delete(cs.late, name)
		}
	})
}

const (
	// memorySize bounds the claims remembered, memoryAge how long. So many at most
	// are kept to be written later.
	memorySize = 20_000
	memoryAge  = time.Hour
	// flushEvery is how often that is tried.
	flushEvery = 5 * time.Second
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

// note notes how far mine has come.
func (e *events) note(mine tables.Claim, state tables.ClaimState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	mine.State = state
	known, ok := e.get(mine.Key, time.Now())
	if ok && known.Owner == mine.Owner && known.State != tables.Done || !ok && state == tables.Done {
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
