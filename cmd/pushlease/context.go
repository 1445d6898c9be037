package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// contextEnv names the context for the commands of one shell.
const contextEnv = "PUSHLEASE_CONTEXT"

// userConfigDir is the folder in which programs keep what the user has set; tests have one of their own.
var userConfigDir = os.UserConfigDir

// serverContext is a server under a name. It has no key, only where one is.
type serverContext struct {
	Server string `json:"server"`
	// KeyEnv is a variable with the API key, and KeyFile a file.
	KeyEnv  string `json:"api_key_env,omitempty"`
	KeyFile string `json:"api_key_file,omitempty"`
}

// contexts are the servers that the user has named, and which of them is used.
type contexts struct {
	Current  string                   `json:"current,omitempty"`
	Contexts map[string]serverContext `json:"contexts"`
}

func (c contexts) names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }

func contextsFile() (string, error) {
	dir, err := userConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder for settings: %w", err)
	}
	return filepath.Join(dir, "pushlease", "contexts.json"), nil
}

// readContexts reads the user's file; where there is none there are no contexts.
func readContexts() (contexts, error) {
	all := contexts{Contexts: map[string]serverContext{}}
	path, err := contextsFile()
	if err != nil {
		return all, err
	}
	raw, err := os.ReadFile(path) //nolint:gosec // the user's own folder
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil {
		return all, usagef("can't read the contexts: %s: %s", path, err)
	}
	if all.Contexts == nil {
		all.Contexts = map[string]serverContext{}
	}
	return all, nil
}

// write replaces the user's file at once, so that no other command reads half of it.
func (c contexts) write() error {
	path, err := contextsFile()
	if err != nil {
		return err
	}
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the contexts: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the folder for settings: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "contexts-*")
	if err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	_, err = f.Write(append(raw, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write the contexts: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// chosenContext is the context that a name, the environment or the file chooses; nil where none does.
func chosenContext(name string) (*serverContext, error) {
	all, err := readContexts()
	if err != nil {
		return nil, err
	}
	for _, other := range []string{os.Getenv(contextEnv), all.Current} {
		if name == "" {
			name = other
		}
	}
	if name == "" {
		return nil, nil
	}
	c, ok := all.Contexts[name]
	if !ok {
		return nil, usagef("there is no context %q; there are %s (pushlease context set)", name, strings.Join(append(all.names(), "no others"), ", "))
	}
	return &c, nil
}

// key is the API key of a context; empty where it names none.
func (c *serverContext) key() (string, error) {
	switch {
	case c.KeyEnv != "":
		key := os.Getenv(c.KeyEnv)
		if key == "" {
			return "", usagef("the context's key is in the variable %s, which is not set", c.KeyEnv)
		}
		return key, nil
	case c.KeyFile != "":
		raw, err := os.ReadFile(c.KeyFile)
		if err != nil {
			return "", usagef("can't read the context's key: %s", err)
		}
		return strings.TrimSpace(string(raw)), nil
	}
	return "", nil
}

func newContextCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "context",
		Short: "Name servers, and say which one the commands talk to",
		Long: `A context is a server under a name, with where its API key is; the key itself stays there. Which server a
command talks to is said by, the first that is there: --server, --context, $` + serverEnv + `, $` + contextEnv + `, context use. The
key of a context goes to its server only.`,
		Example: `  pushlease context set prod --server https://push.example.com --api-key-file ~/.pushlease-prod
  pushlease context use prod
  pushlease webhooks list --context test`,
	})
	cmd.AddCommand(newContextSetCommand(), newContextUseCommand(), newContextListCommand(), newContextDeleteCommand())
	return cmd
}

var oneContext = arguments(1, 1, "the name of one context (pushlease context list shows them)")

func newContextSetCommand() *cobra.Command {
	var c serverContext
	cmd := &cobra.Command{
		Use: "set CONTEXT", Short: "Make a context, or replace it; the first one is used",
		Example: "  pushlease context set prod --server https://push.example.com --api-key-env PROD_KEY",
		Args:    oneContext,
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := checkServer(c.Server); err != nil {
				return usagef("--server is not an http or https URL without user and query; write one such as %s", defaultServer)
			}
			if c.KeyEnv != "" && c.KeyFile != "" {
				return usagef("--api-key-env and --api-key-file say the same; use one of them")
			}
			if c.KeyFile != "" {
				path, err := filepath.Abs(c.KeyFile)
				if err != nil {
					return fmt.Errorf("find the file: %w", err)
				}
				c.KeyFile = path
			}
			all, err := readContexts()
			if err != nil {
				return err
			}
			all.Contexts[args[0]] = c
			if all.Current == "" {
				all.Current = args[0]
			}
			return all.write()
		},
	}
	cmd.Flags().StringVar(&c.Server, "server", "", "URL of the server")
	cmd.Flags().StringVar(&c.KeyEnv, "api-key-env", "", "variable with the API key")
	cmd.Flags().StringVar(&c.KeyFile, "api-key-file", "", "file with the API key")
	return cmd
}

func newContextUseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "use CONTEXT", Short: "Let the commands talk to this server",
		Example: "  pushlease context use prod", Args: oneContext,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := chosenContext(args[0]); err != nil {
				return err
			}
			all, err := readContexts()
			if err != nil {
				return err
			}
			all.Current = args[0]
			if os.Getenv(serverEnv) != "" {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "In this shell %s goes before it.\n", serverEnv)
			}
			return all.write()
		},
	}
}

func newContextListCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use: "list", Short: "List the contexts",
		Example: "  pushlease context list", Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := readContexts()
			if err != nil {
				return err
			}
			if o.json() {
				return o.value(cmd, all)
			}
			var list [][]string
			for _, name := range all.names() {
				c, used, key := all.Contexts[name], "", ""
				if name == all.Current {
					used = "*"
				}
				if c.KeyEnv != "" {
					key = "$" + c.KeyEnv
				}
				list = append(list, []string{used, name, c.Server, key + c.KeyFile})
			}
			return table(cmd.OutOrStdout(), []string{"", "NAME", "SERVER", "API KEY"}, list)
		},
	}
	o.addFlag(cmd)
	return cmd
}

func newContextDeleteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "delete CONTEXT", Short: "Forget a context; its key stays where it is",
		Example: "  pushlease context delete test", Args: oneContext,
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := chosenContext(args[0]); err != nil {
				return err
			}
			all, err := readContexts()
			if err != nil {
				return err
			}
			delete(all.Contexts, args[0])
			if all.Current == args[0] {
				all.Current = ""
			}
			return all.write()
		},
	}
}
