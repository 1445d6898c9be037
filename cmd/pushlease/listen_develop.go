package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	apiclient "github.com/pushlease/pushlease/api/client"
	"github.com/pushlease/pushlease/webhook"
)

// listenerName is the name of webhooks that last as long as a run of listen.
const listenerName = "pushlease listen"

// develop is what listen does for a receiver that is being written.
type develop struct {
	client
	forwardTo, queue, url, save string

	mu   sync.Mutex
	last *received // what came last with a signature that was not refused
}

func (d *develop) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&d.forwardTo, "forward-to", "", "hand requests on to this URL, and answer what it answers")
	flags.StringVar(&d.queue, "queue", "", "register a webhook of this queue at the server, until listen ends")
	flags.StringVar(&d.url, "url", "", "with --queue, where the server reaches this receiver (default: this machine, which needs serve --dev)")
	flags.StringVar(&d.save, "save", "", "save what comes as samples for trigger, in this folder")
	flags.Lookup("save").NoOptDefVal = defaultSamples
	flags.StringVar(&d.server, "server", "", "with --queue, URL of the server (default $"+serverEnv+", else the context in use, else "+defaultServer+")")
}

// check refuses flags that contradict each other.
func (d *develop) check(cmd *cobra.Command) error {
	for _, name := range []string{"answer", "script", "match", "fail-first", "delay", "retry-after", "body"} {
		if d.forwardTo != "" && cmd.Flags().Changed(name) {
			return usagef("--%s says what to answer, and --forward-to leaves that to another receiver; use one of them", name)
		}
	}
	for _, name := range []string{"url", "server"} {
		if d.queue == "" && cmd.Flags().Changed(name) {
			return usagef("--%s is about the webhook that --queue registers; name the queue", name)
		}
	}
	return nil
}

// received keeps and saves a request, before it is printed. What is refused is neither.
func (d *develop) received(r received) error {
	if r.forged() {
		return nil
	}
	d.mu.Lock()
	d.last = &r
	d.mu.Unlock()
	if d.save == "" {
		return nil
	}
	_, err := newSample(r.header, r.Body).save(d.save, r.ID)
	return err
}

// keys reads lines until there are none: r sends the last request again.
func (d *develop) keys(ctx context.Context, in io.Reader, stderr io.Writer, secrets []string, rc http.Handler) {
	for lines := bufio.NewScanner(in); lines.Scan() && ctx.Err() == nil; {
		if strings.TrimSpace(lines.Text()) != "r" {
			continue
		}
		if err := d.again(ctx, secrets, rc); err != nil {
			_, _ = fmt.Fprintln(stderr, clean(err.Error())) // who can't read it presses again
		}
	}
}

// again sends the last request once more, signed anew, with the same id.
func (d *develop) again(ctx context.Context, secrets []string, rc http.Handler) error {
	d.mu.Lock()
	last := d.last
	d.mu.Unlock()
	if last == nil {
		return errors.New("nothing came yet that could be sent again")
	}
	secret := ""
	if len(secrets) > 0 {
		secret = secrets[0]
	}
	signed, err := newSample(last.header, last.Body).signed(secret, last.ID, time.Now())
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(last.Body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	r.Header = last.header.Clone()
	for _, name := range []string{webhook.HeaderTimestamp, webhook.HeaderSignature} {
		r.Header.Del(name)
		if value := signed.Get(name); value != "" {
			r.Header.Set(name, value)
		}
	}
	rc.ServeHTTP(nobody{}, r)
	return nil
}

// nobody is who asked for a request that was sent again by a key: it is printed, and the answer read by no one.
type nobody struct{}

func (nobody) Header() http.Header         { return http.Header{} }
func (nobody) Write(b []byte) (int, error) { return len(b), nil }
func (nobody) WriteHeader(int)             {}

// register makes the webhook of this run, and returns what takes it away again. A run that was killed left its own, with a
// secret that nobody has: they go first.
func (d *develop) register(cmd *cobra.Command, l net.Listener, secret string) (remove func() error, err error) {
	target := d.url
	if target == "" {
		target = "http://" + l.Addr().String() + "/"
	}
	p, err := d.list(cmd.Context(), "/api/v1/webhooks", url.Values{"queue": {d.queue}}, 1000)
	if err != nil {
		return nil, err
	}
	left, err := rows[webhookRow](p)
	if err != nil {
		return nil, err
	}
	for _, w := range left {
		if w.Name == listenerName && w.URL == target {
			if _, err := d.do(cmd.Context(), request{method: http.MethodDelete, path: webhookPath(w.ID)}); err != nil {
				return nil, fmt.Errorf("delete what an earlier run left: %w", err)
			}
		}
	}
	name := listenerName
	body, err := json.Marshal(apiclient.WebhookCreate{Name: &name, Queue: d.queue, Url: target, Secret: &secret}) //nolint:gosec // the request that registers it
	if err != nil {
		return nil, fmt.Errorf("encode the webhook: %w", err)
	}
	a, err := d.do(cmd.Context(), request{method: http.MethodPost, path: "/api/v1/webhooks", body: body, header: map[string]string{"Content-Type": "application/json"}})
	if err != nil {
		return nil, err
	}
	var made webhookRow
	if err := a.into(&made); err != nil {
		return nil, err
	}
	base, _, err := d.target()
	if err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Webhook %s of the queue %s is registered at %s until this ends\n", oneLine(made.ID), oneLine(d.queue), oneLine(base))
	ctx := context.WithoutCancel(cmd.Context())
	return func() error {
		if _, err := d.do(ctx, request{method: http.MethodDelete, path: webhookPath(made.ID)}); err != nil {
			return fmt.Errorf("the webhook %s stays registered: %w", made.ID, err)
		}
		return nil
	}, nil
}
