package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// C49: the file is taken away under the running process. Nothing is accepted any more, the
// reason is told everywhere, and all that was accepted is there after a restart.
func TestNothingIsLostWhenTheFileIsTakenAway(t *testing.T) {
	for name, tt := range map[string]struct {
		take func(t *testing.T, path string)
		// stay is where the messages are afterwards without the copy; empty when nowhere.
		stay func(path string) string
	}{
		"all three files are removed": {func(t *testing.T, path string) {
			removeAll(t, path, path+"-wal", path+"-shm")
		}, nil},
		"the journals are removed": {func(t *testing.T, path string) {
			removeAll(t, path+"-wal", path+"-shm")
		}, func(path string) string { return path }},
		"a copy takes its place": {func(t *testing.T, path string) {
			body, err := os.ReadFile(path)
			if err == nil {
				err = os.Rename(path, path+".old")
			}
			if err == nil {
				err = os.WriteFile(path, body, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, nil},
		"the folder is moved": {func(t *testing.T, path string) {
			if err := os.Rename(filepath.Dir(path), filepath.Dir(path)+"-moved"); err != nil {
				t.Fatal(err)
			}
		}, func(path string) string { return filepath.Join(filepath.Dir(path)+"-moved", filepath.Base(path)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(folder, "p.db")
			on := func(path string) *store {
				return &store{name: "sqlite", env: []string{"PUSHLEASE_STORAGE=sqlite:" + path}}
			}
			p := on(path).start(t)
			away := newInbox(t, receiverOptions{Answer: reply{Status: 503}})
			queue := queueName("taken")
			p.register(queue, away.url, nil)
			ids := p.publishMany(queue, 5)

			tt.take(t, path)
			waitUntil(t, 3*time.Second, func() string {
				if status, failing := p.ready(); status != http.StatusServiceUnavailable || !strings.Contains(failing["storage"], path) {
					return "readyz does not name " + path
				}
				return ""
			})
			a, err := p.try(http.MethodPost, "/api/v1/queues/"+queue+"/messages", "text/plain", "late")
			if err != nil || a.status != http.StatusServiceUnavailable || !strings.Contains(string(a.body), "taken away") {
				t.Errorf("publish: %v, %d %s, want 503 and why", err, a.status, a.body)
			}
			p.terminate()
			p.ended(30 * time.Second)
			told := 0
			for _, line := range p.log.lines() {
				if strings.Contains(line.Msg, "storage can't be used") {
					told++
				}
			}
			saved, err := filepath.Glob(path + ".rescued-*Z")
			if err != nil || len(saved) != 1 || told < 1 || told > 2 || !strings.Contains(p.log.String(), saved[0]) {
				t.Fatalf("copies %v, told %d times\n%s", saved, told, p.log.String())
			}
			from := []string{saved[0]}
			if tt.stay != nil {
				from = append(from, tt.stay(path))
			}
			for _, path := range from {
				again := on(path).start(t)
				for _, id := range ids {
					if _, err := again.timeline(queue, id); err != nil {
						t.Errorf("%s after the restart from %s: %v", id, path, err)
					}
				}
				var q struct{ Depth struct{ Total int } }
				again.call(http.MethodGet, "/api/v1/queues/"+queue, "", http.StatusOK, &q)
				if q.Depth.Total != len(ids) {
					t.Errorf("%d messages are on the queue of %s, want %d", q.Depth.Total, path, len(ids))
				}
				again.terminate()
				again.ended(30 * time.Second)
			}
		})
	}
}

func removeAll(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
