//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// readInBackground lets a job in the background of a terminal read its standard input: it gets an error. Without this the system stops the
// process, with all that it serves.
func readInBackground() { signal.Ignore(syscall.SIGTTIN) }
