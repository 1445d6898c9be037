package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagColumns is where the lines about flags are broken.
const flagColumns = 100

// printUsage prints what cobra prints, with the lines about flags broken. It is no template,
// nor may another be set: text/template calls methods by their names, which makes the linker
// keep those of all types, 3 MB that nobody calls.
func printUsage(cmd *cobra.Command) error {
	inherited := cmd.InheritedFlags() // first, since it adds them to the command's own
	var s strings.Builder
	s.WriteString("Usage:")
	if cmd.Runnable() {
		s.WriteString("\n  " + cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		s.WriteString("\n  " + cmd.CommandPath() + " [command]")
	}
	if len(cmd.Aliases) > 0 {
		s.WriteString("\n\nAliases:\n  " + cmd.NameAndAliases())
	}
	if cmd.HasExample() {
		s.WriteString("\n\nExamples:\n" + cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		s.WriteString("\n\nAvailable Commands:")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() || c.Name() == "help" {
				fmt.Fprintf(&s, "\n  %-*s %s", c.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	writeFlags(&s, "Flags", cmd.LocalFlags())
	writeFlags(&s, "Global Flags", inherited)
	if cmd.HasAvailableSubCommands() {
		s.WriteString("\n\nUse \"" + cmd.CommandPath() + " [command] --help\" for more information about a command.")
	}
	s.WriteString("\n")
	if _, err := io.WriteString(cmd.OutOrStderr(), s.String()); err != nil {
		return fmt.Errorf("print the usage: %w", err)
	}
	return nil
}

func writeFlags(s *strings.Builder, title string, flags *pflag.FlagSet) {
	if flags.HasAvailableFlags() {
		s.WriteString("\n\n" + title + ":\n" + strings.TrimRightFunc(flags.FlagUsagesWrapped(flagColumns), unicode.IsSpace))
	}
}
