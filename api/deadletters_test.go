package api

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// dead is a dead letter of the webhook id, with this stored text.
func dead(message, webhookID, text string) tables.DeadLetter {
	return tables.DeadLetter{
		MessageKey: tables.MessageKey{Queue: "orders", MessageID: message, Day: testTime}, WebhookID: webhookID,
		Status: tables.Waiting, Reason: policy.MaxDeliveryCountExceeded, Description: "The attempts have run out.",
		Attempts: 3, LastStatus: 500, FirstAt: testTime, LastAt: testTime, DeadLetteredAt: testTime, InsertedAt: testTime,
		Text: []byte(text), Encoding: "auto", Size: len(text), DequeueCount: 3,
	}
}

func (h *harness) loadDead(id string) tables.DeadLetter {
	h.Helper()
	d, err := h.db.GetDeadLetter(h.Context(), id)
	if err != nil {
		h.Fatal(err)
	}
	return d
}

func TestBodyIsShownOnlyWhenAskedForByAnOperator(t *testing.T) {
	h := newHarness(t, withKeys)
	// No id, time or number of an answer has these letters.
	payload := `{"card":"number of the card"}`
	d := h.putDeadLetter(dead("m1", "wh_1", base64.StdEncoding.EncodeToString([]byte(payload))))
	target := "/api/v1/dead-letters/" + d.ID
	read, operate := []string{"Authorization", "Bearer read"}, []string{"Authorization", "Bearer operate"}

	a := h.do(http.StatusOK, "GET", target, "", read...)
	if a.text("reason") != "MaxDeliveryCountExceeded" || a.get("last_status") != 500.0 || a.text("status") != "waiting" || a.header.Get("ETag") == "" {
		t.Errorf("dead letter: %s", a.body)
	}
	for _, x := range []answer{a, h.do(http.StatusOK, "GET", target+"?body=false", "", operate...), h.do(http.StatusOK, "GET", "/api/v1/dead-letters", "", operate...)} {
		x.wantNot("number of the card")
		x.wantNot(string(d.Text))
	}
	h.do(http.StatusForbidden, "GET", target+"?body=true", "", read...)
	h.do(http.StatusForbidden, "GET", target+"/body", "", read...)
	b := h.do(http.StatusOK, "GET", target+"?body=true", "", operate...)
	if b.text("body", "text") != payload || b.text("body", "encoding") != "base64" || b.text("body", "content_type") != "application/json" {
		t.Errorf("body: %s", b.body)
	}
	raw := h.do(http.StatusOK, "GET", target+"/body", "", operate...)
	if string(raw.body) != payload || raw.header.Get("Content-Type") != "application/octet-stream" || raw.header.Get("Pushlease-Content-Type") != "application/json" {
		t.Errorf("raw body %q, %v", raw.body, raw.header)
	}
}

func TestBodiesOfEveryKindCanBeRead(t *testing.T) {
	h := newHarness(t)
	binary, err := queue.Encode(queue.EncodingAuto, []byte("\xff\x00<html>"), "text/html")
	if err != nil {
		t.Fatal(err)
	}
	pointer, err := queue.EncodeReplay(queue.EncodingNone, queue.Replay{DeadLetter: "x", Token: "TOKEN"})
	if err != nil {
		t.Fatal(err)
	}
	undecodable := dead("m2", "", "!!not base64!!")
	undecodable.Encoding = "base64"
	tests := []struct {
		name           string
		d              tables.DeadLetter
		raw, encoding  string
		hasText        bool
		wantedMimeType string
	}{
		{"binary", dead("m1", "", string(binary)), "\xff\x00<html>", "envelope", false, "text/html"},
		{"undecodable", undecodable, "!!not base64!!", "undecodable", true, "text/plain; charset=utf-8"},
		{"empty", dead("m3", "", ""), "", "none", true, "text/plain; charset=utf-8"},
		{"pointer of a replay, without its token", dead("m4", "", string(pointer)), strings.Replace(string(pointer), "TOKEN", "", 1), "replay", true, "application/json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := h.putDeadLetter(tt.d)
			a := h.do(http.StatusOK, "GET", "/api/v1/dead-letters/"+d.ID+"?body=true", "")
			raw := h.do(http.StatusOK, "GET", "/api/v1/dead-letters/"+d.ID+"/body", "")
			if a.text("body", "base64") != base64.StdEncoding.EncodeToString([]byte(tt.raw)) || string(raw.body) != tt.raw {
				t.Errorf("body: %s and %q", a.body, raw.body)
			}
			if a.text("body", "encoding") != tt.encoding || (a.get("body", "text") != nil) != tt.hasText || a.text("body", "content_type") != tt.wantedMimeType {
				t.Errorf("body: %s", a.body)
			}
		})
	}
}

func TestReplaySendsAPointerThatOnlyTheRowKnows(t *testing.T) {
	h := newHarness(t)
	id := h.register(hook).text("id")
	d := h.putDeadLetter(dead("m1", id, "payload"))
	target := "/api/v1/dead-letters/" + d.ID

	a := h.do(http.StatusAccepted, "POST", target+"/replay", "")
	row := h.loadDead(d.ID)
	if row.Status != tables.Replaying || row.Replays != 1 || len(row.ReplayToken) < 32 || time.Since(row.ReplayedAt) > time.Minute {
		t.Errorf("row: %+v", row)
	}
	a.wantNot(row.ReplayToken)
	h.do(http.StatusOK, "GET", target, "").wantNot(row.ReplayToken)
	m := h.receive("orders")
	body, err := queue.Decode(queue.EncodingAuto, m.Text)
	if err != nil {
		t.Fatal(err)
	}
	if body.Replay == nil || *body.Replay != (queue.Replay{DeadLetter: d.ID, Token: row.ReplayToken}) {
		t.Errorf("sent %s", m.Text)
	}
	if life := m.ExpiresAt.Sub(m.InsertedAt); life != queue.DefaultTTL {
		t.Errorf("the pointer lives for %s", life)
	}
	if len(h.view.woken) != 1 || a.get("warnings") != nil {
		t.Errorf("woken %v, warnings %v", h.view.woken, a.get("warnings"))
	}

	h.do(http.StatusConflict, "POST", target+"/replay", "").wantProblem("status")
	b := h.do(http.StatusAccepted, "POST", target+"/replay?force=true", "")
	again := h.loadDead(d.ID)
	if b.get("replays") != 2.0 || again.ReplayToken == row.ReplayToken {
		t.Errorf("forced: %s", b.body)
	}
	again.ReplayedAt = time.Now().Add(-tables.ReplayPatience - time.Second)
	if _, err := h.db.UpdateDeadLetter(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	h.do(http.StatusAccepted, "POST", target+"/replay", "")
}

func TestReplayToAWebhookThatCanNotTakeIt(t *testing.T) {
	h := newHarness(t)
	id := h.register(hook).text("id")
	d := h.putDeadLetter(dead("m1", id, "payload"))
	target := "/api/v1/dead-letters/" + d.ID + "/replay"
	h.do(http.StatusPreconditionFailed, "POST", target, "", "If-Match", `"old"`).wantProblem("If-Match")
	h.do(http.StatusOK, "POST", "/api/v1/webhooks/"+id+"/disable", "")
	if a := h.do(http.StatusAccepted, "POST", target, ""); !strings.Contains(a.text("warnings", 0), "held until it is enabled") {
		t.Errorf("warnings: %s", a.body)
	}
	h.do(http.StatusNoContent, "DELETE", "/api/v1/webhooks/"+id, "")
	h.do(http.StatusConflict, "POST", target+"?force=true", "").wantProblem("webhook_id")
	whole := h.putDeadLetter(dead("m2", "", "payload"))
	h.do(http.StatusAccepted, "POST", "/api/v1/dead-letters/"+whole.ID+"/replay", "")
	h.do(http.StatusBadRequest, "POST", target+"?force=please", "").wantProblem("force")
}

func TestFailedReplayIsTakenBackOnlyWhenItSurelyFailed(t *testing.T) {
	tests := []struct {
		name    string
		err     error
		status  tables.DeadLetterStatus
		replays int
	}{
		{"refused before effect", queue.ErrBusy, tables.Waiting, 0},
		{"no answer", errors.New("connection reset"), tables.Waiting, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, func(o *Options) { o.Queues = failingSends{o.Queues, tt.err} })
			d := h.putDeadLetter(dead("m1", "", "payload"))
			h.do(http.StatusServiceUnavailable, "POST", "/api/v1/dead-letters/"+d.ID+"/replay", "")
			row := h.loadDead(d.ID)
			if row.Status != tt.status || row.Replays != tt.replays || (row.ReplayToken != "") != (tt.replays > 0) {
				t.Errorf("row: %s, %d replays", row.Status, row.Replays)
			}
			if len(h.view.woken) != 0 {
				t.Error("the dispatcher was woken for nothing")
			}
		})
	}
}

// cutReplays cuts steps of a replay: the row's update number cut, or the send where cut is 0. The
// step takes effect or not; its answer is lost.
type cutReplays struct {
	tables.DeadLetters
	queue.Service
	cut     int
	effect  bool
	updates int
}

var errCut = errors.New("the answer was lost")

func (c *cutReplays) UpdateDeadLetter(ctx context.Context, d tables.DeadLetter) (tables.DeadLetter, error) {
	c.updates++
	if c.updates != c.cut {
		return c.DeadLetters.UpdateDeadLetter(ctx, d)
	}
	if c.effect {
		if _, err := c.DeadLetters.UpdateDeadLetter(ctx, d); err != nil {
			return d, err
		}
	}
	return d, errCut
}

func (c *cutReplays) Queue(name string) (queue.Queue, error) {
	q, err := c.Service.Queue(name)
	return cutSends{q, c}, err
}

type cutSends struct {
	queue.Queue
	c *cutReplays
}

func (q cutSends) Send(ctx context.Context, text []byte, opts queue.SendOptions) (sent queue.Sent, err error) {
	if q.c.cut != 0 || q.c.effect {
		sent, err = q.Queue.Send(ctx, text, opts)
	}
	if q.c.cut == 0 {
		q.c.cut, err = -1, errCut
	}
	return sent, err
}

// Wherever a replay is cut, a minute later it is under way or can be asked for again, and no
// dead letter is replaying without a message.
func TestAReplayThatIsCutAnywhereEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		cut    int
		effect bool
		status int
		sent   int64
	}{
		"the reservation, with effect": {1, true, http.StatusAccepted, 1},
		"the reservation":              {1, false, http.StatusServiceUnavailable, 0},
		"the send, with effect":        {0, true, http.StatusServiceUnavailable, 1},
		"the send":                     {0, false, http.StatusServiceUnavailable, 0},
		"the last step, with effect":   {2, true, http.StatusAccepted, 1},
		"the last step":                {2, false, http.StatusAccepted, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				cuts := &cutReplays{cut: tt.cut, effect: tt.effect}
				h := newHarness(t, func(o *Options) {
					cuts.DeadLetters, cuts.Service = o.DeadLetters, o.Queues
					o.DeadLetters, o.Queues = cuts, cuts
				})
				d := h.putDeadLetter(dead("m1", "", "payload"))
				target := "/api/v1/dead-letters/" + d.ID + "/replay"
				h.do(tt.status, "POST", target, "")
				if n := h.depth("orders"); n != tt.sent {
					t.Fatalf("%d messages were sent, want %d", n, tt.sent)
				}
				row := h.loadDead(d.ID)
				if row.Status == tables.Replaying && tt.sent == 0 {
					t.Error("the dead letter is replaying, and nothing was sent")
				}
				if row.ReplayToken != "" { // it is kept for what may be under way
					h.do(http.StatusConflict, "POST", target, "")
				}
				time.Sleep(tables.ReplayReserved + time.Second)
				if h.loadDead(d.ID).Status == tables.Waiting {
					h.do(http.StatusAccepted, "POST", target, "")
				}
				pointers, row := h.pointers("orders"), h.loadDead(d.ID)
				if row.Status != tables.Replaying || !slices.Contains(pointers, row.ReplayToken) {
					t.Errorf("the dead letter is %s, and its pointer is not on the queue", row.Status)
				}
			})
		})
	}
}

// pointers are the tokens of the replays on a queue.
func (h *harness) pointers(name string) (tokens []string) {
	h.Helper()
	q, err := h.db.Queues().Queue(name)
	if err != nil {
		h.Fatal(err)
	}
	got, err := q.Receive(h.Context(), queue.MaxReceive, time.Minute)
	if err != nil {
		h.Fatal(err)
	}
	for _, m := range got {
		if b, err := queue.Decode(queue.EncodingAuto, m.Text); err == nil && b.Replay != nil {
			tokens = append(tokens, b.Replay.Token)
		}
	}
	return tokens
}

func TestReplayGoesOnWhenTheCallerHangsUp(t *testing.T) {
	h := newHarness(t)
	d := h.putDeadLetter(dead("m1", "", "payload"))
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	h.serve(http.StatusAccepted, request("POST", "/api/v1/dead-letters/"+d.ID+"/replay", "").WithContext(ctx))
	if h.loadDead(d.ID).Status != tables.Replaying {
		t.Error("the row is not marked")
	}
	h.receive("orders")
}

// Two operators ask at the same moment: one replay, one conflict.
func TestConcurrentReplaysSendOne(t *testing.T) {
	h := newHarness(t)
	d := h.putDeadLetter(dead("m1", "", "payload"))
	const callers = 8
	codes := make(chan int, callers)
	for range callers {
		go func() {
			w := newStatusRecorder()
			h.api.ServeHTTP(w, request("POST", "/api/v1/dead-letters/"+d.ID+"/replay", ""))
			codes <- w.status
		}()
	}
	count := map[int]int{}
	for range callers {
		count[<-codes]++
	}
	if count[http.StatusAccepted] != 1 || count[http.StatusConflict] != callers-1 {
		t.Errorf("answers: %v, want one 202 and %d 409", count, callers-1)
	}
	h.receive("orders")
}

type statusRecorder struct {
	header http.Header
	status int
}

func newStatusRecorder() *statusRecorder              { return &statusRecorder{header: http.Header{}} }
func (r *statusRecorder) Header() http.Header         { return r.header }
func (r *statusRecorder) Write(p []byte) (int, error) { return len(p), nil }
func (r *statusRecorder) WriteHeader(status int)      { r.status = status }

func TestDeadLettersAreFilteredPagedAndDeleted(t *testing.T) {
	h := newHarness(t)
	var ids []string
	for i, message := range []string{"m1", "m2", "m3"} {
		d := dead(message, "wh_1", "x")
		d.DeadLetteredAt = testTime.Add(time.Duration(i) * time.Minute)
		if i == 2 {
			d.Reason, d.WebhookID, d.Status = policy.Undecodable, "", tables.Replayed
		}
		ids = append(ids, h.putDeadLetter(d).ID)
	}
	for query, want := range map[string]string{
		"": "m3 m2 m1", "queue=orders": "m3 m2 m1", "queue=others": "", "webhook=wh_1": "m2 m1", "message=m2": "m2",
		"reason=Undecodable": "m3", "status=waiting": "m2 m1",
		"from=" + testTime.Add(time.Minute).Format(time.RFC3339Nano): "m3 m2", "until=" + testTime.Add(time.Minute).Format(time.RFC3339Nano): "m1",
	} {
		cursor, got := "", []string{}
		for {
			a := h.do(http.StatusOK, "GET", "/api/v1/dead-letters?limit=1&cursor="+cursor+"&"+query, "")
			for i := range a.get("data").([]any) {
				got = append(got, a.text("data", i, "message_id"))
			}
			next, more := a.get("next_cursor").(string)
			if !more {
				break
			}
			cursor = next
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s, want %s", query, s, want)
		}
	}
	h.do(http.StatusBadRequest, "GET", "/api/v1/dead-letters?status=open", "").wantProblem("status")
	h.do(http.StatusBadRequest, "GET", "/api/v1/dead-letters?cursor=nonsense!", "").wantProblem("cursor")

	target := "/api/v1/dead-letters/" + ids[0]
	etag := h.do(http.StatusOK, "GET", target, "").header.Get("ETag")
	h.do(http.StatusPreconditionFailed, "DELETE", target, "", "If-Match", `"old"`)
	h.do(http.StatusNoContent, "DELETE", target, "", "If-Match", etag)
	h.do(http.StatusNotFound, "DELETE", target, "")
	h.do(http.StatusNotFound, "GET", target, "")
	h.do(http.StatusNoContent, "DELETE", "/api/v1/dead-letters/"+ids[1], "")
}

// Nothing goes on with a replay whose dead letter was deleted, and its record does not say so.
// A replay of the message as a whole waits for one webhook, and what became of it at another one is
// replayed on its own: whoever deletes the former ends what waits by it, and not the latter.
func TestDeletingADeadLetterEndsNoReplayOfAnotherOne(t *testing.T) {
	h := newHarness(t)
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour) // both on one day
	whole, other := dead("m-1", "", "payload"), dead("m-1", "wh_b", "payload")
	whole.Status, whole.Replays, whole.ReplayedAt, whole.ReplayToken = tables.Replaying, 1, noon, "one"
	other.Generation, other.Status, other.Replays, other.ReplayedAt, other.ReplayToken = 1, tables.Replaying, 1, noon.Add(5*time.Minute), "two"
	id := h.putDeadLetter(whole).ID
	h.putDeadLetter(other)
	record := func(webhookID string, generation int, day time.Time) tables.Delivery {
		key := whole.MessageKey
		key.Day = day
		return tables.Delivery{MessageKey: key, WebhookID: webhookID, Generation: generation, State: tables.Pending, UpdatedAt: day, NextAt: time.Now().Add(time.Hour)}
	}
	h.record(tables.Record{Deliveries: []tables.Delivery{record("wh_c", 1, whole.ReplayedAt)}})
	h.record(tables.Record{Deliveries: []tables.Delivery{record("wh_b", 2, other.ReplayedAt)}})
	h.do(http.StatusNoContent, "DELETE", "/api/v1/dead-letters/"+id, "")
	for webhookID, want := range map[string]tables.State{"wh_b": tables.Pending, "wh_c": tables.DeadLettered} {
		rows, err := h.db.Load(t.Context(), tables.MessageKey{Queue: whole.Queue, MessageID: "m-1", Day: other.ReplayedAt})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(rows, func(d tables.Delivery) bool { return d.WebhookID == webhookID })
		if i < 0 || rows[i].State != want {
			t.Errorf("deliveries to %s: %+v, want one that is %s", webhookID, rows, want)
		}
	}
}

func TestDeletingADeadLetterEndsItsReplay(t *testing.T) { // C57, C75
	h := newHarness(t)
	for _, c := range []struct {
		state, ends tables.State
	}{{tables.Held, tables.DeadLettered}, {tables.Pending, tables.DeadLettered}, {tables.Delivered, tables.Delivered}} {
		d := dead("m-"+string(c.state), "wh_1", "payload")
		d.Status, d.Replays, d.ReplayedAt, d.ReplayToken = tables.Replaying, 1, time.Now().Add(-time.Hour), "token"
		id := h.putDeadLetter(d).ID
		key := d.MessageKey
		key.Day = d.ReplayedAt
		record := tables.Delivery{MessageKey: key, WebhookID: "wh_1", Generation: 1, State: c.state, Reason: policy.WebhookDisabled, UpdatedAt: key.Day}
		if !c.state.Terminal() {
			record.NextAt = time.Now().Add(time.Hour)
		}
		h.record(tables.Record{Deliveries: []tables.Delivery{record}})
		h.do(http.StatusNoContent, "DELETE", "/api/v1/dead-letters/"+id, "")
		next := h.do(http.StatusOK, "GET", "/api/v1/messages/"+d.MessageID, "")
		if got := next.text("next", 0, "state"); got != string(c.ends) || next.get("next", 0, "next_at") != nil {
			t.Errorf("the record of a replay that was %s: %s", c.state, next.body)
		}
	}
}
