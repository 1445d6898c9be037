package publish

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook/content"
)

const (
	attributePrefix = "ce-"
	// maxAttributeHeader bounds the value of one ce-* header, in bytes; common servers
	// and proxies take no more than 8 KiB for all headers together.
	maxAttributeHeader = 4096
)

func hasAttributes(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(strings.ToLower(name), attributePrefix) {
			return true
		}
	}
	return false
}

// binaryEvent makes one event in the JSON format of a request in binary mode (CloudEvents
// HTTP protocol binding 1.0.2, section 3.1). The same request always gives the same
// bytes: by them a copy is recognised. contentType is empty for the usual one of data.
func binaryEvent(h http.Header, data []byte, contentType string) ([]byte, []web.FieldError) {
	attributes, problems := headerAttributes(h)
	if contentType == "" && len(data) > 0 {
		contentType = queue.DefaultContentType(data)
	}
	if contentType != "" {
		attributes["datacontenttype"] = contentType
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(attributes)), isRequired)
	names = append([]string{"specversion", "id", "source", "type"}, names...)
	doc := []byte{'{'}
	for _, name := range names {
		if text, ok := attributes[name]; ok {
			value, err := json.Marshal(text)
			if err != nil { // a string can't fail
				panic(err)
			}
			doc = appendMember(doc, name, value)
		}
	}
	if len(data) > 0 {
		name, value := eventData(data, contentType)
		doc = appendMember(doc, name, value)
	}
	doc = append(doc, '}')

	_, wrong := readEvent(doc, binaryField)
	for _, p := range wrong { // what is wrong with a header already would be missed too
		if !slices.ContainsFunc(problems, func(known web.FieldError) bool { return known.Field == p.Field }) {
			problems = append(problems, p)
		}
	}
	return doc, problems
}

func isRequired(name string) bool {
	return name == "specversion" || name == "id" || name == "source" || name == "type"
}

// binaryField is where a request in binary mode has an attribute.
func binaryField(name string) string {
	switch name {
	case "body", "data", "data_base64":
		return "body"
	case "datacontenttype":
		return "Content-Type"
	}
	return attributePrefix + name
}

func appendMember(doc []byte, name string, value []byte) []byte {
	if len(doc) > 1 {
		doc = append(doc, ',')
	}
	doc = append(append(append(doc, '"'), name...), `":`...)
	return append(doc, value...)
}

// eventData returns data as a member of an event: as a JSON value, as a text, or as
// base64, as formats make it of a body that is no event.
func eventData(data []byte, contentType string) (name string, value []byte) {
	c := content.Read(data, contentType)
	c.Event = nil // data that is itself an event is data
	wrapped, _ := eventMembers(content.FormatStructured.Payload(c, content.Origin{}).Body)
	if value, ok := wrapped.values["data"]; ok {
		return "data", value
	}
	return "data_base64", wrapped.values["data_base64"]
}

// headerAttributes reads the ce-* headers.
func headerAttributes(h http.Header) (map[string]string, []web.FieldError) {
	attributes := map[string]string{}
	var problems []web.FieldError
	fail := func(name, what, cure string) {
		problems = append(problems, web.Wrong(attributePrefix+web.ShownName(name), what, cure))
	}
	for _, header := range slices.Sorted(maps.Keys(h)) {
		name, ok := strings.CutPrefix(strings.ToLower(header), attributePrefix)
		if !ok {
			continue
		}
		values := h[header]
		_, again := attributes[name]
		switch {
		case name == "datacontenttype":
			fail(name, "is no header of binary mode", "send the data's media type as Content-Type")
		case name == "data" || !isAttributeName(name):
			fail(name, "is no name of an attribute", "use at most 64 lower-case letters and digits; the data is the request's body")
		case len(values) != 1 || again:
			fail(name, "is there more than once", "give it once")
		default:
			text, what, cure := headerText(values[0])
			if what != "" {
				fail(name, what, cure)
				continue
			}
			attributes[name] = text
		}
	}
	return attributes, problems
}

// headerText is the text that a ce-* header stands for: CloudEvents HTTP protocol binding
// 1.0.2, section 3.1.3.2.
func headerText(value string) (text, what, cure string) {
	if len(value) > maxAttributeHeader {
		return "", fmt.Sprintf("has more than %d bytes", maxAttributeHeader), "put it into the data, or send the event in structured mode"
	}
	const encode = "percent-encode it: a blank as %20, a quote as %22, % as %25, and each byte of other characters in UTF-8"
	if strings.ContainsFunc(value, func(c rune) bool { return c < 0x20 || c > 0x7e }) {
		return "", "has characters other than printable ASCII", encode
	}
	if strings.HasPrefix(value, `"`) { // what older versions of the binding wrote
		var ok bool
		if value, ok = web.UnquoteHeader(value); !ok {
			return "", "begins with a quote that does not end with the value", encode
		}
	}
	decoded := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		if value[i] != '%' {
			decoded = append(decoded, value[i])
			continue
		}
		if len(value) < i+3 || !isHex(value[i+1]) || !isHex(value[i+2]) {
			return "", "has a % without two hexadecimal digits", encode
		}
		decoded = append(decoded, hexValue(value[i+1])<<4|hexValue(value[i+2]))
		i += 2
	}
	if !utf8.Valid(decoded) {
		return "", "is not UTF-8 once it is percent-decoded", encode
	}
	return string(decoded), "", ""
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}
