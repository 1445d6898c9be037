// Command pushlease leases messages from Azure Storage Queues and POSTs them to
// webhooks, and talks to a pushlease server.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/internal/config"
)

// The exit codes, which scripts rely on.
const (
	exitOK       = 0
	exitFailed   = 1 // it was tried and did not work
	exitUsage    = 2 // it was asked for wrongly, or the configuration is wrong
	exitNotFound = 3 // there is no such thing
	exitRefused  = 4 // the server refused it: not valid, not allowed, or changed since
	exitChanged  = 5 // it worked and changed something, where that was asked for
)

func main() {
	// The first signal ends ctx, so that work in hand can be finished; with stop
	// called, the second one has its usual effect and ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := run(ctx, newRootCommand(), hostedArgs(os.Args[1:], os.Getenv), os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil && isGroup(cmd) && cmd.Flags().NArg() > 0 { // its help was shown for a word that is no command
		err = unknownCommand(cmd, cmd.Flags().Arg(0))
	}
	var silent silentError
	var restart restartError
	var changed changedError
	var several severalError
	switch {
	case err == nil || !errors.As(err, &several) && (errors.As(err, &changed) || errors.As(err, &silent) || errors.As(err, &restart)):
	case wantsJSON(args):
		failure := failureJSON{Error: err.Error(), ExitCode: exitCode(err)}
		_ = errors.As(err, &failure.Answer)
		_ = writeJSON(stderr, failure)
	default:
		_, _ = fmt.Fprintln(stderr, "pushlease: "+clean(err.Error()))
	}
	return exitCode(err)
}

// failureJSON is an error for programs; Answer is what the server said.
type failureJSON struct {
	Error    string    `json:"error"`
	ExitCode int       `json:"exit_code"`
	Answer   *apiError `json:"answer,omitempty"`
}

// wantsJSON reports whether -o json is among args, also where they can't be parsed.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch arg {
		case "--":
			return false
		case "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			return i+1 < len(args) && args[i+1] == "json"
		}
	}
	return false
}

// usageError is a command line that makes no sense.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// silentError fails without a further word: the output says it all.
type silentError struct{}

func (silentError) Error() string { return "failed" }

// changedError is no failure: it says by the exit code that something changed.
type changedError struct{}

func (changedError) Error() string { return "something changed" }

func exitCode(err error) int {
	var changed changedError
	var usage usageError
	var configuration *config.Error
	var api *apiError
	var restart restartError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage), errors.As(err, &configuration):
		return exitUsage
	case errors.As(err, &api):
		return api.exitCode()
	case errors.As(err, &restart):
		return exitRestart
	case errors.As(err, &changed):
		return exitChanged
	}
	return exitFailed
}
