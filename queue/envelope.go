package queue

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNewer is wrapped by Decode's errors about a text that carries pushlease's mark and was
// written by a newer version. It is nobody's body, and no fault of the message: an instance
// of that version can read it.
var ErrNewer = errors.New("message of a newer version of pushlease")

// Replay points to the dead letter to POST again. Token is a secret that the dead
// letter's row holds too, so that someone who can only write to the queue can't
// make one up.
type Replay struct {
	DeadLetter string `json:"dead_letter"`
	Token      string `json:"token"`
}

// envelopeMark and a digit begin every envelope of every version. Such a text is never
// taken for a body: Encode wraps a body that happens to begin so.
const envelopeMark = `{"pushlease":`

// ignorable begins the names of fields that a newer version may add to an envelope of this
// one for readers that know them; all others pass them over. Any other field that is not
// known makes the envelope one of a newer version.
const ignorable = "x_"

type envelope struct {
	Version        int     `json:"pushlease"`
	ContentType    string  `json:"content_type,omitempty"`
	IdempotencyKey string  `json:"idempotency_key,omitempty"`
	TraceParent    string  `json:"traceparent,omitempty"`
	TraceState     string  `json:"tracestate,omitempty"`
	Body           []byte  `json:"body,omitempty"` // standard base64 in JSON
	Replay         *Replay `json:"replay,omitempty"`
}

const envelopeVersion = 1

// The fields that this version knows.
var (
	envelopeFields = []string{"pushlease", "content_type", "idempotency_key", "traceparent", "tracestate", "body", "replay"}
	replayFields   = []string{"dead_letter", "token"}
)

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
// recognises it under every setting; other consumers of the queue see the envelope. On a
// queue that holds base64 it is base64, so that they can decode it: one text that is none
// fails a whole batch of some readers.
// ErrTooLarge when it does not fit into MaxTextBytes: the body is carried as base64.
func EncodeEnvelope(setting Encoding, b Body) ([]byte, error) {
	e := envelope{
		Version: envelopeVersion, ContentType: b.ContentType, IdempotencyKey: b.IdempotencyKey, TraceParent: b.TraceParent, TraceState: b.TraceState, Body: b.Bytes,
	}
	if !e.valid() {
		return nil, errors.New("encode envelope: a content type, idempotency key or trace context is too long or has control characters")
	}
	text, err := e.text(setting)
	if err != nil {
		return nil, fmt.Errorf("encode envelope: %w", err)
	}
	if len(text) > MaxTextBytes {
		return nil, fmt.Errorf("%w: %d bytes do not fit into the %d bytes of a queue message (binary bodies, and bodies with a content type or an idempotency key of their own, are stored as base64: at most about 48,000 bytes, and 36,000 on a queue with the encoding base64)", ErrTooLarge, len(b.Bytes), MaxTextBytes)
	}
	return text, nil
}

// EncodeReplay makes the text of a message that stands for a dead letter. It is
// small whatever the size of the dead letter's body, so that a replay is one
// Send.
func EncodeReplay(setting Encoding, r Replay) ([]byte, error) {
	text, err := envelope{Version: envelopeVersion, Replay: &r}.text(setting)
	if err != nil {
		return nil, fmt.Errorf("encode replay: %w", err)
	}
	return text, nil
}

// text is what is stored on a queue of the setting.
func (e envelope) text(setting Encoding) ([]byte, error) {
	text, err := json.Marshal(e)
	if setting == EncodingBase64 {
		text = encodeBase64(text)
	}
	return text, err
}

// marked is whether a text says of itself that it is an envelope.
func marked(text []byte) bool {
	rest, ok := bytes.CutPrefix(text, []byte(envelopeMark))
	return ok && len(rest) > 0 && rest[0] >= '0' && rest[0] <= '9'
}

// markInBase64 begins the base64 of every marked text.
var markInBase64 = base64.StdEncoding.EncodeToString([]byte(envelopeMark))[:len(envelopeMark)/3*4]

// markedInBase64 is whether a text may be the base64 of an envelope, which is one whatever the queue is
// set to by now.
func markedInBase64(text []byte) bool { return bytes.HasPrefix(text, []byte(markInBase64)) }

// decodeEnvelope reads a text that is marked. What can't be read is never a body.
func decodeEnvelope(text []byte) (Body, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return Body{}, fmt.Errorf("%w: it begins as an envelope of pushlease and is not JSON", ErrUndecodable)
	}
	if string(fields["pushlease"]) != "1" {
		return Body{}, fmt.Errorf("%w: its version is not %d; an instance of that version has to read it", ErrNewer, envelopeVersion)
	}
	var replay map[string]json.RawMessage
	_ = json.Unmarshal(fields["replay"], &replay) // what is no object is looked at below
	if unknown(fields, envelopeFields) || unknown(replay, replayFields) {
		return Body{}, fmt.Errorf("%w: it has a field that this version does not know; a newer instance has to read it", ErrNewer)
	}
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil || !e.valid() {
		return Body{}, fmt.Errorf("%w: it is an envelope of pushlease with a value that can't be used", ErrUndecodable)
	}
	if e.Replay != nil {
		return Body{Encoding: encodingReplay, Replay: e.Replay}, nil
	}
	return Body{
		Bytes: e.Body, ContentType: e.ContentType, IdempotencyKey: e.IdempotencyKey, TraceParent: e.TraceParent, TraceState: e.TraceState, Encoding: encodingEnvelope,
	}, nil
}

// unknown is whether a field is neither known nor ignorable.
func unknown(fields map[string]json.RawMessage, known []string) bool {
	for name := range fields {
		if !slices.Contains(known, name) && !strings.HasPrefix(name, ignorable) {
			return true
		}
	}
	return false
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
