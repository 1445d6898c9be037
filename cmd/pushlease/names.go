package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// idOfName is the id of the only webhook with a name; empty where there is none. An id goes before a name, so that no name that
// somebody gives makes a command act on another webhook.
func (c *client) idOfName(ctx context.Context, name string) (string, error) {
	p, err := c.list(ctx, "/api/v1/webhooks", url.Values{"contains": {name}}, maxPage)
	if err != nil {
		return "", err
	}
	all, err := rows[webhookRow](p)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, w := range all {
		if w.ID == name {
			return name, nil
		}
		if w.Name == name {
			ids = append(ids, w.ID)
		}
	}
	switch len(ids) {
	case 0:
		return "", nil
	case 1:
		return ids[0], nil
	}
	return "", usagef("%d webhooks have the name %q; use the id of one: %s", len(ids), name, strings.Join(ids, ", "))
}

// nameInQuery puts the id of a webhook into a query that names it. Ids that the server made need no look.
func (c *client) nameInQuery(ctx context.Context, query url.Values) error {
	name := query.Get("webhook")
	if name == "" || strings.HasPrefix(name, "wh_") {
		return nil
	}
	id, err := c.idOfName(ctx, name)
	if err == nil && id != "" {
		query.Set("webhook", id)
	}
	return err
}

// notFound reports whether a server of ours says that there is no such thing.
func notFound(err error) bool {
	var api *apiError
	return errors.As(err, &api) && !api.foreign && api.Status == http.StatusNotFound
}

var (
	oneWebhook   = arguments(1, 1, "the id or the name of one webhook (pushlease webhooks list shows them)")
	someWebhooks = arguments(1, maxArguments, "the ids or the names of webhooks (pushlease webhooks list shows them)")
)

// maxArguments bounds how many things one command is about.
const maxArguments = 1000

// severalError are the failures of a command that was given several arguments.
type severalError []error

func (e severalError) Error() string {
	text := fmt.Sprintf("%d failed", len(e))
	for _, err := range e {
		var silent silentError
		if !errors.As(err, &silent) {
			text += "\n  " + err.Error()
		}
	}
	return text
}

// Unwrap gives the first: its exit code is the command's.
func (e severalError) Unwrap() error { return e[0] }

// each does one thing for each argument, also when it fails for some.
func each(cmd *cobra.Command, args []string, one func(arg string) error) error {
	if len(args) == 1 {
		return one(args[0])
	}
	var failed severalError
	for _, arg := range args {
		if err := one(arg); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", oneLine(arg), err))
		}
		if cmd.Context().Err() != nil {
			break
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return failed
}

// onlyOne refuses a version for several things at once.
func onlyOne(args []string, ifMatch string) error {
	if ifMatch != "" && len(args) > 1 {
		return usagef("--if-match is the version of one; give one id")
	}
	return nil
}
