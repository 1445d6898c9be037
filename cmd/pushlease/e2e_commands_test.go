package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// runBinary runs one command of the program to its end in an empty folder.
func runBinary(t *testing.T, env []string, args ...string) (r result, dir string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	dir = t.TempDir()
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, environment(env...), &out, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{out.String(), stderr.String(), cmd.ProcessState.ExitCode()}, dir
}

func TestDemoEndsAsItShould(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	r, _ := runBinary(t, []string{"TMPDIR=" + temporary}, "demo", "--exit")
	if r.code != exitOK || !strings.Contains(r.out, "Everything ended as it should") {
		t.Errorf("code %d:\n%s%s", r.code, r.out, r.err)
	}
	for _, s := range demoScenes() {
		if !strings.Contains(r.out, s.queue) {
			t.Errorf("the summary leaves out %s:\n%s", s.queue, r.out)
		}
	}
	last := -1.0
	for _, m := range regexp.MustCompile(`(?m)^ +([0-9.]+)s  \w+ .*$`).FindAllStringSubmatch(r.out, -1) {
		at, err := strconv.ParseFloat(m[1], 64)
		if err != nil || at < last {
			t.Errorf("not in order of time (%v): %s\n%s", err, m[0], r.out)
		}
		last = at
	}
	if last < 7 {
		t.Errorf("the slow attempt was told at %vs, want it when it has ended:\n%s", last, r.out)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("the demo left %v behind (%v)", left, err)
	}
}

func TestDoctorCreatesNothing(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		r, dir := runBinary(t, nil, "doctor", "--listen", "127.0.0.1:0", "-o", "json")
		if r.code != exitOK {
			t.Errorf("code %d: %s%s", r.code, r.out, r.err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("the doctor made %v (%v)", left, err)
		}
	})
	t.Run("azurite", func(t *testing.T) {
		t.Parallel()
		s := faultyStore(t)
		r, _ := runBinary(t, s.env, "doctor", "--listen", "127.0.0.1:0", "-o", "json")
		if r.code != exitOK {
			t.Errorf("code %d: %s%s", r.code, r.out, r.err)
		}
		requests := s.proxy.Requests()
		if len(requests) == 0 {
			t.Error("storage was not asked")
		}
		for _, q := range requests {
			if q.Method != "GET" || q.Operation == "receive" {
				t.Errorf("the doctor asked for %s %s", q.Method, q.Path)
			}
		}
		s.proxy.Down()
		r, _ = runBinary(t, s.env, "doctor", "--listen", "127.0.0.1:0", "-o", "json")
		var report struct {
			OK       bool
			Findings []finding
		}
		if err := json.Unmarshal([]byte(r.out), &report); err != nil || report.OK || r.code != exitFailed {
			t.Errorf("with storage away: code %d, %v: %s%s", r.code, err, r.out, r.err)
		}
		for _, text := range []string{r.out, r.err} {
			if strings.Contains(text, s.account.Key) {
				t.Error("the doctor tells the account's key")
			}
		}
	})
}

func TestServeRefusesToStart(t *testing.T) {
	t.Parallel()
	notADatabase := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(notADatabase, []byte(strings.Repeat("these are notes, not a database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	const key = "c2VzYW1lIG9wZW4gc2VzYW1lIG9wZW4="
	for _, tt := range []struct {
		name string
		env  []string
		code int
		says []string
	}{
		{"on all addresses without keys", []string{"PUSHLEASE_LISTEN=0.0.0.0:0"}, exitUsage, []string{"listen", "api_keys", "127.0.0.1"}},
		{"on a public IPv6 address without keys", []string{"PUSHLEASE_LISTEN=[::]:0"}, exitUsage, []string{"listen", "api_keys"}},
		{"with an unknown setting", []string{"PUSHLEASE_LEESE=2s"}, exitUsage, []string{"PUSHLEASE_LEESE", "PUSHLEASE_LEASE"}},
		{"with three mistakes", []string{"PUSHLEASE_LEASE=1s", "PUSHLEASE_CONCURRENCY=0", "PUSHLEASE_DRAIN=never"}, exitUsage,
			[]string{"lease", "concurrency", "drain"}},
		{"with half a connection string", []string{"PUSHLEASE_STORAGE=AccountName=a;AccountKey=" + key}, exitUsage, []string{"storage"}},
		{"on a file that is no database", []string{"PUSHLEASE_STORAGE=sqlite:" + notADatabase}, exitFailed, []string{"notes.txt", "database"}},
		{"in a folder that is not there", []string{"PUSHLEASE_STORAGE=sqlite:/does/not/exist/x.db"}, exitFailed, []string{"/does/not/exist", "create"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, dir := runBinary(t, append([]string{"PUSHLEASE_LISTEN=127.0.0.1:0"}, tt.env...), "serve")
			if r.code != tt.code {
				t.Errorf("code %d, want %d: %s", r.code, tt.code, r.err)
			}
			for _, text := range tt.says {
				if !strings.Contains(r.err, text) {
					t.Errorf("the message does not say %q: %s", text, r.err)
				}
			}
			if strings.Contains(r.err, key) || strings.Contains(r.err, "goroutine") {
				t.Errorf("the message says too much: %s", r.err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("it made %v (%v)", left, err)
			}
		})
	}
}
