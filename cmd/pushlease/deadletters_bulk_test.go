package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func jobJSON(state string, replayed, failed int) string {
	return fmt.Sprintf(`{"id":"rpl_1","state":%q,"matched":5,"replayed":%d,"skipped":1,"skipped_because":{"replayed_often":1},"failed":%d,`+
		`"started_at":"2026-01-01T00:00:00Z","rate":10,"force":false,"filter":{"queue":"orders"},"last_error":""}`, state, replayed, failed)
}

func TestReplayByFilterSendsItsFlags(t *testing.T) {
	for _, tt := range []struct{ args, body string }{
		{"--queue orders", `{"queue":"orders"}`},
		{"--queue orders --webhook wh_1 --message m1 --reason Undecodable --answer 503 --cause C --status waiting --from A --until B",
			`{"answer":"503","cause":"C","from":"A","message":"m1","queue":"orders","reason":"Undecodable","status":"waiting","until":"B","webhook":"wh_1"}`},
		{"--queue orders --order newest", `{"order":"newest","queue":"orders"}`},
		{"--all --rate 0.5 --limit 3 --force", `{"all":true,"force":true,"limit":3,"rate":0.5}`},
	} {
		api := newFakeAPI(t, map[string]canned{"POST /api/v1/replays": {202, jobJSON("running", 0, 0)}})
		r := execute(t, "", strings.Fields("dead-letters replay "+tt.args)...)
		got := api.only(t)
		if r.code != exitOK || got.body != tt.body || got.header.Get("Content-Type") != "application/json" || !strings.Contains(r.out, "rpl_1") {
			t.Errorf("%s: %d, sent %s\n%s%s", tt.args, r.code, got.body, r.out, r.err)
		}
	}
}

func TestBulkCommandsThatMakeNoSense(t *testing.T) {
	api := newFakeAPI(t, nil)
	for _, args := range []string{
		"replay", "replay ID --queue orders", "replay ID --watch", "replay ID --rate 5", "replay ID --all", "replay ID --order newest", "replay --queue orders --limit -1",
		"purge ID", "purge --queue orders --limit -1", "jobs --cancel", "jobs --watch", "jobs ID --cancel --watch", "jobs A B",
	} {
		if r := execute(t, "", strings.Fields("dead-letters "+args)...); r.code != exitUsage || r.err == "" {
			t.Errorf("%s: %d, %s", args, r.code, r.err)
		}
	}
	if len(api.requests) != 0 {
		t.Errorf("requests were sent: %v", api.requests)
	}
}

func TestDryRunsSayWhatWouldHappen(t *testing.T) {
	const answer = `{"dry_run":true,"matched":10000,"exact":false,"skipped":2,"skipped_because":{"webhook_deleted":2}}`
	for verb, words := range map[string]string{"replay": "9998 would be replayed and 2 skipped (webhook_deleted 2)", "purge": "9998 would be deleted"} {
		api := newFakeAPI(t, map[string]canned{map[string]string{"replay": "POST " + replayJobsPath, "purge": "POST " + purgePath}[verb]: {200, answer}})
		r := execute(t, "", "dead-letters", verb, "--queue", "orders", "--dry-run")
		if r.code != exitOK || !strings.Contains(r.out, "at least 10000 matched") || !strings.Contains(r.out, words) {
			t.Errorf("%s: %d, %s%s", verb, r.code, r.out, r.err)
		}
		if got := api.only(t).body; got != `{"dry_run":true,"queue":"orders"}` {
			t.Errorf("%s sent %s", verb, got)
		}
	}
}

// serveInTurn answers each request with the next of the bodies, and keeps what was sent.
func serveInTurn(t *testing.T, bodies ...string) *[]string {
	t.Helper()
	var sent []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(sent) >= len(bodies) {
			t.Errorf("request %d: %v", len(sent)+1, err)
			return
		}
		_, _ = io.WriteString(w, bodies[len(sent)])
		sent = append(sent, r.Method+" "+r.URL.Path+" "+string(body))
	}))
	t.Cleanup(s.Close)
	t.Setenv(serverEnv, s.URL)
	t.Setenv(apiKeyEnv, "")
	return &sent
}

func TestWatchFollowsAJobToItsEnd(t *testing.T) {
	for _, tt := range []struct {
		name, last string
		code       int
		text       string
	}{
		{"done", jobJSON("done", 4, 0), exitOK, "done: 5 matched, 4 replayed, 1 skipped (replayed_often 1), 0 failed"},
		{"its outcome", strings.TrimSuffix(jobJSON("done", 4, 0), "}") + `,"outcome":{"delivered":2,"came_back":1,"under_way":1,"waiting":0,"exact":false}}`, exitOK, "2 delivered, 1 came back, 1 under way, 0 waiting (at least"},
		{"some failed", jobJSON("done", 3, 1), exitFailed, "1 failed"},
		{"gave up", jobJSON("failed", 1, 1), exitFailed, "failed: 5 matched"},
		{"canceled by someone", jobJSON("canceled", 1, 0), exitFailed, "canceled: 5 matched"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sent := serveInTurn(t, jobJSON("running", 1, 0), tt.last)
			r := execute(t, "", "dead-letters", "replay", "--queue", "orders", "--watch")
			if r.code != tt.code || !strings.Contains(r.out, "running: 5 matched, 1 replayed") || !strings.Contains(r.out, tt.text) {
				t.Errorf("%d: %s%s", r.code, r.out, r.err)
			}
			if (*sent)[1] != "GET /api/v1/replays/rpl_1 " {
				t.Errorf("sent %q", *sent)
			}
		})
	}
}

func TestJobsAreListedShownAndCanceled(t *testing.T) {
	api := newFakeAPI(t, map[string]canned{
		"GET /api/v1/replays":          {200, `{"data":[` + jobJSON("running", 2, 0) + `],"next_cursor":null}`},
		"GET /api/v1/replays/rpl_1":    {200, jobJSON("running", 2, 0)},
		"DELETE /api/v1/replays/rpl_1": {200, jobJSON("canceled", 2, 0)},
	})
	for args, text := range map[string]string{"jobs": "REPLAYED", "jobs rpl_1": "10 a second", "jobs rpl_1 --cancel": "canceled"} {
		if r := execute(t, "", strings.Fields("dead-letters "+args)...); r.code != exitOK || !strings.Contains(r.out, text) || !strings.Contains(r.out, "rpl_1") {
			t.Errorf("%s: %d, %s%s", args, r.code, r.out, r.err)
		}
	}
	if r := execute(t, "", "dead-letters", "jobs", "rpl_2"); r.code != exitNotFound {
		t.Errorf("a job that is not there: %d", r.code)
	}
	if len(api.requests) != 4 {
		t.Errorf("%d requests", len(api.requests))
	}
}

func TestPurgeGoesOnUntilAllIsDone(t *testing.T) {
	sent := serveInTurn(t, `{"purged":100,"kept":1,"never_replayed":60,"copies_left":90,"next_cursor":"c1"}`, `{"purged":0,"kept":0,"next_cursor":"c2"}`, `{"purged":7,"kept":0,"never_replayed":5,"copies_left":2,"next_cursor":null}`)
	r := execute(t, "", "dead-letters", "purge", "--queue", "orders", "--limit", "200", "--yes")
	if r.code != exitOK || !strings.Contains(r.out, "107 dead letters deleted, 65 of them never replayed. 1 were kept") || !strings.Contains(r.out, "copies of 92 stay") {
		t.Errorf("%d: %s%s", r.code, r.out, r.err)
	}
	want := []string{`{"dry_run":false,"limit":200,"queue":"orders"}`, `{"cursor":"c1","dry_run":false,"limit":100,"queue":"orders"}`, `{"cursor":"c2","dry_run":false,"limit":100,"queue":"orders"}`}
	for i, body := range want {
		if i >= len(*sent) || (*sent)[i] != "POST /api/v1/dead-letters/purge "+body {
			t.Errorf("request %d: %v, want %s", i, *sent, body)
		}
	}
	serveInTurn(t, `{"purged":3,"kept":0,"never_replayed":0,"next_cursor":null}`)
	if r := execute(t, "", "dead-letters", "purge", "--status", "replayed", "--yes", "-o", "json"); r.out != `{"purged":3,"kept":0,"never_replayed":0,"copies_left":0,"next_cursor":null}`+"\n" {
		t.Errorf("json: %s", r.out)
	}
}

// A purge deletes nothing that nobody agreed to.
func TestAPurgeNeedsATerminalOrYes(t *testing.T) {
	f := newFakeAPI(t, nil)
	if r := execute(t, "y\n", "dead-letters", "purge", "--queue", "orders"); r.code != exitUsage || !strings.Contains(r.err, "--yes") || len(f.requests) != 0 {
		t.Errorf("without a terminal: %+v, %d requests", r, len(f.requests))
	}
}

func TestNothingIsDoneToAllDeadLettersUnasked(t *testing.T) {
	for _, args := range []string{"purge", "purge --yes", "purge --dry-run", "purge --limit 5", "replay --dry-run", "replay --limit 5"} {
		f := newFakeAPI(t, nil)
		if r := execute(t, "", strings.Fields("dead-letters "+args)...); r.code != exitUsage || !strings.Contains(r.err, "--all") || len(f.requests) != 0 {
			t.Errorf("%s: %+v, %d requests", args, r, len(f.requests))
		}
	}
}

func TestRefusedBulkRequestsSayWhy(t *testing.T) {
	newFakeAPI(t, map[string]canned{
		"POST /api/v1/replays": {400, problemJSON}, "POST /api/v1/dead-letters/purge": {400, problemJSON},
	})
	for _, verb := range []string{"replay", "purge"} {
		if r := execute(t, "", "dead-letters", verb, "--queue", "Orders", map[string]string{"replay": "--order=oldest", "purge": "--yes"}[verb]); r.code != exitRefused || !strings.Contains(r.err, "use lower case") {
			t.Errorf("%s: %d, %s", verb, r.code, r.err)
		}
	}
}
