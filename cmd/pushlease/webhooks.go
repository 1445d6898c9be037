package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/webhook"
)

// webhookRow is what is shown of a webhook.
type webhookRow struct {
	ID             string            `json:"id"`
	Name           string            `json:"name"`
	Queue          string            `json:"queue"`
	URL            string            `json:"url"`
	Headers        map[string]string `json:"headers"`
	Timeout        string            `json:"timeout"`
	Enabled        bool              `json:"enabled"`
	DisabledReason string            `json:"disabled_reason"`
	Policy         struct {
		Preset      string `json:"preset"`
		MaxAttempts int    `json:"max_attempts"`
		MaxAge      string `json:"max_age"`
	} `json:"policy"`
	Flow struct {
		Concurrency int     `json:"concurrency"`
		Rate        float64 `json:"rate"`
		Burst       int     `json:"burst"`
		Adaptive    bool    `json:"adaptive"`
		Breaker     struct {
			Enabled      bool    `json:"enabled"`
			MinSamples   int     `json:"min_samples"`
			FailureShare float64 `json:"failure_share"`
			ProbeAfter   string  `json:"probe_after"`
			ProbeMax     string  `json:"probe_max"`
		} `json:"breaker"`
		AutoDisableAfter string `json:"auto_disable_after"`
	} `json:"flow"`
	Status      webhookStatus       `json:"status"`
	Others      []otherInstance     `json:"others,omitempty"`
	Filter      json.RawMessage     `json:"filter"`
	Signatures  *webhook.Signatures `json:"signatures"`
	SigningKeys []signingKey        `json:"signing_keys"`
	Auth        *webhook.Auth       `json:"auth"`
	TLS         *webhook.TLS        `json:"tls"`
	CertEnd     time.Time           `json:"certificate_expires_at"`
	Format      string              `json:"format"`
	CreatedAt   time.Time           `json:"created_at"`
	Secret      string              `json:"secret"`
	Warnings    []string            `json:"warnings"`
}

func (w webhookRow) state() string {
	switch s := w.Status; {
	case w.Enabled && s.refuses():
		return "enabled, but " + s.refusal()
	case w.Enabled && s.State != "" && s.State != "healthy":
		return "enabled, " + s.State
	case w.Enabled:
		return "enabled"
	case w.DisabledReason != "":
		return "disabled (" + w.DisabledReason + ")"
	}
	return "disabled"
}

// filter is the filter as JSON on one line; empty when every message is taken.
func (w webhookRow) filter() string {
	if text := string(w.Filter); text != "{}" {
		return text
	}
	return ""
}

// signatures are those beside Standard Webhooks v1; empty without one.
func (w webhookRow) signatures() string {
	if w.Signatures == nil {
		return ""
	}
	var all []string
	if w.Signatures.V1A {
		all = append(all, "Standard Webhooks v1a")
	}
	if h := w.Signatures.HTTP; h != nil {
		all = append(all, "HTTP messages ("+h.Algorithm+")")
	}
	if w.Signatures.HMAC == nil {
		return strings.Join(all, ", ")
	}
	h, key := w.Signatures.HMAC, "the webhook's secret"
	if h.Secret != "" {
		key = "a secret of its own"
	}
	return strings.Join(append(all, fmt.Sprintf("HMAC (%s), with %s", cmp.Or(h.Preset, h.Header), key)), ", ")
}

// signingKey is a key as it is shown.
type signingKey struct {
	PublicKey string    `json:"public_key"`
	ExpiresAt time.Time `json:"expires_at"`
}

// publicKeys are the keys that sign, newest first.
func publicKeys(keys []signingKey) string {
	var all []string
	for _, k := range keys {
		text := k.PublicKey
		if !k.ExpiresAt.IsZero() {
			text += " (signs until " + clock(k.ExpiresAt) + ")"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// auth is by what token the receiver is told who sends; empty without one.
func (w webhookRow) auth() string {
	if w.Auth == nil || w.Auth.OAuth2 == nil {
		return ""
	}
	o := w.Auth.OAuth2
	return fmt.Sprintf("OAuth 2.0: a token from %s for the client %s", o.TokenURL, o.ClientID)
}

// tls is how connections to the receiver are made; empty where that is as to any other.
func (w webhookRow) tls() string {
	if w.TLS == nil {
		return ""
	}
	var all []string
	if !w.CertEnd.IsZero() {
		all = append(all, "with a client certificate until "+clock(w.CertEnd))
	}
	if w.TLS.CA != "" {
		all = append(all, "authorities of its own")
	}
	if w.TLS.MinVersion != "" {
		all = append(all, "TLS "+w.TLS.MinVersion+" at least")
	}
	if w.TLS.ServerName != "" {
		all = append(all, "as "+w.TLS.ServerName)
	}
	return strings.Join(all, ", ")
}

// flow is the limits in a few words; empty when the server names none.
func (w webhookRow) flow() string {
	f := w.Flow
	if f.Concurrency == 0 {
		return ""
	}
	text := fmt.Sprintf("at most %d at once", f.Concurrency)
	if f.Adaptive {
		text += ", fewer while the receiver can't take as many (adaptive)"
	}
	if f.Rate > 0 {
		text += fmt.Sprintf(", %v per second", f.Rate)
		if f.Burst > 0 {
			text += fmt.Sprintf(" with bursts of %d", f.Burst)
		}
	}
	if after := f.AutoDisableAfter; after != "never" {
		return text + ", disabled after " + after + " of failures"
	}
	return text + ", never disabled for failing"
}

// breaker is when the webhook is no longer sent to for its failures; empty when the server
// names no limits.
func (w webhookRow) breaker() string {
	b := w.Flow.Breaker
	switch {
	case w.Flow.Concurrency == 0:
		return ""
	case !b.Enabled:
		return "off: a webhook that fails is sent to as before"
	}
	return fmt.Sprintf("opens when %v %% of at least %d answers are failures; the first probe after %s, then the rarer the longer it lasts, at most %s apart",
		100*b.FailureShare, b.MinSamples, b.ProbeAfter, b.ProbeMax)
}

func newWebhooksCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "webhooks",
		Aliases: []string{"webhook"},
		Short:   "Register and manage webhooks",
		Example: `  pushlease webhooks create --queue orders --url https://example.com/hook
  pushlease webhooks list --queue orders
  pushlease webhooks update WEBHOOK-ID --timeout 1m --preset patient
  pushlease webhooks test WEBHOOK-ID
  pushlease webhooks top`,
	})
	cmd.AddCommand(
		newWebhooksListCommand(),
		newWebhooksCreateCommand(),
		newWebhooksPutCommand(),
		newWebhooksUpdateCommand(),
		newWebhooksTopCommand(),
		newWebhookCommand("get", "Show a webhook, and how it fares", http.MethodGet, "", (*client).showWebhook),
		newWebhookCommand("delete", "Delete a webhook; what waits for it alone is held", http.MethodDelete, "", (*client).showDeleted),
		newWebhookCommand("enable", "Enable a webhook, or let it begin anew; what was held for it is delivered", http.MethodPost, "/enable", (*client).showWebhook),
		newWebhookCommand("disable", "Disable a webhook; what comes for it is held", http.MethodPost, "/disable", (*client).showWebhook),
		newWebhooksRotateCommand(), newWebhooksRotateKeyCommand(),
		newWebhookCommand("test", "Send a test message to a webhook at once; fails unless it answers 2xx", http.MethodPost, "/test", (*client).showTest),
	)
	return cmd
}

func webhookPath(id string) string { return "/api/v1/webhooks/" + url.PathEscape(id) }

// newWebhookCommand makes a command that is one call about one webhook.
func newWebhookCommand(verb, short, method, suffix string, show func(*client, *cobra.Command, string, answer) error) *cobra.Command {
	c := &client{}
	var ifMatch string
	var yes bool
	cmd := &cobra.Command{
		Use:     verb + " WEBHOOK-ID...",
		Short:   short,
		Example: "  pushlease webhooks " + verb + " wh_abc",
		Args:    someWebhooks,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := onlyOne(args, ifMatch); err != nil {
				return err
			}
			r := request{method: method, path: suffix}
			if suffix == "/test" {
				r.timeout = testTimeout
			}
			if ifMatch != "" {
				r.header = map[string]string{"If-Match": ifMatch}
			}
			if method == http.MethodDelete && !yes && isTerminal(cmd.InOrStdin()) {
				if err := confirm(cmd, "This deletes the webhook "+oneLine(strings.Join(args, " and "))+". What waits for it alone is held. Go on?", "Nothing was deleted."); err != nil {
					return err
				}
			}
			return each(cmd, args, func(id string) error {
				r.webhook = id
				a, err := c.do(cmd.Context(), r)
				if err != nil {
					return err
				}
				return show(c, cmd, id, a)
			})
		},
	}
	switch method {
	case http.MethodGet:
		cmd.Aliases = []string{"show"}
	case http.MethodDelete:
		cmd.Flags().BoolVar(&yes, "yes", false, "delete without a question; it is asked on a terminal only")
	}
	if method != http.MethodGet && suffix != "/test" {
		addIfMatch(cmd, &ifMatch)
	}
	c.addFlags(cmd)
	return cmd
}

func newWebhooksRotateCommand() *cobra.Command {
	c := &client{}
	var overlap, first, secretFile, ifMatch string
	cmd := &cobra.Command{
		Use:   "rotate-secret WEBHOOK-ID",
		Short: "Make a new secret; the old ones sign on for a while, in which receivers know both",
		Example: `  pushlease webhooks rotate-secret wh_abc
  pushlease webhooks rotate-secret wh_abc --overlap 0s   # a secret has leaked`,
		Args: oneWebhook,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			if overlap != "" {
				body["overlap"] = overlap
			}
			if first != "" {
				body["first"] = first
			}
			if err := addSecret(cmd, "secret", secretFile, body); err != nil {
				return err
			}
			r := request{method: http.MethodPost, webhook: args[0], path: "/rotate-secret"}
			if ifMatch != "" {
				r.header = map[string]string{"If-Match": ifMatch}
			}
			a, err := c.send(cmd, r, body)
			if err != nil {
				return err
			}
			return c.showRotated(cmd, a)
		},
	}
	cmd.Flags().StringVar(&overlap, "overlap", "", "how long the old secrets go on signing, 0s to 168h (default 24h)")
	cmd.Flags().StringVar(&first, "first", "", "whose signature comes first, old or new: some libraries read no other (default old)")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "file with the new secret (whsec_…), - for standard input (default: one is made)")
	addIfMatch(cmd, &ifMatch)
	c.addFlags(cmd)
	return cmd
}

func newWebhooksRotateKeyCommand() *cobra.Command {
	c := &client{}
	var overlap, keyFile, ifMatch string
	cmd := &cobra.Command{
		Use:   "rotate-signing-key WEBHOOK-ID",
		Short: "Make a new key of Ed25519; the old ones sign on for a while",
		Long: `Makes a new key of Ed25519. Its public half is served at once. Until the overlap ends
v1a signs with every key, and an HTTP message signature is made with the oldest alone,
since published verifiers want one signature: let receivers know both keys meanwhile.`,
		Example: `  pushlease webhooks rotate-signing-key wh_abc
  pushlease webhooks rotate-signing-key wh_abc --overlap 0s   # a key has leaked`,
		Args: oneWebhook,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			if overlap != "" {
				body["overlap"] = overlap
			}
			if err := addSecret(cmd, "signing-key", keyFile, body); err != nil {
				return err
			}
			r := request{method: http.MethodPost, webhook: args[0], path: "/rotate-signing-key"}
			if ifMatch != "" {
				r.header = map[string]string{"If-Match": ifMatch}
			}
			a, err := c.send(cmd, r, body)
			if err != nil {
				return err
			}
			if c.json() {
				return c.raw(cmd, a)
			}
			var rotated struct {
				SigningKeys []signingKey `json:"signing_keys"`
			}
			if err := a.into(&rotated); err != nil {
				return err
			}
			return fields(cmd.OutOrStdout(), [][2]string{{"public key", publicKeys(rotated.SigningKeys)}})
		},
	}
	cmd.Flags().StringVar(&overlap, "overlap", "", "how long the old keys go on signing, 0s to 168h (default 24h)")
	cmd.Flags().StringVar(&keyFile, "signing-key-file", "", "file with the new private key (whsk_… or PEM), - for standard input (default: one is made)")
	addIfMatch(cmd, &ifMatch)
	c.addFlags(cmd)
	return cmd
}

func (c *client) showRotated(cmd *cobra.Command, a answer) error {
	if c.json() {
		return c.raw(cmd, a)
	}
	var rotated struct {
		Secret  string `json:"secret"`
		Secrets []struct {
			ExpiresAt time.Time `json:"expires_at"`
		} `json:"secrets"`
	}
	if err := a.into(&rotated); err != nil {
		return err
	}
	pairs := [][2]string{{"secret", rotated.Secret + shownOnce}}
	for _, old := range rotated.Secrets {
		if !old.ExpiresAt.IsZero() {
			pairs = append(pairs, [2]string{"an old one", "signs until " + clock(old.ExpiresAt)})
		}
	}
	return fields(cmd.OutOrStdout(), pairs)
}

// shownOnce stands behind a secret.
const shownOnce = "  (shown only now: keep it, receivers verify with it)"

// testTimeout is above the longest timeout that a webhook can have.
const testTimeout = 11 * time.Minute

func addIfMatch(cmd *cobra.Command, ifMatch *string) {
	cmd.Flags().StringVar(ifMatch, "if-match", "", "do it only while the ETag is still this one")
}

func newWebhooksListCommand() *cobra.Command {
	return newListCommand(&cobra.Command{
		Use:     "list",
		Short:   "List webhooks",
		Example: "  pushlease webhooks list\n  pushlease webhooks list --queue orders -o json | jq -r '.data[].id'",
		Args:    arguments(0, 0, ""),
	}, listing[webhookRow]{
		path: "/api/v1/webhooks", limit: 1000,
		filters: [][2]string{{"queue", "only those of this queue"}, {"contains", "only those with this text in their id, name or queue"}},
		heading: []string{"ID", "QUEUE", "URL", "STATE", "NAME"},
		cells:   func(w webhookRow) []string { return []string{w.ID, w.Queue, w.URL, w.state(), w.Name} },

		wideHeading: []string{"TIMEOUT", "POLICY", "ATTEMPTS", "FORMAT", "FILTER", "CREATED"},
		wideCells: func(w webhookRow) []string {
			return []string{w.Timeout, w.Policy.Preset, strconv.Itoa(w.Policy.MaxAttempts), w.Format, w.filter(), clock(w.CreatedAt)}
		},
	})
}

// raw prints the answer's JSON on one line.
func (c *client) raw(cmd *cobra.Command, a answer) error {
	var v any
	dec := json.NewDecoder(strings.NewReader(string(a.body)))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return fmt.Errorf("the answer is not JSON (is --server right?): %w", err)
	}
	return c.value(cmd, v)
}

func (c *client) showWebhook(cmd *cobra.Command, _ string, a answer) error {
	if c.json() {
		return c.raw(cmd, a)
	}
	var w webhookRow
	if err := a.into(&w); err != nil {
		return err
	}
	pairs := [][2]string{
		{"id", w.ID}, {"name", w.Name}, {"queue", w.Queue}, {"url", w.URL}, {"state", w.state()}, {"timeout", w.Timeout},
		{"policy", fmt.Sprintf("%s, at most %d attempts within %s", w.Policy.Preset, w.Policy.MaxAttempts, w.Policy.MaxAge)},
		{"flow", w.flow()}, {"breaker", w.breaker()}, {"filter", w.filter()}, {"format", w.Format},
		{"signatures", w.signatures()}, {"public key", publicKeys(w.SigningKeys)}, {"auth", w.auth()}, {"tls", w.tls()}, {"headers", strings.Join(slices.Sorted(maps.Keys(w.Headers)), ", ")},
		{"created", clock(w.CreatedAt)}, {"etag", a.etag()},
	}
	if s := w.Status; s.State != "" {
		pairs = append(pairs, [2]string{"fares", s.fares() + " (as " + s.Instance + " sees it)"}, [2]string{"traffic", s.traffic()},
			[2]string{"since its start", fmt.Sprintf("%d POSTs were answered 2xx, %d were refused (such as 400), %d failed (no answer, 5xx or 429), %d deliveries were put off", s.Delivered, s.Refused, s.Failed, s.Postponed)},
			[2]string{"why", asCommands(s.Text)})
	}
	pairs = append(pairs, elsewhere(w.Others)...)
	if w.Secret != "" {
		pairs = append(pairs, [2]string{"secret", w.Secret + shownOnce})
	}
	for _, warning := range w.Warnings {
		pairs = append(pairs, [2]string{"note", warning})
	}
	return fields(cmd.OutOrStdout(), pairs)
}

// showDeleted confirms; with -o json the id is all that there is to say.
func (c *client) showDeleted(cmd *cobra.Command, id string, a answer) error {
	if left := a.header.Get("Pushlease-Copy-Left"); left != "" {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Its copy stays on the queue %s, with the whole text.\n", oneLine(left))
	}
	if c.json() {
		return c.value(cmd, map[string]string{"deleted": id})
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), "deleted "+clean(id))
	return err
}

// showTest prints what a test POST gave, and fails unless that was a 2xx.
func (c *client) showTest(cmd *cobra.Command, _ string, a answer) error {
	var result struct {
		Status     int    `json:"status"`
		ErrorClass string `json:"error_class"`
		Error      string `json:"error"`
		Duration   string `json:"duration"`
		Snippet    string `json:"snippet"`
		Request    struct {
			Method, URL string
			Headers     map[string]string
			Body        string
		} `json:"request"`
		Decision struct {
			Explanation string `json:"explanation"`
		} `json:"decision"`
	}
	if err := a.into(&result); err != nil {
		return err
	}
	if c.json() {
		if err := c.raw(cmd, a); err != nil {
			return err
		}
	} else {
		status := ""
		if result.Status != 0 {
			status = strconv.Itoa(result.Status) + " " + http.StatusText(result.Status)
		}
		if err := fields(cmd.OutOrStdout(), [][2]string{
			{"answer", status}, {"error", strings.TrimSpace(result.ErrorClass + " " + result.Error)}, {"took", result.Duration},
			{"body", result.Snippet}, {"sent", strings.TrimSpace(result.Request.Method + " " + result.Request.URL)}, {"with", strings.Join(slices.Sorted(maps.Keys(result.Request.Headers)), ", ")}, {"sent body", result.Request.Body}, {"for a message", result.Decision.Explanation},
		}); err != nil {
			return err
		}
	}
	if result.Status/100 != 2 {
		return silentError{}
	}
	return nil
}
