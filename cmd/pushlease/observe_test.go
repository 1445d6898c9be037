package main

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

const queueJSON = `{"name":"orders","exists":true,"depth":{"total":12,"visible":7,"in_flight":2,"delayed":3,"work":9,"exact":false},
"encoding":"auto","lease":"30s","lease_mode":"auto","dead_letters":{"waiting":101,"exact":true,"level":"warning"},
"recommendation":{"lease":"1m0s","reasoning":"Measured: 30 s."},"processing":{"samples":40,"p50":"1s","p95":"2s","p99":"3s"},
"deletions":{"successful":38,"failed":1,"unverified":2},"poller":{"polling":true,"last_poll_at":"2026-01-01T00:00:00Z"},
"webhooks":[{"id":"wh_1","name":"shop","enabled":true},{"id":"wh_2","enabled":false}]}`

const attemptJSON = `{"message_id":"m1","queue":"orders","webhook_id":"wh_1","number":2,"started_at":"2026-01-01T00:00:00Z","duration":"5ms",
"status":503,"action":"abandon","reason":"RetryableError","next_at":"2026-01-01T00:00:20Z"}`

const matchJSON = `{"event":{"id":"1","source":"/shop","type":"order.paid"},"outcome":"delivered","text":"It is POSTed.",
"webhooks":[{"webhook_id":"wh_1","enabled":true,"takes":true,"reason":"type matches"},{"webhook_id":"wh_2","enabled":false,"takes":false,"reason":"type does not match"}]}`

func TestCommandsThatOnlyLook(t *testing.T) {
	list := func(row string) string { return `{"data":[` + row + `],"next_cursor":null}` }
	for args, tt := range map[string]struct {
		line, body, answer string
		says               []string
	}{
		"queues list": {"GET /api/v1/queues?limit=500", "", list(queueJSON), []string{"~7", "~3", "101 (warning)", "polled"}},
		"queues show orders": {"GET /api/v1/queues/orders", "", queueJSON, []string{
			"~7 visible, 2 in flight, ~3 delayed", "1m0s: Measured: 30 s.", "1s (median)", "38 done, 1 failed, 2 came back", "wh_2 disabled",
		}},
		"queues show orders -o json": {"GET /api/v1/queues/orders", "", queueJSON, []string{`"lease_mode":"auto"`}},
		"attempts wh_1 --status 5xx --error-class timeout": {
			"GET /api/v1/attempts?error_class=timeout&limit=50&status=5xx&webhook=wh_1", "", list(attemptJSON),
			[]string{"503", "5ms", "abandon", "RetryableError", "2026-01-01T00:00:20Z", "m1"},
		},
		"attempts --limit 1 -o json":      {"GET /api/v1/attempts?limit=1", "", list(attemptJSON), []string{`"webhook_id":"wh_1"`}},
		"match orders hello":              {"POST /api/v1/queues/orders/match", "hello", matchJSON, []string{"type order.paid", "delivered: It is POSTed.", "yes", "type does not match", "disabled"}},
		"match orders hello -o json":      {"POST /api/v1/queues/orders/match", "hello", matchJSON, []string{`"outcome":"delivered"`}},
		"match orders {} --type a --id 1": {"POST /api/v1/queues/orders/match", "{}", strings.Replace(matchJSON, `{"id":"1","source":"/shop","type":"order.paid"}`, "null", 1), []string{"none: event filters see no"}},
	} {
		t.Run(args, func(t *testing.T) {
			path, _, _ := strings.Cut(tt.line, "?")
			f := newFakeAPI(t, map[string]canned{path: {200, tt.answer}})
			r := execute(t, "", strings.Fields(args)...)
			if r.code != exitOK {
				t.Fatalf("%+v", r)
			}
			for _, text := range tt.says {
				if !strings.Contains(r.out, text) {
					t.Errorf("no %q in\n%s", text, r.out)
				}
			}
			if got := f.only(t); got.line != tt.line || got.body != tt.body {
				t.Errorf("request %q with %q, want %q with %q", got.line, got.body, tt.line, tt.body)
			}
		})
	}
}

func TestAnAttemptTookMilliseconds(t *testing.T) {
	for text, want := range map[string]string{"3.552761ms": "4ms", "839.459µs": "<1ms", "0s": "0s", "1m0.0004s": "1m0s", "": ""} {
		f := newFakeAPI(t, map[string]canned{"GET /api/v1/attempts": {200, `{"data":[` + strings.Replace(attemptJSON, "5ms", text, 1) + `],"next_cursor":null}`}})
		if r := execute(t, "", "attempts"); f == nil || r.code != exitOK || !strings.Contains(r.out, " "+want+" ") {
			t.Errorf("%q: %+v, want %q", text, r, want)
		}
	}
}

// What the receiver said is the first clue: it stands in the text, on one line and cut.
func TestTheReceiversAnswerIsShown(t *testing.T) {
	const snippet = `"snippet":"no such\n\u001b[2J order `
	long := strings.Repeat("x", 400) + `"`
	newFakeAPI(t, map[string]canned{
		"GET /api/v1/attempts": {200, `{"data":[` + strings.TrimSuffix(attemptJSON, "}") + `,` + snippet + long + `}],"next_cursor":null}`},
		"GET /api/v1/messages/m1": {200, `{"message_id":"m1","queue":"orders","events":[{"at":"2026-01-01T00:00:01Z","event":"attempt","webhook_id":"wh_1","text":"Attempt 1: answered 400.","attempt":{` +
			snippet + long + `}}],"next":[]}`},
	})
	for args, most := range map[string]int{"attempts": saidInTable, "messages show m1": saidInFull} {
		r := execute(t, "", strings.Fields(args)...)
		if r.code != exitOK || !strings.Contains(r.out, "no such \ufffd[2J order xx") || !strings.Contains(r.out, "x…") || strings.Count(r.out, "x") > most {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

// A cause ends with what can be done about it, and a redirect with where it points (C95).
func TestAttemptsNameTheWholeCause(t *testing.T) {
	for members, want := range map[string]string{
		`"error":"no trusted authority signed the receiver's certificate, or its intermediate certificates are not sent"`: "or its intermediate certificates are not sent",
		`"snippet":"<html>moved</html>","redirect_host":"elsewhere.example"`:                                              "redirects are not followed: this one points to elsewhere.example",
	} {
		newFakeAPI(t, map[string]canned{"GET /api/v1/attempts": {200, `{"data":[` + strings.TrimSuffix(attemptJSON, "}") + `,` + members + `}],"next_cursor":null}`}})
		if r := execute(t, "", "attempts"); r.code != exitOK || !strings.Contains(r.out, want) {
			t.Errorf("%+v, want %q", r, want)
		}
	}
}

func TestAQueueSaysWhoLooksAfterIt(t *testing.T) {
	for row, want := range map[string]string{
		`{"name":"a","exists":true}`: "no webhook",
		`{"name":"a","exists":true,"held":{"reason":"WebhookDeleted","since":"2026-01-01T00:00:00Z"}}`:                                                        "held (WebhookDeleted)",
		`{"name":"a","exists":true,"webhooks":[{"id":"w"}]}`:                                                                                                  "all webhooks disabled",
		`{"name":"a","webhooks":[{"id":"w","enabled":true}]}`:                                                                                                 "no message yet",
		`{"name":"a","exists":true,"webhooks":[{"id":"w","enabled":true}]}`:                                                                                   "not polled here",
		`{"name":"a","exists":true,"webhooks":[{"id":"w","enabled":true}],"poller":{"polling":true,"last_error":"x","last_error_at":"2026-01-01T00:00:00Z"}}`: "failing",
		`{"name":"a","exists":true,"webhooks":[{"id":"w","enabled":true}],"poller":{"polling":false,"hosted":true}}`:                                          "by the Functions host",
		`{"name":"a","exists":true,"dead_letters":{"waiting":1001,"level":"critical"},"webhooks":[{"id":"w","enabled":true}],"poller":{"polling":true}}`:      "over 1001 (critical)",
	} {
		newFakeAPI(t, map[string]canned{"GET /api/v1/queues": {200, `{"data":[` + row + `],"next_cursor":null}`}})
		if r := execute(t, "", "queues", "list"); r.code != exitOK || !strings.Contains(r.out, want) {
			t.Errorf("%s: %+v, want %q", row, r, want)
		}
	}
}

func TestAnAlertWithoutADeadLetterIsExplained(t *testing.T) {
	const row = `{"name":"orders","exists":true,"dead_letters":{"waiting":0,"exact":true,"level":"critical","reason":"share","text":"30 of the 40 messages were dead-lettered.","handled":40,"dead_lettered":30,"counted_at":"2026-01-01T00:00:00Z"}}`
	newFakeAPI(t, map[string]canned{"GET /api/v1/queues/orders": {200, row}, "GET /api/v1/queues": {200, `{"data":[` + row + `]}`}})
	if r := execute(t, "", "queues", "list"); !strings.Contains(r.out, "0 (critical: 30 of 40 lately)") {
		t.Errorf("%+v", r)
	}
	if r := execute(t, "", "queues", "show", "orders"); !strings.Contains(r.out, "0 (critical: 30 of 40 lately), counted at 2026-01-01T00:00:00Z") || !strings.Contains(r.out, "30 of the 40 messages were dead-lettered.") {
		t.Errorf("%+v", r)
	}
}

func TestAWebhookShowsItsLimits(t *testing.T) {
	const flow = `{"id":"wh_1","enabled":true,"flow":{"concurrency":3,"rate":5,"burst":10,"adaptive":%ADAPTIVE%,"auto_disable_after":"never",
"breaker":{"enabled":%BREAKER%,"min_samples":10,"failure_share":0.5,"probe_after":"30s","probe_max":"15m0s"}}}`
	for on, says := range map[string][]string{
		"true":  {"at most 3 at once, fewer while", "5 per second with bursts of 10", "never disabled for failing", "opens when 50 % of at least 10 answers", "the first probe after 30s, then the rarer the longer it lasts, at most 15m0s apart"},
		"false": {"at most 3 at once, 5 per second", "off: a webhook that fails is sent to as before"},
	} {
		newFakeAPI(t, map[string]canned{"GET /api/v1/webhooks/wh_1": {200, strings.NewReplacer("%ADAPTIVE%", on, "%BREAKER%", on).Replace(flow)}})
		r := execute(t, "", "webhooks", "get", "wh_1")
		for _, text := range says {
			if !strings.Contains(r.out, text) {
				t.Errorf("no %q in\n%s", text, r.out)
			}
		}
	}
}

func TestSinceIsHowLongAgo(t *testing.T) {
	for _, list := range []string{"attempts", "dead-letters list"} {
		path := "/api/v1/" + strings.Fields(list)[0]
		f := newFakeAPI(t, map[string]canned{"GET " + path: {200, `{"data":[],"next_cursor":null}`}})
		before := time.Now().Add(-90 * time.Minute)
		if r := execute(t, "", append(strings.Fields(list), "--since", "1h30m")...); r.code != exitOK {
			t.Fatalf("%+v", r)
		}
		asked, err := url.Parse(strings.TrimPrefix(f.only(t).line, "GET "))
		if err != nil {
			t.Fatal(err)
		}
		from, err := time.Parse(time.RFC3339, asked.Query().Get("from"))
		if err != nil || from.Before(before.Truncate(time.Second)) || from.After(time.Now().Add(-90*time.Minute)) {
			t.Errorf("%s asked from %s (%v)", list, from, err)
		}
		for value, says := range map[string]string{"yesterday": `--since: "yesterday" is not a duration; write a number and a unit, such as`, "-1h": "such as 500ms, 30s or 1h30m", "5": "such as"} {
			if r := execute(t, "", append(strings.Fields(list), "--since", value)...); r.code != exitUsage || !strings.Contains(r.err, says) {
				t.Errorf("%s --since %s: %+v", list, value, r)
			}
		}
		if r := execute(t, "", append(strings.Fields(list), "--since", "1h", "--from", "2026-01-31T00:00:00Z")...); r.code != exitUsage || !strings.Contains(r.err, "use one of them") {
			t.Errorf("%s with both: %+v", list, r)
		}
	}
}

// A state that is up to a minute old says of when it is.
func TestInstancesSayOfWhenTheirStateIs(t *testing.T) {
	newFakeAPI(t, map[string]canned{"GET /api/v1/instances": {200, `{"data":[{"name":"one","alive":true,"ready":true,"started_at":"2026-01-01T00:00:00Z","seen_at":"2026-01-02T03:04:05Z"}]}`}})
	if r := execute(t, "", "instances"); r.code != exitOK || !strings.Contains(r.out, "AS OF") || !strings.Contains(r.out, "2026-01-02T03:04:05Z") {
		t.Errorf("%+v", r)
	}
	newFakeAPI(t, map[string]canned{"GET /api/v1/instances": {200, `{"data":[{"name":"one","alive":true,"ready":true,"queues":60,"leases":7,"polled":["orders","refunds"],"lanes":2,"lane_stalls":9,
		"last_error":"receive failed: no answer","last_error_at":"2026-01-02T03:04:05Z","seen_at":"2026-01-02T03:04:05Z"}]}`}})
	if r := execute(t, "", "instances", "-o", "wide"); r.code != exitOK || !strings.Contains(r.out, "orders refunds and 58 more") || !strings.Contains(r.out, "2 (9)") || !strings.Contains(r.out, "receive failed: no answer") {
		t.Errorf("%+v", r)
	}
}

// Messages are listed by where they stand.
func TestMessagesAreListedByTheirState(t *testing.T) {
	f := newFakeAPI(t, map[string]canned{"GET /api/v1/messages": {200, `{"data":[{"message_id":"m-1","queue":"orders","webhook_id":"wh_a","state":"pending","reason":"RetryableError","attempts":3,
		"last_error_class":"timeout","inserted_at":"2026-01-02T03:04:05Z","next_at":"2026-01-02T04:00:00Z"}],"next_cursor":null,"stopped_early":false}`}})
	r := execute(t, "", "messages", "list", "--state", "pending", "--queue", "orders", "--limit", "7")
	if got := f.only(t).line; r.code != exitOK || got != "GET /api/v1/messages?limit=7&queue=orders&state=pending" {
		t.Errorf("asked %s: %+v", got, r)
	}
	for _, want := range []string{"m-1", "wh_a", "pending", "RetryableError", "3", "timeout", "2026-01-02T03:04:05.000Z"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it lacks %q:\n%s", want, r.out)
		}
	}
}

// The history is told by steps, and by groups where they are asked for.
func TestTheHistoryIsToldByStepsAndByGroups(t *testing.T) {
	counts := `"attempts":{"2xx":7,"5xx":2},"delivered":7,"held":3,"dead_letters":1,"took":{"p50":"12.345678ms","p95":"1.5s","p99":"2s"},"depth":{"visible":31,"hidden":4,"oldest":"26h3m50s"}`
	history := canned{200, `{"from":"2026-01-02T03:00:00Z","until":"2026-01-02T04:00:00Z","step":"1m","others":2,"groups":[
		{"key":"wh_a","total":{` + counts + `},"points":[{"at":"2026-01-02T03:04:00Z",` + counts + `}]}]}`}
	for _, c := range []struct{ args, asked, want string }{
		{"--queue orders --step 1m", "queue=orders&step=1m", "2026-01-02T03:04:00Z 9 7 2 3 1 12.3ms 1.5s 31 4 26h4m"},
		{"--by webhook", "group_by=webhook", "WEBHOOK ATTEMPTS DELIVERED FAILED HELD DEAD LETTERS P50 P95 VISIBLE HIDDEN OLDEST wh_a 9 7 2 3 1 12.3ms 1.5s 31 4 26h4m (2 with less)"},
		{"--by status_class", "group_by=status_class", "STATUS CLASS ATTEMPTS wh_a 9 (2 with less)"},
	} {
		f := newFakeAPI(t, map[string]canned{"GET /api/v1/stats": history})
		r := execute(t, "", append([]string{"stats"}, strings.Fields(c.args)...)...)
		if got := f.only(t).line; r.code != exitOK || got != "GET /api/v1/stats?"+c.asked || !strings.Contains(strings.Join(strings.Fields(r.out), " "), c.want) {
			t.Errorf("%s: asked %s: %+v", c.args, got, r)
		}
	}
	f := newFakeAPI(t, map[string]canned{"GET /api/v1/stats": {200, `{"from":"2026-01-02T03:00:00Z","until":"2026-01-02T04:00:00Z","groups":[]}`}})
	r := execute(t, "", "stats", "--since", "2h")
	if got := f.only(t).line; !strings.HasPrefix(got, "GET /api/v1/stats?from=20") || !strings.HasPrefix(r.out, "Nothing was counted from 2026-01-02T03:00:00Z") {
		t.Errorf("asked %s: %+v", got, r)
	}
}

// Where page after page has no row the command ends, and says so.
func TestAListOfMessagesEndsAfterManyPagesWithoutARow(t *testing.T) {
	f := newFakeAPI(t, map[string]canned{"GET /api/v1/messages": {200, `{"data":[],"next_cursor":"more","stopped_early":true}`}})
	r := execute(t, "", "messages", "list", "--state", "pending")
	if r.code != exitOK || len(f.requests) != maxEmptyPages || !strings.Contains(r.err, "There may be more than these 0: 100 pages in a row had none") {
		t.Errorf("%d requests: %+v", len(f.requests), r)
	}
}

// The audit says by whom and what, also of what pushlease did by itself.
func TestTheAuditSaysWhoAndWhat(t *testing.T) {
	f := newFakeAPI(t, map[string]canned{"GET /api/v1/audit": {200, `{"data":[
		{"at":"2026-01-02T03:04:05Z","action":"webhook.changed","key":"deploy","request_id":"r1","instance":"one","webhook_id":"wh_a","queue":"orders","fields":["url","timeout"]},
		{"at":"2026-01-02T03:04:04Z","action":"webhook.disabled","reason":"gone","instance":"one","webhook_id":"wh_a","queue":"orders","fields":["enabled"]},
		{"at":"2026-01-02T03:04:03Z","action":"dead_letters.purged","key":"ops","request_id":"r2","instance":"one","queue":"orders","fields":[],"count":12}],"next_cursor":null}`}})
	r := execute(t, "", "audit", "--webhook", "wh_a", "--action", "webhook.changed", "--limit", "3")
	if got := f.only(t).line; r.code != exitOK || got != "GET /api/v1/audit?action=webhook.changed&limit=3&webhook=wh_a" {
		t.Errorf("asked %s: %+v", got, r)
	}
	for _, want := range []string{"deploy", "url timeout", "pushlease (gone)", "12", "r2"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("it lacks %q:\n%s", want, r.out)
		}
	}
}

// What was replayed is nothing to begin with.
func TestASummaryCountsWhatWaits(t *testing.T) {
	for args, query := range map[string]string{
		"":                   "group_by=reason&status=waiting",
		"--status all":       "group_by=reason",
		"--status replaying": "group_by=reason&status=replaying",
	} {
		f := newFakeAPI(t, map[string]canned{"GET /api/v1/dead-letters/summary": {200, `{"total":0,"exact":true,"groups":[]}`}})
		r := execute(t, "", append([]string{"dead-letters", "summary"}, strings.Fields(args)...)...)
		if got := f.only(t).line; r.code != exitOK || !strings.HasPrefix(r.out, "No dead letters match.") || got != "GET /api/v1/dead-letters/summary?"+query {
			t.Errorf("%q: %s, %+v", args, got, r)
		}
	}
}

func TestAQueueIsDeletedByCommand(t *testing.T) {
	for answer, says := range map[string]string{
		`"messages":3,"exact":true,"dead_letters":2`:    "deleted ordrs, with 3 messages; dead letters of it that wait still: 2 (pushlease dead-letters purge --queue ordrs",
		`"messages":1,"exact":true,"dead_letters":0`:    "deleted ordrs, with 1 message\n",
		`"messages":1,"exact":true,"dead_letters":null`: "deleted ordrs, with 1 message; how many dead letters of it wait still could not be counted",
	} {
		f := newFakeAPI(t, map[string]canned{"DELETE /api/v1/queues/ordrs": {200, `{"queue":"ordrs",` + answer + `}`}})
		r := execute(t, "", "queues", "delete", "ordrs", "--force")
		if r.code != exitOK || !strings.Contains(r.out, says) {
			t.Errorf("%+v", r)
		}
		if asked := f.only(t); asked.line != "DELETE /api/v1/queues/ordrs?force=true" {
			t.Errorf("asked %s", asked.line)
		}
	}
}
