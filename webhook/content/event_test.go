package content_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/webhook/content"
)

const orderEvent = `{"specversion":"1.0","id":"a-1","source":"/shop","type":"com.example.order.paid",` +
	`"subject":"orders/7","time":"2026-01-02T03:04:05Z","datacontenttype":"application/json",` +
	`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"v=1",` +
	`"data":{"amount":12345678901234567890,"b":"<é & \u001B>"}}`

func TestEventTellsItsAttributes(t *testing.T) {
	e, ok := content.ParseEvent([]byte(orderEvent), "application/cloudevents+json; charset=utf-8")
	if !ok {
		t.Fatal("not taken for an event")
	}
	got := []string{e.ID, e.Source, e.Type, e.Subject, e.Time, e.DataContentType, e.Parent.TraceID().String(), e.Parent.SpanID().String(), e.Parent.TraceState().String()}
	want := []string{"a-1", "/shop", "com.example.order.paid", "orders/7", "2026-01-02T03:04:05Z", "application/json", "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "v=1"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if !e.Parent.IsRemote() {
		t.Error("the parent is not marked as remote")
	}
}

func TestWhatIsAnEvent(t *testing.T) {
	const rest = `"specversion":"1.0","id":"1","source":"s","type":"t"`
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, `,"x%d":1`, i)
	}
	tests := []struct {
		name, body, contentType string
		want                    bool
	}{
		{"the smallest", `{` + rest + `}`, "", true},
		{"any JSON type", `{` + rest + `}`, "application/json", true},
		{"blanks and a byte order mark", "\xef\xbb\xbf \r\n\t{ " + rest + " }\n", "", true},
		{"a null is as good as absent", `{` + rest + `,"subject":null}`, "", true},
		{"members that are no attributes", `{` + rest + `,"Not_A_Name":{},"x":[1.5]}`, "", true},
		{"deep data", `{` + rest + `,"data":` + deep + `}`, "", true},
		{"an escaped name", `{"specversion":"1.0","\u0069d":"1","source":"s","type":"t"}`, "", true},
		{"unicode", `{"specversion":"1.0","id":"\ud83d\ude00","source":"é","type":"t"}`, "", true},

		{"text", `{` + rest + `}`, "text/plain", false},
		{"a batch", `[{` + rest + `}]`, "application/cloudevents-batch+json", false},
		{"another encoding of characters", `{` + rest + `}`, "application/json; charset=utf-16", false},
		{"a bad content type", `{` + rest + `}`, ";;", false},
		{"version 0.3", `{"specversion":"0.3","id":"1","source":"s","type":"t"}`, "", false},
		{"a version that is a number", `{"specversion":1.0,"id":"1","source":"s","type":"t"}`, "", false},
		{"no id", `{"specversion":"1.0","source":"s","type":"t"}`, "", false},
		{"an empty source", `{"specversion":"1.0","id":"1","source":"","type":"t"}`, "", false},
		{"a null type", `{"specversion":"1.0","id":"1","source":"s","type":null}`, "", false},
		{"an id that is a number", `{"specversion":"1.0","id":1,"source":"s","type":"t"}`, "", false},
		{"an id twice", `{` + rest + `,"id":"2"}`, "", false},
		{"an id twice, once escaped", `{` + rest + `,"\u0069d":"2"}`, "", false},
		{"data twice", `{` + rest + `,"data":1,"data":2}`, "", false},
		{"an id that is no text", `{"specversion":"1.0","id":"\ud800","source":"s","type":"t"}`, "", false},
		{"an id that is not UTF-8", "{\"specversion\":\"1.0\",\"id\":\"\xff\",\"source\":\"s\",\"type\":\"t\"}", "", false},
		{"too many members", `{` + rest + many.String() + `}`, "", false},
		{"broken off", `{` + rest, "", false},
		{"something behind", `{` + rest + `}{}`, "", false},
		{"empty", ``, "", false},
		{"a byte order mark alone", "\xef\xbb\xbf", "", false},
		{"a text that names it", `"specversion"`, "", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			body := []byte(test.body)
			if _, ok := content.ParseEvent(body, test.contentType); ok != test.want {
				t.Errorf("event: %v, want %v", ok, test.want)
			}
			if string(body) != test.body {
				t.Error("the body was changed")
			}
			if c := content.Read(body, test.contentType); (c.Event != nil) != test.want {
				t.Errorf("content: %v, want %v", c.Event != nil, test.want)
			}
		})
	}
}

// C38: a malformed traceparent counts as none, and the event as an event.
func TestBadTraceparentIsIgnored(t *testing.T) {
	for _, value := range []string{
		`""`, `"00"`, `"00-00000000000000000000000000000000-b7ad6b7169203331-01"`,
		`"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"`,
		`"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`,
		`"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"`,
		`"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nX: 1"`,
		`["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]`, `1`, `null`,
	} {
		e, ok := content.ParseEvent([]byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","traceparent":`+value+`}`), "")
		if !ok || e.Parent.IsValid() {
			t.Errorf("%s: event %v, parent %v; want an event without a parent", value, ok, e.Parent)
		}
	}
	e, ok := content.ParseEvent([]byte(`{"specversion":"1.0","id":"1","source":"s","type":"t",`+
		`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00","tracestate":"=,="}`), "")
	if !ok || !e.Parent.IsValid() || e.Parent.IsSampled() || e.Parent.TraceState().Len() != 0 {
		t.Errorf("event %v, parent %v; want the parent without the bad tracestate", ok, e.Parent)
	}
}

func TestKeysTellEventsApart(t *testing.T) {
	keys := map[string]string{}
	for _, pair := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"a", "b:c"}, {"1:a", "bc"}, {"a:1", "c"}, {"a", "1:c"}, {"A", "bc"}} {
		body, _ := json.Marshal(map[string]string{"specversion": "1.0", "source": pair[0], "id": pair[1], "type": "t"})
		e, ok := content.ParseEvent(body, "")
		if !ok {
			t.Fatalf("%q is no event", pair)
		}
		if other, taken := keys[e.Key()]; taken {
			t.Errorf("%q has the key of %s", pair, other)
		}
		keys[e.Key()] = fmt.Sprint(pair)
	}
	again, _ := content.ParseEvent([]byte(`{"type":"other","id":"bc","source":"a","specversion":"1.0","data":1}`), "")
	if keys[again.Key()] != fmt.Sprint([2]string{"a", "bc"}) {
		t.Error("the same source and id gave another key")
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add([]byte(orderEvent))
	f.Add([]byte(`{"specversion":"1.0","id":"\\\"","source":"s","type":"\u0000","data_base64":"AAE="}`))
	f.Add([]byte("\xef\xbb\xbf[{}, [], \"\\ud800\", -1.5e+3 , null]"))
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		c := content.Read(body, "application/json")
		if e := c.Event; e != nil {
			// An independent reader must see the same attributes.
			var want struct{ ID, Source, Type, SpecVersion string }
			if err := json.Unmarshal(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), &want); err == nil && !ambiguous(body) {
				if want.ID != e.ID || want.Source != e.Source || want.Type != e.Type || want.SpecVersion != "1.0" {
					t.Errorf("read %+v from %q, want %+v", e, body, want)
				}
			}
		}
		for _, format := range content.Formats() {
			p := format.Payload(c, content.Origin{MessageID: "1", Queue: "orders"})
			for name, value := range p.Headers {
				if strings.ContainsFunc(name+value, func(r rune) bool { return r <= ' ' || r > '~' }) {
					t.Errorf("%s: header %q: %q", format, name, value)
				}
			}
			if format == content.FormatStructured {
				if _, ok := content.ParseEvent(p.Body, p.ContentType); !ok {
					t.Errorf("structured: %q is no event", p.Body)
				}
			}
		}
		if !bytes.Equal(before, body) {
			t.Error("the body was changed")
		}
	})
}

// ambiguous: encoding/json finds fields in any case of letters.
func ambiguous(body []byte) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), &members) != nil {
		return true
	}
	for name := range members {
		for _, known := range []string{"id", "source", "type", "specversion"} {
			if name != known && strings.EqualFold(name, known) {
				return true
			}
		}
	}
	return false
}
