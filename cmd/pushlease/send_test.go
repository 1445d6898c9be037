package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sentJSON = `{"message_id":"m1","queue":"orders","visible_at":"2026-01-01T00:00:00Z"}`

func TestSendMakesAnEventOfItsFlags(t *testing.T) {
	f := newFakeAPI(t, map[string]canned{"POST /api/v1/queues/orders/messages": {202, sentJSON}})
	r := execute(t, "", "send", "orders", "{}", "--type", "order.paid", "--id", `é "1"%`, "--source", "/shop", "--subject", "a b", "--idempotency-key", `k"\`)
	if r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	got := map[string]string{}
	header := f.only(t).header
	for _, name := range []string{"Ce-Specversion", "Ce-Type", "Ce-Id", "Ce-Source", "Ce-Subject", "Idempotency-Key"} {
		got[name] = header.Get(name)
	}
	want := map[string]string{
		"Ce-Specversion": "1.0", "Ce-Type": "order.paid", "Ce-Id": "%C3%A9%20%221%22%25", "Ce-Source": "/shop", "Ce-Subject": "a%20b",
		"Idempotency-Key": `"k\"\\"`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("headers (-want +got):\n%s", d)
	}
}

func TestEachSentEventHasAnIDOfItsOwn(t *testing.T) {
	f := newFakeAPI(t, map[string]canned{"POST /api/v1/queues/orders/messages": {202, sentJSON}})
	if r := execute(t, "", "send", "orders", "{}", "--type", "t", "--count", "3"); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	ids := map[string]bool{}
	for _, r := range f.requests {
		ids[r.header.Get("Ce-Id")] = true
		if r.header.Get("Ce-Source") != defaultSource || r.header.Get("Ce-Subject") != "" {
			t.Errorf("source %q, subject %q", r.header.Get("Ce-Source"), r.header.Get("Ce-Subject"))
		}
	}
	if len(ids) != 3 || ids[""] {
		t.Errorf("ids: %v", ids)
	}
}

func TestASendThatIsRepeatedUnderAKeySendsTheSameEvent(t *testing.T) {
	f := newFakeAPI(t, map[string]canned{"POST /api/v1/queues/orders/messages": {202, sentJSON}})
	if r := execute(t, "", "send", "orders", "{}", "--type", "t", "--idempotency-key", "o 1"); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	if id := f.only(t).header.Get("Ce-Id"); id != "o%201" {
		t.Errorf("the event's id is %q", id)
	}
}

func TestSendSaysThatAMessageWasSentBefore(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Idempotency-Replayed", "true")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(sentJSON))
	}))
	defer server.Close()
	if r := execute(t, "", "send", "orders", "x", "--idempotency-key", "k", "--server", server.URL); r.out != "sent m1 to orders before, under the same key\n" {
		t.Errorf("%+v", r)
	}
}

func TestSendPrintsEachEventOfABatch(t *testing.T) {
	newFakeAPI(t, map[string]canned{"POST /api/v1/queues/orders/messages": {202, `{"queue":"orders","events":[{"id":"a","message_id":"m1"},{"id":"b","message_id":"m2"}]}`}})
	large := "[" + strings.Repeat(" ", maxBodyBytes) + "]"
	r := execute(t, large, "send", "orders", "--content-type", "application/cloudevents-batch+json")
	if r.out != "sent m1 to orders: event a\nsent m2 to orders: event b\n" {
		t.Errorf("%+v", r)
	}
}

func TestSendRefusesFlagsThatContradictEachOther(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--id 1", "--type"},
		{"--source /s", "--type"},
		{"--subject s", "--type"},
		{"--type t --id 1 --count 2", "--count 2"},
		{"--idempotency-key k --count 2", "--count 2"},
		{"--type t --content-type application/cloudevents+json", "use one of them"},
		{"--idempotency-key é", "printable ASCII"},
		{"--idempotency-key " + strings.Repeat("k", 256), "255"},
		{"--idempotency-key=", "empty"},
		{"--type t --id=", "empty"},
	} {
		f := newFakeAPI(t, nil)
		r := execute(t, "", append([]string{"send", "orders", "x"}, strings.Fields(tt.args)...)...)
		if r.code != exitUsage || !strings.Contains(r.err, tt.want) || len(f.requests) != 0 {
			t.Errorf("%.60s: %+v, want %q", tt.args, r, tt.want)
		}
	}
}
