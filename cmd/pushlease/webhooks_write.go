package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

// webhookFlags are the fields of a webhook that flags can set.
type webhookFlags struct {
	queue, url, name, timeout string
	headers, removeHeaders    []string
	disabled                  bool
	preset, policyFile        string
	filterTypes               []string
	filterFile, format        string
	httpVersion               string
	secretFile, from, ifMatch string
	maxAttempts, concurrency  int
	rate                      float64
	flowFile, authFile        string
	signaturesFile, hmac      string
	hmacSecretFile            string
	v1a                       bool
	signingKeyFile            string
	tlsFile                   string
	certFile, keyFile, caFile string
}

// maxInputBytes bounds the files that are read for a request.
const maxInputBytes = 1 << 20

func newWebhooksCreateCommand() *cobra.Command {
	c, f := &client{}, &webhookFlags{}
	key := ""
	cmd := &cobra.Command{
		Use:   "create --queue QUEUE --url URL",
		Short: "Register a webhook",
		Long: `Registers a webhook: messages of the queue are POSTed to the URL. The signing secret
is shown once, in the answer. Repeated, it registers another webhook, unless both
have the same --idempotency-key; scripts are better served by "webhooks put".`,
		Example: `  pushlease webhooks create --queue orders --url https://example.com/hook
  pushlease webhooks create --queue orders --url https://example.com/hook --preset realtime --timeout 10s
  pushlease webhooks create --queue orders --url https://example.com/hook --filter-type 'com.example.order.*'
  pushlease webhooks create --from webhook.json -o json | jq -r .secret`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := f.whole(cmd)
			if err != nil {
				return err
			}
			r := request{method: http.MethodPost, path: "/api/v1/webhooks"}
			if key != "" {
				r.header = map[string]string{"Idempotency-Key": quoteKey(key)}
			}
			return c.write(cmd, r, body)
		},
	}
	f.addWhole(cmd)
	cmd.Flags().StringVar(&key, "idempotency-key", "", "name of this registration, 1 to 255 printable ASCII characters: repeated, it shows the same webhook")
	c.addFlags(cmd)
	return cmd
}

func newWebhooksPutCommand() *cobra.Command {
	c, f := &client{}, &webhookFlags{}
	cmd := &cobra.Command{
		Use:   "put ID --queue QUEUE --url URL",
		Short: "Register a webhook under an id of your own, or replace what it says",
		Long: `Registers a webhook under the id (letters, digits, hyphens, underscores), or makes the one
that has it what the flags say: what no flag names has its default. The secret stays, and
so does disabled. The same command may run with each deployment. A name is no id here: put
with the name of a webhook registers another one.`,
		Example: `  pushlease webhooks put billing --queue orders --url https://example.com/hook
  pushlease webhooks put billing --from webhook.json`,
		Args: arguments(1, 1, "the id of one webhook, which you choose or which it has; its name won't do"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := f.whole(cmd)
			if err != nil {
				return err
			}
			r := request{method: http.MethodPut, path: webhookPath(args[0])}
			if f.ifMatch != "" {
				r.header = map[string]string{"If-Match": f.ifMatch}
			}
			return c.write(cmd, r, body)
		},
	}
	f.addWhole(cmd)
	addIfMatch(cmd, &f.ifMatch)
	c.addFlags(cmd)
	return cmd
}

// addWhole adds the flags of a whole registration.
func (f *webhookFlags) addWhole(cmd *cobra.Command) {
	f.add(cmd)
	cmd.Flags().StringVar(&f.queue, "queue", "", "queue whose messages are pushed")
	cmd.Flags().StringVar(&f.secretFile, "secret-file", "", "file with the signing secret (whsec_…), - for standard input (default: one is made)")
	cmd.Flags().StringVar(&f.signingKeyFile, "signing-key-file", "", "file with the private key for --v1a (whsk_… or PEM), - for standard input (default: one is made)")
	cmd.Flags().BoolVar(&f.disabled, "disabled", false, "register it disabled")
}

// whole is the body of a whole registration.
func (f *webhookFlags) whole(cmd *cobra.Command) (map[string]any, error) {
	body, err := f.body(cmd)
	if err == nil && f.from == "" && (f.queue == "" || f.url == "") {
		err = usagef("--queue and --url are needed: the queue whose messages are pushed, and the address that gets them")
	}
	return body, err
}

func newWebhooksUpdateCommand() *cobra.Command {
	c, f := &client{}, &webhookFlags{}
	cmd := &cobra.Command{
		Use:   "update WEBHOOK-ID",
		Short: "Change a webhook; what no flag names stays as it is",
		Example: `  pushlease webhooks update wh_abc --timeout 1m
  pushlease webhooks update wh_abc --header 'X-Team: billing' --remove-header X-Old
  echo '{"policy":{"max_attempts":3}}' | pushlease webhooks update wh_abc --from -`,
		Args: oneWebhook,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := f.body(cmd)
			if err != nil {
				return err
			}
			if len(body) == 0 {
				return usagef("there is nothing to change; name at least one flag, such as --timeout 1m")
			}
			r := request{method: http.MethodPatch, webhook: args[0]}
			if f.ifMatch != "" {
				r.header = map[string]string{"If-Match": f.ifMatch}
			}
			return c.write(cmd, r, body)
		},
	}
	f.add(cmd)
	cmd.Flags().StringSliceVar(&f.removeHeaders, "remove-header", nil, "name of a header that is sent no more (repeatable)")
	addIfMatch(cmd, &f.ifMatch)
	c.addFlags(cmd)
	return cmd
}

func (f *webhookFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "address to POST to")
	flags.StringVar(&f.name, "name", "", "name for people")
	flags.StringVar(&f.timeout, "timeout", "", "deadline of one POST once there is a connection, 1s to 10m (of a new webhook the server's webhook_timeout, 30s)")
	flags.StringArrayVar(&f.headers, "header", nil, "header to send, 'Name: value' (repeatable)")
	flags.StringVar(&f.preset, "preset", "", "retry policy: "+strings.Join(policy.PresetNames(), ", "))
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "attempts after which a message is dead-lettered")
	flags.StringVar(&f.policyFile, "policy-file", "", "JSON file with a retry policy, - for standard input")
	flags.IntVar(&f.concurrency, "concurrency", 0, "most POSTs in flight at once, 1 to 1000 (default 64)")
	flags.Float64Var(&f.rate, "rate", 0, "most POSTs per second, such as 50 or 0.5; 0 is no limit (default 0)")
	flags.StringVar(&f.flowFile, "flow-file", "", "JSON file with all of the flow control, - for standard input")
	flags.StringArrayVar(&f.filterTypes, "filter-type", nil, "take only events of this CloudEvents type; * stands for any characters (repeatable)")
	flags.StringVar(&f.filterFile, "filter-file", "", "JSON file with a filter, - for standard input")
	flags.StringVar(&f.format, "format", "", "form of what is sent: "+strings.Join(formatNames(), ", ")+" (default raw)")
	flags.StringVar(&f.httpVersion, "http-version", "", "auto (HTTP/2 where the receiver takes it) or 1.1 (default auto)")
	flags.StringVar(&f.hmac, "hmac", "", "sign also as receivers of these check it: "+strings.Join(webhook.HMACPresets(), ", "))
	flags.StringVar(&f.hmacSecretFile, "hmac-secret-file", "", "file with the secret for that, as the receiver has it, - for standard input (default: the webhook's own, whole with its whsec_)")
	flags.BoolVar(&f.v1a, "v1a", false, "sign also with Ed25519 (Standard Webhooks v1a); its public key is served to receivers")
	flags.StringVar(&f.signaturesFile, "signatures-file", "", "JSON file with all signatures beside Standard Webhooks v1, - for standard input")
	flags.StringVar(&f.authFile, "auth-file", "", "JSON file with by what token the receiver is told who sends, - for standard input")
	flags.StringVar(&f.certFile, "client-certificate", "", "PEM file with the certificate for a receiver that asks for one (mTLS), - for standard input")
	flags.StringVar(&f.keyFile, "client-key", "", "PEM file with its private key, - for standard input")
	flags.StringVar(&f.caFile, "ca", "", "PEM file with the authorities that the receiver is verified by, in the place of the system's, - for standard input")
	flags.StringVar(&f.tlsFile, "tls-file", "", "JSON file with all of how connections are made, - for standard input")
	flags.StringVar(&f.from, "from", "", "JSON file with the fields, - for standard input; flags win over it")
}

// body is the request's JSON object: the file of --from, and the flags on top.
func (f *webhookFlags) body(cmd *cobra.Command) (map[string]any, error) {
	body := map[string]any{}
	if err := readJSON(cmd, f.from, "--from", &body); err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"queue": f.queue, "url": f.url, "timeout": f.timeout, "format": f.format, "http_version": f.httpVersion} {
		if value != "" {
			body[name] = value
		}
	}
	if cmd.Flags().Changed("name") { // an empty one takes the name away
		body["name"] = f.name
	}
	if f.disabled {
		body["enabled"] = false
	}
	if err := f.addHeaders(body); err != nil {
		return nil, err
	}
	if err := addSecret(cmd, "secret", f.secretFile, body); err != nil {
		return nil, err
	}
	if err := addSecret(cmd, "signing-key", f.signingKeyFile, body); err != nil {
		return nil, err
	}
	return body, f.addParts(cmd, body)
}

// addParts adds filter, signatures, auth, tls, flow and policy.
func (f *webhookFlags) addParts(cmd *cobra.Command, body map[string]any) error {
	given := cmd.Flags().Changed
	err := addPart(cmd, body, "filter", f.filterFile, func(part map[string]any) {
		if len(f.filterTypes) > 0 {
			part["types"] = f.filterTypes
		}
	})
	if err != nil {
		return err
	}
	if err := f.addSignatures(cmd, body); err != nil {
		return err
	}
	if err := addPart(cmd, body, "auth", f.authFile, func(map[string]any) {}); err != nil {
		return err
	}
	if err := f.addTLS(cmd, body); err != nil {
		return err
	}
	err = addPart(cmd, body, "flow", f.flowFile, func(part map[string]any) {
		if given("concurrency") {
			part["concurrency"] = f.concurrency
		}
		if given("rate") {
			part["rate"] = f.rate
		}
	})
	if err != nil {
		return err
	}
	return addPart(cmd, body, "policy", f.policyFile, func(part map[string]any) {
		if f.preset != "" {
			part["preset"] = f.preset
		}
		if given("max-attempts") {
			part["max_attempts"] = f.maxAttempts
		}
	})
}

// addSignatures adds what is signed beside Standard Webhooks v1.
func (f *webhookFlags) addSignatures(cmd *cobra.Command, body map[string]any) error {
	scheme := map[string]any{}
	if f.hmac != "" {
		scheme["preset"] = f.hmac
	}
	if f.hmacSecretFile != "" {
		secret, err := readInput(cmd, f.hmacSecretFile, "--hmac-secret-file")
		if err != nil {
			return err
		}
		scheme["secret"] = strings.TrimSpace(string(secret))
	}
	return addPart(cmd, body, "signatures", f.signaturesFile, func(part map[string]any) {
		there, _ := part["hmac"].(map[string]any)
		if there != nil {
			maps.Copy(there, scheme)
		} else if len(scheme) > 0 {
			part["hmac"] = scheme
		}
		if cmd.Flags().Changed("v1a") {
			part["v1a"] = f.v1a
		}
	})
}

// addTLS adds how connections are made.
func (f *webhookFlags) addTLS(cmd *cobra.Command, body map[string]any) error {
	files := map[string]string{"client_certificate": f.certFile, "client_key": f.keyFile, "ca": f.caFile}
	texts := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if files[name] == "" {
			continue
		}
		text, err := readInput(cmd, files[name], "--"+strings.ReplaceAll(name, "_", "-"))
		if err != nil {
			return err
		}
		texts[name] = string(text)
	}
	return addPart(cmd, body, "tls", f.tlsFile, func(part map[string]any) { maps.Copy(part, texts) })
}

func formatNames() []string {
	var names []string
	for _, f := range content.Formats() {
		names = append(names, string(f))
	}
	return names
}

func (f *webhookFlags) addHeaders(body map[string]any) error {
	headers, _ := body["headers"].(map[string]any)
	if headers == nil {
		headers = map[string]any{}
	}
	for i, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok { // it may be all value, and a secret
			return usagef("--header number %d has no colon; write 'Name: value'", i+1)
		}
		headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	for _, name := range f.removeHeaders {
		headers[name] = nil
	}
	if len(headers) > 0 {
		body["headers"] = headers
	}
	return nil
}

// addPart completes one of the request's objects: first what its file says, and then what
// flags say. It is left out where neither says anything.
func addPart(cmd *cobra.Command, body map[string]any, name, path string, set func(part map[string]any)) error {
	part, _ := body[name].(map[string]any)
	if part == nil {
		part = map[string]any{}
	}
	if err := readJSON(cmd, path, "--"+name+"-file", &part); err != nil {
		return err
	}
	set(part)
	if len(part) > 0 {
		body[name] = part
	}
	return nil
}

// addSecret reads a secret from a file: an argument could be seen by other users
// of the machine.
func addSecret(cmd *cobra.Command, name, path string, body map[string]any) error {
	if path == "" {
		return nil
	}
	secret, err := readInput(cmd, path, "--"+name+"-file")
	if err == nil {
		body[strings.ReplaceAll(name, "-", "_")] = strings.TrimSpace(string(secret))
	}
	return err
}

// write sends a webhook's fields and shows the webhook that comes of it.
func (c *client) write(cmd *cobra.Command, r request, body map[string]any) error {
	a, err := c.send(cmd, r, body)
	if err != nil {
		return err
	}
	return c.showWebhook(cmd, "", a)
}

// send makes a request with a JSON object.
func (c *client) send(cmd *cobra.Command, r request, body map[string]any) (answer, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return answer{}, fmt.Errorf("encode the request: %w", err)
	}
	r.body = raw
	if r.header == nil {
		r.header = map[string]string{}
	}
	r.header["Content-Type"] = "application/json"
	if r.method == http.MethodPatch { // a null in a file is meant
		r.header["Content-Type"] = "application/merge-patch+json"
	}
	return c.do(cmd.Context(), r)
}

// readJSON reads an object from a file, if one is named. Numbers stay as they are
// written: a filter's may be larger than a float64 can tell apart.
func readJSON(cmd *cobra.Command, path, flag string, into *map[string]any) error {
	if path == "" {
		return nil
	}
	raw, err := readInput(cmd, path, flag)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(into); err != nil || *into == nil || dec.More() {
		return usagef("%s: the file is not one JSON object", flag)
	}
	return nil
}

func readInput(cmd *cobra.Command, path, flag string) ([]byte, error) {
	var in io.Reader
	if path == "-" {
		in = cmd.InOrStdin()
	} else {
		f, err := os.Open(path) //nolint:gosec // the caller names the file
		if err != nil {
			return nil, usagef("%s: %s", flag, err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxInputBytes+1))
	if err == nil && len(raw) > maxInputBytes {
		err = errors.New("the file is too large")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return raw, nil
}
