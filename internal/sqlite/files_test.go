package sqlite

import (
	"database/sql"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
)

const heldMessages = 5

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// removals are the ways in which C49 takes the files away. Each says where to start from
// afterwards; empty is from the copy.
var removals = []struct {
	name string
	take func(t *testing.T, path string) (start string)
}{
	{"all three are removed", func(t *testing.T, path string) string {
		must(t, os.Remove(path), os.Remove(path+"-wal"), os.Remove(path+"-shm"))
		return ""
	}},
	{"the journals are removed", func(t *testing.T, path string) string {
		must(t, os.Remove(path+"-wal"), os.Remove(path+"-shm"))
		return path
	}},
	{"the journal's index is removed", func(t *testing.T, path string) string {
		must(t, os.Remove(path+"-shm"))
		return ""
	}},
	{"a copy is put in its place", func(t *testing.T, path string) string {
		must(t, os.Rename(path, path+".old"))
		copyFile(t, path+".old", path)
		return ""
	}},
	{"it is renamed", func(t *testing.T, path string) string {
		must(t, os.Rename(path, path+".old"))
		return ""
	}},
	{"the folder is moved", func(t *testing.T, path string) string {
		must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+"-moved"))
		return filepath.Join(filepath.Dir(path)+"-moved", filepath.Base(path))
	}},
	{"the folder is removed", func(t *testing.T, path string) string {
		must(t, os.RemoveAll(filepath.Dir(path)))
		return ""
	}},
}

func TestFilesThatAreTakenAwayStopTheStoreAndLoseNothing(t *testing.T) {
	for _, tt := range removals {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				folder := filepath.Join(t.TempDir(), "data")
				must(t, os.Mkdir(folder, 0o700))
				path := filepath.Join(folder, "p.db")
				var said []error
				db, err := Open(t.Context(), path, Options{OnFault: func(err error) { said = append(said, err) }})
				must(t, err)
				q := mustQueue(t, db)
				for range heldMessages {
					mustSend(t, q, "held", queue.SendOptions{})
				}
				begun, err := q.Receive(t.Context(), 1, time.Hour)
				must(t, err)
				start := tt.take(t, path)
				time.Sleep(3 * time.Second)
				if _, err := q.Send(t.Context(), []byte("late"), queue.SendOptions{}); !errors.Is(err, queue.ErrTakenAway) || queue.Ambiguous(err) {
					t.Errorf("Send = %v, want ErrTakenAway", err)
				}
				if _, err := q.Receive(t.Context(), 1, time.Hour); !errors.Is(err, queue.ErrTakenAway) {
					t.Errorf("Receive = %v, want ErrTakenAway", err)
				}
				if _, err := q.Depth(t.Context()); !errors.Is(err, queue.ErrTakenAway) {
					t.Errorf("Depth = %v, want ErrTakenAway", err)
				}
				// What was begun is ended, and the copy knows it.
				if err := q.Abandon(t.Context(), begun[0], 0); err != nil {
					t.Errorf("Abandon = %v, want what was begun to be ended", err)
				}
				fault := db.Fault(t.Context())
				if !errors.Is(fault, queue.ErrTakenAway) || !strings.Contains(fault.Error(), path) {
					t.Errorf("Fault = %v, want one that names the file", fault)
				}
				must(t, db.Close())
				if len(said) != 2 || said[1] == nil {
					t.Fatalf("OnFault was told %v, want it once, and once where the last copy is", said)
				}
				saved := Rescued(path)
				if len(saved) != 1 || !strings.Contains(said[1].Error(), saved[0]) {
					t.Fatalf("copies are %v, and the last word is %v", saved, said[1])
				}
				if info, err := os.Stat(saved[0]); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("the copy is %v, %v, want it for its owner only", info, err)
				}
				for _, from := range []string{start, saved[0]} {
					if from == "" {
						continue
					}
					if n := len(receiveAll(t, mustQueue(t, openFile(t, from, Options{})))); n != heldMessages {
						t.Errorf("%d messages can be received from %s, want %d", n, from, heldMessages)
					}
				}
			})
		})
	}
}

// A file that stands in the place of ours belongs to somebody: its bytes stay as they are,
// and the next start does not write our journal into it.
func TestAFileThatReplacedOursIsNeverWrittenTo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path, backup := filepath.Join(dir, "p.db"), filepath.Join(dir, "backup.db")
		old := openFile(t, backup, Options{})
		mustSend(t, mustQueue(t, old), "of the backup", queue.SendOptions{})
		must(t, old.Close())
		want, err := os.ReadFile(backup)
		must(t, err)

		db, err := Open(t.Context(), path, Options{})
		must(t, err)
		for range heldMessages {
			mustSend(t, mustQueue(t, db), "lost to the backup", queue.SendOptions{})
		}
		must(t, os.Remove(path), os.Rename(backup, path))
		time.Sleep(lookEvery)
		if _, err := mustQueue(t, db).Send(t.Context(), []byte("late"), queue.SendOptions{}); !errors.Is(err, queue.ErrTakenAway) {
			t.Errorf("Send = %v, want ErrTakenAway", err)
		}
		must(t, db.Close())
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("the file in the place of ours was changed (%v)", err)
		}
		ms := receiveAll(t, mustQueue(t, openFile(t, path, Options{})))
		if len(ms) != 1 || string(ms[0].Text) != "of the backup" {
			t.Errorf("%d messages are in the file that replaced ours, want its own one", len(ms))
		}
		if saved := Rescued(path); len(saved) != 1 {
			t.Errorf("copies are %v, want one", saved)
		}
	})
}

func TestFilesThatComeBackAreUsedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		folder := filepath.Join(t.TempDir(), "data")
		must(t, os.Mkdir(folder, 0o700))
		var said []error
		db := openFile(t, filepath.Join(folder, "p.db"), Options{OnFault: func(err error) { said = append(said, err) }})
		must(t, os.Rename(folder, folder+"-moved"))
		time.Sleep(lookEvery)
		if err := db.Fault(t.Context()); !errors.Is(err, queue.ErrTakenAway) {
			t.Fatalf("Fault = %v, want ErrTakenAway", err)
		}
		must(t, os.RemoveAll(folder), os.Rename(folder+"-moved", folder))
		time.Sleep(lookEvery)
		mustSend(t, mustQueue(t, db), "a", queue.SendOptions{})
		if err := db.Fault(t.Context()); err != nil || len(said) != 2 || said[1] != nil {
			t.Errorf("Fault = %v, OnFault was told %v, want the fault and its end", err, said)
		}
	})
}

// What other programs rightly do to an open file is no fault.
func TestOthersThatUseTheFileRightlyAreNoFault(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "p.db")
		db := openFile(t, path, Options{OnFault: func(err error) { t.Errorf("OnFault(%v)", err) }})
		q := mustQueue(t, db)
		for i := range 20 {
			mustSend(t, q, "a", queue.SendOptions{})
			outside, err := sql.Open("sqlite", path)
			must(t, err)
			var n int
			must(t, outside.QueryRow("SELECT count(*) FROM messages").Scan(&n))
			if n != i+1 {
				t.Errorf("a reader sees %d messages, want %d", n, i+1)
			}
			_, err = outside.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
			must(t, err)
			_, err = outside.Exec("VACUUM INTO '" + filepath.Join(t.TempDir(), "copy") + "'")
			must(t, err, outside.Close())
			time.Sleep(lookEvery)
		}
		if n := len(receiveAll(t, q)); n != 20 {
			t.Errorf("%d messages, want 20", n)
		}
	})
}

func TestAStartWithoutItsFileAsksAboutTheCopyOfIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.db")
	saved := rescueName(path, time.Now())
	must(t, os.WriteFile(saved, nil, 0o600))
	_, err := Open(t.Context(), path, Options{})
	if err == nil || !strings.Contains(err.Error(), saved) {
		t.Errorf("Open = %v, want it to ask about %s", err, saved)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("an empty file was made all the same")
	}
	must(t, os.Rename(saved, path))
	openFile(t, path, Options{})
}
