package functions

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxInvocation bounds an invocation's body: a message of 64 KiB is at most seven
// times as long when it is escaped twice, and may be there a second time in Metadata.
const maxInvocation = 2 << 20

// invocation is what the host sends. Metadata holds, for a queue trigger, what storage
// said about the message, but a text message that is a JSON object overwrites it
// member by member (see message).
type invocation struct {
	Data     map[string]json.RawMessage
	Metadata map[string]json.RawMessage
}

func readInvocation(r *http.Request) (invocation, error) {
	var inv invocation
	body, err := io.ReadAll(io.LimitReader(r.Body, maxInvocation+1))
	switch {
	case err != nil:
		return inv, fmt.Errorf("read invocation: %w", err)
	case len(body) > maxInvocation:
		return inv, fmt.Errorf("the invocation is longer than %d bytes", maxInvocation)
	}
	if json.Unmarshal(body, &inv) != nil { // its error quotes the payload
		return inv, errors.New("the invocation is not the JSON object that the host sends")
	}
	return inv, nil
}

// text reads a value of .NET's string type, which the host encodes as JSON twice. Numbers
// and others that it encodes once come as they are written.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	if inner, ok := quoted(s); ok {
		return inner
	}
	return s
}

// quoted undoes the inner of the two encodings.
func quoted(s string) (inner string, ok bool) {
	return inner, strings.HasPrefix(s, `"`) && json.Unmarshal([]byte(s), &inner) == nil
}

// meta finds a member of Metadata. An overwritten one keeps its name, as far as is
// known; a different case is accepted.
func (inv invocation) meta(name string) string {
	if raw, ok := inv.Metadata[name]; ok {
		return text(raw)
	}
	for k, raw := range inv.Metadata {
		if strings.EqualFold(k, name) {
			return text(raw)
		}
	}
	return ""
}

// time reads a point in time; the zero time for one that means never (the year 9999).
func (inv invocation) time(name string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, inv.meta(name))
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("the invocation's Metadata has no time as %s", name)
	case t.Year() >= 9999:
		return time.Time{}, nil
	}
	return t.UTC(), nil
}

// calledAt is when the host began the invocation; the zero time where it does not say so, or a
// message's own text may: the host merges that into Metadata.
func (inv invocation) calledAt(f Function) time.Time {
	var sys struct{ UtcNow time.Time }
	if _, binary, err := inv.message(f.Binding); f.Trigger == queueTrigger && (err != nil || !binary) {
		return time.Time{}
	}
	if json.Unmarshal(inv.Metadata["sys"], &sys) != nil {
		return time.Time{}
	}
	return sys.UtcNow
}

func (inv invocation) count(name string) int64 {
	n, err := strconv.ParseInt(inv.meta(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// message reads the message's stored text. With dataType binary the host sends base64
// of it, otherwise the text as JSON within JSON; base64 has no quotes, so that the two
// can't be mistaken for each other whatever function.json said.
func (inv invocation) message(binding string) (body []byte, binary bool, err error) {
	raw, ok := inv.Data[binding]
	if !ok && len(inv.Data) == 1 {
		for _, only := range inv.Data {
			raw, ok = only, true
		}
	}
	if !ok {
		return nil, false, fmt.Errorf("the invocation has no value for the binding %s", binding)
	}
	var s string
	if !bytes.HasPrefix(raw, []byte{'"'}) || json.Unmarshal(raw, &s) != nil { // null is taken for a string
		return nil, false, fmt.Errorf("the value of the binding %s is not a string", binding)
	}
	if inner, ok := quoted(s); ok {
		return []byte(inner), false, nil
	}
	body, err = base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, false, fmt.Errorf("the value of the binding %s is neither base64 nor a quoted text", binding)
	}
	return body, true, nil
}

// result is what the host takes as the end of an invocation. All of it is always
// there: an answer that the host reads as null never ends the invocation, and after the
// function timeout this process is killed for it.
type result struct {
	Outputs     struct{} `json:"Outputs"`
	Logs        []string `json:"Logs"`
	ReturnValue any      `json:"ReturnValue"`
}

// answer ends an invocation. Under 2xx the host completes it, and deletes the message of
// a queue trigger; under anything else it gives that back after its visibilityTimeout.
func answer(w http.ResponseWriter, status int) {
	body, err := json.Marshal(result{Logs: []string{}})
	if err != nil { // there is nothing in it that could fail
		body = []byte(`{"Outputs":{},"Logs":[],"ReturnValue":null}`)
	}
	w.Header().Set("Content-Type", "application/json") // the host takes no other
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the host has gone: nobody left to tell
}

// pastDue reports whether a timer run comes late.
func pastDue(inv invocation, binding string) bool {
	var timer struct{ IsPastDue bool }
	return json.Unmarshal(inv.Data[binding], &timer) == nil && timer.IsPastDue
}
