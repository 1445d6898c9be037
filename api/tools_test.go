package api

import (
	"bufio"
	_ "embed"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/npmtest"
)

//go:embed testdata/tools/package.json
var toolsPackage []byte

//go:embed testdata/tools/package-lock.json
var toolsLock []byte

// tools are those that users read the document with.
func tools(t *testing.T) tool {
	t.Helper()
	return tool{t, npmtest.Tools{Name: "apitools", Package: toolsPackage, Lock: toolsLock}.InstallFor(t)}
}

// tool runs programs of the folder.
type tool struct {
	*testing.T
	dir string
}

func (x tool) command(script string, args ...string) *exec.Cmd {
	x.Helper()
	node, err := npmtest.Node()
	if err != nil {
		x.Fatal(err)
	}
	cmd := exec.CommandContext(x.Context(), node, append([]string{filepath.Join(x.dir, "node_modules", filepath.FromSlash(script))}, args...)...)
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "NO_COLOR=1")
	return cmd
}

func (x tool) run(script string, args ...string) {
	x.Helper()
	if out, err := x.command(script, args...).CombinedOutput(); err != nil {
		x.Errorf("%s: %v\n%s", script, err, out)
	}
}

func TestLintersOfOthersFindNothingInTheDocument(t *testing.T) {
	x := tools(t)
	x.run("@redocly/cli/bin/cli.js", "lint", "--extends=recommended-strict", "openapi.yaml")
	x.run("@stoplight/spectral-cli/dist/index.js", "lint", "--fail-severity=warn", "-r", "testdata/tools/spectral.yaml", "openapi.yaml")
}

// A program that was made of the document does what users do, through a proxy that holds
// every request and answer against the document.
func TestAProgramMadeOfTheDocumentDoesWhatUsersDo(t *testing.T) {
	x := tools(t)
	h := withJobs(t, withKeys)
	h.putMany("orders", 3, nil)
	server := httptest.NewServer(h.api)
	defer server.Close()

	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(x.dir, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("testdata/tools/client.ts")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"client.ts": string(program), "package.json": `{"type":"module"}`,
		"globals.d.ts":  "declare const process: { argv: string[] };\n",
		"tsconfig.json": `{"compilerOptions":{"strict":true,"target":"es2022","module":"nodenext","lib":["es2022","dom"],"types":[]},"files":["client.ts","globals.d.ts"]}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	x.run("openapi-typescript/bin/cli.js", "openapi.yaml", "-o", filepath.Join(dir, "schema.d.ts"))
	x.run("typescript/bin/tsc", "-p", dir)
	if t.Failed() {
		return
	}
	node, err := npmtest.Node()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), node, filepath.Join(dir, "client.js"), x.prism(server.URL), "admin").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// prism starts the proxy, and returns its address when it listens.
func (x tool) prism(upstream string) string {
	x.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		x.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err = errors.Join(err, l.Close()); err != nil {
		x.Fatal(err)
	}
	cmd := x.command("@stoplight/prism-cli/dist/index.js", "proxy", "--errors", "-h", "127.0.0.1", "-p", port, "openapi.yaml", upstream)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		x.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() {
		_ = cmd.Process.Kill() // nothing of it is needed
		_ = cmd.Wait()         // it was killed
	})
	listening := make(chan bool, 1)
	go func() {
		found := false
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			if !found && strings.Contains(lines.Text(), "Prism is listening") {
				found = true
				listening <- true
			}
		}
		if !found {
			listening <- false
		}
	}()
	select {
	case ok := <-listening:
		if !ok {
			x.Fatal("prism does not listen")
		}
	case <-time.After(time.Minute):
		x.Fatal("prism does not listen after a minute")
	}
	return "http://127.0.0.1:" + port
}
