package api

import (
	"net/http"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook/content"
)

const (
	goodEvent   = `{"specversion":"1.0","id":"7","source":"/s","type":"t"}`
	traceHeader = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	otherTrace  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

// withEncoding sets the encoding of all queues.
// The content types of events.
const (
	eventMedia = "application/cloudevents+json"
	batchMedia = "application/cloudevents-batch+json"
)

func withEncoding(e queue.Encoding) func(*Options) {
	return func(o *Options) { o.Encoding = func(string) queue.Encoding { return e } }
}

// received takes the one message of the queue orders and decodes it.
func (h *harness) received(setting queue.Encoding) (text string, body queue.Body) {
	h.Helper()
	m := h.receive("orders")
	body, err := queue.Decode(setting, m.Text)
	if err != nil {
		h.Fatal(err)
	}
	return string(m.Text), body
}

func binaryHeaders(more ...string) []string {
	return append([]string{"ce-specversion", "1.0", "ce-id", "7", "ce-source", "/s", "ce-type", "t"}, more...)
}

func TestStructuredEventIsStoredByteForByte(t *testing.T) {
	for _, body := range []string{
		" {\"type\":\"t\",\"specversion\":\"1.0\",\"id\":\"7\",\"source\":\"/s\"}\n",
		"\xef\xbb\xbf" + goodEvent,
		`{"specversion":"1.0","id":"\u00e9","source":"/s","type":"t","subject":null,"n":-5,"b":true,"data":{"a":1,"a":2,"A":1.50}}`,
		`{"specversion":"1.0","id":"9","source":"/s","type":"t","data":{"a":1},"data_base64":null}`,
		`{"specversion":"1.0","id":"10","source":"/s","type":"t","data":null,"data_base64":"AAE="}`,
		`{"specversion":"1.0","id":"7","source":"/s","type":"t","time":"2026-08-01t12:00:00.5+02:00","datacontenttype":"image/png","data_base64":"AAE="}`,
		`{"specversion":"1.0","id":"7","source":"/s","type":"t","data":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`,
	} {
		h := newHarness(t)
		h.do(http.StatusAccepted, "POST", publishTarget, body, "Content-Type", "application/cloudevents+json")
		_, got := h.received(queue.EncodingAuto)
		if string(got.Bytes) != body || got.ContentType != eventMedia {
			t.Errorf("received %.80q as %q, want %.80q", got.Bytes, got.ContentType, body)
		}
		if c := content.Read(got.Bytes, got.ContentType); c.Event == nil || c.Event.Source != "/s" || c.Event.Type != "t" {
			t.Errorf("%.80q is read as %+v", body, c.Event)
		}
	}
}

func TestBrokenStructuredEventsNameTheAttribute(t *testing.T) {
	h := newHarness(t)
	with := func(member string) string { return strings.TrimSuffix(goodEvent, "}") + "," + member + "}" }
	for body, field := range map[string]string{
		`{`:                   "body",
		`[` + goodEvent + `]`: "body",
		`null`:                "body",
		`"x"`:                 "body",
		goodEvent + `{}`:      "body",
		"{\"specversion\":\"1.0\",\"id\":\"\xff\",\"source\":\"/s\",\"type\":\"t\"}": "body",
		`{"specversion":"1.0","id":"\ud800","source":"/s","type":"t"}`:               "id",
		`{"id":"7","source":"/s","type":"t"}`:                                        "specversion",
		`{"specversion":"0.3","id":"7","source":"/s","type":"t"}`:                    "specversion",
		`{"specversion":1.0,"id":"7","source":"/s","type":"t"}`:                      "specversion",
		`{"specversion":"1.0","source":"/s","type":"t"}`:                             "id",
		`{"specversion":"1.0","id":"","source":"/s","type":"t"}`:                     "id",
		`{"specversion":"1.0","id":7,"source":"/s","type":"t"}`:                      "id",
		`{"specversion":"1.0","id":"7","source":"","type":"t"}`:                      "source",
		`{"specversion":"1.0","id":"7","source":null,"type":"t"}`:                    "source",
		`{"specversion":"1.0","id":"7","source":"/s","type":["t"]}`:                  "type",
		`{"specversion":"1.0","id":"7","source":"/s","Type":"t"}`:                    "Type",
		with(`"id":"8"`):                            "body",
		with(`"i\u0064":"8"`):                       "body",
		with(`"data":1,"data":1`):                   "body",
		with(`"data":1,"data_base64":"AAE="`):       "data_base64",
		with(`"data_base64":"AAE"`):                 "data_base64",
		with(`"data_base64":"AA\nE="`):              "data_base64",
		with(`"data_base64":5`):                     "data_base64",
		with(`"time":"yesterday"`):                  "time",
		with(`"datacontenttype":"json"`):            "datacontenttype",
		with(`"subject":""`):                        "subject",
		with(`"subject":"a\u0000b"`):                "subject",
		with(`"ext":"a\u0085b"`):                    "ext",
		with(`"ext":{"a":1}`):                       "ext",
		with(`"ext":1.5`):                           "ext",
		with(`"trace_id":"x"`):                      "trace_id",
		with(`"":"x"`):                              `""`,
		with(`"` + strings.Repeat("x", 65) + `":1`): `"` + strings.Repeat("x", 65) + `"`,
	} {
		a := h.do(http.StatusUnprocessableEntity, "POST", publishTarget, body, "Content-Type", "application/cloudevents+json; charset=UTF-8")
		if len(field) < 60 {
			a.wantProblem(field)
		}
	}
	var many strings.Builder
	for i := range 101 {
		many.WriteString(`,"x` + strings.Repeat("y", i%50) + string(rune('a'+i/50)) + `":1`)
	}
	h.do(http.StatusUnprocessableEntity, "POST", publishTarget, strings.TrimSuffix(goodEvent, "}")+many.String()+"}", "Content-Type", eventMedia).wantProblem("body")
	h.do(http.StatusUnprocessableEntity, "POST", publishTarget, strings.Repeat("[", 60_000), "Content-Type", eventMedia).wantProblem("body")
	h.do(http.StatusBadRequest, "POST", publishTarget, "", "Content-Type", eventMedia).wantProblem("body")
}

func TestFormsOfEventsThatAreNotReadAreRefused(t *testing.T) {
	h := newHarness(t)
	for _, contentType := range []string{"application/cloudevents", "application/cloudevents+avro", "application/cloudevents-batch+xml", "application/cloudevents+json; charset=utf-16"} {
		h.do(http.StatusUnsupportedMediaType, "POST", publishTarget, goodEvent, "Content-Type", contentType).wantProblem("Content-Type")
	}
}

func TestHeadersBesideAStructuredEventMustNotContradictIt(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusAccepted, "POST", publishTarget, goodEvent, "Content-Type", eventMedia, "ce-id", "7", "ce-type", "t")
	h.do(http.StatusUnprocessableEntity, "POST", publishTarget, goodEvent, "Content-Type", eventMedia, "ce-id", "8").wantProblem("ce-id")
	h.do(http.StatusUnprocessableEntity, "POST", publishTarget, goodEvent, "Content-Type", eventMedia, "ce-subject", "x").wantProblem("ce-subject")
}

// What is published in binary mode is what a webhook of that format gets.
func TestBinaryEventReadsBackAsItWasSent(t *testing.T) {
	tests := []struct{ name, body, contentType, wantType, wantBody string }{
		{"JSON", `{"a":1.50,"é":"<&>"}`, "application/json", "", ""},
		{"JSON with blanks around it", " [1]\n", "application/json", "", "[1]"},
		{"JSON as curl -d marks it", `{"a":1}`, "application/x-www-form-urlencoded", "application/json", ""},
		{"JSON of a vendor", `"x"`, "application/vnd.x+json", "", ""},
		{"what is no JSON", `{`, "application/json", "", ""},
		{"a byte order mark", "\xef\xbb\xbf{}", "application/json", "", ""},
		{"an event as data", goodEvent, "application/json", "", ""},
		{"text", "a\r\n\t\x00é \"<&>", "text/plain; charset=utf-8", "", ""},
		{"text of another charset", "\xe9", "text/plain; charset=latin1", "", ""},
		{"XML", "<a>é</a>", "application/xml", "", ""},
		{"a form", "a=1&b=2", "application/x-www-form-urlencoded", "", ""},
		{"bytes", "\xff\xfe\x00\x01", "", "application/octet-stream", ""},
		{"bytes with a type", "\xff\x00", "image/png", "", ""},
		{"a word", "hello", "", "text/plain; charset=utf-8", ""},
		{"no data", "", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t)
			headers := binaryHeaders("ce-subject", "a%20b%C3%A9%22%25%7e", "ce-comexample", "x%2By", "ce-traceparent", otherTrace, "traceparent", traceHeader)
			if tt.contentType != "" {
				headers = append(headers, "Content-Type", tt.contentType)
			}
			h.do(http.StatusAccepted, "POST", publishTarget, tt.body, headers...)
			_, got := h.received(queue.EncodingAuto)
			if got.ContentType != eventMedia || got.TraceParent != "" {
				t.Errorf("content type %q, trace %q", got.ContentType, got.TraceParent)
			}
			c := content.Read(got.Bytes, got.ContentType)
			if c.Event == nil || c.Event.Subject != "a bé\"%~" || !c.Event.Parent.IsValid() {
				t.Fatalf("%s is read as %+v", got.Bytes, c.Event)
			}
			wantType, wantBody := tt.contentType, tt.body
			if tt.wantType != "" {
				wantType = tt.wantType
			}
			if tt.wantBody != "" {
				wantBody = tt.wantBody
			}
			p := content.FormatBinary.Payload(c, content.Origin{})
			if string(p.Body) != wantBody || p.ContentType != wantType || p.Headers["ce-subject"] != "a%20b%C3%A9%22%25~" || p.Headers["ce-comexample"] != "x+y" || p.Headers["ce-id"] != "7" {
				t.Errorf("delivered %q as %q with %v, want %q as %q", p.Body, p.ContentType, p.Headers, wantBody, wantType)
			}
		})
	}
}

func TestBrokenBinaryEventsNameTheHeader(t *testing.T) {
	h := newHarness(t)
	for name, tt := range map[string]struct {
		headers []string
		field   string
	}{
		"only one attribute": {[]string{"ce-type", "t"}, "ce-id"},
		"version":            {[]string{"ce-specversion", "0.3", "ce-id", "7", "ce-source", "/s", "ce-type", "t"}, "ce-specversion"},
		"empty":              {binaryHeaders("ce-subject", ""), "ce-subject"},
		"twice":              {binaryHeaders("ce-id", "7"), "ce-id"},
		"percent":            {binaryHeaders("ce-x", "50%"), "ce-x"},
		"half a percent":     {binaryHeaders("ce-x", "%4"), "ce-x"},
		"no UTF-8":           {binaryHeaders("ce-x", "%ff"), "ce-x"},
		"control":            {binaryHeaders("ce-x", "a%0d%0aSet-Cookie:%20x"), "ce-x"},
		"raw control":        {binaryHeaders("ce-x", "a\x01b"), "ce-x"},
		"raw UTF-8":          {binaryHeaders("ce-x", "é"), "ce-x"},
		"open quote":         {binaryHeaders("ce-x", `"abc`), "ce-x"},
		"text after a quote": {binaryHeaders("ce-x", `"abc"d`), "ce-x"},
		"a name":             {binaryHeaders("ce-a-b", "x"), "ce-a-b"},
		"data":               {binaryHeaders("ce-data", "x"), "ce-data"},
		"data_base64":        {binaryHeaders("ce-data_base64", "AAE="), "ce-data_base64"},
		"datacontenttype":    {binaryHeaders("ce-datacontenttype", "text/plain"), "ce-datacontenttype"},
		"time":               {binaryHeaders("ce-time", "now"), "ce-time"},
		"a megabyte":         {binaryHeaders("ce-x", strings.Repeat("a", 1<<20)), "ce-x"},
	} {
		t.Run(name, func(t *testing.T) {
			h.do(http.StatusUnprocessableEntity, "POST", publishTarget, "x", tt.headers...).wantProblem(tt.field)
		})
	}
	quoted := binaryHeaders("ce-subject", `"a \"b\" \\ %41"`)
	h.do(http.StatusAccepted, "POST", publishTarget, "x", quoted...)
	_, got := h.received(queue.EncodingAuto)
	if e, ok := content.ParseEvent(got.Bytes, eventMedia); !ok || e.Subject != `a "b" \ A` {
		t.Errorf("a quoted value is read as %q", e.Subject)
	}
	h.do(http.StatusRequestEntityTooLarge, "POST", publishTarget, strings.Repeat("\xff", 60_000), binaryHeaders()...).wantProblem("body")
}

func TestTraceIsCarriedWhereItDisturbsNobody(t *testing.T) {
	traced := strings.TrimSuffix(goodEvent, "}") + `,"traceparent":"` + otherTrace + `"}`
	large := strings.Repeat("a", 60_000)
	tests := []struct {
		name        string
		setting     queue.Encoding
		body        string
		headers     []string
		want        string
		wantWrapped bool
	}{
		{"raw", queue.EncodingAuto, "hello", []string{"traceparent", traceHeader}, traceHeader, true},
		{"raw under none", queue.EncodingNone, "hello", []string{"traceparent", traceHeader}, "", false},
		{"raw under base64", queue.EncodingBase64, "hello", []string{"traceparent", traceHeader}, "", false},
		{"too large with it", queue.EncodingAuto, large, []string{"traceparent", traceHeader}, "", false},
		{"malformed", queue.EncodingAuto, "hello", []string{"traceparent", "00-xyz"}, "", false},
		{"all zero", queue.EncodingAuto, "hello", []string{"traceparent", "00-00000000000000000000000000000000-0000000000000000-00"}, "", false},
		{"long", queue.EncodingAuto, "hello", []string{"traceparent", traceHeader + strings.Repeat("-", 1<<16)}, "", false},
		{"twice", queue.EncodingAuto, "hello", []string{"traceparent", traceHeader, "traceparent", otherTrace}, "", false},
		{"structured", queue.EncodingAuto, goodEvent, []string{"traceparent", traceHeader, "Content-Type", eventMedia}, traceHeader, true},
		{"structured with its own", queue.EncodingAuto, traced, []string{"traceparent", traceHeader, "Content-Type", eventMedia}, "", true},
		{"structured under none", queue.EncodingNone, goodEvent, []string{"traceparent", traceHeader, "Content-Type", eventMedia}, "", false},
		{"with a key under none", queue.EncodingNone, "hello", []string{"traceparent", traceHeader, "Idempotency-Key", "k"}, traceHeader, true},
		{"with a key, too large with it", queue.EncodingNone, strings.Repeat("a", 49_065), []string{"traceparent", traceHeader, "Idempotency-Key", "k"}, "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, withEncoding(tt.setting))
			h.do(http.StatusAccepted, "POST", publishTarget, tt.body, tt.headers...)
			text, got := h.received(tt.setting)
			if string(got.Bytes) != tt.body || got.TraceParent != tt.want {
				t.Errorf("trace %q, want %q; body %.60q", got.TraceParent, tt.want, got.Bytes)
			}
			if wrapped := strings.HasPrefix(text, `{"pushlease":1,`); wrapped != tt.wantWrapped {
				t.Errorf("wrapped = %t: %.80s", wrapped, text)
			}
		})
	}
}

// Two tries of one request have different traces and must still be one event.
func TestATraceHeaderDoesNotChangeABinaryEvent(t *testing.T) {
	h := newHarness(t)
	var bodies []string
	for _, trace := range []string{traceHeader, otherTrace} {
		h.do(http.StatusAccepted, "POST", publishTarget, "x", binaryHeaders("traceparent", trace)...)
		_, got := h.received(queue.EncodingAuto)
		if bodies = append(bodies, string(got.Bytes)); got.TraceParent != trace {
			t.Errorf("trace %q, want %q", got.TraceParent, trace)
		}
	}
	if bodies[0] != bodies[1] {
		t.Errorf("two bodies: %q", bodies)
	}
}

func TestALargeEventIsStoredWithoutItsEnvelope(t *testing.T) {
	h := newHarness(t)
	body := strings.TrimSuffix(goodEvent, "}") + `,"data":"` + strings.Repeat("a", 60_000) + `"}`
	h.do(http.StatusAccepted, "POST", publishTarget, body, "Content-Type", eventMedia)
	text, got := h.received(queue.EncodingAuto)
	if c := content.Read(got.Bytes, queue.DefaultContentType(got.Bytes)); text != body || c.Event == nil {
		t.Errorf("stored as %.80s", text)
	}
}

func TestMatchTakesAMessageInEveryFormThatIsPublished(t *testing.T) {
	h := newHarness(t)
	const target = "/api/v1/queues/orders/match"
	h.register(`{"queue":"orders","url":"https://example.com/hook","filter":{"types":["t"]}}`)
	if a := h.do(http.StatusOK, "POST", target, "x", binaryHeaders()...); a.text("outcome") != "delivered" || a.text("event", "id") != "7" {
		t.Errorf("binary: %s", a.body)
	}
	h.do(http.StatusUnprocessableEntity, "POST", target, "x", "ce-id", "7").wantProblem("ce-type")
	h.do(http.StatusUnsupportedMediaType, "POST", target, "[]", "Content-Type", batchMedia).wantProblem("Content-Type")
}

func TestTraceStateGoesWithTraceparent(t *testing.T) {
	long := strings.Repeat("v", 200)
	for name, tt := range map[string]struct {
		headers []string
		want    string
	}{
		"one":                   {[]string{"traceparent", traceHeader, "tracestate", "a=1,b=2"}, "a=1,b=2"},
		"in two headers":        {[]string{"traceparent", traceHeader, "tracestate", "a=1", "tracestate", "b=2"}, "a=1,b=2"},
		"without a traceparent": {[]string{"tracestate", "a=1"}, ""},
		"malformed":             {[]string{"traceparent", traceHeader, "tracestate", "=1"}, ""},
		"too long":              {[]string{"traceparent", traceHeader, "tracestate", "a=" + long + ",b=" + long + ",c=" + long}, "a=" + long + ",b=" + long},
		"too many":              {[]string{"traceparent", traceHeader, "tracestate", "a=1" + strings.Repeat(",b=1", 40)}, ""},
		"huge":                  {[]string{"traceparent", traceHeader, "tracestate", "a=" + strings.Repeat("v", 1<<16)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, tracer := range []trace.Tracer{nil, sdktrace.NewTracerProvider().Tracer("")} { // with one each publish is a span
				h := newHarness(t, withEncoding(queue.EncodingAuto), func(o *Options) { o.Tracer = tracer })
				h.do(http.StatusAccepted, "POST", publishTarget, "hello", tt.headers...)
				if _, got := h.received(queue.EncodingAuto); got.TraceState != tt.want || string(got.Bytes) != "hello" {
					t.Errorf("tracestate %q, want %q; spans: %t", got.TraceState, tt.want, tracer != nil)
				}
			}
		})
	}
}

// C96: what strict receivers refuse would be a dead letter, so it is refused at the door.
func TestPublishRefusesWhatStrictReceiversRefuse(t *testing.T) {
	event := func(more string) string { return `{"specversion":"1.0","id":"1","type":"t",` + more + `}` }
	for text, field := range map[string]string{
		event(`"source":"a b"`): "source", event(`"source":"/a%zz"`): "source", event(`"source":"http://[x"`): "source", event(`"source":"<a>"`): "source",
		event(`"source":"https://example.com/\u00e9"`): "source", event(`"source":"/a[b]"`): "source", event(`"source":"a#b#c"`): "source", event(`"source":"/a?b=[1]"`): "source",
		event(`"source":"/s","dataschema":"schemas/1"`): "dataschema", event(`"source":"/s","count":2147483648`): "count", event(`"source":"/s","count":-2147483649`): "count",
		event(`"source":"/a?x=%zz"`): "source", event(`"source":"urn:a:%zz"`): "source", event(`"source":"/a?x=%4"`): "source", event(`"source":"/s","dataschema":"urn:a:%"`): "dataschema",
		event(`"source":"/s","subject":"\ud800"`): "subject", event(`"source":"/s","note":"a\udc00"`): "note", event(`"source":"/\ud800"`): "source",
		event(`"source":"/s","subject":"x\ufdd0"`): "subject", event(`"source":"/s","subject":"\ufffe"`): "subject", event(`"source":"/s","note":"\ud83f\udffe"`): "note",
		event("\"source\":\"/s\",\"subject\":\"a\uffff\""): "subject", event("\"source\":\"/s\",\"note\":\"\U0010fffe\""): "note",
	} {
		h := newHarness(t)
		if a := h.do(http.StatusUnprocessableEntity, "POST", publishTarget, text, "Content-Type", eventMedia); !strings.Contains(string(a.body), `"`+field+`"`) {
			t.Errorf("%s: %s", text, a.body)
		}
	}
	for _, text := range []string{
		event(`"source":"/s","dataschema":"https://example.com/s","count":-2147483648`), event(`"source":"urn:isbn:1"`), event(`"source":"a/b?c=%20#d"`), event(`"source":"mailto:a@b.example"`),
		event(`"source":"https://example.com/%C3%A9"`), event(`"source":"/a%5Bb%5D"`), event(`"source":"urn:a:%2f?x=%2F"`), event(`"source":"http://[::1]/a#b%5B"`),
	} {
		newHarness(t).do(http.StatusAccepted, "POST", publishTarget, text, "Content-Type", eventMedia)
	}
	for escaped, status := range map[string]int{"%EF%BF%BE": http.StatusUnprocessableEntity, "%EF%B7%90": http.StatusUnprocessableEntity, "%EF%BF%BD": http.StatusAccepted} {
		newHarness(t).do(status, "POST", publishTarget, "{}", "Content-Type", "application/json",
			"ce-specversion", "1.0", "ce-id", "1", "ce-source", "/s", "ce-type", "t", "ce-subject", escaped)
	}
}
