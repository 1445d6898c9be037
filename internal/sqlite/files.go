package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// The database is three files. SQLite goes on with those that it has open when their names
// are taken away from them, and says nothing: what it writes then is gone at the next start.

// place is where the name of an open file leads to now.
type place int

const (
	ours    place = iota // to the open file
	missing              // to nothing
	foreign              // to another file
)

// openFiles remembers which files were opened under which names.
type openFiles struct {
	db, wal, shm       string
	dbID, walID, shmID fs.FileInfo
}

// identify notes the files that a connection to path has just opened. The journals lie
// beside the file that a symbolic link leads to.
func identify(path string) (openFiles, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return openFiles{}, err
	}
	f := openFiles{db: path, wal: target + "-wal", shm: target + "-shm"}
	for name, into := range map[string]*fs.FileInfo{f.db: &f.dbID, f.wal: &f.walID, f.shm: &f.shmID} {
		if *into, err = os.Stat(name); err != nil {
			return openFiles{}, err
		}
	}
	return f, nil
}

// whereabouts are the places of the three names.
type whereabouts struct{ db, wal, shm place }

func (f *openFiles) look() whereabouts {
	return whereabouts{find(f.db, f.dbID), find(f.wal, f.walID), find(f.shm, f.shmID)}
}

// find reports where name leads to. What can't be found out is taken for no change.
func find(name string, id fs.FileInfo) place {
	now, err := os.Stat(name) //nolint:gosec // the file that the operator named
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return missing
	case err == nil && !os.SameFile(now, id):
		return foreign
	}
	return ours
}

// explain says what happened to the files; nil when nothing did.
func (f *openFiles) explain(at whereabouts) error {
	for _, one := range []struct {
		name  string
		place place
	}{{f.db, at.db}, {f.wal, at.wal}, {f.shm, at.shm}} {
		switch one.place {
		case missing:
			return fmt.Errorf("%w: the file %s was removed, or moved elsewhere, while it was open", queue.ErrTakenAway, one.name)
		case foreign:
			return fmt.Errorf("%w: another file was put in the place of %s while that was open", queue.ErrTakenAway, one.name)
		}
	}
	return nil
}

// disown takes our journals away from a file that was put in the place of the database:
// SQLite would take them for that file's, and write them into it at the next start. It
// returns the new name of the journal, and whether no name leads to ours any more.
func (f *openFiles) disown(at whereabouts, now time.Time) (kept string, ok bool) {
	if at.db != foreign {
		return "", true
	}
	if at.wal == ours {
		kept = rescueName(f.db, now) + "-wal"
		if os.Rename(f.wal, kept) != nil {
			return "", false
		}
	}
	return kept, at.shm != ours || os.Remove(f.shm) == nil
}

const (
	rescueMark = ".rescued-"
	// rescueNames bounds the copies of one second.
	rescueNames = 9
)

// rescueName is the name for a copy of the database that is made now.
func rescueName(path string, now time.Time) string {
	return path + rescueMark + now.UTC().Format("20060102T150405Z")
}

// Rescued returns the copies beside path that were made when its file was taken away under
// a running process, oldest first.
func Rescued(path string) []string {
	entries, err := os.ReadDir(filepath.Dir(path)) // in the order of names
	if err != nil {
		return nil
	}
	var found []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)+rescueMark) && !strings.HasSuffix(e.Name(), "-wal") && !strings.HasSuffix(e.Name(), "-shm") {
			found = append(found, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return found
}

// rescue copies everything that the open files hold, as conn has it, into a new file beside them, or, where
// that can't be, into the folder for temporary files. Only the writer calls it.
func (f *openFiles) rescue(conn *connection, now time.Time) (string, error) {
	beside := rescueName(f.db, now)
	var errs []error
	for _, base := range []string{beside, filepath.Join(os.TempDir(), filepath.Base(beside))} {
		for n := 1; n <= rescueNames; n++ { // another process may make a copy too
			name := base
			if n > 1 {
				name += "-" + strconv.Itoa(n)
			}
			err := copyInto(conn, name)
			if err == nil {
				return name, nil
			}
			if !errors.Is(err, fs.ErrExist) {
				errs = append(errs, err)
				break
			}
		}
	}
	return "", errors.Join(errs...)
}

// copyInto makes name, readable by its owner only, and durable.
func copyInto(conn *connection, name string) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil { //nolint:gosec // beside the file that the operator named; the folder may be gone too
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600) //nolint:gosec // made from the operator's own setting
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			_ = os.Remove(name) //nolint:gosec // the copy that was begun here; half a copy misleads
		}
	}()
	if _, err := conn.exec("VACUUM INTO ?", name); err != nil {
		return err
	}
	return f.Sync()
}
