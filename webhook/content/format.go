package content

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"mime"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// Format says in which form a webhook gets its messages.
type Format string

// The formats.
const (
	// FormatRaw is the message's body, untouched; the zero Format means it too.
	FormatRaw Format = "raw"
	// FormatStructured is one CloudEvents 1.0 event in JSON per POST. A body that is
	// one already stays untouched; any other is wrapped into one.
	FormatStructured Format = "cloudevents-structured"
	// FormatBinary is the data of the event as the body and its attributes as ce-
	// headers. A body that is no event is sent as it stands, with the attributes that
	// wrapping it would give. What headers can't carry exactly is sent as
	// FormatStructured, which a CloudEvents receiver tells by the content type.
	FormatBinary Format = "cloudevents-binary"
)

// Formats lists every Format.
func Formats() []Format { return []Format{FormatRaw, FormatStructured, FormatBinary} }

// ParseFormat returns the Format named s. The error is a *FieldError.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case FormatRaw, FormatStructured, FormatBinary:
		return f, nil
	}
	return "", &FieldError{Problem: "the format is not known", Cure: "use " + listOf(Formats())}
}

// Keeps is whether a header of the webhook's own is sent in the format: in CloudEvents
// the content type says which mode it is, and the attributes are the event's.
func (f Format) Keeps(header string) bool {
	header = strings.ToLower(header)
	return f == FormatRaw || f == "" || header != "content-type" && !strings.HasPrefix(header, "ce-")
}

const (
	structuredType = "application/cloudevents+json"
	// wrappedType is the type of an event that is made of a raw body.
	wrappedType = "pushlease.message"
	specVersion = "1.0"

	// maxEventHeaders and maxEventHeaderSize bound what an event adds to a request's
	// head: common receivers refuse one of more than 8 KiB.
	maxEventHeaders    = 50
	maxEventHeaderSize = 6 << 10
)

// Origin is what an event that is made of a raw body says about it. All of it is the
// same for every attempt.
type Origin struct {
	// MessageID becomes the id, and Queue the source /queues/<queue>.
	MessageID string
	Queue     string
	// InsertedAt becomes the time, unless it is zero.
	InsertedAt time.Time
}

// Payload is what is POSTed and signed.
type Payload struct {
	Body        []byte
	ContentType string
	// Headers are the ce- headers of FormatBinary, safe to send whatever the message
	// held; nil otherwise.
	Headers map[string]string
}

// Payload puts a message into the format. It is pure: the same message always gives the
// same bytes, and c is not changed.
func (f Format) Payload(c Content, o Origin) Payload {
	switch f {
	case FormatStructured:
		return structured(c, o)
	case FormatBinary:
		if p, ok := binary(c, o); ok {
			return p
		}
		return structured(c, o)
	}
	return Payload{Body: c.Body, ContentType: c.ContentType}
}

func structured(c Content, o Origin) Payload {
	body := c.Body
	if c.Event == nil {
		body = wrap(c, o)
	}
	return Payload{Body: body, ContentType: structuredType}
}

// wrap makes an event of a body that loses nothing of it: JSON as it is written (but for
// blanks around it), text as a text, and everything else as base64.
func wrap(c Content, o Origin) []byte {
	event := make([]byte, 0, len(c.Body)*4/3+512)
	separator := byte('{')
	for _, a := range o.attributes() {
		event = append(event, separator)
		event = append(appendQuoted(event, a.name), ':')
		event = appendQuoted(event, a.value)
		separator = ','
	}
	contentType := HeaderValue(c.ContentType)
	if contentType != "" {
		event = append(event, `,"datacontenttype":`...)
		event = appendQuoted(event, contentType)
	}
	var value []byte
	if jsonText(contentType) && !bytes.HasPrefix(c.Body, []byte(byteOrderMark)) {
		value = c.document.json()
	}
	switch {
	case value != nil && utf8.Valid(value):
		event = append(append(event, `,"data":`...), value...)
	case isText(contentType) && utf8.Valid(c.Body):
		event = appendQuoted(append(event, `,"data":`...), string(c.Body))
	default:
		event = append(event, `,"data_base64":"`...)
		event = append(base64.StdEncoding.AppendEncode(event, c.Body), '"')
	}
	return append(event, '}')
}

// attributes are those of an event that is made of a raw body.
func (o Origin) attributes() []attribute {
	all := []attribute{
		{"specversion", specVersion},
		{"id", strings.ToValidUTF8(o.MessageID, "\uFFFD")},
		{"source", "/queues/" + url.PathEscape(o.Queue)},
		{"type", wrappedType},
	}
	if !o.InsertedAt.IsZero() {
		all = append(all, attribute{"time", o.InsertedAt.UTC().Format(time.RFC3339Nano)})
	}
	return all
}

// isText is whether a content type is of characters in UTF-8 that JSON can hold as they
// are; never JSON itself, which would not be a text to its reader.
func isText(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && isUTF8Charset(contentType) && !jsonType(contentType) &&
		(strings.HasPrefix(media, "text/") || media == "application/xml" || strings.HasSuffix(media, "+xml"))
}

// binary is false when headers can't carry the event, or its data can't be told exactly.
func binary(c Content, o Origin) (Payload, bool) {
	p := Payload{Body: c.Body, ContentType: HeaderValue(c.ContentType)}
	attributes := o.attributes()
	if e := c.Event; e != nil {
		if e.unportable {
			return Payload{}, false
		}
		data, contentType, ok := e.payload()
		if !ok || HeaderValue(contentType) != contentType {
			return Payload{}, false
		}
		attributes = e.attributes
		p.Body, p.ContentType = data, contentType
	}
	// A receiver takes such a content type for structured or batched mode.
	if strings.HasPrefix(strings.ToLower(p.ContentType), "application/cloudevents") {
		return Payload{}, false
	}
	p.Headers = make(map[string]string, len(attributes))
	size := 0
	for _, a := range attributes {
		value := percentEncode(a.value)
		size += len(a.name) + len(value) + len("ce-: \r\n")
		p.Headers["ce-"+a.name] = value
	}
	return p, len(attributes) <= maxEventHeaders && size <= maxEventHeaderSize
}

// percentEncode: CloudEvents HTTP protocol binding 1.0.2, section 3.1.3.2. Nothing but
// printable ASCII comes out, so no value can end a header and begin another.
func percentEncode(value string) string {
	var b strings.Builder
	for i := range len(value) {
		switch c := value[i]; {
		case c <= ' ' || c == '"' || c == '%' || c > '~':
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
