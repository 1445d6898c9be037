package queue

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"
)

// Encoding says how a queue's stored texts stand for message bodies.
type Encoding string

// The encodings that a queue can be set to.
const (
	// EncodingAuto decodes a text only when it is base64 of a JSON object or array
	// (a byte order mark before it allowed); every other text is the body as it
	// stands. Plain words such as SEND are valid base64 too, so a weaker rule
	// would corrupt them.
	EncodingAuto Encoding = "auto"
	// EncodingBase64 decodes every text; one that is not base64 is undecodable. An
	// empty text is an empty body.
	EncodingBase64 Encoding = "base64"
	// EncodingNone takes every text as the body.
	EncodingNone Encoding = "none"
)

// Recorded for texts that Encode and EncodeReplay wrapped. Both are recognised
// under every setting.
const (
	encodingEnvelope Encoding = "envelope"
	encodingReplay   Encoding = "replay"
)

// ParseEncoding returns the Encoding named s.
func ParseEncoding(s string) (Encoding, error) {
	switch e := Encoding(s); e {
	case EncodingAuto, EncodingBase64, EncodingNone:
		return e, nil
	}
	return "", fmt.Errorf("unknown encoding %q: use auto, base64 or none", s)
}

// ErrUndecodable is wrapped by Decode's errors, unless they wrap ErrNewer.
var ErrUndecodable = errors.New("undecodable message")

// Body is a decoded message.
type Body struct {
	// Bytes are what is POSTed and signed, exactly.
	Bytes []byte
	// ContentType is what the publisher said; empty when the text carries none.
	ContentType string
	// IdempotencyKey is the publisher's name for this body: two messages of one queue
	// with the same key are one event. Empty when the text carries none.
	IdempotencyKey string
	// TraceParent and TraceState are the W3C trace context of the publish; empty when the
	// text carries none. They are as they came: whoever uses them ignores what is malformed.
	TraceParent string
	TraceState  string
	// Encoding is how the text was read: base64, none, envelope or replay.
	Encoding Encoding
	// Replay is set when the text is no body but a pointer to a dead letter
	// whose body is to be POSTed again (see EncodeReplay).
	Replay *Replay
}

// Decode turns a stored text into a body. Blanks and line ends in base64 do not matter, as
// they do not to the readers that made base64 the custom of these queues. An error wraps
// ErrUndecodable or ErrNewer, and concerns this message only.
func Decode(setting Encoding, text []byte) (Body, error) {
	if marked(text) {
		return decodeEnvelope(text)
	}
	if setting != EncodingBase64 && setting != EncodingAuto && !markedInBase64(text) {
		return Body{Bytes: text, Encoding: EncodingNone}, nil
	}
	raw, err := decodeBase64(text)
	switch {
	case err != nil && setting == EncodingBase64:
		return Body{}, fmt.Errorf("%w: the queue's encoding is base64 and the text is not base64; set the encoding to auto or none if its producers write plain text", ErrUndecodable)
	case err == nil && marked(raw):
		return decodeEnvelope(raw)
	case err != nil, setting != EncodingBase64 && (setting != EncodingAuto || !isJSONObjectOrArray(raw)):
		return Body{Bytes: text, Encoding: EncodingNone}, nil //nolint:nilerr // text that is not base64 is plain
	}
	return Body{Bytes: raw, Encoding: EncodingBase64}, nil
}

// SettingFor is the setting under which a text stands for a body that fits: the given one, unless
// only another one does. A text that can't be read under a setting stands for nil.
func SettingFor(setting Encoding, text []byte, fits func(body []byte) bool) Encoding {
	for _, s := range []Encoding{setting, EncodingAuto, EncodingBase64, EncodingNone} {
		b, err := Decode(s, text)
		if err != nil {
			b.Bytes = nil
		}
		if fits(b.Bytes) {
			return s
		}
	}
	return setting
}

// Encode turns a body into the text to store, such that Decode under the same
// setting gives back exactly these bytes. It prefers, in this order, the body
// as it stands, base64, and an envelope; the first two are what other consumers
// of the queue expect, the third carries what they can't. A content type that means
// something else than the default one for the body (see ImpliesContentType) needs the
// envelope.
//
// ErrTooLarge when no form of the body fits into MaxTextBytes.
func Encode(setting Encoding, body []byte, contentType string) ([]byte, error) {
	if ImpliesContentType(body, contentType) {
		if plainFits(body) && readsBack(setting, body, body) {
			return body, nil
		}
		if text := encodeBase64(body); len(text) <= MaxTextBytes && readsBack(setting, text, body) {
			return text, nil
		}
		contentType = ""
	}
	text, err := EncodeEnvelope(setting, Body{Bytes: body, ContentType: contentType})
	if !errors.Is(err, ErrTooLarge) {
		return text, err
	}
	// Whether the service counts XML escapes in its limit is not documented, so
	// a text that is too large only when escaped is left to the service.
	if contentType == "" && len(body) <= MaxTextBytes && XMLSafe(body) && readsBack(setting, body, body) {
		return body, nil
	}
	return nil, err
}

// ContentTypeOf is the content type of a body that Decode has read under the setting: its own,
// or DefaultContentType. Whether it is JSON is not asked twice.
func ContentTypeOf(setting Encoding, b Body) string {
	switch {
	case b.ContentType != "":
		return b.ContentType
	case setting == EncodingAuto && b.Encoding == EncodingBase64: // for that reason
		return "application/json"
	}
	return DefaultContentType(b.Bytes)
}

// DefaultContentType is the content type sent for a body that carries none.
func DefaultContentType(body []byte) string {
	switch {
	case isJSONObjectOrArray(body):
		return "application/json"
	case utf8.Valid(body):
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

// ImpliesContentType reports whether a reader that knows the body alone comes to the same
// content type: none, or one that means what DefaultContentType gives, however it is
// spelled. UTF-8 is what JSON and text are in unless another charset is named; ASCII is part
// of it.
func ImpliesContentType(body []byte, contentType string) bool {
	implied := DefaultContentType(body)
	if contentType == "" || contentType == implied {
		return true
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	charset := strings.ToLower(params["charset"])
	delete(params, "charset")
	if len(params) > 0 {
		return false
	}
	if media == "application/octet-stream" {
		return charset == "" && media == implied
	}
	want, _, _ := strings.Cut(implied, ";")
	return media == want && (charset == "" || charset == "utf-8" || charset == "utf8" || charset == "us-ascii" && isASCII(body))
}

func isASCII(body []byte) bool {
	for _, c := range body {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// XMLSafe reports whether text survives a trip through an XML document: valid
// UTF-8 of characters that XML 1.0 allows. Azure Storage carries nothing else.
func XMLSafe(text []byte) bool {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n <= 1 {
			return false
		}
		ok := r == '\t' || r == '\n' || r == '\r' || (r >= 0x20 && r <= 0xD7FF) ||
			(r >= 0xE000 && r <= 0xFFFD) || r >= 0x10000
		if !ok {
			return false
		}
		i += n
	}
	return true
}

// plainFits is true when body may be stored as it stands, counting the escapes
// that XML adds.
func plainFits(body []byte) bool {
	if len(body) > MaxTextBytes || !XMLSafe(body) {
		return false
	}
	size := len(body)
	for _, c := range body {
		switch c {
		case '"', '\'', '&', '<', '>', '\t', '\n', '\r':
			size += 4
		}
	}
	return size <= MaxTextBytes
}

func readsBack(setting Encoding, text, body []byte) bool {
	got, err := Decode(setting, text)
	return err == nil && got.ContentType == "" && bytes.Equal(got.Bytes, body)
}

// decodeBase64 reads standard base64, padded. What .NET's decoder skips, and with it the
// Functions trigger and the storage SDK, is skipped: producers wrap lines at 76 characters,
// or end a text with a line feed.
func decodeBase64(text []byte) ([]byte, error) {
	if start := bytes.TrimLeft(text, base64Blanks); len(start) > 0 && !strings.Contains(base64Letters, string(start[:1])) {
		return nil, base64.CorruptInputError(len(text) - len(start)) // most bodies are JSON as it stands
	}
	if bytes.ContainsAny(text, base64Blanks) {
		text = bytes.Map(func(r rune) rune {
			if strings.ContainsRune(base64Blanks, r) {
				return -1
			}
			return r
		}, text)
	}
	return base64.StdEncoding.Strict().AppendDecode(nil, text)
}

const (
	base64Blanks  = " \t\r\n"
	base64Letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
)

func encodeBase64(body []byte) []byte {
	return base64.StdEncoding.AppendEncode(nil, body)
}

var byteOrderMark = []byte("\xef\xbb\xbf")

func isJSONObjectOrArray(b []byte) bool {
	b = bytes.TrimLeft(bytes.TrimPrefix(b, byteOrderMark), " \t\r\n")
	return len(b) > 0 && (b[0] == '{' || b[0] == '[') && json.Valid(b)
}
