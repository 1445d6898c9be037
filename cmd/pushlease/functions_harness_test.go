package main

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/functions/hosttest"
	"github.com/pushlease/pushlease/internal/app"
	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/queue/azurequeue"

	"github.com/pushlease/pushlease/internal/azureconn"
)

// packaged is the folder of an unpacked package with the program of these tests. It is
// made without the zip, whose packing is most of the work.
func packaged(t *testing.T, queues ...string) (root string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	files, err := app.FunctionsPackage(queues)
	if err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, text, modeFile)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(path, filepath.Join(root, app.FunctionsExecutable)); err != nil {
		t.Fatal(err)
	}
	return root
}

// unzipped makes a package with the program of these tests and unpacks it into an empty
// folder, with the modes that it has in the zip.
func unzipped(t *testing.T, queues ...string) (root string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "app.zip")
	args := []string{"functions", "package", "--binary", path, "--out", out}
	for _, q := range queues {
		args = append(args, "--queue", q)
	}
	if text, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("package: %v: %s", err, text)
	}
	root = t.TempDir()
	unzip(t, out, root)
	return root
}

func unzip(t *testing.T, file, root string) {
	t.Helper()
	z, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		path := filepath.Join(root, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		// A process that is forked while a program is being written keeps it from being
		// started (golang/go#22315).
		syscall.ForkLock.RLock()
		err = os.WriteFile(path, text, f.Mode())
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// quickly makes an unpacked app quick enough for tests: change sees its host.json.
func quickly(t *testing.T, root string, change func(host map[string]any)) {
	t.Helper()
	path := filepath.Join(root, "host.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var host map[string]any
	if err := json.Unmarshal(text, &host); err != nil {
		t.Fatal(err)
	}
	queues := host["extensions"].(map[string]any)["queues"].(map[string]any)
	queues["maxPollingInterval"], queues["visibilityTimeout"] = "00:00:00.2", "00:00:01"
	if change != nil {
		change(host)
	}
	if text, err = json.Marshal(host); err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

const functionsToken = "token-of-the-functions-tests"

// hosting is the program under the fake host, seen through the HTTP trigger.
type hosting struct {
	*process
	host *hosttest.Host
}

// startHosted runs an unpacked app. Its log is checked when the test ends.
func startHosted(t *testing.T, root string, o hosttest.Options, settings ...string) *hosting {
	t.Helper()
	sum := sha256.Sum256([]byte(functionsToken))
	o.Root = root
	o.Env = append([]string{
		"PUSHLEASE_DEV=true", "PUSHLEASE_REGISTRY_REFRESH=1s", "PUSHLEASE_TABLE_PREFIX=" + azuritetest.Name("fn"),
		"PUSHLEASE_API_KEYS=test:admin+operate+publish:" + hex.EncodeToString(sum[:]),
	}, settings...)
	if o.Storage == "" {
		o.Storage = emulator(t).ConnectionString()
	}
	hideFromLogs(emulator(t).Key)
	h := hosttest.Start(t, o)
	p := &process{t: t, url: h.URL(), log: &logBuffer{changed: make(chan struct{}, 1)}, header: http.Header{}}
	p.header.Set("Authorization", "Bearer "+functionsToken)
	p.header.Set("X-Functions-Key", hosttest.FunctionKey)
	hideFromLogs(functionsToken)
	hideFromLogs(hosttest.FunctionKey)
	t.Cleanup(func() {
		h.Stop()
		stdout, stderr := h.Log()
		if err := h.Stopped(); err != nil {
			t.Errorf("the host has stopped: %v", err)
		}
		for line := range strings.SplitSeq(strings.TrimSpace(stdout), "\n") {
			if line != "" && !json.Valid([]byte(line)) {
				t.Errorf("standard output has a line that is no JSON: %s", line)
			}
		}
		if stderr != "" {
			t.Errorf("standard error, which the host shows as errors: %s", stderr)
		}
		_, _ = p.log.Write([]byte(stdout + stderr))
		p.checkLog()
	})
	return &hosting{p, h}
}

// waitUp waits until the program serves: it lets a request wait for half of a function timeout only, and a busy machine
// may take longer from the start of a process to there.
func (h *hosting) waitUp() {
	h.t.Helper()
	waitUntil(h.t, time.Minute, func() string {
		if a, err := h.try(http.MethodGet, "/api/v1/healthz", "", ""); err != nil || a.status != http.StatusOK {
			return "not up"
		}
		return ""
	})
}

// register registers as soon as the program serves.
func (h *hosting) register(queueName, target string, more map[string]any) hook {
	h.t.Helper()
	h.waitUp()
	return h.process.register(queueName, target, more)
}

// accountQueue is a queue of the emulator, past the program.
func accountQueue(t *testing.T, name string) queue.Queue {
	t.Helper()
	conn, err := azureconn.Parse(emulator(t).ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	s, err := azurequeue.Open(conn, azurequeue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	q, err := s.Queue(name)
	if err != nil {
		t.Fatal(err)
	}
	return q
}
