package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/webhook"
)

const listenLong = `Receives webhooks, prints what came, and answers what it is told to. Listens on
this machine only, unless --host says otherwise.

An answer is STATUS, optionally followed by ,retry-after=SECONDS ,delay=DURATION and
,body=TEXT (last). For each request the first of these decides:
  --fail-first N         the first N requests of each message get 503
  --match 'TEXT=>ANSWER' requests whose body has the text (repeatable, first match)
  --script 503,503,200   one status after the other for each message; the last repeats
  --answer ANSWER        everything else
--delay, --retry-after and --body are for all answers that do not say otherwise;
--retry-after and --body only for those where they make sense: no 2xx has a
Retry-After.

Signatures are verified with the secrets in the environment variable
PUSHLEASE_WEBHOOK_SECRET (several with spaces in between) and in the files of
--secret-file: one of them has to fit. --secret takes one too, but other users of the
machine can read it in the list of processes.

To develop a receiver, --forward-to hands requests on to it and answers what it answers; a
bad signature never reaches it. --queue registers a webhook for as long as listen runs, with
a secret of its own, which is shown. On a terminal r and Enter sends the last request again,
signed anew. --save keeps what comes for "pushlease trigger".

Ctrl-C ends it with a summary: requests, messages, retries, duplicates (a message that
was answered 2xx came again) and bad signatures, which are answered 401.`

const listenExample = `  pushlease listen --queue orders --forward-to http://localhost:3000/hook
  pushlease listen --port 9000
  PUSHLEASE_WEBHOOK_SECRET=whsec_… pushlease listen -o json
  pushlease listen --secret-file secret.txt
  pushlease listen --answer 503 --retry-after 5
  pushlease listen --script 503,503,200
  pushlease listen --match '"order": 7=>400' --match 'slow=>200,delay=90s'`

// listenCommand is one run of listen.
type listenCommand struct {
	output
	develop                    *develop
	host                       string
	port                       int
	secrets, secretFiles       []string
	matches                    []string
	answer, script             string
	delay, retryAfter, bodyOut string
	failFirst                  int
}

func newListenCommand() *cobra.Command {
	c := &listenCommand{develop: &develop{}}
	cmd := &cobra.Command{
		Use:     "listen",
		Short:   "Receive webhooks here and print them",
		Long:    listenLong,
		Example: listenExample,
		Args:    arguments(0, 0, ""),
		RunE:    c.run,
	}
	flags := cmd.Flags()
	flags.StringVar(&c.host, "host", "127.0.0.1", "address to listen on")
	flags.IntVar(&c.port, "port", 9000, "port to listen on; 0 takes a free one")
	flags.StringArrayVar(&c.secretFiles, "secret-file", nil, "verify signatures with the secret in this file, - for standard input (repeatable), beside those in $"+secretEnv)
	flags.StringArrayVar(&c.secrets, "secret", nil, "verify signatures with this secret, whsec_… (repeatable); others can see it: better --secret-file")
	flags.StringVar(&c.answer, "answer", "200", "what to answer")
	flags.StringVar(&c.delay, "delay", "", "wait so long before every answer, such as 2s")
	flags.StringVar(&c.retryAfter, "retry-after", "", "Retry-After of answers that are no success: seconds, or a date")
	flags.StringVar(&c.bodyOut, "body", "", "body of the answers")
	flags.StringArrayVar(&c.matches, "match", nil, "'TEXT=>ANSWER' for requests whose body has the text (repeatable)")
	flags.StringVar(&c.script, "script", "", "statuses to answer one after the other for each message")
	flags.IntVar(&c.failFirst, "fail-first", 0, "answer 503 to the first requests of each message, so many")
	c.develop.addFlags(cmd)
	c.addFlag(cmd)
	return cmd
}

// options reads the flags into what a receiver needs; every error is one of usage.
func (c *listenCommand) options(cmd *cobra.Command) (receiverOptions, error) {
	base, err := c.base()
	if err != nil {
		return receiverOptions{}, err
	}
	if err := c.develop.check(cmd); err != nil {
		return receiverOptions{}, err
	}
	opts := receiverOptions{FailFirst: c.failFirst, Failure: base}
	opts.Failure.Status = http.StatusServiceUnavailable
	if c.port < 0 || c.port > 65535 {
		return opts, usagef("--port %d: use 0 to 65535", c.port)
	}
	if c.failFirst < 0 {
		return opts, usagef("--fail-first %d: use 0 or more", c.failFirst)
	}
	if opts.Secrets, err = c.allSecrets(cmd); err != nil {
		return opts, err
	}
	if c.develop.forwardTo != "" {
		f, err := newForwarder(c.develop.forwardTo)
		if err != nil {
			return opts, err
		}
		opts.Forward = f.forward
	}
	if opts.Answer, err = parseReply(c.answer, base); err != nil {
		return opts, usagef("--answer: %s", err)
	}
	for _, text := range c.matches {
		rule, err := parseMatch(text, base)
		if err != nil {
			return opts, usagef("--match: %s", err)
		}
		opts.Rules = append(opts.Rules, rule)
	}
	if c.script != "" {
		if opts.Script, err = parseScript(c.script, base); err != nil {
			return opts, usagef("--script: %s", err)
		}
	}
	return opts, nil
}

// secretEnv holds secrets to verify with: unlike an argument, nobody else can read it.
const secretEnv = "PUSHLEASE_WEBHOOK_SECRET" //nolint:gosec // the variable's name, no secret

// allSecrets are those of the flags, the files and the environment.
func (c *listenCommand) allSecrets(cmd *cobra.Command) (all []string, err error) {
	add := func(source, secret string) error {
		if _, err := webhook.ParseSecret(secret); err != nil {
			return usagef("%s: %s", source, err)
		}
		all = append(all, secret)
		return nil
	}
	for i, secret := range c.secrets {
		if err := add(fmt.Sprintf("--secret number %d", i+1), secret); err != nil {
			return nil, err
		}
	}
	for i, path := range c.secretFiles {
		secret, err := readInput(cmd, path, "--secret-file")
		if err != nil {
			return nil, err
		}
		if err := add(fmt.Sprintf("--secret-file number %d", i+1), strings.TrimSpace(string(secret))); err != nil {
			return nil, err
		}
	}
	for i, secret := range strings.Fields(os.Getenv(secretEnv)) {
		if err := add(fmt.Sprintf("%s, number %d", secretEnv, i+1), secret); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// base is what all answers share.
func (c *listenCommand) base() (reply, error) {
	r := reply{Body: c.bodyOut}
	var err error
	if c.delay != "" {
		if r.Delay, err = parseDelay(c.delay); err != nil {
			return r, usagef("--delay: %s", err)
		}
	}
	if c.retryAfter != "" {
		if r.RetryAfter, err = parseRetryAfter(c.retryAfter); err != nil {
			return r, usagef("--retry-after: %s", err)
		}
	}
	return r, nil
}

func (c *listenCommand) run(cmd *cobra.Command, _ []string) error {
	opts, err := c.options(cmd)
	if err != nil {
		return err
	}
	if len(c.secrets) > 0 {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Others on this machine can read --secret in the list of processes; use --secret-file or $%s.\n", secretEnv)
	}
	made := "" // the secret of a webhook that is registered without one
	if c.develop.queue != "" && len(opts.Secrets) == 0 {
		made = webhook.NewSecret(time.Now()).Key
		opts.Secrets = []string{made}
	}
	printer := &printer{out: cmd.OutOrStdout(), output: c.output}
	opts.OnReceived = func(r received) {
		printer.received(r)
		if err := c.develop.received(r); err != nil {
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), clean(err.Error())) // the request is answered all the same
		}
	}
	rc := newReceiver(opts)
	var lc net.ListenConfig
	l, err := lc.Listen(cmd.Context(), "tcp", net.JoinHostPort(c.host, strconv.Itoa(c.port)))
	if err != nil {
		return fmt.Errorf("can't listen: %w; choose another --port", err)
	}
	// On standard error, so that standard output has nothing but what came.
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Receiving on http://%s/ (Ctrl-C ends)\n", l.Addr())
	serve := func() error { return serveReceiver(cmd.Context(), l, rc) }
	if c.develop.queue != "" {
		serve = func() error { return c.registered(cmd, l, opts.Secrets, made != "", rc) }
	}
	if keys := cmd.InOrStdin(); isTerminal(keys) && !slices.Contains(c.secretFiles, "-") {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "r and Enter sends the last one again")
		readInBackground()
		go c.develop.keys(cmd.Context(), keys, cmd.ErrOrStderr(), opts.Secrets, rc) // ends with the process
	}
	if err := serve(); err != nil {
		return err
	}
	return printer.summary(rc.Totals())
}

// registered serves while a webhook of the queue is registered.
func (c *listenCommand) registered(cmd *cobra.Command, l net.Listener, secrets []string, made bool, rc http.Handler) error {
	remove, err := c.develop.register(cmd, l, secrets[0])
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if made {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Its signing secret, for the receiver that it is forwarded to: %s\n", secrets[0])
	}
	return errors.Join(serveReceiver(cmd.Context(), l, rc), remove())
}

// stopTimeout is how long answers in hand may take when the receiver ends.
const stopTimeout = 2 * time.Second

// serveReceiver serves until ctx ends.
func serveReceiver(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // broken requests are the sender's to see
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("receive: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close() // answers that wait longer are cut off
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("receive: %w", err)
	}
	return nil
}
