package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/webhook"
)

// exportedWebhook is a webhook as apply reads it, in the order in which it is written. An enabled one does not say so:
// one that was disabled since would be enabled by each apply.
type exportedWebhook struct {
	ID          string          `json:"id"`
	Queue       string          `json:"queue"`
	Name        string          `json:"name,omitempty"`
	URL         any             `json:"url"`
	Headers     map[string]any  `json:"headers,omitempty"`
	Timeout     string          `json:"timeout"`
	Enabled     *bool           `json:"enabled,omitempty"`
	Format      string          `json:"format"`
	HTTPVersion string          `json:"http_version"`
	Signatures  map[string]any  `json:"signatures,omitempty"`
	Auth        map[string]any  `json:"auth,omitempty"`
	TLS         map[string]any  `json:"tls,omitempty"`
	Policy      json.RawMessage `json:"policy"`
	Flow        json.RawMessage `json:"flow"`
	Filter      json.RawMessage `json:"filter"`
}

func newExportCommand() *cobra.Command {
	c, queue := &client{}, ""
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the server's webhooks as a file for apply",
		Long: `Writes the server's webhooks as a YAML file that "pushlease apply" reads. What the server does
not show, the values of headers, the secrets of signatures, auth and tls, and a URL of which a part may be a key, is a reference
to an environment variable, which the file's first lines list. Secrets are not in it: they
stay with the webhooks.`,
		Example: `  pushlease export > exported.yaml
  pushlease export --queue orders -o json`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.export(cmd, queue) },
	}
	cmd.Flags().StringVar(&queue, "queue", "", "only the webhooks of this queue")
	c.addFlags(cmd)
	return cmd
}

func (c *client) export(cmd *cobra.Command, queue string) error {
	query := url.Values{}
	if queue != "" {
		query.Set("queue", queue)
	}
	p, err := c.list(cmd.Context(), "/api/v1/webhooks", query, maxWebhooks)
	if err != nil {
		return err
	}
	hooks, err := rows[exportedWebhook](p)
	if err != nil {
		return err
	}
	more(cmd, p)
	variables := hideInVariables(hooks)
	doc := map[string]any{"webhooks": hooks}
	if c.json() {
		return c.value(cmd, doc)
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encode the webhooks: %w", err)
	}
	text, err := asYAML(raw)
	if err != nil {
		return err
	}
	head := "# Webhooks of a pushlease server. Put in force with: pushlease apply -f FILE\n"
	if len(variables) > 0 {
		head += "# Before, set what is not shown: " + strings.Join(variables, ", ") + "\n"
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), head+text)
	return err
}

// variable is a reference to an environment variable: what apply reads in the place of a value.
type variable struct {
	Env string `json:"env"`

	id, what string // the webhook, and which of its values
}

// hideInVariables puts references in the place of what is not shown, or may be a key in a URL, and names the variables.
func hideInVariables(hooks []exportedWebhook) (names []string) {
	var all []*variable
	takers := map[string]int{}
	hide := func(id, what string) any {
		v := &variable{variableName(id, what), id, what}
		takers[v.Env]++
		all = append(all, v)
		return v
	}
	for i := range hooks {
		w := &hooks[i]
		if text, ok := w.URL.(string); ok && (strings.Contains(text, hiddenText) || webhook.ShownURL(text) != text) {
			w.URL = hide(w.ID, "url")
		}
		for _, name := range slices.Sorted(maps.Keys(w.Headers)) {
			w.Headers[name] = hide(w.ID, name)
		}
		for _, part := range []map[string]any{w.Signatures, w.Auth, w.TLS} {
			hideWithin(part, "", func(path string) any { return hide(w.ID, path) })
		}
		if w.Enabled != nil && *w.Enabled {
			w.Enabled = nil
		}
	}
	for _, v := range all {
		if takers[v.Env] > 1 { // a number would go over to another value with the next webhook that is deleted
			v.Env += fmt.Sprintf("_%X", sha256.Sum256([]byte(v.id+"\n"+v.what)))[:9]
		}
		names = append(names, v.Env)
	}
	return names
}

// hideWithin hides what is not shown in an object and in those within it, each by its path.
func hideWithin(object map[string]any, path string, hide func(path string) any) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		switch value := object[name].(type) {
		case map[string]any:
			hideWithin(value, path+name+"_", hide)
		case string:
			if strings.Contains(value, hiddenText) {
				object[name] = hide(path + name)
			}
		}
	}
}

// hiddenText stands in the API's answers for what is not shown.
const hiddenText = "[redacted]"

// variableName is a name for an environment variable: HOOK_BILLING_X_API_KEY.
func variableName(id, what string) string {
	return strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToUpper(r)
		}
		return '_'
	}, "hook_"+id+"_"+what)
}
