package publish

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/webhook/content"
)

// What is accepted is, event by event, what the same reader finds in the whole batch.
func FuzzBatch(f *testing.F) {
	for _, seed := range []string{`[{"specversion":"1.0","id":"0","source":"/s","type":"t"} ,\n{"specversion":"1.0","id":"1","source":"/s","type":"t"}]`, "[]", `[{"specversion":"1.0","id":"7","source":"/s","type":"t"},{}]`, `[{"a":[1,{"b":"]"}]},null]`, "[[[", "\xef\xbb\xbf[1 , 2]", "[1]x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		began := time.Now()
		events, err := splitBatch(raw)
		if err != nil {
			var p *web.Problem
			if !errors.As(err, &p) || len(p.Errors) == 0 || p.Errors[0].Problem == "" {
				t.Fatalf("no field is named: %v", err)
			}
			return
		}
		var whole []json.RawMessage
		if err := json.Unmarshal([]byte(strings.TrimPrefix(string(raw), string(byteOrderMark))), &whole); err != nil || len(whole) != len(events) {
			t.Fatalf("%d events, %d in the whole: %v", len(events), len(whole), err)
		}
		for i, e := range events {
			if string(e) != string(whole[i]) {
				t.Fatalf("event %d is %q, in the whole %q", i, e, whole[i])
			}
			_, problems := readEvent(e, func(name string) string { return name })
			if _, ok := content.ParseEvent(e, eventType); len(problems) == 0 && !ok {
				t.Fatalf("%q is taken, and no event for webhooks", e)
			}
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %s for %d bytes", took, len(raw))
		}
	})
}

// Whatever headers come, the event is either refused or reads back as what they say.
func FuzzBinaryEvent(f *testing.F) {
	f.Add("7", "/s", "t", "subject", "a%20b", "text/plain", []byte("x"))
	f.Add("%41", `"/s"`, "t%00", "x-y", "é", "application/json", []byte(`{"a":1,"a":2}`))
	f.Add("", "%", `"`, "data", "%ed%a0%80", "a/b; charset=utf-16", []byte("\xef\xbb\xbf{}"))
	f.Fuzz(func(t *testing.T, id, source, kind, name, value, contentType string, data []byte) {
		h := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {id}, "Ce-Source": {source}, "Ce-Type": {kind}}
		key := http.CanonicalHeaderKey("ce-" + name)
		if _, ok := h[key]; !ok {
			h[key] = []string{value}
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", contentType)
		kept, err := messageType(r, data)
		if err != nil {
			return
		}
		doc, problems := binaryEvent(h, data, kept)
		if again, _ := binaryEvent(h, data, kept); string(again) != string(doc) {
			t.Fatalf("two events of one request: %q and %q", doc, again)
		}
		if len(problems) > 0 {
			for _, p := range problems {
				if p.Field == "" || p.Problem == "" || p.Cure == "" {
					t.Fatalf("a problem without field or cure: %+v", p)
				}
			}
			return
		}
		c := content.Read(doc, eventType)
		if c.Event == nil || !utf8.Valid(doc) || !json.Valid(doc) {
			t.Fatalf("%q is no event", doc)
		}
		for header, got := range map[string]string{id: c.Event.ID, source: c.Event.Source, kind: c.Event.Type} {
			if want, what, _ := headerText(header); what != "" || want != got {
				t.Fatalf("%q became %q", header, got)
			}
		}
		p := content.FormatBinary.Payload(c, content.Origin{})
		if p.Headers == nil { // headers can't carry it back
			return
		}
		if string(p.Body) != string(data) && strings.TrimSpace(string(p.Body)) != strings.TrimSpace(string(data)) {
			t.Fatalf("data %q became %q in %s", data, p.Body, doc)
		}
		if back, err := url.PathUnescape(p.Headers["ce-id"]); err != nil || back != c.Event.ID {
			t.Fatalf("ce-id %q, %v", p.Headers["ce-id"], err)
		}
	})
}

func TestEventDataOfBytesIsCanonicalBase64(t *testing.T) {
	name, value := eventData([]byte{0xff}, "image/png")
	if name != "data_base64" || string(value) != `"`+base64.StdEncoding.EncodeToString([]byte{0xff})+`"` {
		t.Errorf("%s: %s", name, value)
	}
}
