package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// badRequest is a request that must be refused, with what the answer must name.
type badRequest struct {
	name, method, path, contentType, body string

	status int
	field  string
}

const (
	webhooksPath = "/api/v1/webhooks"
	messagesPath = "/api/v1/queues/orders/messages"
	jsonType     = "application/json"
	goodURL      = `"url":"https://hooks.example.com/x"`
)

func badRequests() []badRequest {
	var all []badRequest
	add := func(name, method, path, contentType, body string, status int, field string) {
		all = append(all, badRequest{name, method, path, contentType, body, status, field})
	}
	for _, r := range []struct{ name, body, field string }{
		{"malformed JSON", `{"queue":"orders",`, "body"},
		{"no JSON", `queue=orders`, "body"},
		{"empty body", ``, "body"},
		{"two documents", `{"queue":"orders"}{}`, "body"},
		{"an array", `[1]`, "body"},
		{"null", `null`, "body"},
		{"a name twice", `{"queue":"orders","queue":"other",` + goodURL + `}`, "body"},
		{"bytes that are no UTF-8", "{\"queue\":\"\xff\xfe\"}", "body"},
		{"very deep", strings.Repeat(`{"queue":`, 5000) + `1` + strings.Repeat(`}`, 5000), "body"},
		{"unknown field", `{"queue":"orders",` + goodURL + `,"uri":"x"}`, "uri"},
		{"unknown field of the policy", `{"queue":"orders",` + goodURL + `,"policy":{"max_atempts":3}}`, "policy.max_atempts"},
		{"queue of the wrong type", `{"queue":7,` + goodURL + `}`, "queue"},
		{"url of the wrong type", `{"queue":"orders","url":["x"]}`, "url"},
		{"enabled of the wrong type", `{"queue":"orders",` + goodURL + `,"enabled":"yes"}`, "enabled"},
		{"timeout of the wrong type", `{"queue":"orders",` + goodURL + `,"timeout":30}`, "timeout"},
		{"timeout out of range", `{"queue":"orders",` + goodURL + `,"timeout":"11m"}`, "timeout"},
		{"negative attempts", `{"queue":"orders",` + goodURL + `,"policy":{"max_attempts":-1}}`, "policy.max_attempts"},
		{"header that signs", `{"queue":"orders",` + goodURL + `,"headers":{"webhook-signature":"v1,x"}}`, "headers"},
		{"header with a line break", `{"queue":"orders",` + goodURL + `,"headers":{"X-A":"a\r\nB: c"}}`, "headers"},
		{"short secret", `{"queue":"orders",` + goodURL + `,"secret":"whsec_c2hvcnQ="}`, "secret"},
		{"no queue", `{` + goodURL + `}`, "queue"},
		{"no url", `{"queue":"orders"}`, "url"},
		{"relative url", `{"queue":"orders","url":"/hook"}`, "url"},
		{"http", `{"queue":"orders","url":"http://hooks.example.com/"}`, "url"},
		{"another scheme", `{"queue":"orders","url":"file:///etc/passwd"}`, "url"},
		{"userinfo", `{"queue":"orders","url":"https://user:sesame@hooks.example.com/"}`, "url"},
		{"fragment", `{"queue":"orders","url":"https://hooks.example.com/#sesame"}`, "url"},
	} {
		add(r.name, http.MethodPost, webhooksPath, jsonType, r.body, http.StatusBadRequest, r.field)
	}
	for _, host := range []string{
		"127.0.0.1", "10.0.0.8", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "[::1]", "[::]",
		"[fd00::1]", "[fe80::1]", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "2130706433", "0x7f.1", "127.1", "localhost", "a.localhost", "x.internal",
	} {
		add("address "+host, http.MethodPost, webhooksPath, jsonType, `{"queue":"orders","url":"https://`+host+`/hook"}`, http.StatusBadRequest, "url")
	}
	for _, name := range []string{
		"Orders", "ab", "-orders", "orders-", "or--ders", "or_ders", "or.ders", "orders%20x", "%2e%2e", "..%2f..%2fetc", "orders%00", "%E2%82%AC%E2%82%AC%E2%82%AC",
		"orders%3Fcomp=metadata", "orders'%20or%201=1", strings.Repeat("a", 64), strings.Repeat("a", 3000),
	} {
		add("publish to "+name[:min(len(name), 30)], http.MethodPost, "/api/v1/queues/"+name+"/messages", jsonType, `{}`, http.StatusBadRequest, "queue")
	}
	for _, name := range []string{"Orders", "ab", "or--ders", "../etc", `or\u0000ders`, `or/ders`, "€€€"} {
		add("webhook on "+name, http.MethodPost, webhooksPath, jsonType, `{"queue":"`+name+`",`+goodURL+`}`, http.StatusBadRequest, "queue")
	}
	add("64 KiB + 1", http.MethodPost, messagesPath, jsonType, `{"x":"`+strings.Repeat("x", 64<<10+1-8)+`"}`, http.StatusRequestEntityTooLarge, "body")
	add("binary over what base64 can hold", http.MethodPost, messagesPath, "application/octet-stream", strings.Repeat("\x00", 60<<10), http.StatusRequestEntityTooLarge, "body")
	add("no message", http.MethodPost, messagesPath, jsonType, "", http.StatusBadRequest, "body")
	add("delay that is none", http.MethodPost, messagesPath+"?delay=soon", jsonType, `{}`, http.StatusBadRequest, "delay")
	add("delay beyond the limit", http.MethodPost, messagesPath+"?delay=169h", jsonType, `{}`, http.StatusBadRequest, "delay")
	add("negative ttl", http.MethodPost, messagesPath+"?ttl=-1s", jsonType, `{}`, http.StatusBadRequest, "ttl")
	add("unknown parameter", http.MethodPost, messagesPath+"?dealy=1s", jsonType, `{}`, http.StatusBadRequest, "dealy")
	add("content type that is none", http.MethodPost, messagesPath, "no media type", `{}`, http.StatusUnsupportedMediaType, "Content-Type")
	add("webhook as a form", http.MethodPost, webhooksPath, "application/x-www-form-urlencoded", `queue=orders`, http.StatusUnsupportedMediaType, "Content-Type")
	add("over 1 MiB", http.MethodPost, webhooksPath, jsonType, `{"name":"`+strings.Repeat("x", 1<<20)+`"}`, http.StatusRequestEntityTooLarge, "body")
	add("bad cursor", http.MethodGet, "/api/v1/attempts?cursor=sesame", "", "", http.StatusBadRequest, "cursor")
	add("bad status", http.MethodGet, "/api/v1/attempts?status=9xx", "", "", http.StatusBadRequest, "status")
	add("limit beyond the most", http.MethodGet, "/api/v1/webhooks?limit=100000", "", "", http.StatusBadRequest, "limit")
	add("no such webhook", http.MethodGet, webhooksPath+"/wh_none", "", "", http.StatusNotFound, "id")
	add("hostile webhook id", http.MethodDelete, webhooksPath+"/..%2F..%2F'%20or%20''='", "", "", http.StatusNotFound, "id")
	add("no such message", http.MethodGet, "/api/v1/messages/'%20or%20RowKey%20ge%20'%2F%5C%23%3F%00", "", "", http.StatusNotFound, "id")
	add("hostile dead letter id", http.MethodPost, "/api/v1/dead-letters/..%2F%5C%23%3F'/replay", jsonType, `{}`, http.StatusNotFound, "id")
	add("no such address", http.MethodGet, "/api/v2/webhooks", "", "", http.StatusNotFound, "path")
	add("wrong method", http.MethodPut, webhooksPath, jsonType, `{}`, http.StatusMethodNotAllowed, "method")
	return all
}

func TestBadInputNamesFieldAndCure(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p := s.start(t, "PUSHLEASE_DEV=false")
		for _, r := range badRequests() {
			t.Run(r.name, func(t *testing.T) { r.check(t, p) })
		}
		var list struct{ Data []any }
		p.call(http.MethodGet, webhooksPath, "", http.StatusOK, &list)
		if len(list.Data) != 0 {
			t.Errorf("refused webhooks are registered: %v", list.Data)
		}
		if strings.Contains(p.log.String(), "sesame") {
			t.Error("the log repeats what was refused")
		}
		if n := p.metric("pushlease_storage_transactions_total", `operation="send"`); n != 0 {
			t.Errorf("%v sends to storage, want none", n)
		}
	})
}

func (r badRequest) check(t *testing.T, p *process) {
	a, err := p.try(r.method, r.path, r.contentType, r.body)
	if err != nil {
		t.Fatal(err)
	}
	if a.status != r.status {
		t.Fatalf("status %d, want %d: %s", a.status, r.status, a.body)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	var problem struct {
		Title, Detail string
		Status        int
		Errors        []struct{ Field, Problem, Cure string }
	}
	if err := json.Unmarshal(a.body, &problem); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	if problem.Title == "" || problem.Detail == "" || problem.Status != r.status {
		t.Errorf("title, detail or status is not right: %s", a.body)
	}
	var named []string
	for _, e := range problem.Errors {
		named = append(named, e.Field)
		if e.Problem == "" || e.Cure == "" {
			t.Errorf("no problem or no cure: %+v", e)
		}
	}
	found := func(f string) bool { return f == r.field || strings.HasPrefix(f, r.field+".") }
	if !slices.ContainsFunc(named, found) {
		t.Errorf("the fields %v are named, want %s: %s", named, r.field, a.body)
	}
	if strings.Contains(string(a.body), "sesame") {
		t.Errorf("the answer repeats what may be a secret: %s", a.body)
	}
}
