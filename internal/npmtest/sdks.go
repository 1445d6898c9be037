package npmtest

import (
	_ "embed"
	"os/exec"
	"strings"
	"testing"
)

var (
	//go:embed sdks/package.json
	sdksPackage []byte
	//go:embed sdks/package-lock.json
	sdksLock []byte
	//go:embed axe/package.json
	axePackage []byte
	//go:embed axe/package-lock.json
	axeLock []byte
)

// SDKs are the libraries with which users read the tables, verify webhooks and check events.
var SDKs = Tools{Name: "sdks", Package: sdksPackage, Lock: sdksLock}

// Axe looks in a browser for what would keep people from using a page.
var Axe = Tools{Name: "axe", Package: axePackage, Lock: axeLock}

// Run runs a script of Node that may require the tools, and returns what it prints. input is its standard input.
func (t Tools) Run(tb testing.TB, script, input string) string {
	tb.Helper()
	dir := t.InstallFor(tb)
	node, err := Node()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), node, "-e", script) //nolint:gosec // the script is the test's own
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%v\n%s", err, complaints.String())
	}
	return string(out)
}
