package sqlite

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pushlease/pushlease/queue"
)

func TestFileIsForItsOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	db := openFile(t, path, Options{})
	mustSend(t, mustQueue(t, db), "a", queue.SendOptions{})
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("test.db%s has mode %o, want 600", suffix, mode)
		}
	}
}

func TestFileIsDurable(t *testing.T) {
	db := openNew(t)
	var journal string
	var synchronous int
	if err := db.writer.conn.row("PRAGMA journal_mode", nil, &journal); err != nil {
		t.Fatal(err)
	}
	if err := db.writer.conn.row("PRAGMA synchronous", nil, &synchronous); err != nil {
		t.Fatal(err)
	}
	if journal != "wal" || synchronous != 2 {
		t.Errorf("journal_mode = %s, synchronous = %d, want wal and 2 (FULL)", journal, synchronous)
	}
}

func TestOddPathsAndReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c#d%20'ü.db")
	db := openFile(t, path, Options{})
	mustSend(t, mustQueue(t, db), "kept", queue.SendOptions{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	wantVisible(t, mustQueue(t, openFile(t, path, Options{})), "after it was opened again", 1)
}

func TestManyOpenANewFileTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			db, err := Open(t.Context(), path, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := mustQueue(t, db).Send(t.Context(), []byte("a"), queue.SendOptions{}); err != nil {
				t.Error(err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wantVisible(t, mustQueue(t, openFile(t, path, Options{})), "at the end", 8)
}

// other makes a database that another program would have made.
func other(t *testing.T, path, statements string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(statements); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name string
		path func(dir string) string
		want string
	}{
		{"empty path", func(string) string { return "" }, "name a file"},
		{"missing folder", func(dir string) string { return filepath.Join(dir, "missing", "test.db") }, "create it"},
		{"folder", func(dir string) string { return dir }, "name a file"},
		{"newer schema", func(dir string) string {
			path := filepath.Join(dir, "newer.db")
			db := openFile(t, path, Options{})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			other(t, path, fmt.Sprintf("PRAGMA user_version = %d", schemaVersion()+1))
			return path
		}, fmt.Sprintf("schema %d, this one knows %d", schemaVersion()+1, schemaVersion())},
		{"database of another program", func(dir string) string {
			path := filepath.Join(dir, "foreign.db")
			other(t, path, "CREATE TABLE messages (id INTEGER)")
			return path
		}, "another program"},
		{"no database", func(dir string) string {
			path := filepath.Join(dir, "text.db")
			if err := os.WriteFile(path, []byte(strings.Repeat("not a database\n", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}, "no SQLite database"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			db, err := Open(t.Context(), tt.path(t.TempDir()), Options{})
			if err == nil {
				_ = db.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open = %v, want an error that says %q", err, tt.want)
			}
		})
	}
}
