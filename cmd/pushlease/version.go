package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set when a release is linked.
var version = ""

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
				return o.value(cmd, struct {
					Version string `json:"version"`
					Go      string `json:"go"`
				}{buildVersion(), runtime.Version()})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "pushlease %s (%s)\n", buildVersion(), runtime.Version())
			return err
		},
	}
	o.addFlag(cmd)
	return cmd
}
