package api

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
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
	x.runIn("", script, args...)
}

// runIn is run in another folder.
func (x tool) runIn(dir, script string, args ...string) {
	x.Helper()
	cmd := x.command(script, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		x.Errorf("%s: %v\n%s", script, err, out)
	}
}

func TestLintersOfOthersFindNothingInTheDocument(t *testing.T) {
	x := tools(t)
	x.run("@redocly/cli/bin/cli.js", "lint", "--extends=recommended-strict", "openapi.yaml")
	x.run("@stoplight/spectral-cli/dist/index.js", "lint", "--fail-severity=warn", "-r", "testdata/tools/spectral.yaml", "openapi.yaml")
}

// Programs that were made of the document, by three generators, do what users do, through a proxy that holds
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
	document, err := filepath.Abs("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	base := x.prism(server.URL)
	files := map[string]string{"package.json": `{"type":"module"}`,
		"globals.d.ts":  "declare const process: { argv: string[] };\n",
		"tsconfig.json": `{"compilerOptions":{"strict":true,"target":"es2022","module":"nodenext","lib":["es2022","dom","dom.iterable"],"types":[]},"files":["client.ts","clients.ts","globals.d.ts"]}`,
		"orval.mjs":     fmt.Sprintf(`export default { api: { input: %q, output: { target: "./orval.ts", client: "fetch", baseUrl: %q } } };`, document, base),
		"hey.mjs":       fmt.Sprintf(`export default { input: %q, output: { path: "./hey", module: { extension: ".js" }, tsConfigPath: "./tsconfig.json" } };`, document),
	}
	for _, name := range []string{"client.ts", "clients.ts"} {
		program, err := os.ReadFile(filepath.Join("testdata/tools", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(program)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	x.runIn(dir, "openapi-typescript/bin/cli.js", document, "-o", "schema.d.ts")
	x.runIn(dir, "orval/dist/bin/orval.js", "--config", "orval.mjs")
	x.runIn(dir, "@hey-api/openapi-ts/bin/run.js", "-f", "hey.mjs", "--no-log-file")
	x.runIn(dir, "typescript/bin/tsc", "-p", ".")
	if t.Failed() {
		return
	}
	node, err := npmtest.Node()
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"client.js", "clients.js"} {
		if out, err := exec.CommandContext(t.Context(), node, filepath.Join(dir, program), base, "admin").CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", program, err, out)
		}
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
