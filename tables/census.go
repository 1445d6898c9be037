package tables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrVanished means that registrations that were there are gone, and nobody has deleted them
// through pushlease.
var ErrVanished = errors.New("the registered webhooks have vanished from storage")

// VanishedError is an ErrVanished of all registrations that there were.
type VanishedError struct {
	// Missed are those. The queue of one is empty where only the health that an older version wrote tells of it.
	Missed []RowError
}

// Error names the first of them.
func (e *VanishedError) Error() string {
	var names []string
	for i, m := range e.Missed {
		if i == maxNamed {
			names = append(names, fmt.Sprintf("%d more", len(e.Missed)-i))
			break
		}
		if m.Queue != "" {
			m.ID += " of " + m.Queue
		}
		names = append(names, m.ID)
	}
	return fmt.Sprintf("%s: there were %s, and nobody has deleted them here: bring the table back, or register them again; "+
		"those that are known stay in force. If there are to be none, delete each: pushlease webhooks delete ID", ErrVanished, strings.Join(names, ", "))
}

// maxNamed is how many webhooks an error names.
const maxNamed = 20

// Unwrap makes it an ErrVanished.
func (e *VanishedError) Unwrap() error { return ErrVanished }

// TraceOutlives is by how much the trace of a deleted webhook outlives the health of webhooks (Healths.ExpireHealth),
// which an instance may have written once more after the deletion.
const TraceOutlives = 24 * time.Hour

// Traces are what a store can tell of webhooks that are not there.
type Traces struct {
	// Deleted are those that were deleted through pushlease, by any process, and when, while that is known.
	Deleted func(ctx context.Context) (map[string]time.Time, error)
	// Met is the health of webhooks (Healths.ListHealth): of those that have one it is known that they were there.
	Met func(ctx context.Context) ([]Health, error)
	// Removed, when set, is told of one that is gone alone and was not deleted through pushlease. It is taken
	// for deleted all the same. Its queue is empty where it is not known. It must not block.
	Removed func(id, queue string)
}

// Census tells a store whose registrations were deleted one by one from one that has lost
// them: a table that another program dropped, or a storage that was replaced by an empty
// one. The zero value has seen none. Safe for concurrent use.
type Census struct {
	mu     sync.Mutex
	judged uint64            // lists so far
	looked bool              // it is known who was there before the first list
	queues map[string]string // of the webhooks that were there, by id
	seen   time.Time         // when they were; zero where they were only met before this process began
	// written is when the health of those that were met was written last, by id.
	written map[string]time.Time
	// lost are those of queues that were there when all, or several at once, were gone, until each is
	// back, or deleted.
	lost map[string]string
	// fell: the list has fallen to none by a loss, and nothing was registered since. Who deletes the last one
	// that is there, while others are missed already, makes no such loss.
	fell bool
}

// Deleted notes that a webhook was deleted through this store.
func (c *Census) Deleted(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.queues, id)
	delete(c.lost, id)
}

// met are the queues of webhooks that were there before this process began, by id.
type met struct {
	queues  map[string]string
	written map[string]time.Time // when their health was last
	err     error
}

const (
	// metTimeout bounds the question who was met: a store that is slow there leaves time to read the list.
	metTimeout = 5 * time.Second
	// writtenLate is by how much the health of a webhook may have been written after its deletion, by an instance that did
	// not know of it. What was written later is of a webhook that was registered anew under the same id.
	writtenLate = time.Hour
)

// errUntraced asks for the traces of those that were deleted: without them the list can't be judged.
var errUntraced = errors.New("who was deleted is to be asked for")

// List reads all registrations, and returns them with what is missed beside them. When the list falls to none, or several are
// gone at once, each has to have left the trace of a deletion since it was seen (a single one that has not is told of, and taken
// for deleted). The first list is compared with the webhooks that were met before. The error is a VanishedError, or that of the
// store. When some are there again, the others are missed until they are, too.
//
// Lists may overlap: of two that do nobody can tell which is the newer one, and what was registered between them would be
// missed. One that lacks what another one had meanwhile is read again; after three times what it lacks is missed this once.
func (c *Census) List(ctx context.Context, read func() ([]Registration, []RowError, error), traces Traces) ([]Registration, []RowError, error) {
	before := c.before(ctx, traces)
	for try := 1; ; try++ {
		began := c.lists()
		all, unreadable, err := read()
		if err != nil {
			return nil, nil, err
		}
		rows, err := c.look(ctx, began, before, all, unreadable, traces)
		if errors.Is(err, errOverlaps) {
			if try < overlaps {
				continue
			}
			rows, err = c.lacking(all, unreadable), nil
		}
		return slices.DeleteFunc(all, func(r Registration) bool {
			return slices.ContainsFunc(rows, func(e RowError) bool { return e.ID == r.ID })
		}), rows, err
	}
}

// before asks for the webhooks that were met, where no list was compared with them so far. It does so before the list is read:
// what is registered meanwhile is in the list then.
func (c *Census) before(ctx context.Context, traces Traces) (m met) {
	c.mu.Lock()
	looked := c.looked
	c.mu.Unlock()
	if looked {
		return m
	}
	ctx, cancel := context.WithTimeout(ctx, metTimeout)
	defer cancel()
	rows, err := traces.Met(ctx)
	m = met{queues: map[string]string{}, written: map[string]time.Time{}, err: err}
	slices.SortStableFunc(rows, func(a, b Health) int { return a.UpdatedAt.Compare(b.UpdatedAt) }) // each instance has its own: the newest knows best
	for i := range rows {
		id := rows[i].WebhookID
		m.queues[id] = cmp.Or(rows[i].Queue, m.queues[id]) // older versions noted none
		m.written[id] = rows[i].UpdatedAt
	}
	return m
}

// lists is how many lists were judged so far.
func (c *Census) lists() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.judged
}

// errOverlaps is about a list that lacks what another one had that was judged since it began.
var errOverlaps = errors.New("another list of the webhooks came before this one")

// overlaps is how often a list is read that overlaps with another one, and lacks something.
const overlaps = 3

// lacking are the rows that are missed, those that were there a moment ago, and those that were of another queue then.
func (c *Census) lacking(all []Registration, unreadable []RowError) []RowError {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows := slices.Concat(unreadable, c.missed(), ofAnotherQueue(c.moved(all)))
	for id, name := range c.gone(present(all, unreadable)) {
		rows = append(rows, RowError{ID: id, Queue: name, Err: fmt.Errorf("%w: it was there a moment ago", ErrVanished)})
	}
	return rows
}

// present are the registrations of a list, with their queues, by id.
func present(all []Registration, unreadable []RowError) map[string]string {
	there := make(map[string]string, len(all)+len(unreadable))
	for _, r := range all {
		there[r.ID] = r.Queue
	}
	for _, e := range unreadable {
		there[e.ID] = e.Queue
	}
	return there
}

// look judges a list that began when so many had been judged, and asks for traces where it needs them.
func (c *Census) look(ctx context.Context, began uint64, before met, all []Registration, unreadable []RowError, traces Traces) ([]RowError, error) {
	rows, removed, err := c.judge(began, before, all, unreadable, nil)
	if errors.Is(err, errUntraced) {
		deleted, failed := traces.Deleted(ctx)
		if failed != nil {
			return nil, failed
		}
		if deleted == nil {
			deleted = map[string]time.Time{}
		}
		rows, removed, err = c.judge(began, before, all, unreadable, deleted)
	}
	for id, queue := range removed {
		if traces.Removed != nil {
			traces.Removed(id, queue)
		}
	}
	return rows, err
}

// judge is look with the traces that were asked for, if they were; it says which one was removed, with its queue, by id.
func (c *Census) judge(began uint64, before met, all []Registration, unreadable []RowError, deleted map[string]time.Time) (rows []RowError, removed map[string]string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if began != c.judged && len(c.gone(present(all, unreadable))) > 0 {
		return nil, nil, errOverlaps
	}
	defer func() {
		if !errors.Is(err, errUntraced) {
			c.judged++
		}
	}()
	none := len(all)+len(unreadable) == 0
	if !c.looked && before.err == nil {
		c.meet(before, none)
	}
	if !none {
		return c.some(all, unreadable, deleted)
	}
	if !c.looked {
		return nil, nil, before.err
	}
	if len(c.queues)+len(c.lost) == 0 {
		return nil, nil, nil
	}
	c.miss(c.queues)
	if deleted == nil {
		return nil, nil, errUntraced
	}
	c.forgetDeleted(deleted, c.lost)
	for id := range c.queues {
		_, missed := c.lost[id]
		c.fell = c.fell || missed
	}
	c.queues = nil
	if len(c.lost) == 0 {
		c.fell = false
	}
	if c.fell {
		return nil, nil, &VanishedError{c.missed()}
	}
	return c.missed(), nil, nil
}

// meet takes those for there that were met before this process began. Where there is none any more, those of no
// known queue are missed, too. c.mu is held.
func (c *Census) meet(before met, none bool) {
	c.looked, c.written = true, before.written
	if c.queues == nil {
		c.queues = map[string]string{}
	}
	for id, name := range before.queues {
		c.queues[id] = cmp.Or(name, c.queues[id]) // lists so far were compared with nothing
	}
	if none {
		c.lost = maps.Clone(c.queues)
	}
}

// some is judge where there are registrations. c.mu is held.
func (c *Census) some(all []Registration, unreadable []RowError, deleted map[string]time.Time) (rows []RowError, removed map[string]string, err error) {
	there := present(all, unreadable)
	for _, e := range unreadable {
		if name := c.queues[e.ID]; name != "" {
			there[e.ID] = name
		}
	}
	// Of one that is of no known queue there is nothing that could stay in force: whoever registers webhooks
	// anew has seen that.
	maps.DeleteFunc(c.lost, func(id, name string) bool { _, back := there[id]; return back || name == "" })
	c.fell = false
	moved, gone := c.moved(all), c.gone(there)
	if len(gone) > 1 { // a table that was restored in part, or a tool that went too far; a single one is taken for deleted
		c.miss(gone)
		maps.DeleteFunc(gone, func(_, name string) bool { return name != "" })
	}
	if len(c.lost)+len(gone)+len(moved) > 0 {
		if deleted == nil {
			return nil, nil, errUntraced
		}
		c.forgetDeleted(deleted, c.lost, gone, moved) // who was deleted and is there was registered anew, on any queue
	}
	maps.Copy(there, moved)
	c.queues = there
	if len(c.lost) == 0 && c.looked { // who was met before was not seen, whenever that gets known
		c.seen = time.Now()
	}
	return slices.Concat(unreadable, ofAnotherQueue(moved), c.missed()), gone, nil
}

// moved are the registrations that are of another queue than they were, with the one that they were of: the API moves none, since
// what is under way belongs to that. c.mu is held.
func (c *Census) moved(all []Registration) map[string]string {
	moved := map[string]string{}
	for _, r := range all {
		if was := c.queues[r.ID]; was != "" && was != r.Queue {
			moved[r.ID] = was
		}
	}
	return moved
}

// ofAnotherQueue are the rows of those that another program has moved.
func ofAnotherQueue(moved map[string]string) (rows []RowError) {
	for _, id := range slices.Sorted(maps.Keys(moved)) {
		rows = append(rows, RowError{ID: id, Queue: moved[id], Err: fmt.Errorf(
			"%w: its queue was %s: write that back, or delete the webhook and register another one", ErrDamaged, moved[id])})
	}
	return rows
}

// missed are the rows that are missed. c.mu is held.
func (c *Census) missed() (rows []RowError) {
	for _, id := range slices.Sorted(maps.Keys(c.lost)) {
		rows = append(rows, RowError{ID: id, Queue: c.lost[id], Err: fmt.Errorf("%w: register it again under this id, or delete it if it is to be gone", ErrVanished)})
	}
	return rows
}

// gone are the registrations that were there and are not. c.mu is held.
func (c *Census) gone(there map[string]string) map[string]string {
	gone := maps.Clone(c.queues)
	maps.DeleteFunc(gone, func(id, _ string) bool { _, ok := there[id]; return ok })
	return gone
}

// miss misses what is gone. Of a registration that could never be read, and did not say of which queue it
// was, there is nothing that could stay in force: it would hold the messages of every queue. c.mu is held.
func (c *Census) miss(gone map[string]string) {
	if c.lost == nil {
		c.lost = map[string]string{}
	}
	for id, name := range gone {
		if name != "" {
			c.lost[id] = name
		}
	}
}

// forgetDeleted takes those out of what is missed, gone or moved that have left a trace since they were seen: somebody
// has deleted them, here or elsewhere. c.mu is held.
func (c *Census) forgetDeleted(deleted map[string]time.Time, of ...map[string]string) {
	for _, absent := range of {
		maps.DeleteFunc(absent, func(id, _ string) bool {
			since := c.seen.Add(-LeftSkew)
			if c.seen.IsZero() {
				since = c.written[id].Add(-writtenLate)
			}
			at, ok := deleted[id]
			return ok && !at.Before(since)
		})
	}
}
