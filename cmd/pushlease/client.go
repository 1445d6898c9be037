package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	defaultServer = "http://127.0.0.1:8080"
	serverEnv     = "PUSHLEASE_SERVER"
	apiKeyEnv     = "PUSHLEASE_API_KEY" //nolint:gosec // the variable's name, no key
	// functionsKeyEnv holds the key that the Functions host asks for in front of the API's own.
	functionsKeyEnv = "PUSHLEASE_FUNCTIONS_KEY"
	// requestTimeout bounds one request, with one exception: testing a webhook
	// takes as long as the webhook does.
	requestTimeout = 30 * time.Second
	// maxAnswerBytes bounds what is read of an answer.
	maxAnswerBytes = 32 << 20
)

// client calls the REST API of a server. It never retries: the caller decides
// whether to send something twice.
type client struct {
	server string
	// context names the server where server does not; see chosenContext.
	context string
	output
}

// addFlags adds the flags that all commands have that talk to a server.
func (c *client) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.server, "server", "", "URL of the server (default $"+serverEnv+", else the context in use, else "+defaultServer+"); an API key is read from $"+apiKeyEnv+", and the function key of an Azure Functions app from $"+functionsKeyEnv)
	cmd.Flags().StringVar(&c.context, "context", "", "name of the server (pushlease context list shows them)")
	c.addFlag(cmd)
}

// request is one call of the API.
type request struct {
	method, path string
	// webhook is the id of the webhook that the call is about, or the name of one; path then goes on behind it.
	webhook string
	query   url.Values
	header  map[string]string
	body    []byte
	timeout time.Duration
}

// answer is what the server sent back with a status below 300.
type answer struct {
	header http.Header
	body   []byte
}

// etag is the version of what was read. What compresses on the way makes it a weak one, which the server would never match.
func (a answer) etag() string { return strings.TrimPrefix(a.header.Get("ETag"), "W/") }

// into reads the answer's JSON.
func (a answer) into(v any) error {
	if err := json.Unmarshal(a.body, v); err != nil {
		return fmt.Errorf("the answer is not what a pushlease server sends (is --server right?): %w", err)
	}
	return nil
}

// target is the URL to put paths behind, and the API key that goes there; empty without one.
func (c *client) target() (base, key string, err error) {
	if c.server != "" && c.context != "" {
		return "", "", usagef("--server and --context say the same; use one of them")
	}
	base, key = c.server, os.Getenv(apiKeyEnv)
	if base == "" && c.context == "" {
		base = os.Getenv(serverEnv)
	}
	if base == "" {
		chosen, err := chosenContext(c.context)
		if err != nil {
			return "", "", err
		}
		if chosen != nil {
			own, err := chosen.key()
			if err != nil {
				return "", "", err
			}
			base, key = chosen.Server, cmp.Or(own, key)
		}
	}
	base, err = checkServer(cmp.Or(base, defaultServer))
	return base, key, err
}

// checkServer is a server's URL without a slash at its end.
func checkServer(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		cure := defaultServer
		if host, port, err := net.SplitHostPort(server); err == nil && host != "" && port != "" && !strings.ContainsAny(server, "/@?# ") {
			cure = "http://" + server
		}
		if u != nil && u.Query().Has("code") {
			cure += ", and the key of a Functions app into " + functionsKeyEnv
		}
		return "", usagef("--server or %s is not an http or https URL without user and query; write %s", serverEnv, cure)
	}
	return strings.TrimRight(server, "/"), nil
}

// do makes one request. An answer with another status than 2xx is an *apiError. A webhook that is not found is looked for by
// its name.
func (c *client) do(ctx context.Context, r request) (answer, error) {
	a, err := c.once(ctx, r)
	if r.webhook == "" || !notFound(err) {
		return a, err
	}
	id, nameErr := c.idOfName(ctx, r.webhook)
	var several usageError
	switch {
	case errors.As(nameErr, &several):
		return answer{}, nameErr
	case nameErr != nil || id == "" || id == r.webhook:
		return a, err
	}
	r.webhook = id
	return c.once(ctx, r)
}

// once makes one request.
func (c *client) once(ctx context.Context, r request) (answer, error) {
	if r.timeout == 0 {
		r.timeout = requestTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	resp, err := c.open(ctx, r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := readAnswer(resp)
	if err != nil {
		return answer{}, err
	}
	return answer{resp.Header, body}, nil
}

// readAnswer reads the whole of an answer.
func readAnswer(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", resp.Request.URL.Host, err)
	}
	return body, nil
}

// open makes a request whose answer, with a status of 2xx, the caller reads and closes.
func (c *client) open(ctx context.Context, r request) (*http.Response, error) {
	base, key, err := c.target()
	if err != nil {
		return nil, err
	}
	target := base
	if r.webhook != "" {
		target += webhookPath(r.webhook)
	}
	target += r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	req.Header.Set("User-Agent", "pushlease/"+buildVersion())
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if key := os.Getenv(functionsKeyEnv); key != "" {
		req.Header.Set("X-Functions-Key", key)
	}
	// A redirect could take the keys elsewhere, and the API has none.
	httpClient := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := httpClient.Do(req)
	if err != nil {
		return nil, unreachable(base, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := readAnswer(resp)
	if err != nil {
		return nil, err
	}
	return nil, newAPIError(resp, body)
}

// unreachable says in one line what failed, without the wrapping of net/http.
func unreachable(base string, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("can't reach the server at %s: %w; is it running (pushlease serve), and is --server or %s right?", base, err, serverEnv)
}

// apiError is an answer that is no success. Its fields are those of RFC 9457.
type apiError struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Errors []struct {
		Field   string `json:"field"`
		Problem string `json:"problem"`
		Cure    string `json:"cure"`
	} `json:"errors,omitempty"`
	Checks []readyCheck `json:"checks,omitempty"`

	foreign bool // not the answer of a pushlease server
}

// readyCheck is one of the checks of /readyz.
type readyCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// failing lists the checks that fail, each on a line of its own.
func failing(checks []readyCheck) string {
	var b strings.Builder
	for _, check := range checks {
		if !check.OK {
			fmt.Fprintf(&b, "\n  %s: %s", check.Name, check.Detail)
		}
	}
	return b.String()
}

func newAPIError(resp *http.Response, body []byte) *apiError {
	var e apiError
	if err := json.Unmarshal(body, &e); err != nil || e.Title == "" {
		e = apiError{Title: http.StatusText(resp.StatusCode), Detail: "The answer is not one of a pushlease server; is --server right?", foreign: true}
		if resp.StatusCode == http.StatusUnauthorized {
			e.Detail = "The answer is not one of a pushlease server. " + functionsKeyCure()
		}
	}
	e.Status = resp.StatusCode
	return &e
}

// functionsKeyCure is what to do where something in front of the server refuses a request. The
// Functions host does so with 401 and no text.
func functionsKeyCure() string {
	if os.Getenv(functionsKeyEnv) == "" {
		return "If it is an Azure Functions app, set " + functionsKeyEnv + " to one of its function keys: az functionapp keys list"
	}
	return "If it is an Azure Functions app, the key in " + functionsKeyEnv + " is none of its function keys: az functionapp keys list"
}

func (e *apiError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%d)", e.Title, e.Status)
	if len(e.Errors) == 0 && e.Detail != "" {
		b.WriteString(": " + asCommands(e.Detail))
	}
	for _, f := range e.Errors {
		fmt.Fprintf(&b, "\n  %s %s\n    → %s", f.Field, f.Problem, asCommands(f.Cure))
	}
	return b.String() + failing(e.Checks)
}

func (e *apiError) exitCode() int {
	switch {
	case e.foreign: // whatever it means there, it says nothing about what was asked for
		return exitFailed
	case e.Status == http.StatusNotFound:
		return exitNotFound
	case e.Status/100 == 4:
		return exitRefused
	}
	return exitFailed
}

// page is one page of a list; rows stay as the server sent them.
type page struct {
	Data       []json.RawMessage `json:"data"`
	NextCursor *string           `json:"next_cursor"`
	// Unreadable names rows that the server could not read.
	Unreadable []struct {
		ID      string `json:"id"`
		Problem string `json:"problem"`
	} `json:"unreadable,omitempty"`

	gaveUp bool // maxEmptyPages in a row had no row
}

// maxEmptyPages is how many pages without a row are read one after the other: each costs the server a look at up to some
// thousands of rows, or on Azure dozens of transactions.
const maxEmptyPages = 100

// list reads up to limit rows of a list, over as many pages as that takes.
// NextCursor is set when there are more, or may be.
func (c *client) list(ctx context.Context, path string, query url.Values, limit int) (page, error) {
	all := page{Data: []json.RawMessage{}}
	for empty := 0; ; {
		query.Set("limit", strconv.Itoa(min(limit-len(all.Data), maxPage)))
		a, err := c.do(ctx, request{method: http.MethodGet, path: path, query: query})
		if err != nil {
			return page{}, err
		}
		var p page
		if err := a.into(&p); err != nil {
			return page{}, err
		}
		all.Data, all.NextCursor = append(all.Data, p.Data...), p.NextCursor
		all.Unreadable = p.Unreadable // every page names them all
		if empty++; len(p.Data) > 0 {
			empty = 0
		}
		more := p.NextCursor != nil && *p.NextCursor != ""
		if all.gaveUp = more && empty == maxEmptyPages; !more || all.gaveUp || len(all.Data) >= limit {
			return all, nil
		}
		query.Set("cursor", *p.NextCursor)
	}
}

// maxPage is the most rows that the server gives at once.
const maxPage = 500

// addLimit adds the flag that bounds a list.
func addLimit(cmd *cobra.Command, limit *int, def int) {
	cmd.Flags().IntVar(limit, "limit", def, "most rows to show, 1 to 100000")
}

func checkLimit(limit int) error {
	if limit < 1 || limit > 100_000 {
		return usagef("--limit %d: use 1 to 100000", limit)
	}
	return nil
}

// rows decodes each row of a page.
func rows[T any](p page) ([]T, error) {
	out := make([]T, len(p.Data))
	for i, raw := range p.Data {
		if err := json.Unmarshal(raw, &out[i]); err != nil {
			return nil, fmt.Errorf("row %d of the answer: %w", i+1, err)
		}
	}
	return out, nil
}

// more tells a person that the list goes on, and what is missing in it.
func more(cmd *cobra.Command, p page) {
	for _, u := range p.Unreadable {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Not shown: %s, %s.\n", oneLine(u.ID), oneLine(u.Problem))
	}
	switch {
	case p.gaveUp:
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "There may be more than these %d: %d pages in a row had none, so the search ended. Narrow it, for instance to other days with --from and --until.\n", len(p.Data), maxEmptyPages)
	case p.NextCursor != nil && *p.NextCursor != "":
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "There are more; --limit shows more than these %d.\n", len(p.Data))
	}
}
