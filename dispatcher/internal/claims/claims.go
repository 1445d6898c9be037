// Package claims says which message has an event, where messages are told apart by the event
// that they carry. Memory is asked first, then the store.
package claims

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
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
}

// New makes one that has met no event yet.
func New(store tables.Claims, m *meter.Instruments, log *slog.Logger) *Claims {
	return &Claims{store: store, meter: m, log: log, events: newEvents()}
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

// TakeForReplay keeps copies from the event of a replay while it is delivered, if nobody
// has the event: a replay is always POSTed, since somebody asked for it.
func (cs *Claims) TakeForReplay(ctx context.Context, mine Claim) error {
	now := time.Now()
	if _, free := cs.events.begin(mine.Claim, now); !free {
		return nil
	}
	callCtx, cancel := context.WithTimeout(ctx, retry.Timeout)
	defer cancel()
	current, won, err := cs.store.Claim(callCtx, mine.lasting(), now)
	if err == nil {
		cs.events.learn(mine.Claim, current, won)
	}
	return err
}

// End ends the claim on an event before its message is deleted. Where a webhook has
// taken the event the claim is made a lasting one, since nothing else tells later; when
// that can't be written the message is deleted all the same, which is counted. Otherwise
// the event may be published again.
func (cs *Claims) End(ctx context.Context, c *Claim) {
	if c == nil || c.Replay && !c.Delivered {
		return
	}
	end, write := cs.events.forget, cs.store.ReleaseClaim
	if c.Delivered {
		end, write = cs.events.finish, cs.finish
	}
	end(c.Claim)
	err := retry.Do(ctx, retry.Call, func(ctx context.Context, _ int) error { return write(ctx, c.Claim) })
	if err == nil || errors.Is(err, tables.ErrNotFound) || errors.Is(err, tables.ErrConflict) {
		return // noted; older than the window by now; or taken over, because it had lapsed
	}
	cs.meter.ClaimsUnfinished.Add(meter.Labels{})
	cs.log.Warn("the claim on an event could not be ended; it lapses, and another message with the event is delivered then",
		"message", c.MessageID, "until", c.Until, "delivered", c.Delivered, "error", err)
}

// finish finishes a claim also where it is not there: because the store could not be
// asked before the POST, or because it had lapsed, and so has that of who took it over.
func (cs *Claims) finish(ctx context.Context, c tables.Claim) error {
	err := cs.store.FinishClaim(ctx, c)
	if !errors.Is(err, tables.ErrNotFound) && !errors.Is(err, tables.ErrConflict) {
		return err
	}
	if _, won, err := cs.store.Claim(ctx, c, time.Now()); err != nil || !won {
		return err
	}
	return cs.store.FinishClaim(ctx, c)
}

// Keep keeps others from the event while its message is given back for delay.
func (cs *Claims) Keep(ctx context.Context, c *Claim, delay, lease time.Duration) {
	if c == nil {
		return
	}
	kept := *c
	kept.Until = time.Now().Add(delay + lease + Margin)
	cs.events.keep(kept.Claim)
	callCtx, cancel := context.WithTimeout(ctx, retry.Timeout)
	defer cancel()
	if _, _, err := cs.store.Claim(callCtx, kept.lasting(), time.Now()); err != nil {
		cs.meter.ClaimsUnfinished.Add(meter.Labels{})
		cs.log.Warn("the claim on an event could not be kept; another message with the event may be delivered too", "message", c.MessageID, "error", err)
	}
}

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
