package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// printer shows what a receiver got.
type printer struct {
	out io.Writer
	output
}

// maxShownBody is how much of a body a person is shown.
const maxShownBody = 4 << 10

// received prints one request.
func (p *printer) received(r received) {
	if p.json() {
		line := struct {
			received
			Body       any    `json:"body,omitempty"`
			BodyBase64 []byte `json:"body_base64,omitempty"`
		}{received: r}
		switch {
		case !utf8.Valid(r.Body): // json.Valid does not mind
			line.BodyBase64 = r.Body
		case json.Valid(r.Body):
			line.Body = json.RawMessage(r.Body)
		default:
			line.Body = string(r.Body)
		}
		_ = p.line(line) // as below
		return
	}
	parts := []string{r.At.Format("15:04:05.000")}
	for _, named := range [][2]string{
		{"queue", r.Queue}, {"message", r.ID}, {"attempt", r.Attempt}, {"signature", r.Signature}, {"type", r.ContentType}, {"traceparent", r.Traceparent},
	} {
		if named[1] != "" {
			parts = append(parts, named[0]+" "+oneLine(named[1]))
		}
	}
	if r.Duplicate {
		parts = append(parts, "DUPLICATE")
	}
	answer := fmt.Sprintf("→ %d", r.Status)
	if r.RetryAfter != "" {
		answer += " retry-after " + r.RetryAfter
	}
	if r.Delay != "" {
		answer += " in " + r.Delay
	}
	if r.ForwardedIn != "" {
		answer += ", forwarded in " + r.ForwardedIn
	}
	text := strings.Join(append(parts, answer), "  ") + "\n"
	for l := range strings.SplitSeq(prettyBody(r.Body), "\n") {
		text += "    " + l + "\n"
	}
	_, _ = io.WriteString(p.out, text) // a closed pipe ends the process anyway
}

// prettyBody makes a body readable, and harmless for a terminal.
func prettyBody(body []byte) string {
	var indented bytes.Buffer
	text := string(body)
	switch {
	case len(body) == 0:
		return "(no body)"
	case !utf8.Valid(body):
		text = strings.TrimRight(hex.Dump(body[:min(len(body), 256)]), "\n")
		if len(body) > 256 {
			text += fmt.Sprintf("\n… %d bytes in all", len(body))
		}
		return text
	case indentable(body) && json.Indent(&indented, body, "", "  ") == nil:
		text = indented.String()
	}
	if len(text) > maxShownBody {
		cut := maxShownBody
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = fmt.Sprintf("%s\n… %d bytes in all", text[:cut], len(body))
	}
	return clean(strings.TrimRight(text, "\n"))
}

// indentable is false for what would grow out of all proportion: each line is
// indented by the depth, so a few thousand brackets make hundreds of megabytes.
func indentable(body []byte) bool {
	const deepest = 64
	depth := 0
	for _, c := range body {
		switch c {
		case '[', '{':
			if depth++; depth > deepest {
				return false
			}
		case ']', '}':
			depth--
		}
	}
	return len(body) <= maxBodyBytes
}

// summary prints the totals.
func (p *printer) summary(t receiverTotals) error {
	if p.json() {
		return p.line(map[string]receiverTotals{"summary": t})
	}
	answers := "nothing"
	for i, status := range slices.Sorted(maps.Keys(t.Answers)) {
		if answers += ", "; i == 0 {
			answers = ""
		}
		answers += fmt.Sprintf("%d × %d", t.Answers[status], status)
	}
	_, err := fmt.Fprintf(p.out, "\nrequests %d, messages %d, retries %d, duplicates %d, bad signatures %d; answered %s\n",
		t.Requests, t.IDs, t.Retries, t.Duplicates, t.BadSignatures, answers)
	return err
}

func (p *printer) line(v any) error { return p.print(p.out, v) }
