package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/tables"
)

// audits tells of each row of a list what it says in a line.
func (h *harness) audits(query string) (lines []string) {
	h.Helper()
	a := h.do(http.StatusOK, "GET", "/api/v1/audit"+query, "", asKey("operate")...)
	for i := range a.get("data").([]any) {
		row := a.get("data", i).(map[string]any)
		if row["request_id"] == "" || row["at"] == "" || !slices.Contains([]any{"test", "other"}, row["instance"]) {
			h.Errorf("%v: by which request, when and where?", row)
		}
		line := fmt.Sprintf("%v by %v: %v %v %v", row["action"], row["key"], row["queue"], row["webhook_id"], row["fields"])
		for _, more := range []string{"dead_letter_id", "replay_id", "count", "filter"} {
			if row[more] != nil {
				line += fmt.Sprintf(" %s=%v", more, row[more])
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func asKey(token string) []string { return []string{"Authorization", "Bearer " + token} }

func (h *harness) wantAudits(query string, want ...string) {
	h.Helper()
	slices.Reverse(want)
	if got := h.audits(query); !slices.Equal(got, want) {
		h.Errorf("audit%s:\n%s\nwant\n%s", query, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Each change of a webhook says by which key, and what of it; never the value of anything. What changes nothing, or is
// refused, leaves no row.
func TestTheAuditTellsWhoChangedAWebhook(t *testing.T) {
	h := newHarness(t, withKeys)
	admin, operate := asKey("admin"), asKey("operate")
	const hook = "/api/v1/webhooks/hook"
	h.do(http.StatusCreated, "PUT", hook, `{"queue":"orders","url":"https://example.com/a","headers":{"X-Token":"hidden-one"}}`, admin...)
	h.do(http.StatusOK, "PUT", hook, `{"queue":"orders","url":"https://example.com/a","headers":{"X-Token":"hidden-one"}}`, admin...) // the same again
	h.do(http.StatusOK, "PATCH", hook, `{"url":"https://example.com/b?sig=hidden-two","headers":{"X-Token":"hidden-three"},"policy":{"max_attempts":3}}`, admin...)
	h.do(http.StatusOK, "POST", hook+"/rotate-secret", "", admin...)
	h.do(http.StatusOK, "POST", hook+"/disable", "", operate...)
	h.do(http.StatusOK, "POST", hook+"/disable", "", operate...)
	h.do(http.StatusOK, "POST", hook+"/enable", "", operate...)
	h.do(http.StatusOK, "POST", hook+"/enable", "", operate...) // which begins anew
	h.do(http.StatusOK, "PUT", hook, `{"queue":"orders","url":"https://example.com/b?sig=hidden-two","enabled":false}`, admin...)
	h.do(http.StatusForbidden, "DELETE", hook, "", operate...)
	h.do(http.StatusBadRequest, "PATCH", hook, `{"timeout":"-1s"}`, admin...)
	h.do(http.StatusNoContent, "DELETE", hook, "", admin...)
	h.do(http.StatusNotFound, "DELETE", hook, "", admin...)
	const create, again = `{"queue":"bills","url":"https://example.com/c"}`, "Idempotency-Key"
	id := h.do(http.StatusCreated, "POST", "/api/v1/webhooks", create, append(admin, again, "k")...).text("id")
	h.do(http.StatusCreated, "POST", "/api/v1/webhooks", create, append(admin, again, "k")...)

	of := func(action, key, fields string) string {
		return "webhook." + action + " by key-" + key + ": orders hook [" + fields + "]"
	}
	h.wantAudits("?queue=orders", of("created", "admin", ""), of("changed", "admin", "headers.X-Token policy.max_attempts url"), of("changed", "admin", "secrets"), of("disabled", "operate", "enabled"),
		of("enabled", "operate", "enabled"), of("enabled", "operate", ""), of("disabled", "admin", "enabled headers.X-Token policy.max_attempts"), of("deleted", "admin", ""))
	h.wantAudits("?key=key-admin&queue=bills", "webhook.created by key-admin: bills "+id+" []")
	if all := h.do(http.StatusOK, "GET", "/api/v1/audit", "", operate...); bytes.Contains(all.body, []byte("hidden")) || bytes.Contains(all.body, []byte("example.com")) {
		t.Errorf("a value is in it: %s", all.body)
	}
	h.do(http.StatusBadRequest, "GET", "/api/v1/audit?action=webhook.eaten", "", operate...).wantProblem("action")
}

// What operators do to dead letters and queues is told with its number, its filter or its id.
func TestTheAuditTellsWhatBecameOfDeadLetters(t *testing.T) {
	h := newHarness(t, withKeys)
	operate := asKey("operate")
	ids := h.putMany("orders", 4, nil)
	h.do(http.StatusCreated, "PUT", "/api/v1/webhooks/wh_1", `{"queue":"orders","url":"https://example.com/a"}`, asKey("admin")...)
	h.do(http.StatusNoContent, "DELETE", "/api/v1/dead-letters/"+ids[0], "", operate...)
	h.do(http.StatusAccepted, "POST", "/api/v1/dead-letters/"+ids[1]+"/replay", "", operate...)
	h.do(http.StatusConflict, "POST", "/api/v1/dead-letters/"+ids[1]+"/replay", "", operate...)
	h.do(http.StatusOK, "POST", "/api/v1/replays", `{"queue":"orders","dry_run":true}`, operate...)
	job := h.do(http.StatusAccepted, "POST", "/api/v1/replays", `{"queue":"orders","rate":0.01}`, operate...).text("id")
	h.do(http.StatusOK, "DELETE", "/api/v1/replays/"+job, "", operate...)
	h.do(http.StatusOK, "POST", "/api/v1/dead-letters/purge", `{"queue":"other"}`, operate...)
	h.do(http.StatusOK, "POST", "/api/v1/dead-letters/purge", `{"queue":"orders","from":"2020-01-01T00:00:00Z","dry_run":true}`, operate...)
	purged := h.do(http.StatusOK, "POST", "/api/v1/dead-letters/purge", `{"queue":"orders","from":"2020-01-01T00:00:00Z"}`, operate...).get("purged")
	h.do(http.StatusNoContent, "DELETE", "/api/v1/webhooks/wh_1", "", asKey("admin")...)
	h.do(http.StatusOK, "DELETE", "/api/v1/queues/orders?force=true", "", asKey("admin")...)

	got := h.audits("?queue=orders&key=key-operate")
	want := []string{
		"dead_letters.purged by key-operate: orders <nil> [] count=" + fmt.Sprint(purged) + " filter=map[from:2020-01-01T00:00:00Z queue:orders]",
		"replay.canceled by key-operate: orders <nil> [] replay_id=" + job,
		"replay.started by key-operate: orders <nil> [] replay_id=" + job + " filter=map[queue:orders status:waiting]",
		"dead_letter.replayed by key-operate: orders <nil> [] dead_letter_id=" + ids[1],
		"dead_letter.deleted by key-operate: orders <nil> [] dead_letter_id=" + ids[0],
	}
	if !slices.Equal(got, want) {
		t.Errorf("audit:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := h.audits("?action=queue.deleted"); len(got) != 1 || !strings.HasPrefix(got[0], "queue.deleted by key-admin: orders <nil> [] count=") {
		t.Errorf("%v", got)
	}
}

// A default that is named now, or not named any more, enables nothing.
func TestHowADefaultIsSpeltEnablesNoWebhook(t *testing.T) {
	for _, enabled := range []string{"true", "false"} {
		h := newHarness(t, withKeys)
		const hook = "/api/v1/webhooks/hook"
		h.do(http.StatusCreated, "PUT", hook, `{"queue":"orders","url":"https://example.com/a","enabled":`+enabled+`}`, asKey("admin")...)
		h.do(http.StatusOK, "PATCH", hook, `{"format":"raw"}`, asKey("admin")...)
		if got := h.audits(""); len(got) != 1 {
			t.Errorf("enabled %s: %v", enabled, got)
		}
	}
}

// hungAudits answers when it is told to; begun is closed by the first row.
type hungAudits struct {
	tables.Audits
	begun, until chan struct{}
}

func (h *hungAudits) PutAudit(context.Context, tables.Audit) error {
	close(h.begun)
	<-h.until
	return errors.New("storage is away")
}

// hangsUp is a caller who goes while the dead letter is being deleted, of which storage's answer is lost.
type hangsUp struct {
	tables.DeadLetters
	hangUp context.CancelFunc
}

func (h hangsUp) DeleteDeadLetter(ctx context.Context, id, etag string) error {
	h.hangUp()
	if err := h.DeadLetters.DeleteDeadLetter(ctx, id, etag); err != nil {
		return err
	}
	return errors.New("no answer")
}

// C57: what ends with a dead letter that is deleted does not wait for the audit, nor for a caller who has gone.
func TestDeletingADeadLetterEndsItsReplayThoughTheAuditHangs(t *testing.T) {
	audits := &hungAudits{begun: make(chan struct{}), until: make(chan struct{})}
	ctx, hangUp := context.WithCancel(t.Context())
	h := newHarness(t, func(o *Options) { o.Audits, o.DeadLetters = audits, hangsUp{o.DeadLetters, hangUp} })
	d := dead("m-1", "wh_1", "payload")
	d.Status, d.Replays, d.ReplayedAt, d.ReplayToken = tables.Replaying, 1, time.Now().Add(-time.Hour), "token"
	id := h.putDeadLetter(d).ID
	key := d.MessageKey
	key.Day = d.ReplayedAt
	h.record(tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "wh_1", Generation: 1, State: tables.Pending, UpdatedAt: key.Day}}})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		h.serve(http.StatusNoContent, request("DELETE", "/api/v1/dead-letters/"+id, "").WithContext(ctx))
	}()
	select {
	case <-audits.begun:
	case <-answered:
		t.Fatal("the deletion came to no audit")
	}
	all, err := h.db.Load(t.Context(), key)
	if err != nil || len(all) != 1 || all[0].State != tables.DeadLettered {
		t.Errorf("while the audit hangs: %+v, %v", all, err)
	}
	close(audits.until)
	<-answered
}

// C57: this process sends to a webhook that was just registered, also where the audit hangs.
func TestARegistrationIsToldBeforeTheAudit(t *testing.T) {
	for _, method := range []string{"POST /api/v1/webhooks", "PUT /api/v1/webhooks/hook"} {
		audits := &hungAudits{begun: make(chan struct{}), until: make(chan struct{})}
		h := newHarness(t, func(o *Options) { o.Audits = audits })
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			verb, path, _ := strings.Cut(method, " ")
			h.do(http.StatusCreated, verb, path, `{"queue":"orders","url":"https://example.com/a"}`)
		}()
		<-audits.begun
		if h.view.changes == 0 {
			t.Errorf("%s: the dispatcher does not know of it while the audit hangs", method)
		}
		close(audits.until)
		<-answered
	}
}

// The end of a replay job was asked for by whoever asked first, also where storage could not take that down.
func TestTheAuditTellsWhoCanceledAReplayJobFirst(t *testing.T) { // C57
	const first, second = "replay.canceled by key-operate", "replay.canceled by key-admin"
	for name, cancel := range map[string]func(h *harness, jobs *silentJobs, id string){
		"here": func(h *harness, _ *silentJobs, id string) {
			h.do(http.StatusOK, "DELETE", replayPath+"/"+id, "", asKey("operate")...)
		},
		"in another process": func(h *harness, _ *silentJobs, id string) {
			other := h.another("other")
			r := request("DELETE", replayPath+"/"+id, "", asKey("operate")...)
			ctx, stop := context.WithTimeout(r.Context(), time.Millisecond)
			defer stop()
			other.serve(http.StatusOK, r.WithContext(ctx))
		},
		"without storage": func(h *harness, jobs *silentJobs, id string) {
			jobs.silent.Store(true)
			h.do(http.StatusServiceUnavailable, "DELETE", replayPath+"/"+id, "", asKey("operate")...)
			jobs.silent.Store(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				jobs := &silentJobs{}
				h := withJobs(t, withKeys, func(o *Options) { jobs.Jobs, o.Jobs = o.Jobs, jobs })
				h.putMany("orders", 20, beforeNow)
				id := h.do(http.StatusAccepted, "POST", replayPath, slowReplay, asKey("operate")...).text("id")
				cancel(h, jobs, id)
				for range 2 {
					h.do(http.StatusOK, "DELETE", replayPath+"/"+id, "", asKey("admin")...)
					time.Sleep(time.Minute)
				}
				if got := h.audits("?action=replay.canceled"); len(got) != 1 || !strings.HasPrefix(got[0], first) {
					t.Errorf("%v, want %q once and no %q", got, first, second)
				}
			})
		})
	}
}

// noAudits takes no rows.
type noAudits struct{ tables.Audits }

func (noAudits) PutAudit(context.Context, tables.Audit) error { return errors.New("storage is away") }

// A change that was made stands, and is in the log where it can't be in the audit.
func TestAChangeStandsWhereTheAuditCanNotBeWritten(t *testing.T) {
	h := newHarness(t, withKeys, func(o *Options) { o.Audits = noAudits{} })
	h.do(http.StatusCreated, "PUT", "/api/v1/webhooks/hook", `{"queue":"orders","url":"https://example.com/a"}`, asKey("admin")...)
	h.do(http.StatusOK, "PATCH", "/api/v1/webhooks/hook", `{"name":"new"}`, asKey("admin")...)
	for _, want := range []string{`"level":"ERROR"`, `"action":"webhook.changed"`, `"api_key":"key-admin"`, `"webhook":"hook"`, `"fields":["name"]`} {
		if !strings.Contains(h.log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, h.log.String())
		}
	}
}
