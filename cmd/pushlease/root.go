package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rootLong = `pushlease leases messages from Azure Storage Queues, POSTs each to the webhooks
registered for its queue while it holds the lease, and settles the message by the
answer: complete, abandon with a delay, or dead-letter.

Without any configuration it keeps everything in one embedded database file.

Exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 3 not found, 4 refused
by the server. With -o json errors are JSON on standard error too.`

const rootExample = `  # See it work, with nothing to set up
  pushlease demo

  # Three terminals: a server, a receiver, and a message
  pushlease serve --dev
  pushlease listen --port 9000
  pushlease webhooks create --queue orders --url http://127.0.0.1:9000/
  pushlease send orders '{"order": 1}'

  # What happened to a message, and what happens next?
  pushlease messages show MESSAGE-ID --watch

  # Webhooks as a file under version control
  pushlease export > exported.yaml
  pushlease apply -f webhooks.yaml

  # How much waits, what webhooks answered, and who would take a message
  pushlease queues list
  pushlease attempts --status 5xx
  pushlease match orders '{"order": 1}'

  # What happens now, and who changed what
  pushlease stream --queue orders
  pushlease audit --since 24h

  # What was given up, and try it again
  pushlease dead-letters list --queue orders
  pushlease dead-letters replay DEAD-LETTER-ID

  # On an Azure Storage account
  PUSHLEASE_STORAGE='azure:myaccount' pushlease doctor
  PUSHLEASE_STORAGE='azure:myaccount' pushlease serve`

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "pushlease",
		Short:         "Push messages of Azure Storage Queues to webhooks",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true, // run prints them once
		SilenceUsage:  true,
	}
	root.SetUsageFunc(printUsage)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%s (see %s --help)", flagFault(err), cmd.CommandPath())
	})
	group(root)
	addVersionFlag(root)
	root.AddCommand(
		newServeCommand(),
		newDemoCommand(),
		newSendCommand(),
		newListenCommand(),
		newTriggerCommand(),
		newWebhooksCommand(),
		newApplyCommand(),
		newExportCommand(),
		newDeadLettersCommand(),
		newMessagesCommand(),
		newQueuesCommand(),
		newInstancesCommand(),
		newAttemptsCommand(),
		newStreamCommand(),
		newStatsCommand(),
		newAuditCommand(),
		newMatchCommand(),
		newDoctorCommand(checkStorage),
		newFunctionsCommand(),
		newAPIKeyCommand(),
		newContextCommand(),
		newVersionCommand(),
	)
	completeAll(root)
	return root
}

// flagFault says what is to be written where strconv's words would be all.
func flagFault(err error) string {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err.Error()
	}
	want := map[string]string{
		"int": "a whole number; write one such as 8", "float64": "a number; write one such as 50 or 0.5",
		"duration": "a duration; write a number and a unit, such as 500ms, 30s or 1h30m", "bool": "true or false",
	}[invalid.GetFlag().Value.Type()]
	if want == "" {
		return err.Error()
	}
	return fmt.Sprintf("--%s: %q is not %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}

// group makes cmd a command that only has sub-commands: alone it shows its help,
// and a word that is none of them is refused with what was probably meant.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.Annotations = map[string]string{"group": "true"}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
	return cmd
}

func isGroup(cmd *cobra.Command) bool { return cmd.Annotations["group"] != "" }

// unknownCommand says what was probably meant, or what there is.
func unknownCommand(cmd *cobra.Command, word string) error {
	if cmd.SuggestionsMinimumDistance == 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		// Most slips are behind the first letter.
		slices.SortStableFunc(near, func(a, b string) int { return cmp.Compare(other(a, word), other(b, word)) })
		return usagef("%s has no command %q; did you mean %s?", cmd.CommandPath(), word, strings.Join(near, " or "))
	}
	var there []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			there = append(there, c.Name())
		}
	}
	return usagef("%s has no command %q; it has %s (see %s --help)", cmd.CommandPath(), word, strings.Join(there, ", "), cmd.CommandPath())
}

// other is 0 where two words begin with the same letter, and else 1.
func other(a, b string) int {
	if a != "" && b != "" && a[0] == b[0] {
		return 0
	}
	return 1
}

// arguments takes least to most arguments, named in the error.
func arguments(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) >= least && len(args) <= most:
			return nil
		case most == 0:
			return usagef("%s takes no arguments, only flags (see %s --help)", cmd.CommandPath(), cmd.CommandPath())
		}
		return usagef("%s needs %s (see %s --help)", cmd.CommandPath(), names, cmd.CommandPath())
	}
}
