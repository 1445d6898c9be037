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
