package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// What calls methods by their names makes the linker keep all of them.
func TestTheLinkerLeavesUnusedMethodsOut(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(program, []byte("main.newRootCommand")) {
		t.Fatal("the binary does not name its functions: look for them otherwise")
	}
	for _, name := range []string{"text/template.(*state).evalField", "html/template.(*Template).Execute", "golang.org/x/net/trace."} {
		if bytes.Contains(program, []byte(name)) {
			t.Errorf("the binary has %s: which import or call brings it? (go build -ldflags=-dumpdep)", name)
		}
	}
}

// The usage is cobra's own, but for the width of the lines about flags.
func TestUsageSaysWhatCobraSays(t *testing.T) {
	t.Parallel()
	cobras := usagesOf(t, func(root *cobra.Command) {
		root.SetUsageFunc(nil)
		root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 100 "))
	})
	ours := usagesOf(t, func(*cobra.Command) {})
	if len(ours) < 30 || len(ours) != len(cobras) {
		t.Fatalf("%d commands, and %d of cobra", len(ours), len(cobras))
	}
	for path, want := range cobras {
		if ours[path] != want {
			t.Errorf("usage of %s:\n%s\ncobra says:\n%s", path, ours[path], want)
		}
	}
}

// usagesOf gives the usage of every command by its path.
func usagesOf(t *testing.T, change func(root *cobra.Command)) map[string]string {
	t.Helper()
	root := newRootCommand()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	change(root)
	usages := map[string]string{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		usages[cmd.CommandPath()] = cmd.UsageString()
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(root)
	return usages
}

func TestTheFlagVersionGoesBeforeAllElse(t *testing.T) {
	for _, args := range [][]string{{"--version"}, {"-v"}, {"--version", "sned"}} {
		if r := execute(t, "", args...); !strings.HasPrefix(r.out, "pushlease ") || strings.Count(r.out, "\n") != 1 {
			t.Errorf("%v printed %q", args, r.out)
		}
	}
}
