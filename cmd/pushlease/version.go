package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version, commit and date are set when a release is linked, where the Go tool sees no repository.
var version, commit, date string

// builtFrom is the commit of this build and its time, as far as they are known; a plus says that files were changed.
func builtFrom() (string, string) {
	from, at, changed := commit, date, ""
	info, _ := debug.ReadBuildInfo()
	if info == nil || from != "" {
		return from, at
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			from = s.Value
		case s.Key == "vcs.time":
			at = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	if from == "" {
		return "", ""
	}
	return from + changed, at
}

// built is builtFrom in a few words, behind the version.
func built() string {
	from, at := builtFrom()
	if from == "" {
		return ""
	}
	sign := ""
	if strings.HasSuffix(from, "+") {
		sign = "+"
	}
	text := ", commit " + from[:min(len(from), 12)]
	if len(from) > 12 {
		text += sign
	}
	if at != "" {
		text += " of " + at
	}
	return text
}

// buildVersion names this build: the release, or what the Go tool recorded.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "dev"
	}
	return info.Main.Version
}

// addVersionFlag gives a group the flag --version, which goes before all else. Cobra's own
// would print other words, but for a template (see printUsage).
func addVersionFlag(cmd *cobra.Command) {
	asked := cmd.Flags().BoolP("version", "v", false, "version for "+cmd.Name())
	otherwise := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*asked {
			return otherwise(cmd, args)
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", cmd.Name(), buildVersion()); err != nil {
			return fmt.Errorf("print the version: %w", err)
		}
		return nil
	}
}

func newVersionCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  pushlease version\n  pushlease version -o json",
		Args:    arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.json() {
				from, at := builtFrom()
				return o.value(cmd, struct {
					Version string `json:"version"`
					Commit  string `json:"commit,omitempty"`
					Date    string `json:"date,omitempty"`
					Go      string `json:"go"`
				}{buildVersion(), from, at, runtime.Version()})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "pushlease %s (%s%s)\n", buildVersion(), runtime.Version(), built())
			return err
		},
	}
	o.addFlag(cmd)
	return cmd
}
