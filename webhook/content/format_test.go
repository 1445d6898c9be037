package content_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/webhook/content"
)

var origin = content.Origin{MessageID: "5e0b1f6a", Queue: "orders", InsertedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}

// event is an event in JSON with these members behind the required ones.
func event(members string) string {
	return `{"specversion":"1.0","id":"1","source":"/s","type":"t"` + members + `}`
}

// base is the headers of event, and more.
func base(more ...string) map[string]string {
	h := map[string]string{"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

// CloudEvents HTTP protocol binding 1.0.2, section 3.1, and JSON format, section 3.1.
func TestBinaryMode(t *testing.T) {
	tests := []struct {
		name, body string
		want       content.Payload
	}{
		{"JSON data is sent as it is written", event(`,"datacontenttype":"application/json","data":{"b":1,"a":"<é & \u001B>","n":12345678901234567890,"f":1.0}`),
			content.Payload{Body: []byte(`{"b":1,"a":"<é & \u001B>","n":12345678901234567890,"f":1.0}`), ContentType: "application/json", Headers: base()}},
		{"data without a type is JSON", event(`, "data" : "I'm just a string" `),
			content.Payload{Body: []byte(`"I'm just a string"`), ContentType: "application/json", Headers: base()}},
		{"a null is data", event(`,"data":null`), content.Payload{Body: []byte(`null`), ContentType: "application/json", Headers: base()}},
		{"any +json type is JSON", event(`,"datacontenttype":"application/vnd.x+json; v=1","data":"a"`),
			content.Payload{Body: []byte(`"a"`), ContentType: "application/vnd.x+json; v=1", Headers: base()}},
		{"text is decoded", event(`,"datacontenttype":"application/xml","data":"<much wow=\"xml\"\/>\r\n\u00e9\ud83d\ude00\u0000"`),
			content.Payload{Body: []byte("<much wow=\"xml\"/>\r\né\U0001F600\x00"), ContentType: "application/xml", Headers: base()}},
		{"base64 is decoded", event(`,"datacontenttype":"image/png","data_base64":"//4AAQ=="`),
			content.Payload{Body: []byte("\xff\xfe\x00\x01"), ContentType: "image/png", Headers: base()}},
		{"base64 that is null is not there", event(`,"data":{"a":1},"data_base64":null`), content.Payload{Body: []byte(`{"a":1}`), ContentType: "application/json", Headers: base()}},
		{"data that is null gives way to base64", event(`,"data":null,"data_base64":"AAE="`), content.Payload{Body: []byte{0, 1}, ContentType: "application/octet-stream", Headers: base()}},
		{"base64 without a type is bytes", event(`,"data_base64":""`), content.Payload{Body: []byte{}, ContentType: "application/octet-stream", Headers: base()}},
		{"no data is an empty body", event(``), content.Payload{Headers: base()}},
		{"extensions become headers", event(`,"time":"2026-01-02T03:04:05Z","subject":"x","n":-5,"b":true,"unset":null,"traceparent":"00-x"`),
			content.Payload{Headers: base("ce-time", "2026-01-02T03:04:05Z", "ce-subject", "x", "ce-n", "-5", "ce-b", "true", "ce-traceparent", "00-x")}},
		{"values are percent-encoded", event(`,"subject":"Euro € 😀","a":"100% \"x\"","b":"a\r\nX-Evil: 1","c":"\u0000\u007f"`),
			content.Payload{Headers: base("ce-subject", "Euro%20%E2%82%AC%20%F0%9F%98%80", "ce-a", "100%25%20%22x%22", "ce-b", "a%0D%0AX-Evil:%201", "ce-c", "%00%7F")}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := content.Read([]byte(test.body), "application/cloudevents+json")
			if diff := cmp.Diff(test.want, content.FormatBinary.Payload(c, origin)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What headers can't carry exactly is sent in structured mode: nothing is dropped.
func TestBinaryModeGivesWayToStructured(t *testing.T) {
	var many strings.Builder
	for i := range 60 {
		fmt.Fprintf(&many, `,"x%d":"1"`, i)
	}
	for name, members := range map[string]string{
		"data in both forms":              `,"data":1,"data_base64":"AA=="`,
		"bad base64":                      `,"data_base64":"AA"`,
		"base64 with blanks":              `,"data_base64":"AA==\n"`,
		"base64 that is no text":          `,"data_base64":1`,
		"text data that is no text":       `,"datacontenttype":"text/plain","data":{"a":1}`,
		"half a character":                `,"datacontenttype":"text/plain","data":"\ud83d"`,
		"another encoding of characters":  `,"datacontenttype":"text/plain; charset=iso-8859-1","data":"é"`,
		"an attribute that is an object":  `,"ext":{"a":1}`,
		"an attribute that is a fraction": `,"ext":1.5`,
		"an attribute that is no text":    `,"ext":"\udc00"`,
		"a name that is none":             `,"Ext_A":"x"`,
		"an empty name":                   `,"":"x"`,
		"a name that is too long":         `,"` + strings.Repeat("x", 65) + `":"x"`,
		"too many attributes":             many.String(),
		"attributes that are too large":   `,"subject":"` + strings.Repeat("é", 1100) + `"`,
		"a type with a line end":          `,"datacontenttype":"text/plain\r\nX: 1","data":"x"`,
		"a type that is too long":         `,"datacontenttype":"text/plain;a=` + strings.Repeat("x", 300) + `","data":"x"`,
		"data that is an event":           `,"datacontenttype":"Application/CloudEvents+json","data":{}`,
	} {
		body := event(members)
		got := content.FormatBinary.Payload(content.Read([]byte(body), ""), origin)
		if diff := cmp.Diff(content.Payload{Body: []byte(body), ContentType: "application/cloudevents+json"}, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestStructuredModeKeepsAnEvent(t *testing.T) {
	for _, body := range []string{orderEvent, "\xef\xbb\xbf" + event(``) + "\n", event(`,"data_base64":"?","X":{}`)} {
		got := content.FormatStructured.Payload(content.Read([]byte(body), "application/json"), origin)
		if string(got.Body) != body || got.ContentType != "application/cloudevents+json" || got.Headers != nil {
			t.Errorf("%q became %q, %v", body, got.Body, got)
		}
	}
}

func TestRawBodiesAreWrapped(t *testing.T) {
	const head = `{"specversion":"1.0","id":"5e0b1f6a","source":"/queues/orders","type":"pushlease.message","time":"2026-01-02T03:04:05Z"`
	tests := []struct{ name, body, contentType, want string }{
		{"JSON as it is written", " {\"b\":1,\"a\":\"<\\u001B>\",\"n\":12345678901234567890,\"n\":1.0}\n", "application/json",
			`,"datacontenttype":"application/json","data":{"b":1,"a":"<\u001B>","n":12345678901234567890,"n":1.0}}`},
		{"a JSON string", `"x"`, "text/json", `,"datacontenttype":"text/json","data":"x"}`},
		{"text", "a\r\n\"é\" </script>\x00", "text/plain; charset=utf-8", `,"datacontenttype":"text/plain; charset=utf-8","data":"a\r\n\"é\" \u003c/script\u003e\u0000"}`},
		{"XML", "<a/>", "application/soap+xml", `,"datacontenttype":"application/soap+xml","data":"\u003ca/\u003e"}`},
		{"an empty text", "", "text/plain", `,"datacontenttype":"text/plain","data":""}`},
		{"bytes", "\xff\xfe\x00\x01", "application/octet-stream", `,"datacontenttype":"application/octet-stream","data_base64":"//4AAQ=="}`},
		{"text that is not UTF-8", "\xe9", "text/plain", `,"datacontenttype":"text/plain","data_base64":"6Q=="}`},
		{"text in another encoding", "e", "text/plain; charset=latin1", `,"datacontenttype":"text/plain; charset=latin1","data_base64":"ZQ=="}`},
		{"JSON that is broken", "{", "application/json", `,"datacontenttype":"application/json","data_base64":"ew=="}`},
		{"JSON that is not UTF-8", "\"\xff\"", "application/json", `,"datacontenttype":"application/json","data_base64":"Iv8i"}`},
		{"JSON with a byte order mark", "\xef\xbb\xbf{}", "application/json", `,"datacontenttype":"application/json","data_base64":"77u/e30="}`},
		{"no type", "{}", "", `,"data_base64":"e30="}`},
		{"a type with a line end", "x", "text/plain\r\nX: 1", `,"datacontenttype":"text/plain","data":"x"}`},
		{"a batch", "[]", "application/cloudevents-batch+json", `,"datacontenttype":"application/cloudevents-batch+json","data":[]}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := content.FormatStructured.Payload(content.Read([]byte(test.body), test.contentType), origin)
			if string(got.Body) != head+test.want || got.ContentType != "application/cloudevents+json" || got.Headers != nil {
				t.Errorf("got  %s, %s\nwant %s", got.Body, got.ContentType, head+test.want)
			}
			if !bytes.Contains(got.Body, []byte(`"data`)) || !json.Valid(got.Body) {
				t.Error("no data, or not JSON")
			}
		})
	}
}

func TestRawBodiesInBinaryModeKeepTheirBytes(t *testing.T) {
	body := []byte("\xff\xfe\x00\x01\r\n")
	got := content.FormatBinary.Payload(content.Read(body, "image/x\r\nX: 1"), content.Origin{MessageID: "a b\r\n", Queue: "or/ders"})
	want := content.Payload{Body: body, ContentType: "image/x", Headers: map[string]string{
		"ce-specversion": "1.0", "ce-id": "a%20b%0D%0A", "ce-source": "/queues/or%252Fders", "ce-type": "pushlease.message",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	batch := content.FormatBinary.Payload(content.Read([]byte("[]"), "application/cloudevents-batch+json"), origin)
	if batch.ContentType != "application/cloudevents+json" {
		t.Errorf("a batch is sent as %s, which says something else than binary mode", batch.ContentType)
	}
}

func TestRawFormatChangesNothing(t *testing.T) {
	for _, format := range []content.Format{content.FormatRaw, ""} {
		for _, body := range []string{orderEvent, "", "\xff", "{}\n"} {
			got := format.Payload(content.Read([]byte(body), "a/b"), origin)
			if string(got.Body) != body || got.ContentType != "a/b" || got.Headers != nil {
				t.Errorf("%q became %v", body, got)
			}
		}
	}
}

func TestFormatsAreNamed(t *testing.T) {
	for _, f := range content.Formats() {
		if got, err := content.ParseFormat(string(f)); got != f || err != nil {
			t.Errorf("%s: %s, %v", f, got, err)
		}
	}
	for _, bad := range []string{"", "Raw", "cloudevents"} {
		if _, err := content.ParseFormat(bad); err == nil || !strings.Contains(err.Error(), "cloudevents-binary") {
			t.Errorf("%q: %v; want an error that lists the formats", bad, err)
		}
	}
}

// For any body: wrapping loses nothing.
func FuzzWrap(f *testing.F) {
	f.Add([]byte("\xff\xfe\x00\x01"), "application/octet-stream", "id")
	f.Add([]byte(" {\"a\":1} "), "application/json", "\xff\r\n")
	f.Add([]byte("text \u2028 </script>"), "text/plain", "")
	f.Fuzz(func(t *testing.T, body []byte, contentType, id string) {
		c := content.Read(body, contentType)
		if c.Event != nil {
			return
		}
		got := content.FormatStructured.Payload(c, content.Origin{MessageID: id, Queue: "orders"})
		var e struct {
			Data            json.RawMessage
			DataBase64      *string `json:"data_base64"`
			DataContentType string
		}
		if err := json.Unmarshal(got.Body, &e); err != nil {
			t.Fatalf("%q: %v", got.Body, err)
		}
		switch {
		case e.DataBase64 != nil:
			if raw, err := base64.StdEncoding.DecodeString(*e.DataBase64); err != nil || !bytes.Equal(raw, body) {
				t.Errorf("base64: %q, %v; want %q", raw, err, body)
			}
		case strings.Contains(strings.ToLower(e.DataContentType), "json"):
			if !bytes.Equal(e.Data, bytes.Trim(body, " \t\r\n")) {
				t.Errorf("JSON: %q, want %q", e.Data, body)
			}
		default:
			var text string
			if err := json.Unmarshal(e.Data, &text); err != nil || text != string(body) {
				t.Errorf("text: %q, %v; want %q", text, err, body)
			}
		}
	})
}
