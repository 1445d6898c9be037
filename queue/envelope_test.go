package queue

import (
	"bytes"
	"encoding/base64"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// TestAPointerThatCanNotBeSentAgainIsUndecodable: under a host that overwrites what it says
// about a message, a pointer is sent anew. One that grows too long by that, or that XML does
// not carry, would come back until it expires.
func TestAPointerThatCanNotBeSentAgainIsUndecodable(t *testing.T) {
	for _, text := range []string{
		`{"pushlease":1,"replay":{"dead_letter":"\ufffe","token":"x"}}`, `{"pushlease":1,"replay":{"dead_letter":"x","token":"\ufffe"}}`,
		`{"pushlease":1,"replay":{"dead_letter":"` + strings.Repeat("<", 60_000) + `","token":"x"}}`,
	} {
		if b, err := Decode(EncodingNone, []byte(text)); !errors.Is(err, ErrUndecodable) || b.Replay != nil || b.Bytes != nil {
			t.Errorf("%.60s… is a pointer, or a body: %v", text, err)
		}
	}
	longest := Replay{DeadLetter: strings.Repeat("a", 63) + ".8204143311660-abd62323e4bb6892", Token: strings.Repeat("t", 64)}
	text, err := EncodeReplay(EncodingNone, longest)
	if b, decodeErr := Decode(EncodingBase64, text); err != nil || decodeErr != nil || b.Replay == nil || *b.Replay != longest {
		t.Errorf("a pointer of ours is none: %v, %v", err, decodeErr)
	}
}

func TestAnEnvelopeCarriesWhatThePublisherSaid(t *testing.T) {
	want := Body{Bytes: []byte("\x00body"), ContentType: "text/x", IdempotencyKey: "k 1", TraceParent: "00-x", Encoding: encodingEnvelope}
	text, err := EncodeEnvelope(EncodingNone, want)
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []Encoding{EncodingAuto, EncodingBase64, EncodingNone} {
		if got, err := Decode(setting, text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Decode(%s) = %+v, %v; want %+v", setting, got, err, want)
		}
	}
	if _, err := EncodeEnvelope(EncodingNone, Body{Bytes: make([]byte, 50_000), IdempotencyKey: "k"}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an envelope of 50,000 bytes: %v, want ErrTooLarge", err)
	}
	for name, b := range map[string]Body{
		"control in the key": {IdempotencyKey: "a\r\nb"}, "long key": {IdempotencyKey: strings.Repeat("k", MaxIdempotencyKey+1)},
		"no ASCII in the key": {IdempotencyKey: "ä"}, "long traceparent": {TraceParent: strings.Repeat("0", 200)},
	} {
		if text, err := EncodeEnvelope(EncodingNone, b); err == nil || errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %q, %v; want it refused", name, text, err)
		}
	}
}

// C53: the envelopes of every released version, as they lie in queues.
func TestEnvelopesOfAllReleasedVersionsAreRead(t *testing.T) {
	for text, want := range map[string]Body{
		`{"pushlease":1,"body":"aGk="}`:                                         {Bytes: []byte("hi")},
		`{"pushlease":1}`:                                                       {},
		`{"pushlease":1,"content_type":"text/csv","body":"YTti"}`:               {Bytes: []byte("a;b"), ContentType: "text/csv"},
		`{"pushlease":1,"idempotency_key":"k 1","body":"aGk="}`:                 {Bytes: []byte("hi"), IdempotencyKey: "k 1"},
		`{"pushlease":1,"traceparent":"00-x","tracestate":"a=b","body":"aGk="}`: {Bytes: []byte("hi"), TraceParent: "00-x", TraceState: "a=b"},
		`{"pushlease":1,"replay":{"dead_letter":"orders.1-2","token":"t"}}`:     {Encoding: encodingReplay, Replay: &Replay{DeadLetter: "orders.1-2", Token: "t"}},
		`{"pushlease":1,"x_later":[1],"body":"aGk="}`:                           {Bytes: []byte("hi")}, // ignorable
	} {
		if want.Encoding == "" {
			want.Encoding = encodingEnvelope
		}
		coded := base64.StdEncoding.EncodeToString([]byte(text))
		for _, setting := range []Encoding{EncodingAuto, EncodingBase64, EncodingNone} {
			if got, err := Decode(setting, []byte(text)); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s is %+v, %v; want %+v", setting, text, got, err, want)
			}
			if got, err := Decode(setting, []byte(coded)); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s in base64 is %+v, %v; want %+v", setting, text, got, err, want)
			}
		}
	}
}

// C53: what carries the mark and can't be read is never a body.
func TestMarkedTextThatCanNotBeReadIsNeverABody(t *testing.T) {
	for text, want := range map[string]error{
		`{"pushlease":99,"replay":{"dead_letter":"x","token":"t"}}`: ErrNewer,
		`{"pushlease":2}`: ErrNewer, `{"pushlease":1.5,"body":""}`: ErrNewer, `{"pushlease":10,"body":"aGk="}`: ErrNewer,
		`{"pushlease":1,"replay":{"dead_letter":"a","token":"b","more":1}}`: ErrNewer,
		`{"pushlease":1,"replay":7}`:                                        ErrUndecodable,
		`{"pushlease":1,"priority":7,"body":"aGk="}`:                        ErrNewer,
		`{"pushlease":1,"Body":"aGk="}`:                                     ErrNewer,
		`{"pushlease":1,`:                                                   ErrUndecodable,
		`{"pushlease":1,"body":"aGk="} ` + "x":                              ErrUndecodable,
		`{"pushlease":1,"body":"no base64"}`:                                ErrUndecodable,
		`{"pushlease":1,"body":7}`:                                          ErrUndecodable,
		`{"pushlease":1,"content_type":"a/b\r\nX: 1","body":"aGk="}`:        ErrUndecodable,
		`{"pushlease":1,"idempotency_key":"a\r\nb","body":"eA=="}`:          ErrUndecodable,
	} {
		for _, setting := range []Encoding{EncodingAuto, EncodingBase64, EncodingNone} {
			got, err := Decode(setting, []byte(text))
			if !errors.Is(err, want) || errors.Is(err, ErrNewer) && errors.Is(err, ErrUndecodable) || !reflect.DeepEqual(got, Body{}) {
				t.Errorf("%s: %s is %+v, %v; want %v", setting, text, got, err, want)
			}
		}
		if want == ErrNewer {
			if _, err := Decode(EncodingBase64, encodeBase64([]byte(text))); !errors.Is(err, ErrNewer) {
				t.Errorf("%s in base64: %v", text, err)
			}
		}
	}
	for _, text := range []string{`{"pushlease":"test"}`, `{"pushlease":null}`, `{"pushlease":{}}`, `{"pushlease" :1}`, ` {"pushlease":1}`, `{"a":1,"pushlease":1}`} {
		if got, err := Decode(EncodingNone, []byte(text)); err != nil || string(got.Bytes) != text {
			t.Errorf("%s carries no mark: %+v, %v", text, got, err)
		}
	}
}

// C87: what other programs write means the same in many spellings, and needs no envelope.
func TestContentTypesAreComparedByMeaning(t *testing.T) {
	const object, text, binary = `{"a":1}`, "hello", "\xff\x00"
	for _, c := range []struct {
		body, contentType string
		implied           bool
	}{
		{object, "application/json", true}, {object, "application/json; charset=utf-8", true}, {object, "application/json;charset=UTF-8", true},
		{object, `application/json; charset="utf-8"`, true}, {object, "Application/JSON", true}, {object, "APPLICATION/JSON ; CHARSET=utf8", true},
		{object, "application/json; charset=us-ascii", true}, {object, "", true}, {text, "", true},
		{text, "text/plain", true}, {text, "text/plain; charset=utf-8", true}, {text, "text/plain;charset=UTF-8", true},
		{text, `text/plain; charset="utf-8"`, true}, {text, "Text/Plain", true}, {text, "text/plain; charset=US-ASCII", true}, {binary, "application/octet-stream", true}, {binary, "Application/Octet-Stream", true},
		{object, "text/plain", false}, {object, "application/json; charset=utf-16", false}, {object, "application/json; profile=x", false},
		{object, "application/cloudevents+json", false}, {object, "application/octet-stream", false}, {text, "text/html", false}, {text, "application/json", false},
		{"é", "text/plain; charset=us-ascii", false}, {"é", "text/plain; charset=iso-8859-1", false}, {binary, "text/plain", false},
		{binary, "application/octet-stream; charset=utf-8", false}, {object, "nonsense;;", false}, {"7", "application/json", false},
	} {
		if got := ImpliesContentType([]byte(c.body), c.contentType); got != c.implied {
			t.Errorf("%q as %q: %v, want %v", c.body, c.contentType, got, c.implied)
		}
		stored, err := Encode(EncodingAuto, []byte(c.body), c.contentType)
		if bare := string(stored) == c.body; err != nil || c.implied && c.body != binary && !bare || !c.implied && bare {
			t.Errorf("%q as %q is stored as %q, %v", c.body, c.contentType, stored, err)
		}
	}
}

// C87: every text on a base64 queue is base64, envelopes and pointers too: one that is none
// fails the whole batch of a .NET reader.
func TestEveryTextOnABase64QueueIsBase64(t *testing.T) {
	replay, err := EncodeReplay(EncodingBase64, Replay{DeadLetter: "orders.1-2", Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	texts := [][]byte{replay}
	for _, body := range []string{"", "hello", `{"a":1}`, "\xff\x00", `{"pushlease":1}`, " ", "YWJj"} {
		for _, b := range []Body{{}, {ContentType: "text/csv"}, {IdempotencyKey: "k"}} {
			b.Bytes = []byte(body)
			text, err := EncodeEnvelope(EncodingBase64, b)
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := Encode(EncodingBase64, b.Bytes, b.ContentType)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text, encoded)
		}
	}
	for _, text := range texts {
		if _, err := base64.StdEncoding.Strict().DecodeString(string(text)); err != nil || bytes.ContainsAny(text, " \r\n") {
			t.Errorf("%q is not base64: %v", text, err)
		}
	}
	if _, err := EncodeEnvelope(EncodingBase64, Body{Bytes: make([]byte, 36_000), IdempotencyKey: "k"}); err != nil {
		t.Errorf("36,000 bytes: %v", err)
	}
	if _, err := EncodeEnvelope(EncodingBase64, Body{Bytes: make([]byte, 37_000), IdempotencyKey: "k"}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("37,000 bytes: %v, want ErrTooLarge", err)
	}
}

// C45: what others on the queue write and read for years.
func TestBlanksInBase64DoNotMatter(t *testing.T) {
	body := `{"a":1,"text":"` + strings.Repeat("x", 200) + `"}`
	plain := base64.StdEncoding.EncodeToString([]byte(body))
	wrap := func(end string) string {
		var b strings.Builder
		for i := 0; i < len(plain); i += 76 {
			b.WriteString(plain[i:min(i+76, len(plain))] + end)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"lines of 76": wrap("\n"), "lines of 76, CRLF": wrap("\r\n"), "a line end": plain + "\n", "a blank before": " " + plain, "a tab inside": plain[:7] + "\t" + plain[7:],
	} {
		for _, setting := range []Encoding{EncodingAuto, EncodingBase64} {
			if got, err := Decode(setting, []byte(text)); err != nil || string(got.Bytes) != body || got.Encoding != EncodingBase64 {
				t.Errorf("%s under %s: %q (%s), %v", name, setting, got.Bytes, got.Encoding, err)
			}
		}
		if got, err := Decode(EncodingNone, []byte(text)); err != nil || string(got.Bytes) != text {
			t.Errorf("%s under none: %q, %v", name, got.Bytes, err)
		}
	}
}

// Whatever comes through a queue is read without a panic, and what is read as an envelope
// is one that can be sent again.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "SEND", `{"pushlease":1,"body":"aGk="}`, `{"pushlease":2}`, `{"pushlease":1,"replay":{"dead_letter":"x","token":"t"}}`, "eyJh\nIjoxfQ==", "eyJwdXNobGVhc2UiOjF9", " \n eyJhIjoxfQ==", "\r\n[1]", "+/8=", "W10=", "MQ==", "{\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, setting := range []Encoding{EncodingAuto, EncodingBase64, EncodingNone} {
			b, err := Decode(setting, text)
			if got := ContentTypeOf(setting, b); b.ContentType == "" && got != DefaultContentType(b.Bytes) {
				t.Fatalf("%s: %q is sent as %s, want %s", setting, text, got, DefaultContentType(b.Bytes))
			}
			switch {
			case err != nil:
				if errors.Is(err, ErrUndecodable) == errors.Is(err, ErrNewer) || !reflect.DeepEqual(b, Body{}) {
					t.Fatalf("%s: %q: %+v, %v", setting, text, b, err)
				}
			case marked(b.Bytes) && b.Encoding != encodingEnvelope:
				t.Fatalf("%s: %q is POSTed with pushlease's mark", setting, text)
			case b.Replay != nil:
				again, err := EncodeReplay(setting, *b.Replay)
				if got, decodeErr := Decode(setting, again); err != nil || decodeErr != nil || *got.Replay != *b.Replay {
					t.Fatalf("%s: %q can't be sent again: %v, %v", setting, text, err, decodeErr)
				}
			case b.Encoding == encodingEnvelope:
				again, err := EncodeEnvelope(EncodingNone, b)
				if errors.Is(err, ErrTooLarge) {
					continue
				}
				if got, decodeErr := Decode(setting, again); err != nil || decodeErr != nil || !bytes.Equal(got.Bytes, b.Bytes) || got.ContentType != b.ContentType {
					t.Fatalf("%s: %q can't be sent again: %v, %v", setting, text, err, decodeErr)
				}
			}
		}
	})
}

func FuzzDecodeOfEncodeGivesTheSameBytes(f *testing.F) {
	for _, s := range []string{"", "SEND", `{"a":1}`, "\xff\xfe", "eyJhIjoxfQ==", `{"pushlease":1,"body":""}`, `{"pushlease":2}`, "eyJh\nIjoxfQ==", strings.Repeat("é", 100)} {
		f.Add([]byte(s), "")
		f.Add([]byte(s), "text/csv")
		f.Add([]byte(s), `Application/JSON; Charset="UTF-8"`)
	}
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		if !printable(contentType, 256) {
			return // Encode takes only what a header can carry
		}
		for _, setting := range []Encoding{EncodingAuto, EncodingBase64, EncodingNone} {
			text, err := Encode(setting, body, contentType)
			if errors.Is(err, ErrTooLarge) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := decodeBase64(text); err != nil && setting == EncodingBase64 {
				t.Fatalf("other readers of a base64 queue can't decode %q: %v", text, err)
			}
			got, err := Decode(setting, text)
			if err != nil || !bytes.Equal(got.Bytes, body) {
				t.Fatalf("%s: %q → %q → %q, %v", setting, body, text, got.Bytes, err)
			}
			if !XMLSafe(text) {
				t.Fatalf("%s: text %q is not XML-safe", setting, text)
			}
		}
	})
}
