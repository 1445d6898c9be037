package main

import (
	"errors"
	"io"
	"log" //nolint:depguard // to silence it
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/internal/app"
	"github.com/pushlease/pushlease/internal/config"
)

const (
	// functionsPort is set by the Functions host, and by nobody else.
	functionsPort = "FUNCTIONS_CUSTOMHANDLER_PORT"
	// functionsRoot is the deployed app's folder.
	functionsRoot = "FUNCTIONS_APP_ROOT_PATH"
)

// exitRestart asks the Functions host to start the process again. It takes 0 as "not
// needed any more" and goes on without; three of any other end the host.
const exitRestart = 200

// restartError ends the process with exitRestart, without a word: all has been logged.
type restartError struct{}

func (restartError) Error() string { return "stopped" }

func newFunctionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "functions",
		Short: "Run as an Azure Functions custom handler",
		Long: `Run by the Azure Functions host, which receives the messages and calls this process
for each. It listens on 127.0.0.1 only, at the port in FUNCTIONS_CUSTOMHANDLER_PORT, and
reads host.json and the functions from FUNCTIONS_APP_ROOT_PATH or the current folder.
Where that port is set, pushlease without a command does the same.

Storage is AzureWebJobsStorage unless storage is set. The log is JSON lines on standard
output, since the host takes standard error for errors.

Exit codes, as the host reads them: 200 asked to stop, start me again; any other, it
failed. Never 0: the host would go on without a handler.`,
		Example: `  pushlease functions package --queue orders --queue invoices
  func start`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			port := os.Getenv(functionsPort)
			if port == "" {
				return usagef("this is run by the Azure Functions host, which sets %s; to try it here run func start in the app's folder, and for a server of its own pushlease serve", functionsPort)
			}
			root := os.Getenv(functionsRoot)
			if root == "" {
				root = "."
			}
			log.SetOutput(io.Discard) // as in serve
			// The host reads what is logged here, and its end closes with it: a line more would end the process
			// in the middle of its POSTs.
			signal.Ignore(syscall.SIGPIPE)
			err := app.RunFunctions(cmd.Context(), app.FunctionsOptions{
				Options: app.Options{Version: buildVersion(), LogOutput: os.Stdout},
				Port:    port, Root: os.DirFS(root), Parent: os.Getppid,
				Getenv: func(name string) (string, bool) { return config.HostSetting(os.Environ(), name) },
				Config: func() (config.Config, error) { return config.Load(cmd.Flags(), os.Environ()) },
			})
			if errors.Is(err, app.ErrStopped) {
				return restartError{}
			}
			return err
		},
	}
	config.AddFlags(cmd.Flags())
	cmd.AddCommand(newFunctionsPackageCommand())
	return cmd
}

// hostedArgs chooses the command where the Functions host gave none.
func hostedArgs(args []string, getenv func(string) string) []string {
	if len(args) == 0 && getenv(functionsPort) != "" {
		return []string{"functions"}
	}
	return args
}
