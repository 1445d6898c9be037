package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// testTime is about when the test began: what nothing happened to for minutes is another case, and all tests of the package take minutes.
var testTime time.Time

func (h *harness) record(r tables.Record) {
	h.Helper()
	if err := h.db.Record(h.Context(), r); err != nil {
		h.Fatal(err)
	}
}

func (h *harness) putDeadLetter(d tables.DeadLetter) tables.DeadLetter {
	h.Helper()
	if d.ID == "" {
		d.ID = tables.DeadLetterID(d.MessageKey, d.WebhookID, d.Generation, d.DeadLetteredAt)
	}
	saved, err := h.db.PutDeadLetter(h.Context(), d)
	if err != nil {
		h.Fatal(err)
	}
	return saved
}

func TestTimelineTellsWhatHappenedAndWhatIsNext(t *testing.T) {
	h := newHarness(t)
	h.do(http.StatusAccepted, "POST", "/api/v1/queues/orders/messages", "hello") // the queue is there, and not empty
	key := tables.MessageKey{Queue: "orders", MessageID: "m-1", Day: testTime.Add(-time.Hour)}
	dead := h.putDeadLetter(tables.DeadLetter{
		MessageKey: key, WebhookID: "wh_dead", Status: tables.Waiting, Reason: policy.NonRetryableError, Description: "The webhook answered 400.",
		DeadLetteredAt: testTime.Add(-20 * time.Minute), Text: []byte("x"), Encoding: "auto",
	})
	h.record(tables.Record{
		Deliveries: []tables.Delivery{
			{MessageKey: key, State: tables.Published, UpdatedAt: testTime.Add(-time.Hour), NextAt: testTime.Add(-time.Hour), Size: 5, BodyHash: "0123456789abcdef", Encoding: "none"},
			{MessageKey: key, WebhookID: "wh_dead", State: tables.DeadLettered, Reason: policy.NonRetryableError, DeadLetterID: dead.ID, Attempts: 1, UpdatedAt: testTime.Add(-20 * time.Minute), Size: 5},
			{MessageKey: key, WebhookID: "wh_done", State: tables.Delivered, Reason: policy.Delivered, Attempts: 1, UpdatedAt: testTime.Add(-10 * time.Minute), Size: 5},
			{MessageKey: key, WebhookID: "wh_held", State: tables.Held, Reason: policy.WebhookDisabled, UpdatedAt: testTime.Add(-5 * time.Minute), Size: 5},
			{MessageKey: key, WebhookID: "wh_wait", State: tables.Pending, Reason: policy.RetryableError, Attempts: 1, Charged: 1, NextAt: testTime.Add(time.Hour), UpdatedAt: testTime.Add(-30 * time.Minute), Size: 5},
		},
		Attempts: []tables.Attempt{
			{MessageKey: key, WebhookID: "wh_wait", Number: 1, StartedAt: testTime.Add(-30 * time.Minute), Duration: time.Second, Status: 503, Action: policy.Abandon, Reason: policy.RetryableError, Charged: true, NextAt: testTime.Add(time.Hour), Explanation: "It is tried again."},
			{MessageKey: key, WebhookID: "wh_dead", Number: 1, StartedAt: testTime.Add(-21 * time.Minute), Duration: time.Second, ErrorClass: policy.ClassTimeout, Action: policy.DeadLetter, Reason: policy.NonRetryableError, Charged: true},
			{MessageKey: key, WebhookID: "wh_done", Number: 1, StartedAt: testTime.Add(-11 * time.Minute), Duration: time.Second, Status: 200, Action: policy.Complete, Reason: policy.Delivered, Charged: true, Snippet: "<script>x</script>"},
		},
	})
	a := h.do(http.StatusOK, "GET", "/api/v1/messages/m-1", "")
	var events []string
	for i := range a.get("events").([]any) {
		id, _ := a.get("events", i, "webhook_id").(string)
		events = append(events, strings.TrimSpace(a.text("events", i, "event")+" "+id))
	}
	want := []string{"published", "attempt wh_wait", "attempt wh_dead", "dead_lettered wh_dead", "attempt wh_done", "delivered wh_done", "held wh_held"}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := a.text("events", 1, "text"); got != "Attempt 1: answered 503 after 1s. It is tried again." {
		t.Errorf("attempt: %q", got)
	}
	if got := a.text("events", 2, "text"); got != "Attempt 1: no answer (timeout) after 1s." {
		t.Errorf("attempt: %q", got)
	}
	if got := a.text("events", 3, "text"); got != "Dead-lettered (NonRetryableError). The webhook answered 400." {
		t.Errorf("dead letter: %q", got)
	}
	a.wantNot("<script>") // escaped, whoever shows it
	next := map[string]string{
		"wh_dead": "POST /api/v1/dead-letters/" + dead.ID + "/replay sends it again",
		"wh_done": "it is delivered",
		"wh_held": "POST /api/v1/webhooks/wh_held/enable",
		"wh_wait": "Attempt 2 is due at " + web.Stamp(testTime.Add(time.Hour)),
	}
	for i, n := range a.get("next").([]any) {
		id := n.(map[string]any)["webhook_id"].(string)
		if !strings.Contains(a.text("next", i, "text"), next[id]) {
			t.Errorf("%s: %q, want %q", id, a.text("next", i, "text"), next[id])
		}
		delete(next, id)
	}
	if len(next) != 0 {
		t.Errorf("nothing is said about %v", next)
	}
}

func TestTimelineTellsThatTheWebhookCanNotBeSentTo(t *testing.T) {
	h := newHarness(t)
	key := tables.MessageKey{Queue: "orders", MessageID: "m-1", Day: testTime}
	h.record(tables.Record{Deliveries: []tables.Delivery{
		{MessageKey: key, WebhookID: "wh_done", State: tables.Delivered, Attempts: 1, UpdatedAt: testTime},
		{MessageKey: key, WebhookID: "wh_wait", State: tables.Pending, Attempts: 1, NextAt: testTime, UpdatedAt: testTime},
	}})
	for state, want := range map[status.FlowState]string{status.Paused: "asked not to be sent", status.Failing: "nothing but a probe", status.Probing: "due or under way", status.NoToken: "No token can be had to show its webhook: it is down.", status.Healthy: ""} {
		h.view.webhook = func(string) (status.Webhook, bool) {
			return status.Webhook{State: state, Until: testTime, Why: "it is down"}, true
		}
		a := h.do(http.StatusOK, "GET", "/api/v1/messages/m-1", "")
		if got := a.text("next", 1, "text"); !strings.Contains(got, want) || want == "" && strings.Contains(got, "Its webhook") {
			t.Errorf("%s: %q", state, got)
		}
		if got := a.text("next", 0, "text"); strings.Contains(got, "Its webhook") {
			t.Errorf("%s, of what is delivered: %q", state, got)
		}
	}
}

func TestTimelineOutlivesItsRecordsInTheDeadLetter(t *testing.T) {
	h := newHarness(t)
	key := tables.MessageKey{Queue: "orders", MessageID: "m-2", Day: testTime}
	h.putDeadLetter(tables.DeadLetter{MessageKey: key, Status: tables.Replaying, Reason: policy.Undecodable, DeadLetteredAt: testTime, Replays: 2, ReplayedAt: testTime.Add(time.Minute), Text: []byte("x"), Encoding: "base64"})
	a := h.do(http.StatusOK, "GET", "/api/v1/messages/m-2", "")
	if a.text("queue") != "orders" || a.text("events", 0, "event") != "dead_lettered" || a.text("events", 1, "event") != "replayed" || a.get("events", 1, "generation") != 2.0 {
		t.Errorf("timeline: %s", a.body)
	}
}

// A poison message is given up without a POST, whatever its deliveries had come to.
func TestNothingIsNextForAMessageThatWasGivenUpAsAWhole(t *testing.T) {
	h := newHarness(t)
	key := tables.MessageKey{Queue: "orders", MessageID: "m-3", Day: testTime}
	h.record(tables.Record{Deliveries: []tables.Delivery{
		{MessageKey: key, WebhookID: "wh_a", State: tables.Pending, MissingRecords: 3, UpdatedAt: testTime, NextAt: testTime},
		{MessageKey: key, WebhookID: "wh_b", State: tables.Delivered, UpdatedAt: testTime},
		{MessageKey: key, State: tables.DeadLettered, Reason: policy.PoisonMessage, UpdatedAt: testTime.Add(time.Minute)},
	}})
	a := h.do(http.StatusOK, "GET", "/api/v1/messages/m-3", "")
	for i := range a.get("next").([]any) {
		if state := a.text("next", i, "state"); state == "pending" {
			t.Errorf("next %d is %s: %s", i, state, a.body)
		}
	}
}

func TestSentenceForEveryState(t *testing.T) {
	now := testTime
	tests := []struct {
		d    tables.Delivery
		want string
	}{
		{tables.Delivery{State: tables.Pending}, "Attempt 1 is under way"},
		{tables.Delivery{State: tables.Pending, Attempts: 2, NextAt: now.Add(-time.Minute)}, "Attempt 3 has been due since"},
		{tables.Delivery{State: tables.DeadLettering}, "being dead-lettered"},
		{tables.Delivery{State: tables.Held, Reason: policy.WebhookDeleted, ExpiresAt: now.Add(time.Hour)}, "not registered any more. It is dead-lettered before the message expires at"},
		{tables.Delivery{State: tables.Held, Reason: policy.NoWebhook}, "register one"},
		{tables.Delivery{State: tables.Held, Reason: policy.Undecodable, NextAt: now.Add(time.Minute), ExpiresAt: now.Add(time.Hour)},
			"Held because a newer version of pushlease wrote it: update every instance. Looked at again at " + web.Stamp(now.Add(time.Minute)) +
				". It is dead-lettered before the message expires at " + web.Stamp(now.Add(time.Hour))},
		{tables.Delivery{State: tables.Held, Reason: policy.WebhookDisabled, WebhookID: "wh_1"}, "/api/v1/webhooks/wh_1/enable releases it"},
		{tables.Delivery{State: tables.Held, Reason: policy.EventInWork, SameEventAs: "m-1", NextAt: now}, "the same event is being delivered with message m-1; looked at again at " + web.Stamp(now)},
		{tables.Delivery{State: tables.Held, Reason: policy.EventInWork, NextAt: now}, "another program has changed the row"},
		{tables.Delivery{State: tables.Held, Reason: policy.WebhookFailing, WebhookID: "wh_1", NextAt: now}, "GET /api/v1/webhooks/wh_1 says why. Looked at again at " + web.Stamp(now)},
		{tables.Delivery{State: tables.Held, Reason: policy.InternalFault}, "until an operator acts"},
		{tables.Delivery{State: tables.Published}, "On the queue"},
	}
	for _, tt := range tests {
		if got := whatIsNext(tt.d, now); !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: %q, want %q", tt.d.State, tt.d.Reason, got, tt.want)
		}
	}
	for _, s := range tables.States() {
		if whatIsNext(tables.Delivery{State: s}, now) == "" {
			t.Errorf("%s: nothing is said", s)
		}
	}
}

func TestAttemptsAreFilteredAndPaged(t *testing.T) {
	h := newHarness(t)
	key := tables.MessageKey{Queue: "orders", MessageID: "m-3", Day: testTime}
	attempt := func(n, status int, class policy.ErrorClass, action policy.Action, reason policy.Reason) tables.Attempt {
		return tables.Attempt{MessageKey: key, WebhookID: "wh_1", Number: n, StartedAt: testTime.Add(time.Duration(n) * time.Minute), Status: status, ErrorClass: class, Action: action, Reason: reason}
	}
	h.record(tables.Record{
		Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "wh_1", State: tables.Pending, UpdatedAt: testTime}},
		Attempts: []tables.Attempt{
			attempt(1, 503, "", policy.Abandon, policy.RetryableError),
			attempt(2, 0, policy.ClassTimeout, policy.Abandon, policy.RetryableError),
			attempt(3, 500, "", policy.Abandon, policy.RetryableError),
			attempt(4, 200, "", policy.Complete, policy.Delivered),
		},
	})
	at := func(n int) string {
		return testTime.Add(time.Duration(n) * time.Minute).Format(time.RFC3339Nano)
	}
	for query, want := range map[string]string{
		"":                                  "4 3 2 1",
		"status=503":                        "1",
		"status=5xx":                        "3 1",
		"error_class=timeout":               "2",
		"action=complete":                   "4",
		"reason=RetryableError":             "3 2 1",
		"webhook=wh_1":                      "4 3 2 1",
		"webhook=wh_2":                      "",
		"queue=orders":                      "4 3 2 1",
		"queue=others":                      "",
		"message=m-3&status=2xx":            "4",
		"from=" + at(2) + "&until=" + at(4): "3 2",
	} {
		cursor, got := "", []string{}
		for {
			a := h.do(http.StatusOK, "GET", "/api/v1/attempts?limit=1&cursor="+cursor+"&"+query, "")
			for i := range a.get("data").([]any) {
				got = append(got, strconv.Itoa(int(a.get("data", i, "number").(float64))))
			}
			next, more := a.get("next_cursor").(string)
			if !more {
				break
			}
			cursor = next
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: attempts %s, want %s", query, s, want)
		}
	}
	for query, field := range map[string]string{
		"status=5x": "status", "status=600": "status", "status=abc": "status", "status=099": "status",
		"error_class=slow": "error_class", "action=retry": "action", "reason=Unknown": "reason",
		"from=yesterday": "from", "until=2026-01-01": "until", "from=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z": "until",
		"limit=0": "limit", "limit=501": "limit", "limit=-1": "limit", "limit=ten": "limit", "limit=1e2": "limit",
		"cursor=nonsense!": "cursor", "cursor=" + strings.Repeat("a", 5000): "cursor",
		"queue=Bad": "queue", "webhook=" + strings.Repeat("a", 300): "webhook", "message=%ff": "message", "stauts=500": "stauts", "a%20b=1": `"a b"`, "limit=1&limit=2": "limit", "a;b": "query",
	} {
		h.do(http.StatusBadRequest, "GET", "/api/v1/attempts?"+query, "").wantProblem(field)
	}
	keyed := newHarness(t, withKeys)
	keyed.do(http.StatusOK, "GET", "/api/v1/attempts?code=function-key", "", "X-Azure-Functions-InvocationId", "1", "Authorization", "Bearer read")
	keyed.do(http.StatusBadRequest, "GET", "/api/v1/attempts?code=1", "", "Authorization", "Bearer read").wantProblem("code")
}

func TestWhatHeldAMessageIsNotNextOnceAWebhookHasTakenIt(t *testing.T) {
	key := tables.MessageKey{Queue: "orders", MessageID: "m1", Day: testTime}
	held := tables.Delivery{MessageKey: key, State: tables.Held, Reason: policy.NoWebhook, UpdatedAt: testTime}
	before := tables.Delivery{MessageKey: key, WebhookID: "wh_a", State: tables.Pending, UpdatedAt: testTime.Add(-time.Minute)}
	after := tables.Delivery{MessageKey: key, WebhookID: "wh_b", State: tables.Delivered, UpdatedAt: testTime.Add(time.Minute)}
	for _, tt := range []struct {
		all  []tables.Delivery
		want []string
	}{
		{[]tables.Delivery{held}, []string{""}},
		{[]tables.Delivery{held, before}, []string{"", "wh_a"}},
		{[]tables.Delivery{held, before, after}, []string{"wh_a", "wh_b"}},
	} {
		var got []string
		for _, n := range newMessageView("m1", tt.all, nil, nil, testTime).Next {
			got = append(got, n.WebhookID)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// A duplicate's own record took the place of the one of its publish, and of that of a message
// from elsewhere there never was any.
func TestADuplicatesTimelineBeginsWithItsPublish(t *testing.T) {
	h := newHarness(t)
	key := tables.MessageKey{Queue: "orders", MessageID: "m-2", Day: testTime.Add(-time.Hour)}
	h.record(tables.Record{Deliveries: []tables.Delivery{{
		MessageKey: key, State: tables.Duplicate, Reason: policy.Duplicate, SameEventAs: "m-1", UpdatedAt: testTime.Add(-time.Hour),
	}}})
	a := h.do(http.StatusOK, "GET", "/api/v1/messages/m-2", "")
	published, duplicate := strings.Index(string(a.body), `"event":"published"`), strings.Index(string(a.body), `"event":"duplicate"`)
	if published < 0 || duplicate < published {
		t.Errorf("timeline: %s", a.body)
	}
}

// What comes of a message as a whole takes the place of the record of its publish.
func TestTimelineOfAWholeMessageBeginsWithItsPublish(t *testing.T) {
	h := newHarness(t)
	for _, state := range []tables.State{tables.Unmatched, tables.Duplicate, tables.Held, tables.DeadLettered} {
		key := tables.MessageKey{Queue: "orders", MessageID: "m-" + string(state), Day: testTime.Add(-1500 * time.Millisecond)}
		published := tables.Delivery{MessageKey: key, State: tables.Published, UpdatedAt: key.Day}
		h.record(tables.Record{Deliveries: []tables.Delivery{published}})
		published.State, published.UpdatedAt = state, testTime
		h.record(tables.Record{Deliveries: []tables.Delivery{published}})
		a := h.do(http.StatusOK, "GET", "/api/v1/messages/"+key.MessageID, "")
		if a.text("events", 0, "event") != "published" || a.text("events", 0, "at") != key.Day.Format(time.RFC3339Nano) || len(a.get("events").([]any)) != 2 {
			t.Errorf("%s: %s", state, a.body)
		}
	}
}

// Who looks for the cause of a double finds it in the timeline.
func TestTheTimelineSaysThatAMessageWasDeliveredTwice(t *testing.T) {
	h := newHarness(t)
	key := tables.MessageKey{Queue: "orders", MessageID: "m-2", Day: testTime}
	attempt := func(webhookID, instance string, generation, after int) tables.Attempt {
		return tables.Attempt{MessageKey: key, WebhookID: webhookID, Generation: generation, Number: 1, Instance: instance, StartedAt: testTime.Add(time.Duration(after) * time.Second), Duration: time.Second, Status: 200, Action: policy.Complete, Reason: policy.Delivered}
	}
	delivered := func(webhookID string, generation int) tables.Delivery {
		return tables.Delivery{MessageKey: key, WebhookID: webhookID, Generation: generation, State: tables.Delivered, UpdatedAt: testTime.Add(time.Minute)}
	}
	late := attempt("wh_1", "second", 0, 40) // it came when the other's was on record
	late.Action, late.Reason = policy.NoVerdict, policy.LeaseLost
	h.record(tables.Record{
		Deliveries: []tables.Delivery{delivered("wh_1", 0), delivered("wh_2", 0), delivered("wh_2", 1)},
		Attempts:   []tables.Attempt{attempt("wh_1", "first", 0, 0), late, attempt("wh_2", "first", 0, 0), attempt("wh_2", "first", 1, 50)},
	})
	a := h.do(http.StatusOK, "GET", "/api/v1/messages/m-2", "")
	for i := range a.get("events").([]any) {
		text := a.text("events", i, "text")
		twice := strings.Contains(text, "delivered 2 times") && strings.Contains(text, "first, whose answer came at "+web.Stamp(testTime.Add(time.Second))) && strings.Contains(text, "second, whose answer came at "+web.Stamp(testTime.Add(41*time.Second)))
		if want := a.text("events", i, "event") == "delivered" && a.text("events", i, "webhook_id") == "wh_1"; twice != want {
			t.Errorf("%s (of a double: %t)", text, want)
		}
	}
	if n := len(a.get("events").([]any)); n != 6 {
		t.Errorf("%d events: %s", n, a.body)
	}
}

// damagedHistory has what another program has changed so that it can't be read.
type damagedHistory struct {
	tables.History
	delivery, attempt tables.Damage
}

func (h damagedHistory) Message(ctx context.Context, name, id string) ([]tables.Delivery, []tables.Attempt, error) {
	ds, as, err := h.History.Message(ctx, name, id)
	for i := range ds {
		if ds[i].Damage = h.delivery; h.delivery.Undecided {
			ds[i].State = "Delivered"
		}
	}
	for i := range as {
		as[i].Damage = h.attempt
	}
	return ds, as, err
}

func (h damagedHistory) Attempts(ctx context.Context, f tables.AttemptFilter, page tables.Page) ([]tables.Attempt, tables.Cursor, error) {
	as, next, err := h.History.Attempts(ctx, f, page)
	for i := range as {
		as[i].Damage, as[i].Status, as[i].Action, as[i].Reason = h.attempt, 0, "", ""
	}
	return as, next, err
}

// C94: who asks what became of a message is told what of its rows can't be read, and nothing that they do not say.
func TestWhatCanNotBeReadOfAMessageIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		delivery, attempt tables.Damage
		state             string
		next, event       string
	}{
		"decisive":   {tables.Damage{Columns: "State, NextAtMs", Undecided: true}, tables.Damage{}, "damaged", "can't be told. Another program has changed its row in storage: not to be read is State, NextAtMs.", ""},
		"for people": {tables.Damage{Columns: "Size"}, tables.Damage{}, "pending", "Attempt 2 is under way or follows at once. Another program has changed its row in storage: not to be read is Size.", ""},
		"attempt":    {tables.Damage{}, tables.Damage{Columns: "Status, Action"}, "pending", "", "Another program has changed its row in storage: not to be read is Status, Action."},
		"nothing":    {tables.Damage{}, tables.Damage{}, "pending", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, func(o *Options) { o.History = damagedHistory{o.History, c.delivery, c.attempt} })
			key := tables.MessageKey{Queue: "orders", MessageID: "m-5", Day: testTime}
			h.record(tables.Record{
				Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "wh_1", State: tables.Pending, Attempts: 1, UpdatedAt: testTime}},
				Attempts:   []tables.Attempt{{MessageKey: key, WebhookID: "wh_1", Number: 1, StartedAt: testTime, Action: policy.Abandon, Reason: policy.RetryableError}},
			})
			a := h.do(http.StatusOK, "GET", "/api/v1/messages/m-5", "")
			if a.text("next", 0, "state") != c.state || !strings.Contains(a.text("next", 0, "text"), c.next) {
				t.Errorf("next is %s", a.body)
			}
			if damaged, _ := a.get("next", 0).(map[string]any)["damaged"].(string); damaged != c.delivery.Columns {
				t.Errorf("next has damage %q", damaged)
			}
			event := a.text("events", 0, "text")
			if !strings.Contains(event, c.event) || c.event == "" && strings.Contains(event, "Another program") {
				t.Errorf("the event is %q", event)
			}
			if c.attempt.Columns == "" {
				return
			}
			a = h.do(http.StatusOK, "GET", "/api/v1/attempts", "")
			row := a.get("data", 0).(map[string]any)
			if _, decided := row["action"]; row["damaged"] != c.attempt.Columns || decided {
				t.Errorf("the attempt is %s", a.body)
			}
		})
	}
}

// C65: whoever holds a copy finds its dead letter by the copy's id, whatever became of it.
func TestTheTimelineOfACopyNamesItsDeadLetter(t *testing.T) {
	h := newHarness(t)
	dead := h.putDeadLetter(tables.DeadLetter{
		MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m-1", Day: testTime.Add(-time.Hour)}, Status: tables.Waiting,
		Reason: policy.NonRetryableError, DeadLetteredAt: testTime.Add(-20 * time.Minute), Text: []byte("x"), Encoding: "auto",
	})
	for state, text := range map[tables.State]string{
		tables.Published: "Put on the queue as the copy of dead letter ", tables.Duplicate: "It is the copy of dead letter ", tables.DeadLettered: "Given up (Expired): it is the copy of dead letter ",
	} {
		of := dead.Copy("orders-poison", "copy-"+string(state), testTime.Add(-time.Minute), time.Time{})
		h.record(tables.Record{Deliveries: []tables.Delivery{of}})
		if of.State = state; state != tables.Published {
			of.Reason, of.UpdatedAt = policy.Expired, testTime
			h.record(tables.Record{Deliveries: []tables.Delivery{of}})
		}
		a := h.do(http.StatusOK, "GET", "/api/v1/messages/"+of.MessageID, "")
		if !strings.Contains(string(a.body), text+dead.ID) || a.text("next", 0, "dead_letter_id") != dead.ID || a.text("queue") != "orders-poison" {
			t.Errorf("%s: %s", state, a.body)
		}
	}
}
