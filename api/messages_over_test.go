package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// C94: a message that can't be there any more is not said to come.
func TestAMessageWhoseLifeIsOverIsNotWaitedFor(t *testing.T) {
	end := testTime
	for _, state := range []tables.State{tables.Published, tables.Pending, tables.Held} {
		for _, attempts := range []int{0, 2} {
			d := tables.Delivery{State: state, Attempts: attempts, ExpiresAt: end, NextAt: end.Add(-time.Hour)}
			if text := whatIsNext(d, end.Add(tables.LifeMargin)); strings.HasPrefix(text, "Nothing") {
				t.Errorf("%s within the margin: %s", state, text)
			}
			if v := newNextView(d, nil, end.Add(tables.LifeMargin+time.Second)); v.State != lostState || !v.NextAt.IsZero() {
				t.Errorf("past its life it is %s, next at %s", v.State, v.NextAt)
			}
			text := whatIsNext(d, end.Add(tables.LifeMargin+time.Second))
			if !strings.HasPrefix(text, "Nothing") || !strings.Contains(text, web.Stamp(end)) || !strings.Contains(text, "someone else took it") || strings.Contains(text, "unseen") != (attempts == 0) {
				t.Errorf("%s after %d attempts, past its life: %s", state, attempts, text)
			}
		}
	}
	dying := tables.Delivery{State: tables.DeadLettering, ExpiresAt: end}
	if text := whatIsNext(dying, end.Add(tables.LifeMargin)); strings.HasPrefix(text, "Nothing") {
		t.Errorf("being dead-lettered, within the margin: %s", text)
	}
	if text := whatIsNext(dying, end.Add(tables.LifeMargin+time.Second)); !strings.HasPrefix(text, "Nothing") || !strings.Contains(text, "before the dead letter was written") {
		t.Errorf("being dead-lettered, past its life: %s", text)
	}
	for _, d := range []tables.Delivery{{State: tables.Delivered, ExpiresAt: end}, {State: tables.Pending}} {
		if text := whatIsNext(d, end.Add(time.Hour)); strings.Contains(text, "life ended") {
			t.Errorf("%s: %s", d.State, text)
		}
	}
}

// C94: a message without an outcome whose queue is empty, or deleted, is not said to come.
func TestAMessageThatSomebodyTookIsNotWaitedFor(t *testing.T) {
	h := newHarness(t)
	q, err := h.db.Queues().Queue("orders")
	if err != nil {
		t.Fatal(err)
	}
	sent, err := q.Send(t.Context(), []byte("x"), queue.SendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	record := func(state tables.State, attempts int, at time.Time) {
		t.Helper()
		d := tables.Delivery{
			MessageKey: tables.MessageKey{Queue: "orders", MessageID: sent.ID, Day: sent.InsertedAt}, WebhookID: "wh_1",
			State: state, Attempts: attempts, UpdatedAt: at, NextAt: at.Add(time.Second),
		}
		if err := h.db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{d}}); err != nil {
			t.Fatal(err)
		}
	}
	next := func() answer { return h.do(http.StatusOK, "GET", "/api/v1/messages/"+sent.ID, "") }
	old := time.Now().Add(-quietFor - time.Minute)

	record(tables.Pending, 2, old)
	if a := next(); strings.Contains(a.text("next", 0, "text"), "Nothing") {
		t.Errorf("while it is there: %s", a.body)
	}
	received, err := q.Receive(t.Context(), 1, time.Minute)
	if err != nil || len(received) != 1 {
		t.Fatal(received, err)
	}
	if a := next(); strings.Contains(a.text("next", 0, "text"), "Nothing") {
		t.Errorf("while somebody holds it: %s", a.body)
	}
	if err := q.Complete(t.Context(), received[0]); err != nil {
		t.Fatal(err)
	}
	a := next()
	if text := a.text("next", 0, "text"); !strings.HasPrefix(text, "Nothing: the message is not there any more, its queue is empty") ||
		!strings.Contains(text, "2 attempts") || a.get("next", 0, "next_at") != nil || a.text("next", 0, "state") != "lost" {
		t.Errorf("taken by somebody: %s", a.body)
	}
	record(tables.Pending, 2, time.Now())
	if a := next(); strings.Contains(a.text("next", 0, "text"), "Nothing") || a.text("next", 0, "state") != "pending" {
		t.Errorf("though it was at work a moment ago: %s", a.body)
	}

	gone := time.Now().Add(-time.Hour).UTC()
	h.view.queues["orders"] = status.Queue{GoneAt: gone}
	h.api.Queues = noQueues{h.api.Queues}
	record(tables.Held, 0, old)
	if text := next().text("next", 0, "text"); !strings.Contains(text, "somebody deleted it at about "+web.Stamp(gone)) || !strings.Contains(text, "never sent") {
		t.Errorf("deleted: %s", text)
	}
}

// C94: a message that somebody took from a queue on which others wait is not said to follow; one that waits is,
// and so is one of which a look can't tell.
func TestAMessageThatSomebodyTookFromAQueueInUseIsNotWaitedFor(t *testing.T) {
	h := newHarness(t)
	q, err := h.db.Queues().Queue("orders")
	if err != nil {
		t.Fatal(err)
	}
	send := func() queue.Sent {
		t.Helper()
		sent, err := q.Send(t.Context(), []byte("x"), queue.SendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return sent
	}
	old := time.Now().Add(-2*quietFor - time.Minute)
	text := func(sent queue.Sent, d tables.Delivery) string {
		t.Helper()
		d.MessageKey = tables.MessageKey{Queue: "orders", MessageID: sent.ID, Day: sent.InsertedAt}
		if d.UpdatedAt.IsZero() {
			d.UpdatedAt = old
		}
		if err := h.db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{d}}); err != nil {
			t.Fatal(err)
		}
		return h.do(http.StatusOK, "GET", "/api/v1/messages/"+sent.ID, "").text("next", 0, "text")
	}
	taken := send()
	received, err := q.Receive(t.Context(), 1, time.Minute)
	if err != nil || len(received) != 1 {
		t.Fatal(received, err)
	}
	if err := q.Complete(t.Context(), received[0]); err != nil {
		t.Fatal(err)
	}
	waits := send()
	const missed = "or another program has received it"
	for _, c := range []struct {
		name string
		sent queue.Sent
		d    tables.Delivery
		want bool
	}{
		{"taken", taken, tables.Delivery{WebhookID: "wh_1", State: tables.Pending, Attempts: 1, NextAt: old.Add(time.Second)}, true},
		{"taken before its first attempt", taken, tables.Delivery{State: tables.Published}, true},
		{"not due yet", taken, tables.Delivery{WebhookID: "wh_2", State: tables.Pending, NextAt: time.Now().Add(time.Hour)}, false},
		{"held until somebody acts", taken, tables.Delivery{WebhookID: "wh_2", State: tables.Held}, false},
		{"of a replay, which has an id of its own", taken, tables.Delivery{WebhookID: "wh_2", State: tables.Pending, Generation: 1}, false},
		{"it waits", waits, tables.Delivery{WebhookID: "wh_1", State: tables.Pending, NextAt: old}, false},
	} {
		if c.d.WebhookID == "wh_2" {
			c.sent = send() // by itself
			got, err := q.Receive(t.Context(), queue.MaxReceive, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range got {
				if m.ID == waits.ID {
					err = q.Abandon(t.Context(), m, 0)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := text(c.sent, c.d); strings.Contains(got, missed) != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	for range queue.MaxReceive {
		send()
	}
	another := tables.Delivery{WebhookID: "wh_3", State: tables.Pending, NextAt: old, UpdatedAt: old}
	if got := text(taken, another); strings.Contains(got, missed) {
		t.Errorf("a look does not show all: %s", got)
	}
}

// noQueues has no queue.
type noQueues struct{ queue.Service }

func (s noQueues) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return noQueue{q}, err
}

type noQueue struct{ queue.Queue }

func (noQueue) Depth(context.Context) (queue.Depth, error) {
	return queue.Depth{}, queue.ErrQueueNotFound
}

// A replay whose message somebody took says nothing of the dead letter that it was made of.
func TestAReplayThatSomebodyTookLeavesItsDeadLetterAsItIs(t *testing.T) {
	h := newHarness(t)
	old := time.Now().Add(-quietFor - time.Hour)
	letter := h.putDeadLetter(dead("m-7", "wh_1", "x"))
	for generation, state := range []tables.State{tables.DeadLettered, tables.Pending} {
		day := old.AddDate(0, 0, generation-1)
		d := tables.Delivery{
			MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m-7", Day: day}, WebhookID: "wh_1", Generation: generation, State: state, UpdatedAt: day,
		}
		if state == tables.DeadLettered {
			d.DeadLetterID = letter.ID
		}
		h.record(tables.Record{Deliveries: []tables.Delivery{d}})
	}
	a := h.do(http.StatusOK, "GET", "/api/v1/messages/m-7", "")
	got := map[float64][2]string{}
	for i := range a.get("next").([]any) {
		got[a.get("next", i, "generation").(float64)] = [2]string{a.text("next", i, "state"), a.text("next", i, "text")}
	}
	if letterSays := got[0]; letterSays[0] != "dead_lettered" || !strings.Contains(letterSays[1], letter.ID+"/replay sends it again") {
		t.Errorf("of the dead letter: %q", letterSays)
	}
	if replaySays := got[1]; replaySays[0] != "lost" || !strings.Contains(replaySays[1], "not there any more") {
		t.Errorf("of the replay: %q", replaySays)
	}
	if n := len(a.get("next").([]any)); n != 2 {
		t.Errorf("%d of two are next: %s", n, a.body)
	}
}

// C94: who wrote the dead letter and died before the record said so leaves a dead letter, and no lost message; nor one
// whose dead letter is still to come, when another one has deleted the message since.
func TestADeadLetterThatIsThereIsNoLostMessage(t *testing.T) {
	for name, tt := range map[string]struct {
		left          time.Duration // of the message's life
		without, says string        // the state without a dead letter, and what is said of it
	}{
		"its life is over": {-time.Hour, "lost", "before the dead letter was written"},
		"it could live":    {24 * time.Hour, "dead_lettering", "It is being dead-lettered"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			d := dead("m-8", "wh_1", "x")
			d.DeadLetteredAt = time.Now().Add(-2 * time.Hour).UTC().Truncate(time.Millisecond)
			d = h.putDeadLetter(d)
			h.record(tables.Record{Deliveries: []tables.Delivery{{
				MessageKey: d.MessageKey, WebhookID: "wh_1", State: tables.DeadLettering, Reason: d.Reason, DeadLetterID: d.ID,
				UpdatedAt: d.DeadLetteredAt, ExpiresAt: time.Now().Add(tt.left),
			}}})
			told := func(state, text string) {
				t.Helper()
				for _, path := range []string{"/api/v1/messages/m-8", "/api/v1/messages?queue=orders"} {
					list := "next"
					if strings.Contains(path, "?") {
						list = "data"
					}
					a := h.do(http.StatusOK, "GET", path, "")
					if a.text(list, 0, "state") != state || !strings.Contains(a.text(list, 0, "text"), text) {
						t.Errorf("%s: %s, want %s, %q", path, a.body, state, text)
					}
				}
			}
			told("dead_lettered", d.ID+"/replay sends it again")
			if err := h.db.DeleteDeadLetter(t.Context(), d.ID, ""); err != nil {
				t.Fatal(err)
			}
			told(tt.without, tt.says)
		})
	}
}
