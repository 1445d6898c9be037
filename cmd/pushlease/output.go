package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
)

// writeJSON writes one line of JSON that is harmless for a terminal, where it ends
// up too: JSON itself escapes only some of what could steer one.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	var line strings.Builder
	for _, r := range b.String() {
		switch {
		case r == '\n' || unicode.IsGraphic(r):
			line.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&line, `\u%04x\u%04x`, high, low)
		default: // within a string: nothing else may have such characters
			fmt.Fprintf(&line, `\u%04x`, r)
		}
	}
	_, err := io.WriteString(w, line.String())
	return err
}

// table prints rows under a heading in aligned columns.
func table(w io.Writer, heading []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{heading}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = oneLine(cell)
		}
		_, _ = fmt.Fprintln(tw, strings.Join(cells, "\t")) // Flush reports it
	}
	return tw.Flush()
}

// fields prints names and values below each other; empty values are left out.
func fields(w io.Writer, pairs [][2]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, p := range pairs {
		if p[1] != "" {
			_, _ = fmt.Fprintf(tw, "%s\t%s\n", p[0], oneLine(p[1])) // Flush reports it
		}
	}
	return tw.Flush()
}

// clean makes text from elsewhere fit for a terminal: a message, a webhook's
// answer or a server could otherwise move the cursor or change the title. Line
// breaks and tabs stay.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// oneLine is clean for table cells.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, clean(s))
}

// clock shows a time in UTC, as the sentences of the server do; empty for the zero time.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// instant is clock to the millisecond, for what is told in its order.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// routes are the calls of the API that its texts name, and the commands that make them.
var routes = []struct {
	call    *regexp.Regexp
	command string
}{
	{regexp.MustCompile(`POST /api/v1/webhooks/([^/ ]+)/(enable|test|rotate-secret|rotate-signing-key)( \(pushlease [^)]*\))?`), "pushlease webhooks $2 $1"},
	{regexp.MustCompile(`POST /api/v1/dead-letters/([^/ ]+)/replay`), "pushlease dead-letters replay $1"},
	{regexp.MustCompile(`GET /api/v1/replays`), "pushlease dead-letters jobs"},
	{regexp.MustCompile(`GET /api/v1/webhooks\?queue=([a-z0-9-]+)`), "pushlease webhooks list --queue $1"},
	{regexp.MustCompile(`GET /api/v1/attempts\?webhook=(\w+)`), "pushlease attempts $1"},
	{regexp.MustCompile(`GET /api/v1/(dead-letters|webhooks)\b`), "pushlease $1 list"},
	{regexp.MustCompile(`GET /api/v1/attempts\b`), "pushlease attempts"},
	{regexp.MustCompile(`POST /api/v1/queues/([a-z0-9-]+)/match`), "pushlease match $1"},
	{regexp.MustCompile(`GET /api/v1/queues/([a-z0-9-]+)`), "pushlease queues show $1"},
	{regexp.MustCompile(`GET /api/v1/queues\b`), "pushlease queues list"},
	{regexp.MustCompile(`\bat /api/v1/messages/([\w~-]+)`), "with pushlease messages show $1"},
	{regexp.MustCompile(`\?force=true`), "--force"},
	{regexp.MustCompile(`send the header Authorization: Bearer <token>, once, with the token of an API key`), "set PUSHLEASE_API_KEY to the token of an API key that this server has"},
}

// asCommands names commands in the place of the calls in a server's text.
func asCommands(text string) string {
	for _, r := range routes {
		text = r.call.ReplaceAllString(text, r.command)
	}
	return text
}
