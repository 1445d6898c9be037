package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// isTerminal reports whether someone types what is read from the stream, or reads what is written to it. The null
// device is no terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}

// confirm asks on the terminal; an answer that is no yes ends the command, which says that nothing was done.
func confirm(cmd *cobra.Command, question, nothing string) error {
	_, _ = fmt.Fprint(cmd.ErrOrStderr(), question+" [y/N] ") // who can't read it does not answer it either
	line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	_, _ = fmt.Fprintln(cmd.ErrOrStderr(), nothing)
	return silentError{}
}
