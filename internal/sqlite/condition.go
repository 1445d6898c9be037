package sqlite

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	// lookEvery is how old the last look at the names of the files may be when a
	// transaction begins.
	lookEvery = time.Second
	// fullFor is how long the disk counts as full after a write that found it so: a small
	// one may well succeed meanwhile.
	fullFor = 5 * time.Second
	// reserve is what is left free on the disk by what is published, so that what is there can be settled: each record needs
	// room, also where the message is deleted then, and the log before it is written back.
	reserve = 16 << 20
	// reserveBack is what has to be free until something is accepted again.
	reserveBack = reserve + reserve/4
	// plenty is more than is written between two looks at the room.
	plenty = 1 << 30
)

// condition is whether the file can be used: its names still lead to it, and the last
// writes succeeded. The writer alone changes it.
type condition struct {
	path string // as the operator named it
	// told is Options.OnFault.
	told     func(err error)
	files    openFiles
	lookedAt time.Time
	// room is how many bytes are free on the disk; false where that can't be told.
	room func() (free uint64, known bool)
	// short says that there is no plenty of it: every transaction looks then.
	short bool

	mu       sync.Mutex
	taken    error // the files were taken away
	scarce   error // so little room is left that nothing new is accepted
	failed   error // the last write failed
	failedAt time.Time
	// sealed refuses every write, finishing ones too.
	sealed bool
	// unsaved says that the copy of what was taken away lacks the last writes.
	unsaved bool
}

// newCondition is that of the files at abs, which have just been opened.
func newCondition(path, abs string, told func(err error)) (*condition, error) {
	files, err := identify(abs)
	room := func() (uint64, bool) { return roomOn(filepath.Dir(abs)) }
	return &condition{path: path, told: told, files: files, lookedAt: time.Now(), room: room}, err
}

func (c *condition) explain(err error) error { return explain(c.path, err) }

// fault is what is wrong; nil when nothing is.
func (c *condition) fault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.taken, c.failed, c.scarce)
}

// gone is what is wrong when the files were taken away; nil when they were not.
func (c *condition) gone() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken
}

// finishing are the operations that end what was begun. They go on in files that were
// taken away, for the sake of the copy.
var finishing = map[string]bool{
	"complete": true, "abandon": true, "renew": true, "record": true, "put_dead_letter": true, "update_dead_letter": true,
	"finish_claim": true, "release_claim": true,
}

// allows says why an operation is refused; nil when it is not.
func (c *condition) allows(operation string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken == nil || finishing[operation] && !c.sealed {
		return nil
	}
	return c.taken
}

// accepts says why nothing new is taken for a queue; nil when it is. The copy of a dead letter is nothing new: its message goes.
func (c *condition) accepts(queueName string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.HasSuffix(queueName, tables.PoisonSuffix) {
		return nil
	}
	return c.scarce
}

// lookForRoom notices that the disk is nearly full, and that it is not any more.
func (c *condition) lookForRoom() {
	free, known := c.room()
	c.short = known && free < plenty
	c.mu.Lock()
	before := c.scarce
	switch {
	case !known || free >= reserveBack:
		c.scarce = nil
	case free < reserve:
		// No error of the engine: who is refused by it breaks nobody's transaction.
		c.scarce = fmt.Errorf("%w: the disk that holds %s has less than %d MB left, which are kept for delivering what is there, and nothing new is accepted: free some space", queue.ErrFull, c.path, reserve>>20)
	}
	now := c.scarce
	c.mu.Unlock()
	if (before == nil) != (now == nil) {
		c.told(c.fault())
	}
}

// noteEnd tells how a transaction ended; changed says whether it had something to write.
func (c *condition) noteEnd(err error, changed bool) {
	c.mu.Lock()
	before := c.failed
	switch {
	case err != nil:
		c.failed, c.failedAt = c.explain(err), time.Now()
	case errors.Is(before, queue.ErrBusy): // to have had the lock is enough
		c.failed = nil
	case changed && (!errors.Is(before, queue.ErrFull) || time.Since(c.failedAt) >= fullFor):
		c.failed = nil
	}
	c.unsaved = c.unsaved || c.taken != nil && changed
	now := c.failed
	worse := c.taken != nil // which is told
	c.mu.Unlock()
	if !worse && ((before == nil) != (now == nil) || before != nil && code(before) != code(now)) {
		c.told(now)
	}
}

// look notices that the files were taken away, saves what conn has open, and notices that
// they are back.
func (c *condition) look(conn *connection) {
	now := time.Now()
	due := now.Sub(c.lookedAt) >= lookEvery
	if due || c.short {
		c.lookForRoom()
	}
	if !due {
		return
	}
	c.lookedAt = now
	at := c.files.look()
	happened := c.files.explain(at)
	known := c.gone()
	if (happened == nil) == (known == nil) {
		return
	}
	if happened != nil {
		happened = c.save(conn, at, happened, now)
	}
	c.mu.Lock()
	c.taken = happened
	c.sealed = c.sealed && happened != nil
	c.mu.Unlock()
	c.told(c.fault())
}

// save does what can be done for files that were taken away, and says it.
func (c *condition) save(conn *connection, at whereabouts, happened error, now time.Time) error {
	journal, disowned := c.files.disown(at, now)
	name, err := c.files.rescue(conn, now)
	c.mu.Lock()
	c.sealed, c.unsaved = !disowned, err != nil
	c.mu.Unlock()
	if at.db == ours && at.wal == missing {
		// Nobody else can have opened the file since: then the journal would be there again.
		_, _ = conn.exec("PRAGMA wal_checkpoint(TRUNCATE)") // the copy has it all the same
	}
	return takenError{happened, name, journal, c.path, err}
}

// takenError says what was done about files that were taken away.
type takenError struct {
	happened      error
	saved         string // empty when nothing could be
	journal, path string
	err           error
}

func (e takenError) Error() string {
	text := e.happened.Error() + ". Nothing new is accepted until pushlease is started again. "
	if e.saved == "" {
		return text + "What it held could NOT be saved (" + e.err.Error() + "): it is lost when this process ends, so make room for a copy first, and stop it with SIGTERM"
	}
	text += "All that it held is saved in " + e.saved + ": stop pushlease, put that in the place of " + e.path + " unless what is there is to be used, and start it again"
	if e.journal != "" {
		text += " (the journal that did not belong to the new file is kept as " + e.journal + ")"
	}
	return text
}

func (e takenError) Unwrap() error { return e.happened }

// leave closes conn, the writer's. Of files that were taken away it first makes the
// copy anew when that lacks something. A journal that another process has made meanwhile is
// not ours to remove, as closing would: then the connection is left to the end of the
// process.
func (c *condition) leave(conn *connection) error {
	if c.gone() == nil {
		return conn.close()
	}
	at := c.files.look()
	if c.unsaved {
		if err := c.saveAnew(conn); err != nil {
			return err
		}
	}
	if at.db == ours && at.wal == foreign {
		return nil
	}
	return conn.close()
}

// saveAnew replaces the copy.
func (c *condition) saveAnew(conn *connection) error {
	var taken takenError
	if !errors.As(c.taken, &taken) {
		return nil
	}
	before := taken.saved
	if taken.saved, taken.err = c.files.rescue(conn, time.Now()); taken.err != nil {
		c.told(taken)
		return taken.err
	}
	if before != "" {
		_ = os.Remove(before) //nolint:gosec // a name that was made here; the new one holds more
	}
	c.told(taken)
	return nil
}
