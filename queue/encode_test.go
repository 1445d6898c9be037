package queue

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestAutoDecodesOnlyCanonicalBase64OfAJSONObjectOrArray(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	tests := []struct{ name, text, body string }{
		{"base64 of an object", b64(`{"a":1}`), `{"a":1}`},
		{"base64 of an array", b64(`[1,2]`), `[1,2]`},
		{"base64 of an object after a byte order mark", b64("\xef\xbb\xbf{\"a\":1}"), "\xef\xbb\xbf{\"a\":1}"},
		{"plain word that is valid base64", "SEND", "SEND"},
		{"digits that are valid base64", "12345678", "12345678"},
		{"letters that are valid base64", "abcd", "abcd"},
		{"plain JSON", `{"a":1}`, `{"a":1}`},
		{"base64 of a JSON string", b64(`"hello there, world"`), b64(`"hello there, world"`)},
		{"base64 of text", b64("hello there, general text"), b64("hello there, general text")},
		{"base64 of broken JSON", b64(`{"a":`), b64(`{"a":`)},
		{"base64 broken over two lines", b64(`{"a":1}`)[:4] + "\n" + b64(`{"a":1}`)[4:], b64(`{"a":1}`)[:4] + "\n" + b64(`{"a":1}`)[4:]},
		{"empty", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decode(EncodingAuto, []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Bytes) != tt.body {
				t.Errorf("body = %q, want %q", got.Bytes, tt.body)
			}
		})
	}
}

func TestBase64QueueRefusesOtherTextAndTakesAnEmptyOne(t *testing.T) {
	for _, text := range []string{`{"a":1}`, "!!!!", "abc", "YQ=", "YR=="} {
		if _, err := Decode(EncodingBase64, []byte(text)); !errors.Is(err, ErrUndecodable) {
			t.Errorf("Decode(%q) = %v, want ErrUndecodable", text, err)
		}
	}
	if b, err := Decode(EncodingBase64, nil); err != nil || len(b.Bytes) != 0 {
		t.Errorf("empty text: %q, %v", b.Bytes, err)
	}
}

func TestEncodePrefersWhatOtherConsumersExpect(t *testing.T) {
	tests := []struct {
		name, body, contentType string
		want                    Encoding
	}{
		{"plain text", "hello", "", EncodingNone},
		{"JSON with its usual type", `{"a":1}`, "application/json", EncodingNone},
		{"JSON with a type of its own", `{"a":1}`, "application/cloudevents+json", encodingEnvelope},
		{"binary", "\xff\xfe\x00\x01", "", encodingEnvelope},
		{"text that auto would decode", "eyJhIjoxfQ==", "", encodingEnvelope},
		{"JSON with a character XML can't carry", "{\"a\":\"\uffff\"}", "", EncodingBase64},
		{"a body that looks like an envelope", `{"pushlease":1,"body":"aGk="}`, "", EncodingBase64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, err := Encode(EncodingAuto, []byte(tt.body), tt.contentType)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(EncodingAuto, text)
			if err != nil || string(got.Bytes) != tt.body || got.Encoding != tt.want {
				t.Errorf("text %q reads back as %q (%s), %v; want encoding %s", text, got.Bytes, got.Encoding, err, tt.want)
			}
		})
	}
}

func TestEncodeSizes(t *testing.T) {
	tests := []struct {
		name string
		body []byte
		ok   bool
	}{
		{"64 KiB of text", bytes.Repeat([]byte("a"), MaxTextBytes), true},
		{"64 KiB + 1 of text", bytes.Repeat([]byte("a"), MaxTextBytes+1), false},
		{"64 KiB that escaping makes larger", bytes.Repeat([]byte("&"), MaxTextBytes), true},
		{"48,000 binary bytes", bytes.Repeat([]byte{0xff}, 48000), true},
		{"64 KiB of binary", bytes.Repeat([]byte{0xff}, MaxTextBytes), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, err := Encode(EncodingAuto, tt.body, "")
			if tt.ok != (err == nil) || (err != nil && !errors.Is(err, ErrTooLarge)) {
				t.Fatalf("err = %v, want ok = %t", err, tt.ok)
			}
			if len(text) > MaxTextBytes {
				t.Errorf("text has %d bytes", len(text))
			}
		})
	}
}

func TestEnvelopeWithAHostileContentTypeIsPlainText(t *testing.T) {
	text := []byte(`{"pushlease":1,"content_type":"a/b\r\nX: 1","body":"aGk="}`)
	got, err := Decode(EncodingNone, text)
	if err != nil || !bytes.Equal(got.Bytes, text) {
		t.Errorf("got %q, %v; want the text as it stands", got.Bytes, err)
	}
}

// What is not an envelope of ours to the last field is somebody's own JSON.
func TestJSONThatOnlyBeginsLikeAnEnvelopeIsPlainText(t *testing.T) {
	for _, text := range []string{
		`{"pushlease":1,"body":"aGk=","order":7}`, `{"pushlease":1,"replay":{"dead_letter":"a","token":"b","more":1}}`,
		`{"pushlease":1,"body":"aGk="}{"order":7}`, `{"pushlease":1,"body":"aGk="`, `{"pushlease":1,"body":"a"}`,
	} {
		got, err := Decode(EncodingNone, []byte(text))
		if err != nil || string(got.Bytes) != text || got.Encoding != EncodingNone {
			t.Errorf("%s is read as %q (%s), %v", text, got.Bytes, got.Encoding, err)
		}
	}
}

func TestABodyIsStoredSoThatItFitsWhenXMLHasEscapedIt(t *testing.T) {
	for _, c := range []string{"&", "<", ">", `"`, "'", "\r"} {
		body := bytes.Repeat([]byte(c), 20_000)
		text, err := Encode(EncodingAuto, body, "")
		if err != nil {
			t.Fatal(err)
		}
		var escaped bytes.Buffer
		if err := xml.EscapeText(&escaped, text); err != nil {
			t.Fatal(err)
		}
		if escaped.Len() > MaxTextBytes {
			t.Errorf("20,000 times %q: %d bytes once they are escaped", c, escaped.Len())
		}
	}
}

func TestXMLCarriesNoControlsAndNoHalfCharacters(t *testing.T) {
	for _, safe := range []string{"", "a\tb\r\nc", "é", "\ud7ff", "\ue000", "\ufffd", "\U00010000", "\U0010ffff"} {
		if !XMLSafe([]byte(safe)) {
			t.Errorf("%q can't be sent", safe)
		}
	}
	for _, unsafe := range []string{"a\x00", "\x01", "\x08", "\x0b", "\x0c", "\x1f", "\ufffe", "\uffff", "\xff", "a\xc3", "\xed\xa0\x80"} {
		if XMLSafe([]byte(unsafe)) {
			t.Errorf("%q is sent", unsafe)
		}
	}
}

// TestAPointerThatCanNotBeSentAgainIsPlainText: under a host that overwrites what it says
// about a message, a pointer is sent anew. One that grows too long by that, or that XML does
// not carry, would come back until it expires.
func TestAPointerThatCanNotBeSentAgainIsPlainText(t *testing.T) {
	for _, text := range []string{
		`{"pushlease":1,"replay":{"dead_letter":"\ufffe","token":"x"}}`, `{"pushlease":1,"replay":{"dead_letter":"x","token":"\ufffe"}}`,
		`{"pushlease":1,"replay":{"dead_letter":"` + strings.Repeat("<", 60_000) + `","token":"x"}}`,
	} {
		b, err := Decode(EncodingNone, []byte(text))
		if err != nil || b.Replay != nil || string(b.Bytes) != text {
			t.Errorf("%.60s… is a pointer, or another body: %v", text, err)
		}
	}
	longest := Replay{DeadLetter: strings.Repeat("a", 63) + ".8204143311660-abd62323e4bb6892", Token: strings.Repeat("t", 64)}
	text, err := EncodeReplay(longest)
	if b, decodeErr := Decode(EncodingBase64, text); err != nil || decodeErr != nil || b.Replay == nil || *b.Replay != longest {
		t.Errorf("a pointer of ours is none: %v, %v", err, decodeErr)
	}
}

func TestAnEnvelopeCarriesWhatThePublisherSaid(t *testing.T) {
	want := Body{Bytes: []byte("\x00body"), ContentType: "text/x", IdempotencyKey: "k 1", TraceParent: "00-x", Encoding: encodingEnvelope}
	text, err := EncodeEnvelope(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []Encoding{EncodingAuto, EncodingBase64, EncodingNone} {
		if got, err := Decode(setting, text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Decode(%s) = %+v, %v; want %+v", setting, got, err, want)
		}
	}
	if _, err := EncodeEnvelope(Body{Bytes: make([]byte, 50_000), IdempotencyKey: "k"}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an envelope of 50,000 bytes: %v, want ErrTooLarge", err)
	}
	for name, b := range map[string]Body{
		"control in the key": {IdempotencyKey: "a\r\nb"}, "long key": {IdempotencyKey: strings.Repeat("k", MaxIdempotencyKey+1)},
		"no ASCII in the key": {IdempotencyKey: "ä"}, "long traceparent": {TraceParent: strings.Repeat("0", 200)},
	} {
		if text, err := EncodeEnvelope(b); err == nil || errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %q, %v; want it refused", name, text, err)
		}
	}
	hostile := []byte(`{"pushlease":1,"idempotency_key":"a\r\nb","body":"eA=="}`)
	if got, err := Decode(EncodingNone, hostile); err != nil || !bytes.Equal(got.Bytes, hostile) || got.IdempotencyKey != "" {
		t.Errorf("Decode of a hostile envelope = %+v, %v; want it as plain text", got, err)
	}
}

func FuzzDecodeOfEncodeGivesTheSameBytes(f *testing.F) {
	for _, s := range []string{"", "SEND", `{"a":1}`, "\xff\xfe", "eyJhIjoxfQ==", `{"pushlease":1,"body":""}`, strings.Repeat("é", 100)} {
		f.Add([]byte(s), "")
		f.Add([]byte(s), "text/csv")
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

func TestValidateName(t *testing.T) {
	for _, good := range []string{"abc", "orders", "a-b-c", "0orders9", strings.Repeat("a", 63)} {
		if err := ValidateName(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "ab", "-abc", "abc-", "a--b", "Orders", "a_b", "a/b", "ordérs", "a b", strings.Repeat("a", 64), "a\x00b"} {
		if err := ValidateName(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
