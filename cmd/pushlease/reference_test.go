package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// task reference writes pages for man and one page of Markdown, all of the commands' help, into a folder.
var reference = flag.String("reference", "", "write the reference into this folder")

// walkCommands visits a command and all below it, in the order of the help.
func walkCommands(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			walkCommands(sub, visit)
		}
	}
}

// markdownReference is the help of all commands on one page.
func markdownReference() string {
	var text strings.Builder
	text.WriteString("# The command line\n")
	walkCommands(newRootCommand(), func(cmd *cobra.Command) {
		about := cmd.Long
		if about == "" {
			about = cmd.Short
		}
		fmt.Fprintf(&text, "\n## %s\n\n```text\n%s\n\n%s```\n", cmd.CommandPath(), about, cmd.UsageString())
	})
	return text.String()
}

// roff is a text that stands in a page for man as it is.
func roff(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.ReplaceAll(strings.ReplaceAll(line, `\`, `\e`), "-", `\-`)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// manPage is the page of one command.
func manPage(cmd *cobra.Command) (name, text string) {
	name = strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	return name + ".1", fmt.Sprintf(".TH %s 1 \"\" pushlease\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n%s\n\n%s\n.fi\n",
		strings.ToUpper(roff(name)), roff(name), roff(cmd.Short), roff(about), roff(strings.TrimSpace(cmd.UsageString())))
}

func TestEveryCommandIsInTheReference(t *testing.T) {
	folder := t.TempDir()
	if *reference != "" {
		folder = *reference
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page := markdownReference()
	write("commands.md", page)
	seen := 0
	walkCommands(newRootCommand(), func(cmd *cobra.Command) {
		name, text := manPage(cmd)
		seen++
		for line := range strings.SplitSeq(text, "\n") { // what begins with a dot and is no request of ours would be lost
			if request, _, _ := strings.Cut(line, " "); strings.HasPrefix(line, ".") && request != ".TH" && request != ".SH" && request != ".nf" && request != ".fi" {
				t.Errorf("%s: %q", name, line)
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(text, roff("--"+f.Name)) {
				t.Errorf("%s does not tell of --%s", name, f.Name)
			}
		})
		if !strings.Contains(page, "\n## "+cmd.CommandPath()+"\n") {
			t.Errorf("the page has no %s", cmd.CommandPath())
		}
		write(name, text)
	})
	if seen < 40 {
		t.Errorf("%d commands", seen)
	}
}
