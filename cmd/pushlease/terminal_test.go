//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// newTerminal is a terminal on which a line was typed already; what a command reads of it is that line.
func newTerminal(t *testing.T, line string) *os.File {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	if _, err := io.WriteString(keyboard, line+"\n"); err != nil {
		t.Fatal(err)
	}
	return screen
}

// executeOn runs a command line whose standard input is in.
func executeOn(t *testing.T, in *os.File, args ...string) result {
	t.Helper()
	var out, stderr bytes.Buffer
	root := newRootCommand()
	root.SetIn(in)
	root.SetOut(&out)
	root.SetErr(&stderr)
	return result{code: run(t.Context(), root, args, &stderr), out: out.String(), err: stderr.String()}
}

// What deletes asks on a terminal, and does nothing without a yes.
func TestWhatDeletesAsksOnATerminal(t *testing.T) {
	file := writeFile(t, t.TempDir(), "webhooks.yaml", "webhooks: []\n")
	for _, c := range []struct{ args, question, deletion string }{
		{"webhooks delete wh_1", "This deletes the webhook wh_1.", "DELETE /api/v1/webhooks/wh_1"},
		{"apply --prune -f " + file, "This deletes 1 webhook: wh_1.", "DELETE /api/v1/webhooks/wh_1"},
		{"dead-letters purge --queue orders", "This deletes 10 dead letters for good; of all that match, 7 were never replayed.", "POST " + purgePath},
	} {
		for answer, agreed := range map[string]bool{"y": true, " Yes ": true, "n": false, "": false, "yess": false} {
			f := newFakeAPI(t, map[string]canned{
				"DELETE /api/v1/webhooks/wh_1":    {204, ""},
				"GET /api/v1/webhooks/wh_1":       {200, webhookJSON},
				"GET /api/v1/webhooks":            {200, `{"data":[` + webhookJSON + `],"next_cursor":null}`},
				"POST /api/v1/dead-letters/purge": {200, `{"dry_run":true,"matched":12,"exact":true,"purged":0,"kept":2,"never_replayed":7,"next_cursor":null}`},
			})
			r := executeOn(t, newTerminal(t, answer), strings.Fields(c.args)...)
			deleted := slices.ContainsFunc(f.requests, func(r recorded) bool {
				return r.line == c.deletion && !strings.Contains(r.body, `"dry_run":true`)
			})
			if deleted != agreed || (r.code == exitOK) != agreed || !strings.Contains(r.err, c.question) || strings.Contains(r.err, "Nothing was ") == agreed {
				t.Errorf("%s, answered %q: code %d, deleted %t: %s", c.args, answer, r.code, deleted, r.err)
			}
		}
	}
}

// The null device is no terminal: nobody is asked there.
func TestWhereNobodyCanBeAskedNothingIsPruned(t *testing.T) {
	f := newFakeAPI(t, map[string]canned{
		"GET /api/v1/webhooks/wh_1": {200, webhookJSON}, "GET /api/v1/webhooks": {200, `{"data":[` + webhookJSON + `],"next_cursor":null}`},
	})
	nobody, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nobody.Close() }()
	file := writeFile(t, t.TempDir(), "webhooks.yaml", "webhooks: []\n")
	r := executeOn(t, nobody, "apply", "--prune", "-f", file)
	if r.code != exitUsage || !strings.Contains(r.err, "nothing was written: --prune would delete 1 webhook, and there is no terminal to ask on; look with --dry-run, then say --yes") || strings.Contains(r.err, "Go on?") {
		t.Errorf("%d: %s%s", r.code, r.out, r.err)
	}
	if slices.ContainsFunc(f.requests, func(r recorded) bool { return strings.HasPrefix(r.line, "DELETE") }) {
		t.Errorf("sent %v", f.requests)
	}
}
