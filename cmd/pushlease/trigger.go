package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/webhook"
)

// triggerCommand sends a sample.
type triggerCommand struct {
	client
	to, queue, folder, secretFile string
}

func newTriggerCommand() *cobra.Command {
	c := &triggerCommand{}
	cmd := &cobra.Command{
		Use:   "trigger FILE|NAME",
		Short: "Send a sample to a receiver, or to a queue",
		Long: `Sends one request to a receiver that is being written, signed as pushlease signs it, with a
message id of its own each time; or, with --queue, puts the sample on a queue of the server.

A sample is a file that "pushlease listen --save" wrote, any other file, whose content is the
body then, the name of one in the folder of samples, or one of those that come with the
program: json, text, binary, cloudevent.

It is signed with the secret in --secret-file, or the first in $` + secretEnv + `; without one
there is no signature. It fails unless the receiver answers 2xx.`,
		Example: `  pushlease trigger json --to http://localhost:3000/hook
  PUSHLEASE_WEBHOOK_SECRET=whsec_… pushlease trigger samples/order.json --to http://localhost:3000/hook
  pushlease trigger cloudevent --queue orders`,
		Args: arguments(1, 1, "a file, or the name of a sample: pushlease trigger json --to URL"),
		RunE: c.run,
	}
	flags := cmd.Flags()
	flags.StringVar(&c.to, "to", "", "URL of the receiver")
	flags.StringVar(&c.queue, "queue", "", "put it on this queue, through the server")
	flags.StringVar(&c.folder, "samples", defaultSamples, "folder with samples")
	flags.StringVar(&c.secretFile, "secret-file", "", "sign with the secret in this file, - for standard input")
	c.addFlags(cmd)
	return cmd
}

func (c *triggerCommand) run(cmd *cobra.Command, args []string) error {
	if (c.to == "") == (c.queue == "") {
		return usagef("say where it is to go: --to URL for a receiver, or --queue QUEUE for a queue")
	}
	s, err := findSample(c.folder, args[0])
	if err != nil {
		return err
	}
	if c.queue == "" {
		return c.post(cmd, s)
	}
	r := request{method: http.MethodPost, path: "/api/v1/queues/" + url.PathEscape(c.queue) + "/messages", body: s.bytes(), header: map[string]string{}}
	for name, value := range s.Headers {
		if !strings.EqualFold(name, "pushlease-queue") {
			r.header[name] = value
		}
	}
	return (&sendCommand{client: c.client}).sendOne(cmd, r)
}

// post sends a sample to the receiver.
func (c *triggerCommand) post(cmd *cobra.Command, s sample) error {
	f, err := newForwarder(c.to)
	if err != nil {
		return usagef("--to is not an http or https URL; write one such as http://localhost:3000/hook")
	}
	secret, err := c.secret(cmd)
	if err != nil {
		return err
	}
	header, err := s.signed(secret, "msg_"+strings.ToLower(rand.Text()), time.Now())
	if err != nil {
		return err
	}
	began := time.Now()
	answer := f.forward(cmd.Context(), received{Body: s.bytes(), header: header})
	took := time.Since(began)
	if c.json() {
		err = c.value(cmd, struct {
			ID     string `json:"id"`
			Status int    `json:"status"`
			Took   string `json:"took"`
			Answer string `json:"answer"`
		}{header.Get(webhook.HeaderID), answer.Status, took.String(), answer.Body})
	} else {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "sent %s  → %d in %s\n", header.Get(webhook.HeaderID), answer.Status, took.Round(time.Millisecond/10))
		if text := prettyBody([]byte(answer.Body)); err == nil && answer.Body != "" {
			_, err = io.WriteString(cmd.OutOrStdout(), "    "+strings.ReplaceAll(text, "\n", "\n    ")+"\n")
		}
	}
	if err == nil && answer.Status/100 != 2 {
		err = silentError{}
	}
	return err
}

// secret is what to sign with; empty for nothing.
func (c *triggerCommand) secret(cmd *cobra.Command) (string, error) {
	var first string
	source := secretEnv
	if c.secretFile != "" {
		raw, err := readInput(cmd, c.secretFile, "--secret-file")
		if err != nil {
			return "", err
		}
		first, source = string(bytes.TrimSpace(raw)), "--secret-file"
	} else if all := strings.Fields(os.Getenv(secretEnv)); len(all) > 0 {
		first = all[0]
	} else {
		return "", nil
	}
	if _, err := webhook.ParseSecret(first); err != nil {
		return "", usagef("%s: %s", source, err)
	}
	return first, nil
}

// signed are the headers of a sample that is sent now.
func (s sample) signed(secret, id string, now time.Time) (http.Header, error) {
	header := http.Header{}
	for name, value := range s.Headers {
		header.Set(name, value)
	}
	header.Set(webhook.HeaderID, id)
	header.Set(webhook.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	header.Set("User-Agent", "pushlease/"+buildVersion())
	header.Set("pushlease-attempt", "1")
	if secret == "" {
		return header, nil
	}
	signature, err := webhook.Sign(secret, id, now, s.bytes())
	if err != nil {
		return nil, errors.New("the sample can't be signed")
	}
	header.Set(webhook.HeaderSignature, signature)
	return header, nil
}
