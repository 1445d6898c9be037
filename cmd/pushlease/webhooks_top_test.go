package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

const topWebhooks = `{"data":[
 {"id":"wh_well","queue":"orders","enabled":true,"status":{"instance":"one","state":"healthy","text":"It is sent to as messages come.","window":16,"concurrency":64,"in_flight":3,"rate_per_second":12.34,"latency":"20.5ms","delivered":900,"failed":1}},
 {"id":"wh_limit","queue":"orders","enabled":true,"status":{"instance":"one","state":"limited","text":"It is sent 19.1 POSTs a second.","learned_rate":{"per_second":19.1,"since":"2026-05-06T03:00:00Z","throttled":12}}},
 {"id":"wh_led","queue":"orders","enabled":true,"status":{"instance":"one","state":"limited","text":"It is sent 7 POSTs a second.","learned_rate":{"per_second":7,"own_per_second":0.033,"leader":"two","since":"2026-05-06T03:00:00Z","throttled":12}}},
 {"id":"wh_off","queue":"orders","enabled":false,"disabled_reason":"operator","status":{"instance":"one","state":"disabled","text":"An operator disabled it."}},
 {"id":"wh_new","queue":"orders","enabled":true},
 {"id":"wh_fails","name":"evil\u001b[2J","queue":"refunds","enabled":true,"status":{"instance":"one","state":"failing","until":"2026-05-06T03:01:00Z","text":"It mostly fails.","window":1,"concurrency":64,"failed":12,"failing_since":"2026-05-06T03:00:00Z","failed_messages":12}},
 {"id":"wh_gone","queue":"refunds","enabled":false,"disabled_reason":"gone","status":{"instance":"one","state":"disabled","text":"It answered 410 Gone."}}
],"next_cursor":null}`

const topQueues = `{"data":[{"name":"orders","depth":{"visible":7,"in_flight":3,"delayed":2}},{"name":"refunds","depth":null}],"next_cursor":null}`

func newTopAPI(t *testing.T) *fakeAPI {
	return newFakeAPI(t, map[string]canned{
		"GET /api/v1/webhooks":       {200, topWebhooks},
		"GET /api/v1/queues":         {200, topQueues},
		"GET /api/v1/queues/refunds": {200, `{"name":"refunds","depth":{"visible":55,"in_flight":0,"delayed":1}}`},
	})
}

func TestTopShowsTroubleFirst(t *testing.T) {
	newTopAPI(t)
	r := execute(t, "", "webhooks", "top", "--once")
	if r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	at := -1
	for _, id := range []string{"\nwh_gone ", "\nwh_fails ", "\nwh_limit ", "\nwh_off ", "\nwh_new ", "\nwh_well ", "\nwh_gone: It answered 410 Gone.", "\nwh_fails: It mostly fails."} {
		next := strings.Index(r.out, id)
		if next <= at {
			t.Errorf("%q at %d, want it behind %d:\n%s", id, next, at, r.out)
		}
		at = next
	}
	for _, want := range []string{"seen by one · 2 disabled · 1 failing · 2 limited · 1 healthy · 1 new", "03:01:00Z", "3/16/64", "12.3/s", "21ms", "disabled (gone)", "limited (19.1/s)", "limited (7/s by two)"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is missing:\n%s", want, r.out)
		}
	}
	if strings.Contains(r.out, "\x1b") {
		t.Errorf("the output steers the terminal: %q", r.out)
	}
	if r := execute(t, "", "webhooks", "top", "--once", "--limit", "2"); !strings.Contains(r.out, "and 5 more") || strings.Contains(r.out, "wh_well") {
		t.Errorf("with a limit:\n%s", r.out)
	}
}

func TestTopAsJSON(t *testing.T) {
	f := newTopAPI(t)
	r := execute(t, "", "webhooks", "top", "--once", "--queue", "refunds", "-o", "json", "--limit", "1")
	if r.code != exitOK || strings.Count(r.out, "\n") != 1 || !strings.Contains(r.out, `"webhooks":7`) || !strings.Contains(r.out, `"visible":55`) || strings.Contains(r.out, "wh_well") {
		t.Errorf("%+v", r)
	}
	if f.requests[0].line != "GET /api/v1/webhooks?limit=500&queue=refunds" {
		t.Errorf("asked %s", f.requests[0].line)
	}
}

func TestTopRefusesWhatMakesNoSense(t *testing.T) {
	f := newTopAPI(t)
	for _, args := range [][]string{{"--interval", "1ms"}, {"--interval", "2h"}, {"--limit", "0"}, {"extra"}} {
		if r := execute(t, "", append([]string{"webhooks", "top"}, args...)...); r.code != exitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if len(f.requests) > 0 {
		t.Errorf("it asked %v", f.requests)
	}
	f.answers["GET /api/v1/webhooks"] = canned{401, `{"title":"Unauthorized","status":401,"errors":[{"field":"Authorization","problem":"is missing","cure":"set it"}]}`}
	if r := execute(t, "", "webhooks", "top"); r.code != exitRefused {
		t.Errorf("without a key: %+v", r)
	}
}

// Without a terminal it appends, goes on over a fault, counts the queues seldom, and ends
// cleanly when it is interrupted.
func TestTopGoesOnUntilItIsInterrupted(t *testing.T) {
	f := newTopAPI(t)
	ctx, interrupt := context.WithTimeout(t.Context(), 20*time.Second)
	out := &lookCounter{looks: map[int]func(){
		1: func() {
			f.answer("GET /api/v1/webhooks", canned{503, `{"title":"Storage did not answer","status":503}`})
		},
		2: func() { f.answer("GET /api/v1/webhooks", canned{200, topWebhooks}) },
		3: interrupt,
	}}
	root := newRootCommand()
	var stderr bytes.Buffer
	root.SetOut(out)
	root.SetErr(&stderr)
	if code := run(ctx, root, []string{"webhooks", "top", "--interval", "500ms"}, &stderr); code != exitOK || stderr.Len() > 0 {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
	text := out.text.String()
	if strings.Count(text, "seen by one") != 2 || !strings.Contains(text, "Storage did not answer (503); trying again") || strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
	counts := 0
	for _, r := range f.requests {
		if strings.HasPrefix(r.line, "GET /api/v1/queues") {
			counts++
		}
	}
	if counts != 1 {
		t.Errorf("the queues were counted %d times", counts)
	}
}

// lookCounter runs a function after each look that was written.
type lookCounter struct {
	text  bytes.Buffer
	n     int
	looks map[int]func()
}

func (c *lookCounter) Write(p []byte) (int, error) {
	n, err := c.text.Write(p)
	c.n++
	if f := c.looks[c.n]; f != nil {
		f()
	}
	return n, err
}

// answer changes what is answered from now on.
func (f *fakeAPI) answer(line string, a canned) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[line] = a
}

func TestGetShowsHowAWebhookFares(t *testing.T) {
	newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks/wh_1": {200, strings.TrimSuffix(webhookJSON, "}") +
		`,"status":{"instance":"one","state":"failing","text":"It mostly fails.","window":1,"concurrency":64,"in_flight":0,"rate_per_second":0.5,"latency":"1s","delivered":3,"failed":12,"postponed":4}}`}})
	r := execute(t, "", "webhooks", "show", "wh_1")
	for _, want := range []string{"failing (as one sees it)", "0 in flight, 1 may be (at most 64); 0.5 a second, each in 1s", "3 POSTs were answered 2xx, 0 were refused (such as 400), 12 failed (no answer, 5xx or 429), 4 deliveries were put off", "It mostly fails."} {
		if r.code != exitOK || !strings.Contains(r.out, want) {
			t.Errorf("%q is missing: %+v", want, r)
		}
	}
}
