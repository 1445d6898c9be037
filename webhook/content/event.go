package content

import (
	"bytes"
	"context"
	"encoding/base64"
	"mime"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const (
	// maxMembers is the most members that an event's object may have.
	maxMembers = 100
	// maxAttributeName is the longest name of an attribute that becomes a header.
	maxAttributeName = 64
)

// Event is what a body says about itself that is a CloudEvents 1.0 event in the JSON
// format. All of it came from outside.
type Event struct {
	// ID, Source and Type are there always; the others may be empty.
	ID      string
	Source  string
	Type    string
	Subject string
	// Time is the text of the attribute; nothing has checked that it is a time.
	Time            string
	DataContentType string
	// Parent is the span that the extensions traceparent and tracestate name. It is not
	// valid when they name none, or badly.
	Parent trace.SpanContext

	// attributes are all that become headers in binary mode, in the order of the body.
	attributes []attribute
	// data and dataBase64 are the JSON values of these members, nil when absent.
	data       []byte
	dataBase64 []byte
	// unportable is true when the body holds a member that no header can carry.
	unportable bool
}

type attribute struct{ name, value string }

// Key names the event for deduplication: source and id together, as CloudEvents has it.
// Two events have the same key only when both are the same.
func (e *Event) Key() string {
	return strconv.Itoa(len(e.Source)) + ":" + e.Source + e.ID
}

// ParseEvent reads a body that is one CloudEvents 1.0 event in the JSON format
// (structured mode). contentType is the body's, empty when unknown; an event is looked
// for only under a JSON one. A byte order mark before the event is passed over.
//
// It is no event when it could be read in two ways: a member that is there twice, or an
// id, source, type or specversion that is missing, empty or not text. Members that are
// no attributes do not matter.
func ParseEvent(body []byte, contentType string) (Event, bool) {
	if !mayHoldEvent(body, contentType) {
		return Event{}, false
	}
	return eventOf(jsonDocument(body))
}

// mayHoldEvent sorts out most bodies at little cost.
func mayHoldEvent(body []byte, contentType string) bool {
	return bytes.Contains(body, []byte(`"specversion"`)) && (contentType == "" || jsonText(contentType))
}

// eventOf reads a document of jsonDocument; nil is none.
func eventOf(doc []byte) (Event, bool) {
	if len(doc) == 0 || doc[0] != '{' {
		return Event{}, false
	}
	var e Event
	var version, traceparent, tracestate string
	names := make([]string, 0, 16)
	for rawName, value := range members(doc) {
		name, ok := Unquote(rawName)
		if !ok || len(names) == maxMembers || slices.Contains(names, name) {
			return Event{}, false
		}
		names = append(names, name)
		switch name {
		case "data":
			e.data = value
			continue
		case "data_base64":
			if string(value) != "null" { // as if it were not there: serialisers write it beside data
				e.dataBase64 = value
			}
			continue
		}
		text, kind := attributeText(value)
		if kind == unset {
			continue
		}
		if field := e.field(name, &version, &traceparent, &tracestate); field != nil && value[0] == '"' {
			*field = text
		}
		if kind == unusable || !isAttributeName(name) {
			e.unportable = true
			continue
		}
		if name != "datacontenttype" {
			e.attributes = append(e.attributes, attribute{name, text})
		}
	}
	if version != "1.0" || e.ID == "" || e.Source == "" || e.Type == "" {
		return Event{}, false
	}
	e.Parent = ParentOf(traceparent, tracestate)
	return e, true
}

// field says where the text of an attribute is kept; nil when it is not.
func (e *Event) field(name string, version, traceparent, tracestate *string) *string {
	switch name {
	case "specversion":
		return version
	case "id":
		return &e.ID
	case "source":
		return &e.Source
	case "type":
		return &e.Type
	case "subject":
		return &e.Subject
	case "time":
		return &e.Time
	case "datacontenttype":
		return &e.DataContentType
	case "traceparent":
		return traceparent
	case "tracestate":
		return tracestate
	}
	return nil
}

// attributeKind is what the JSON value of an attribute can be used for.
type attributeKind int

const (
	usable   attributeKind = iota
	unset                  // null: as if it were not there
	unusable               // no value that CloudEvents allows
)

// attributeText is the canonical string of an attribute's value: a text, a truth
// value or a whole number.
func attributeText(value []byte) (string, attributeKind) {
	switch value[0] {
	case '"':
		if text, ok := Unquote(value); ok {
			return text, usable
		}
		return "", unusable
	case 'n':
		return "", unset
	case 't', 'f':
		return string(value), usable
	case '{', '[':
		return "", unusable
	}
	if bytes.ContainsAny(value, ".eE") {
		return "", unusable
	}
	return string(value), usable
}

// isAttributeName: lower-case letters and digits, of a length that suits a header.
func isAttributeName(name string) bool {
	return len(name) <= maxAttributeName && name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
}

// maxTraceState is how long a tracestate is passed on: what the W3C recommendation asks
// for at least, and harmless for any receiver's limit of headers.
const maxTraceState = 512

// TraceState returns the W3C trace state s as it is passed on: nothing where it is malformed
// or has more than 32 members, and without its last members where it is longer than 512
// bytes.
func TraceState(s string) string {
	if len(s) > 64<<10 { // it is a sender's: not even read
		return ""
	}
	state, err := trace.ParseTraceState(s)
	if err != nil {
		return ""
	}
	kept := state.String()
	for len(kept) > maxTraceState {
		kept = kept[:max(strings.LastIndexByte(kept, ','), 0)]
	}
	return kept
}

// ParentOf is the span that a traceparent and a tracestate name; one that is malformed
// counts as none.
func ParentOf(traceparent, tracestate string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{"traceparent": traceparent, "tracestate": TraceState(tracestate)}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// payload returns the bytes that the event's data stands for, and their content type.
// It is false when they can't be told exactly.
func (e *Event) payload() (data []byte, contentType string, ok bool) {
	contentType = e.DataContentType
	switch {
	case e.data != nil && string(e.data) != "null" && e.dataBase64 != nil:
		return nil, "", false
	case e.dataBase64 != nil:
		text, ok := Unquote(e.dataBase64)
		if !ok || strings.ContainsAny(text, "\r\n") {
			return nil, "", false
		}
		if contentType == "" {
			contentType = DefaultType
		}
		data, err := base64.StdEncoding.Strict().DecodeString(text)
		return data, contentType, err == nil
	case e.data == nil:
		return nil, contentType, true
	case contentType == "":
		return e.data, "application/json", true // which the JSON format implies
	case jsonType(contentType):
		return e.data, contentType, true
	}
	text, ok := Unquote(e.data)
	return []byte(text), contentType, ok && isUTF8Charset(contentType)
}

// jsonType is whether a content type declares JSON: */json or */*+json.
func jsonType(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	_, subtype, _ := strings.Cut(media, "/")
	return subtype == "json" || strings.HasSuffix(subtype, "+json")
}

// jsonText is whether a content type declares JSON in an encoding that is read here.
func jsonText(contentType string) bool {
	return jsonType(contentType) && isUTF8Charset(contentType)
}

// isUTF8Charset is whether a content type names no other encoding of characters.
func isUTF8Charset(contentType string) bool {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	switch strings.ToLower(params["charset"]) {
	case "", "utf-8", "utf8", "us-ascii":
		return true
	}
	return false
}
