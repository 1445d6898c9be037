package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/pushlease/pushlease/internal/config"
	"github.com/pushlease/pushlease/queue"
)

// C81: who can't write can't serve.
func TestReadinessNamesAFaultOfTheFile(t *testing.T) {
	fault := fmt.Errorf("%w: free some space", queue.ErrFull)
	for want, err := range map[string]error{"": nil, "storage is full: free some space": fault} {
		c := storageCheck(t.Context(), func(context.Context) error { return err })
		if c.OK != (err == nil) || c.Detail != want {
			t.Errorf("%+v for %v", c, err)
		}
	}
}

func TestTheLogTellsAFaultAndItsEnd(t *testing.T) {
	var log bytes.Buffer
	tell := tellFaults(slog.New(slog.NewJSONHandler(&log, nil)))
	tell(queue.ErrFull)
	tell(nil)
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"ERROR"`) || !strings.Contains(lines[0], "full") || !strings.Contains(lines[1], `"INFO"`) {
		t.Errorf("the log says %q", lines)
	}
}

func TestCopiesOfAFileThatWasTakenAwayAreToldAtTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.db")
	saved := path + ".rescued-20270101T000000Z"
	if err := os.WriteFile(saved, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p := checkFile(t.Context(), path); p.OK || !strings.Contains(p.Detail, saved) || !strings.Contains(p.Cure, "rename it") {
		t.Errorf("without the file: %+v", p)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p := checkFile(t.Context(), path); p.OK || !strings.Contains(p.Detail, saved) {
		t.Errorf("beside the file: %+v", p)
	}
	var log bytes.Buffer
	cfg, err := config.Load(nil, []string{"PUSHLEASE_STORAGE=sqlite:" + path})
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStores(t.Context(), cfg, Outside{}, slog.New(slog.NewJSONHandler(&log, nil)), noop.Meter{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.close(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), saved) {
		t.Errorf("the log says %s", log.String())
	}
}
