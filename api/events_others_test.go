package api

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/npmtest"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook/content"
)

// What publishing takes as an event is one to the library that receivers check it with, in each format.
func TestEventsThatAreTakenAreValidToTheLibraryOfOthers(t *testing.T) {
	h := newHarness(t)
	type posted struct {
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
		What    string            `json:"what"`
	}
	var requests []posted
	taken := func(r *http.Request, what string) {
		t.Helper()
		h.serve(http.StatusAccepted, r)
		m := h.receive("orders")
		body, err := queue.Decode(queue.EncodingAuto, m.Text)
		if err != nil {
			t.Fatal(err)
		}
		c := content.Read(body.Bytes, "application/cloudevents+json")
		if c.Event == nil {
			t.Fatalf("%s is stored as no event: %s", what, body.Bytes)
		}
		for _, format := range []content.Format{content.FormatStructured, content.FormatBinary} {
			p := format.Payload(c, content.Origin{MessageID: m.ID, Queue: "orders", InsertedAt: time.Now()})
			headers := map[string]string{}
			for name, value := range p.Headers {
				headers[strings.ToLower(name)] = value
			}
			if p.ContentType != "" {
				headers["content-type"] = p.ContentType
			}
			requests = append(requests, posted{headers, base64.StdEncoding.EncodeToString(p.Body), string(format) + " of " + what})
		}
	}
	for _, more := range []string{
		`"source":"/s"`, `"source":"/s","data":{"a":1}`, `"source":"/s","data":"text","datacontenttype":"text/plain"`, `"source":"/s","data_base64":"AAEC","datacontenttype":"application/octet-stream"`,
		`"source":"/s","time":"2026-01-31t15:04:05z"`, `"source":"/s","time":"2026-01-31T15:04:05.123456789+01:00"`, `"source":"urn:isbn:1","subject":"Zoë 🙂"`, `"source":"a/b?c=%20#d"`,
		`"source":"/s","dataschema":"https://example.com/s"`, `"source":"/s","count":-2147483648,"flag":true,"note":"x"`, `"source":"mailto:a@b.example","data":[1,2]`, `"source":"/s","data":null`, `"source":"https://example.com/%C3%A9"`, `"source":"/a%5Bb%5D#c"`,
	} {
		text := `{"specversion":"1.0","id":"1","type":"com.example.t",` + more + `}`
		taken(request("POST", publishTarget, text, "Content-Type", eventMedia), text)
	}
	taken(request("POST", publishTarget, `{"a":1}`, "ce-specversion", "1.0", "ce-id", "a%20b", "ce-source", "/s", "ce-type", "t", "Content-Type", "application/json"), "binary with data")
	taken(request("POST", publishTarget, "", "ce-specversion", "1.0", "ce-id", "1", "ce-source", "/s", "ce-type", "t"), "binary without data")

	input, err := json.Marshal(requests)
	if err != nil {
		t.Fatal(err)
	}
	out := npmtest.SDKs.Run(t, `
const { HTTP } = require("cloudevents");
const requests = JSON.parse(require("node:fs").readFileSync(0));
for (const { headers, body, what } of requests) {
  try {
    const event = HTTP.toEvent({ headers, body: Buffer.from(body, "base64").toString() });
    event.validate();
  } catch (e) {
    console.log(what + ": " + e.message + " " + JSON.stringify(e.errors || ""));
  }
}
console.log(requests.length + " events");`, string(input))
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 1 || lines[0] != "32 events" {
		t.Error(out)
	}
}
