package queue

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Encoding says how a queue's stored texts stand for message bodies.
type Encoding string

// The encodings that a queue can be set to.
const (
	// EncodingAuto decodes a text only when it is canonical base64 of a JSON
	// object or array (a byte order mark before it allowed); every other text
	// is the body as it stands. Plain words such as SEND are valid base64 too,
	// so a weaker rule would corrupt them.
	EncodingAuto Encoding = "auto"
	// EncodingBase64 decodes every text; one that is not canonical base64 is
	// undecodable. An empty text is an empty body.
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

// ErrUndecodable is wrapped by Decode's errors.
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

// Replay points to the dead letter to POST again. Token is a secret that the dead
// letter's row holds too, so that someone who can only write to the queue can't
// make one up.
type Replay struct {
	DeadLetter string `json:"dead_letter"`
	Token      string `json:"token"`
}

// envelopePrefix begins every envelope. Decode looks for exactly these bytes, and
// Encode wraps a body that happens to begin with them, so no body is mistaken.
const envelopePrefix = `{"pushlease":1,`

type envelope struct {
	Version        int     `json:"pushlease"`
	ContentType    string  `json:"content_type,omitempty"`
	IdempotencyKey string  `json:"idempotency_key,omitempty"`
	TraceParent    string  `json:"traceparent,omitempty"`
	TraceState     string  `json:"tracestate,omitempty"`
	Body           []byte  `json:"body,omitempty"` // standard base64 in JSON
	Replay         *Replay `json:"replay,omitempty"`
}

// Decode turns a stored text into a body. An error wraps ErrUndecodable and
// concerns this message only.
func Decode(setting Encoding, text []byte) (Body, error) {
	if b, ok := decodeEnvelope(text); ok {
		return b, nil
	}
	switch setting {
	case EncodingBase64:
		raw, err := decodeBase64(text)
		if err != nil {
			return Body{}, fmt.Errorf("%w: the queue's encoding is base64 and the text is not canonical base64; set the encoding to auto or none if its producers write plain text", ErrUndecodable)
		}
		return Body{Bytes: raw, Encoding: EncodingBase64}, nil
	case EncodingAuto:
		if raw, err := decodeBase64(text); err == nil && isJSONObjectOrArray(raw) {
			return Body{Bytes: raw, Encoding: EncodingBase64}, nil
		}
	}
	return Body{Bytes: text, Encoding: EncodingNone}, nil
}

// Encode turns a body into the text to store, such that Decode under the same
// setting gives back exactly these bytes. It prefers, in this order, the body
// as it stands, base64, and an envelope; the first two are what other consumers
// of the queue expect, the third carries what they can't. A content type other
// than the default one for the body (see DefaultContentType) needs the envelope.
//
// ErrTooLarge when no form of the body fits into MaxTextBytes.
func Encode(setting Encoding, body []byte, contentType string) ([]byte, error) {
	if contentType == "" || contentType == DefaultContentType(body) {
		if plainFits(body) && readsBack(setting, body, body) {
			return body, nil
		}
		if text := encodeBase64(body); len(text) <= MaxTextBytes && readsBack(setting, text, body) {
			return text, nil
		}
		contentType = ""
	}
	text, err := EncodeEnvelope(Body{Bytes: body, ContentType: contentType})
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

// MaxIdempotencyKey and the others bound what an envelope carries beside the body,
// in bytes; the first is the usual limit of the Idempotency-Key header's users.
const (
	MaxIdempotencyKey = 255
	maxTraceParent    = 128
	maxTraceState     = 512
	// maxReplay bounds each of a pointer's two texts, which are made here and shorter.
	maxReplay = 256
)

// EncodeEnvelope wraps a body together with what the publisher said about it. Decode
// recognises it under every setting; other consumers of the queue see the envelope.
// ErrTooLarge when it does not fit into MaxTextBytes: the body is carried as base64.
func EncodeEnvelope(b Body) ([]byte, error) {
	e := envelope{
		Version: 1, ContentType: b.ContentType, IdempotencyKey: b.IdempotencyKey, TraceParent: b.TraceParent, TraceState: b.TraceState, Body: b.Bytes,
	}
	if !e.valid() {
		return nil, errors.New("encode envelope: a content type, idempotency key or trace context is too long or has control characters")
	}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode envelope: %w", err)
	}
	if len(text) > MaxTextBytes {
		return nil, fmt.Errorf("%w: %d bytes do not fit into the %d bytes of a queue message (binary bodies, and bodies with a content type or an idempotency key of their own, are stored as base64: at most about 48,000 bytes)", ErrTooLarge, len(b.Bytes), MaxTextBytes)
	}
	return text, nil
}

// EncodeReplay makes the text of a message that stands for a dead letter. It is
// small whatever the size of the dead letter's body, so that a replay is one
// Send.
func EncodeReplay(r Replay) ([]byte, error) {
	text, err := json.Marshal(envelope{Version: 1, Replay: &r})
	if err != nil {
		return nil, fmt.Errorf("encode replay: %w", err)
	}
	return text, nil
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

func decodeEnvelope(text []byte) (Body, bool) {
	if !bytes.HasPrefix(text, []byte(envelopePrefix)) {
		return Body{}, false
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var e envelope
	if err := dec.Decode(&e); err != nil || dec.More() || !e.valid() {
		return Body{}, false
	}
	if e.Replay != nil {
		return Body{Encoding: encodingReplay, Replay: e.Replay}, true
	}
	return Body{
		Bytes: e.Body, ContentType: e.ContentType, IdempotencyKey: e.IdempotencyKey, TraceParent: e.TraceParent, TraceState: e.TraceState, Encoding: encodingEnvelope,
	}, true
}

// valid keeps what came through a queue from becoming a second header, and a pointer from
// being one that can't be sent again: printable ASCII only, of a bounded length.
func (e envelope) valid() bool {
	if r := e.Replay; r != nil && (!printable(r.DeadLetter, maxReplay) || !printable(r.Token, maxReplay)) {
		return false
	}
	return printable(e.ContentType, 256) && printable(e.IdempotencyKey, MaxIdempotencyKey) && printable(e.TraceParent, maxTraceParent) &&
		printable(e.TraceState, maxTraceState)
}

func printable(s string, most int) bool {
	return len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

func decodeBase64(text []byte) ([]byte, error) {
	if bytes.ContainsAny(text, "\r\n") { // encoding/base64 would skip them
		return nil, base64.CorruptInputError(0)
	}
	return base64.StdEncoding.Strict().AppendDecode(nil, text)
}

func encodeBase64(body []byte) []byte {
	return base64.StdEncoding.AppendEncode(nil, body)
}

var byteOrderMark = []byte("\xef\xbb\xbf")

func isJSONObjectOrArray(b []byte) bool {
	b = bytes.TrimLeft(bytes.TrimPrefix(b, byteOrderMark), " \t\r\n")
	return len(b) > 0 && (b[0] == '{' || b[0] == '[') && json.Valid(b)
}
