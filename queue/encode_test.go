package queue

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"strings"
	"testing"
)

func TestAutoDecodesOnlyBase64OfAJSONObjectOrArray(t *testing.T) {
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
		{"plain word with a line end", "SEND\n", "SEND\n"},
		{"two plain words", "abcd efgh", "abcd efgh"},
		{"plain JSON over two lines", "{\"a\":\r\n1}\n", "{\"a\":\r\n1}\n"},
		{"base64 in the URL-safe alphabet", "eyJhIjoiPz8_In0=", "eyJhIjoiPz8_In0="},
		{"base64 in quotes", `"` + b64(`{"a":1}`) + `"`, `"` + b64(`{"a":1}`) + `"`},
		{"base64 as Python prints it", "b'" + b64(`{"a":1}`) + "'", "b'" + b64(`{"a":1}`) + "'"},
		{"base64 without its pad", strings.TrimRight(b64(`{"a":1}`), "="), strings.TrimRight(b64(`{"a":1}`), "=")},
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
	for _, text := range []string{`{"a":1}`, "!!!!", "abc", "YQ=", "YR==", "eyJhIjoiPz8_In0=", "b'eyJhIjoxfQ=='", `"eyJhIjoxfQ=="`, "YWJj\vZGVm", "YWJj\xff", "a b c"} {
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
		{"a body that looks like an envelope", `{"pushlease":1,"body":"aGk="}`, "", encodingEnvelope},
		{"a body that looks like an envelope of next year", `{"pushlease":2,"body":"aGk="}`, "", encodingEnvelope},
		{"a body with a field of that name", `{"pushlease":"test"}`, "", EncodingNone},
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

// What is not base64 at its first letter, and is most bodies, is copied nowhere to find that out.
func TestAPlainBodyIsReadWhereItLies(t *testing.T) {
	for _, text := range []string{`{"a": 1}`, " [1]", "{}"} {
		if n := testing.AllocsPerRun(100, func() { _, _ = Decode(EncodingAuto, []byte(text)) }); n > 2 {
			t.Errorf("Decode(%q) allocates %v times", text, n)
		}
	}
	for text, want := range map[string]string{" e30=": "{}", "\te30=": "{}", "e30": "e30", "=e30": "=e30", "": "", " ": " ", "-_8=": "-_8="} {
		if b, err := Decode(EncodingAuto, []byte(text)); err != nil || string(b.Bytes) != want {
			t.Errorf("Decode(%q) = %q, %v, want %q", text, b.Bytes, err, want)
		}
	}
}
