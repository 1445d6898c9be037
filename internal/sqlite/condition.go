package sqlite

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/pushlease/pushlease/queue"
)

const (
	// lookEvery is how old the last look at the names of the files may be when a
	// transaction begins.
	lookEvery = time.Second
	// fullFor is how long the disk counts as full after a write that found it so: a small
	// one may well succeed meanwhile.
	fullFor = 5 * time.Second
	// checkPatience bounds one Check.
	checkPatience = time.Second
)

// condition is whether the file can be used: its names still lead to it, and the last
// writes succeeded. The writer alone changes it.
type condition struct {
	files    openFiles
	lookedAt time.Time

	mu       sync.Mutex
	taken    error // the files were taken away
	failed   error // the last write failed
	failedAt time.Time
	// sealed refuses every write, finishing ones too.
	sealed bool
	// unsaved says that the copy of what was taken away lacks the last writes.
	unsaved bool
}

// fault is what is wrong; nil when nothing is.
func (c *condition) fault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken != nil {
		return c.taken
	}
	return c.failed
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

// noteEnd tells how a transaction ended; changed says whether it had something to write.
func (w *writer) noteEnd(err error, changed bool) {
	c := &w.db.condition
	c.mu.Lock()
	before := c.failed
	switch {
	case err != nil:
		c.failed, c.failedAt = w.db.explain(err), time.Now()
	case errors.Is(before, queue.ErrBusy): // to have had the lock is enough
		c.failed = nil
	case changed && (!errors.Is(before, queue.ErrFull) || time.Since(c.failedAt) >= fullFor):
		c.failed = nil
	}
	c.unsaved = c.unsaved || c.taken != nil && changed
	now := c.failed
	told := c.taken != nil // of what is worse
	c.mu.Unlock()
	if !told && ((before == nil) != (now == nil) || before != nil && code(before) != code(now)) {
		w.db.opts.OnFault(now)
	}
}

// lookAtFiles notices that the files were taken away, saves what is open, and notices that
// they are back.
func (w *writer) lookAtFiles() {
	c, now := &w.db.condition, time.Now()
	if now.Sub(c.lookedAt) < lookEvery {
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
		happened = w.save(at, happened, now)
	}
	c.mu.Lock()
	c.taken = happened
	c.sealed = c.sealed && happened != nil
	c.mu.Unlock()
	w.db.opts.OnFault(w.db.condition.fault())
}

// save does what can be done for files that were taken away, and says it.
func (w *writer) save(at whereabouts, happened error, now time.Time) error {
	c := &w.db.condition
	journal, disowned := c.files.disown(at, now)
	name, err := w.rescue(now)
	c.mu.Lock()
	c.sealed, c.unsaved = !disowned, err != nil
	c.mu.Unlock()
	if at.db == ours && at.wal == missing {
		// Nobody else can have opened the file since: then the journal would be there again.
		_, _ = w.conn.exec("PRAGMA wal_checkpoint(TRUNCATE)") // the copy has it all the same
	}
	return takenError{happened, name, journal, w.db.path, err}
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

// Fault says what keeps the file from being used: its names lead elsewhere, or the last
// write failed, with its cause and a cure. It is nil when nothing does. What it says is at
// most about a second old. It holds no secret.
func (db *DB) Fault(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	known := db.condition.fault()
	// What is asked of the writer looks at the files first; after a failed write it writes.
	if db.enter() != nil {
		return known
	}
	defer db.leave()
	err := db.writer.do(ctx, "", false, func(tx *tx) error {
		if known == nil {
			return nil
		}
		return tx.writeVersion()
	})
	if now := db.condition.fault(); now != nil || err == nil {
		return now
	}
	return known // a writer that is busy is no fault
}

// writeVersion writes what is there already, to find out whether it can be written.
func (t *tx) writeVersion() error {
	err := t.w.conn.script(setVersion())
	t.changed++
	return err
}

// leave closes the writer's connection. Of files that were taken away it first makes the
// copy anew when that lacks something. A journal that another process has made meanwhile is
// not ours to remove, as closing would: then the connection is left to the end of the
// process.
func (w *writer) leave() error {
	c := &w.db.condition
	if c.gone() == nil {
		return w.conn.close()
	}
	at := c.files.look()
	if c.unsaved {
		if err := w.saveAnew(); err != nil {
			return err
		}
	}
	if at.db == ours && at.wal == foreign {
		return nil
	}
	return w.conn.close()
}

// saveAnew replaces the copy.
func (w *writer) saveAnew() error {
	var taken takenError
	if !errors.As(w.db.condition.taken, &taken) {
		return nil
	}
	before := taken.saved
	if taken.saved, taken.err = w.rescue(time.Now()); taken.err != nil {
		w.db.opts.OnFault(taken)
		return taken.err
	}
	if before != "" {
		_ = os.Remove(before) //nolint:gosec // a name that was made here; the new one holds more
	}
	w.db.opts.OnFault(taken)
	return nil
}
