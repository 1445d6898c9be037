package main

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/policy"
)

const (
	// completionTimeout is how long a shell waits for the server.
	completionTimeout = 3 * time.Second
	// maxCompletions bounds what is offered.
	maxCompletions = 200
)

// completion offers what can stand in a place of the command line; an offer may go on with a tab and a few words.
type completion func(cmd *cobra.Command, args []string, typed string) []string

// fixed offers words that the program knows.
func fixed(words ...string) completion {
	return func(*cobra.Command, []string, string) []string { return words }
}

// flagCompletions are what flags take, by their name.
var flagCompletions = map[string]completion{
	"queue": completeQueues, "webhook": completeWebhooks, "message": completeMessages, "context": completeContexts,
	"preset": fixed(policy.PresetNames()...), "format": fixed("raw", "cloudevents-structured", "cloudevents-binary"),
	"output": fixed("text", "wide", "json", "yaml", "ndjson", "jsonpath="), "http-version": fixed("auto", "1.1"), "hmac": fixed("github", "shopify", "stripe"),
	"error-class": fixed(texts(policy.ErrorClasses())...), "reason": fixed(texts(policy.Reasons())...), "first": fixed("old", "new"), "order": fixed("oldest", "newest"),
}

// argumentCompletions are what arguments are, by their name in the usage.
var argumentCompletions = map[string]completion{
	"WEBHOOK-ID": completeWebhooks, "DEAD-LETTER-ID": completeDeadLetters, "QUEUE": completeQueues, "MESSAGE-ID": completeMessages,
	"JOB-ID": completeJobs, "CONTEXT": completeContexts, "FILE|NAME": completeSamples,
}

func texts[T ~string](values []T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

// completeAll lets shells complete the arguments and flags of all commands.
func completeAll(cmd *cobra.Command) {
	for name, offer := range flagCompletions {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, offer.cobra) // fails only where the flag is not there
		}
	}
	words := strings.Fields(cmd.Use)[1:]
	if len(words) > 0 {
		word := strings.Trim(words[0], "[]")
		many := strings.HasSuffix(word, "...")
		if offer, ok := argumentCompletions[strings.TrimSuffix(word, "...")]; ok {
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				if len(args) > 0 && !many {
					return nil, cobra.ShellCompDirectiveDefault
				}
				return offer.cobra(cmd, args, typed)
			}
		}
	}
	for _, sub := range cmd.Commands() {
		completeAll(sub)
	}
}

func (offer completion) cobra(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	var fit []string
	for _, o := range offer(cmd, args, typed) {
		word, about, _ := strings.Cut(o, "\t")
		if strings.HasPrefix(word, typed) && !slices.Contains(args, word) && word == oneLine(word) {
			fit = append(fit, word+"\t"+oneLine(about))
		}
	}
	return fit, cobra.ShellCompDirectiveNoFileComp
}

// offered reads a list of the server for a shell. A shell has no place for errors: what can't be read is not offered.
func offered[T any](cmd *cobra.Command, path string, query url.Values, offer func(T) []string) []string {
	c := &client{}
	if f := cmd.Flag("server"); f != nil {
		c.server = f.Value.String()
	}
	if f := cmd.Flag("context"); f != nil {
		c.context = f.Value.String()
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	p, err := c.list(ctx, path, query, maxCompletions)
	if err != nil {
		return nil
	}
	list, err := rows[T](p)
	if err != nil {
		return nil
	}
	var all []string
	for _, row := range list {
		all = append(all, offer(row)...)
	}
	return all
}

// completeWebhooks offers ids, and the names without spaces.
func completeWebhooks(cmd *cobra.Command, _ []string, typed string) []string {
	query := url.Values{}
	if typed != "" {
		query.Set("contains", typed)
	}
	return offered(cmd, "/api/v1/webhooks", query, func(w webhookRow) []string {
		all := []string{w.ID + "\t" + strings.TrimSpace(w.Queue+" "+w.Name)}
		if w.Name != "" && w.Name != w.ID && !strings.ContainsAny(w.Name, " \t") {
			all = append(all, w.Name+"\t"+w.Queue+" "+w.ID)
		}
		return all
	})
}

func completeQueues(cmd *cobra.Command, _ []string, _ string) []string {
	return offered(cmd, "/api/v1/queues", url.Values{}, func(q struct {
		Name string `json:"name"`
	}) []string {
		return []string{q.Name}
	})
}

func completeDeadLetters(cmd *cobra.Command, _ []string, _ string) []string {
	return offered(cmd, "/api/v1/dead-letters", url.Values{"status": {"waiting"}}, func(d deadLetterRow) []string {
		return []string{d.ID + "\t" + d.Queue + " " + d.Reason}
	})
}

func completeMessages(cmd *cobra.Command, _ []string, _ string) []string {
	return offered(cmd, "/api/v1/messages", url.Values{}, func(m struct {
		MessageID string `json:"message_id"`
		Queue     string `json:"queue"`
		State     string `json:"state"`
	}) []string {
		return []string{m.MessageID + "\t" + m.Queue + " " + m.State}
	})
}

func completeJobs(cmd *cobra.Command, _ []string, _ string) []string {
	return offered(cmd, replayJobsPath, url.Values{}, func(j replayJob) []string { return []string{j.ID + "\t" + j.State} })
}

func completeSamples(cmd *cobra.Command, _ []string, _ string) []string {
	return sampleNames(cmd.Flag("samples").Value.String())
}

func completeContexts(*cobra.Command, []string, string) []string {
	all, err := readContexts()
	if err != nil {
		return nil
	}
	return all.names()
}
