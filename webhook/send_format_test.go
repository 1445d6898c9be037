package webhook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/pushlease/pushlease/webhook/content"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// C27 in every format: what is signed is what is sent, and the registered headers do not
// get in the way of what CloudEvents says with its own.
var origin = content.Origin{MessageID: "5e0b1f6a", Queue: "orders", InsertedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}

const orderEvent = `{"specversion":"1.0","id":"a-1","source":"/shop","type":"com.example.order.paid",` +
	`"subject":"orders/7","time":"2026-01-02T03:04:05Z","datacontenttype":"application/json",` +
	`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"v=1",` +
	`"data":{"amount":12345678901234567890,"b":"<é & \u001B>"}}`

func TestFormattedBodiesAreSignedAsTheyAreSent(t *testing.T) {
	verifier, err := standardwebhooks.NewWebhook(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		format                             content.Format
		body, wantBody, wantType, wantCeID string
	}{
		{content.FormatRaw, orderEvent, orderEvent, "text/registered", "registered"},
		{content.FormatStructured, orderEvent, orderEvent, "application/cloudevents+json", ""},
		{content.FormatBinary, orderEvent, `{"amount":12345678901234567890,"b":"<é & \u001B>"}`, "application/json", "a-1"},
		{content.FormatBinary, `{"specversion":"1.0","id":"a-2","source":"/s","type":"t"}`, "", "", "a-2"}, // C96: no data, no datacontenttype
		{content.FormatBinary, "\xff\x00\r\n", "\xff\x00\r\n", "application/octet-stream", "5e0b1f6a"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%s %.10q", test.format, test.body), func(t *testing.T) {
			receiver := webhooktest.NewReceiver(nil)
			defer receiver.Close()
			s := newSender(t, receiver.Dial)
			w := hook()
			w.Format = test.format
			w.Headers = map[string]string{"content-type": "text/registered", "Ce-Id": "registered", "X-Tenant": "7"}
			contentType := "application/octet-stream"
			if strings.HasPrefix(test.body, "{") {
				contentType = "application/json"
			}
			wantAnswer(t, s.Send(t.Context(), w, w.Request(content.Read([]byte(test.body), contentType), origin, 1)), 200)
			got := receiver.Received()[0]
			if string(got.Body) != test.wantBody || got.ContentLength != int64(len(test.wantBody)) {
				t.Errorf("body %q with length %d, want %q", got.Body, got.ContentLength, test.wantBody)
			}
			if err := verifier.Verify(got.Body, got.Header); err != nil {
				t.Error(err)
			}
			for name, want := range map[string]string{"Content-Type": test.wantType, "Ce-Id": test.wantCeID, "X-Tenant": "7", "Webhook-Id": origin.MessageID} {
				if values := got.Header.Values(name); got.Header.Get(name) != want || len(values) > 1 {
					t.Errorf("%s: %q, want %q once", name, values, want)
				}
			}
		})
	}
}

// C30: a header that comes with a message is clean or absent, and never another's.
func TestHeadersOfAMessageAreCheckedAtSendTime(t *testing.T) {
	receiver := webhooktest.NewReceiver(nil)
	defer receiver.Close()
	s := newSender(t, receiver.Dial)
	r := message("{}")
	r.Headers = map[string]string{
		"ce-good": "1", "ce-bad": "a\r\nX-Evil: 1", "ce-é": "1", "": "1", "X-A: b\r\nX-Evil": "1", "ce-zero": "a\x00",
		"Webhook-Signature": "v1,forged", "content-length": "1", "Traceparent": "forged", "Host": "evil",
	}
	wantAnswer(t, s.Send(t.Context(), hook(), r), 200)
	got := receiver.Received()[0]
	if got.Header.Get("Ce-Good") != "1" {
		t.Error("a good header was left out")
	}
	for _, name := range []string{"Ce-Bad", "X-Evil", "Ce-Zero", "Traceparent"} {
		if v := got.Header.Values(name); len(v) > 0 && (name != "Traceparent" || v[0] == "forged") {
			t.Errorf("%s: %q was sent", name, v)
		}
	}
	if got.Header.Get("Webhook-Signature") == "v1,forged" || string(got.Body) != "{}" || got.Host == "evil" {
		t.Errorf("a message's header replaced one of ours: %v", got.Header)
	}
}
