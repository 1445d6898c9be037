package publish

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/webhook/content"
)

// maxEventMembers is the most members that an event may have; webhook reads no more.
const maxEventMembers = 100

var byteOrderMark = []byte("\xef\xbb\xbf")

// badEvent answers 422 with everything that is wrong with events.
func badEvent(errs []web.FieldError) *web.Problem { return web.Wrongs(web.InvalidEvent, errs...) }

// checkEvent says what is wrong with a body that is to be one event in structured mode.
// The headers may repeat its attributes, as in binary mode, but not contradict them.
func checkEvent(body []byte, h http.Header) []web.FieldError {
	e, problems := readEvent(body, func(name string) string { return name })
	if len(problems) > 0 {
		return problems
	}
	given, problems := headerAttributes(h)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if text, ok := e.attribute(name); !ok || text != given[name] {
			problems = append(problems, web.Wrong("ce-"+name, "is not what the event in the body says", "leave the header out: the body holds the whole event"))
		}
	}
	return problems
}

// givenEvent is an event as it is read for publishing.
type givenEvent struct {
	names  []string
	values map[string]json.RawMessage
}

// attribute returns the text of an attribute as a header would have it.
func (e givenEvent) attribute(name string) (string, bool) {
	raw, ok := e.values[name]
	if !ok || web.IsNull(raw) || name == "data" || name == "data_base64" {
		return "", false
	}
	var text string
	if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	return string(raw), true
}

// readEvent reads one event and checks all that CloudEvents 1.0 and its JSON format
// demand of it, so that no webhook has to refuse it later. field names an attribute
// in a problem.
func readEvent(body []byte, field func(name string) string) (givenEvent, []web.FieldError) {
	doc := bytes.TrimPrefix(body, byteOrderMark)
	if what := web.SyntaxProblem(doc); what != "" {
		return givenEvent{}, []web.FieldError{web.Wrong(field("body"), what, "send one JSON object in UTF-8 for each event")}
	}
	e, what := eventMembers(doc)
	if what != "" {
		return givenEvent{}, []web.FieldError{web.Wrong(field("body"), what, `send one JSON object, such as {"specversion":"1.0","id":"1","source":"/shop","type":"order.paid","data":{}}`)}
	}
	var problems []web.FieldError
	for _, name := range []string{"specversion", "id", "source", "type"} {
		if raw, ok := e.values[name]; !ok || web.IsNull(raw) {
			problems = append(problems, web.Wrong(field(name), "is missing", attributeCures[name]))
		}
	}
	for _, name := range e.names {
		if what, cure := checkMember(name, e.values[name]); what != "" {
			problems = append(problems, web.Wrong(field(web.ShownName(name)), what, cure))
		}
	}
	if data, text := e.values["data"], e.values["data_base64"]; data != nil && text != nil && !web.IsNull(data) && !web.IsNull(text) {
		problems = append(problems, web.Wrong(field("data_base64"), "is there beside data", "keep one of them"))
	}
	if len(problems) == 0 {
		// What is delivered is decided by the reader there; the two must agree.
		if _, ok := content.ParseEvent(body, eventType); !ok {
			problems = append(problems, web.Wrong(field("body"), "can't be read as one event", "write id, source and type as plain texts of whole characters"))
		}
	}
	return e, problems
}

// eventMembers takes a JSON object apart. A name that is there twice would be read
// differently by different readers.
func eventMembers(doc []byte) (e givenEvent, what string) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return givenEvent{}, "is not a JSON object"
	}
	e.values = map[string]json.RawMessage{}
	for dec.More() {
		token, err := dec.Token()
		name, ok := token.(string)
		var value json.RawMessage
		if err != nil || !ok || dec.Decode(&value) != nil {
			return givenEvent{}, "is not valid JSON"
		}
		if _, twice := e.values[name]; twice {
			return givenEvent{}, fmt.Sprintf("has %s twice", web.ShownName(name))
		}
		if len(e.names) == maxEventMembers {
			return givenEvent{}, fmt.Sprintf("has more than %d attributes", maxEventMembers)
		}
		e.names = append(e.names, name)
		e.values[name] = value
	}
	return e, ""
}

func isInt32(text string) bool {
	_, err := strconv.ParseInt(text, 10, 32)
	return err == nil
}

var escape = regexp.MustCompile("%[0-9A-Fa-f]{2}")

// isURIReference is what CloudEvents wants a source to be: what receivers that are strict
// refuse would be a dead letter.
func isURIReference(text string) bool {
	if cut := escape.ReplaceAllLiteralString(text, ""); strings.Contains(cut, "%") { // url.Parse takes any in a query
		return false
	}
	u, err := url.Parse(text)
	if err != nil || strings.Count(text, "#") > 1 || strings.ContainsAny(u.EscapedPath()+u.Opaque+u.RawQuery+u.EscapedFragment(), "[]") {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"<>\\^`{|}", r) }) && (u.Opaque == "" || u.Scheme != "")
}

const textCure = "write it as a text without control characters and noncharacters (such as U+FFFE)"

// attributeCures say how to put the attributes right that CloudEvents defines.
var attributeCures = map[string]string{
	"specversion":     "write 1.0, the version that is read here",
	"id":              "give each event an id of its own, such as a UUID",
	"source":          "name where the event comes from, such as /shop or https://example.com/shop",
	"type":            "name what happened, such as com.example.order.paid",
	"subject":         "name what it is about, or leave it out",
	"time":            "write a time as RFC 3339 has it, such as 2026-08-01T12:00:00Z, or leave it out",
	"datacontenttype": "name the data's media type, such as application/json, or leave it out",
	"dataschema":      "give the schema's URI, or leave it out",
	"data_base64":     "write it as a text in standard base64 with padding, or leave it out",
}

// checkMember says what is wrong with one member of an event, and the cure.
func checkMember(name string, raw json.RawMessage) (what, cure string) {
	cure, defined := attributeCures[name]
	switch {
	case name == "data":
		return "", ""
	case !defined && !isAttributeName(name):
		return "is no name of an attribute", "use at most 64 lower-case letters and digits"
	case web.IsNull(raw):
		return "", "" // as if it were not there
	case raw[0] == '{' || raw[0] == '[':
		return "is an object or a list", "put it into data; an attribute is a text, a whole number, true or false"
	case raw[0] != '"' && defined:
		return "is not a text", cure
	case raw[0] != '"' && bytes.ContainsAny(raw, ".eE") && raw[0] != 't' && raw[0] != 'f':
		return "is not a whole number", "write it as a text"
	case raw[0] != '"' && raw[0] != 't' && raw[0] != 'f' && !isInt32(string(raw)):
		return "is a number beyond 32 bits, which CloudEvents does not allow", "write it as a text"
	case raw[0] != '"':
		return "", ""
	}
	text, ok := content.Unquote(raw)
	if !ok {
		return "has half a character (a lone surrogate), which CloudEvents does not allow", "write whole characters"
	}
	if name == "data_base64" {
		if _, err := base64.StdEncoding.Strict().DecodeString(text); err != nil || strings.ContainsAny(text, "\r\n") {
			return "is not base64", cure
		}
		return "", ""
	}
	if strings.ContainsFunc(text, isForbidden) {
		return "has control characters or noncharacters of Unicode, which CloudEvents does not allow", textCure
	}
	if !defined {
		return "", ""
	}
	return checkDefined(name, text), cure
}

// checkDefined checks the text of an attribute that CloudEvents defines.
func checkDefined(name, text string) (what string) {
	if text == "" {
		return "is empty"
	}
	switch name {
	case "specversion":
		if text != "1.0" {
			return "is not 1.0"
		}
	case "time":
		if _, ok := web.ParseTime(text); !ok {
			return "is not a time"
		}
	case "source":
		if !isURIReference(text) {
			return "is not a URI or a part of one"
		}
	case "dataschema":
		if u, err := url.Parse(text); err != nil || !isURIReference(text) || !u.IsAbs() {
			return "is not a whole URI"
		}
	case "datacontenttype":
		if media, _, err := mime.ParseMediaType(text); err != nil || !strings.Contains(media, "/") {
			return "is not a media type"
		}
	}
	return ""
}

// isAttributeName: CloudEvents 1.0, "Attribute Naming Convention"; the length is ours.
func isAttributeName(name string) bool {
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
}

// isForbidden: CloudEvents 1.0, "Type System": what a String must not contain, control characters and what Unicode
// calls noncharacters.
func isForbidden(c rune) bool {
	return c < 0x20 || c >= 0x7f && c <= 0x9f || c&0xfffe == 0xfffe || c >= 0xfdd0 && c <= 0xfdef
}
