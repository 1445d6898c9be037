//go:build linux || darwin

package sqlite

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pushlease/pushlease/queue"
)

func TestWhatKeepsAFileFromBeingWrittenIsNamedBeforeAStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.db")
	for name, tt := range map[string]struct {
		readOnly string
		left     uint64 // blocks of 4 KiB
		want     error
		text     string
	}{
		"nothing":       {"", 1 << 20, nil, ""},
		"the disk":      {"", 100, queue.ErrFull, "400 KiB are left"},
		"its directory": {filepath.Dir(path), 1 << 20, queue.ErrDenied, filepath.Dir(path) + ": read-only file system"},
		"the file":      {path, 1 << 20, queue.ErrDenied, path + ": read-only file system"},
	} {
		t.Run(name, func(t *testing.T) {
			access := func(name string, _ uint32) error {
				if name == tt.readOnly {
					return unix.EROFS
				}
				return unix.Access(name, unix.W_OK)
			}
			statfs := func(_ string, s *unix.Statfs_t) error { s.Blocks, s.Bavail, s.Bsize = 1000, tt.left, 4096; return nil }
			err := explain(path, obstacle(t.Context(), path, access, statfs))
			if !errors.Is(err, tt.want) || tt.want != nil && (!strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), path)) {
				t.Errorf("%v, want %v with %q", err, tt.want, tt.text)
			}
		})
	}
}

const obstacleOf = "PUSHLEASE_TEST_OBSTACLE_OF"

// The test's binary is the other process too: a lock of one's own is none.
func TestALockThatStaysIsToldBeforeAStart(t *testing.T) {
	if path := os.Getenv(obstacleOf); path != "" {
		t.Logf("obstacle: %v", Obstacle(t.Context(), path))
		return
	}
	t.Parallel()
	for name, script := range map[string]struct{ takes, ends string }{
		"a transaction that writes":     {"BEGIN IMMEDIATE", "ROLLBACK"},
		"a program that has it for own": {"PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; INSERT INTO queues (name) VALUES ('own'); COMMIT", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openFile(t, filepath.Join(t.TempDir(), "p.db"), Options{})
			told := func() string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestALockThatStaysIsToldBeforeAStart$", "-test.v")
				cmd.Env = append(os.Environ(), obstacleOf+"="+db.path)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				return string(out)
			}
			if text := told(); !strings.Contains(text, "obstacle: <nil>") {
				t.Errorf("of a server without work: %s", text)
			}
			if err := db.writer.conn.script(script.takes); err != nil {
				t.Fatal(err)
			}
			if text := told(); !strings.Contains(text, "another process keeps it locked: end what holds "+db.path) || !strings.Contains(text, fmt.Sprintf("process %d has it locked", os.Getpid())) {
				t.Errorf("of a lock that stays: %s", text)
			}
			if script.ends == "" {
				return
			}
			if err := db.writer.conn.script(script.ends); err != nil {
				t.Fatal(err)
			}
			if text := told(); !strings.Contains(text, "obstacle: <nil>") {
				t.Errorf("after it: %s", text)
			}
		})
	}
}
