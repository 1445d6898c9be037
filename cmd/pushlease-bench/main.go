// Command pushlease-bench measures a pushlease server, and in the same run what the
// same machine, receiver and storage can do without it: every figure is a ratio.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// roles are what the program is when it starts itself: each measured part is a process
// of its own, so that none shares a scheduler or a garbage collector with another.
var roles = map[string]func(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error{
	"receive": receiveRole,
	"post":    postRole,
	"consume": consumeRole,
	"retry":   retryRole,
	"standin": standinRole,
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	err := dispatch(ctx, args, stdin, stdout)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(stderr, "pushlease-bench: %v (see pushlease-bench --help)\n", err)
		return exitUsage
	}
	_, _ = fmt.Fprintln(stderr, "pushlease-bench:", err)
	return exitFailed
}

func dispatch(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) > 0 {
		if role, ok := roles[args[0]]; ok {
			return role(ctx, args[1:], stdin, stdout)
		}
	}
	o, err := parseOptions(args)
	switch {
	case err != nil:
		return err
	case o.help:
		_, err = io.WriteString(stdout, help+o.flags)
		return err
	case len(o.compare) > 0:
		return compare(stdout, o.compare[0], o.compare[1])
	}
	return measure(ctx, o, stdout)
}

// usageError is a command line that makes no sense.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }
