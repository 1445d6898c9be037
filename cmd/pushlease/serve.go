package main

import (
	"context"
	"io"
	"log" //nolint:depguard // to silence it
	"os"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/internal/app"
	"github.com/pushlease/pushlease/internal/config"
)

func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server: dispatch messages and serve the REST API",
		Long: `Receives from every queue that has an enabled webhook, delivers, settles, and serves
the REST API. Webhooks are registered while it runs; nothing needs a restart.

Settings come from flags, then PUSHLEASE_* variables, then a YAML file, then the
defaults. Without storage settings everything is kept in pushlease.db in the current
folder. Without API keys only requests from this machine are served.

The log is on standard error: text on a terminal, JSON lines elsewhere (--log-format).
The first SIGTERM or Ctrl-C stops receiving and finishes what is in flight within
--drain; the second one ends the process at once. Neither loses a message.`,
		Example: `  pushlease serve --dev
  PUSHLEASE_STORAGE=azure:myaccount pushlease serve
  PUSHLEASE_STORAGE=UseDevelopmentStorage=true pushlease serve --dev
  pushlease serve --config /etc/pushlease.yaml --listen 0.0.0.0:8080`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(cmd.Flags(), os.Environ())
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg)
		},
	}
	config.AddFlags(cmd.Flags())
	return cmd
}

func serve(ctx context.Context, cfg config.Config) error {
	// net/http prints bytes that a peer sends unasked, which may be anything, through
	// the standard logger. Nothing of ours uses that one.
	log.SetOutput(io.Discard)
	a, err := app.New(ctx, cfg, app.Options{Version: buildVersion(), LogOutput: os.Stderr})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
