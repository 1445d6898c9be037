package app

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

// teller is a store that tells, on a real file.
type teller struct {
	*testing.T
	tables.Store
	events *events
	db     *sqlite.DB
	states map[string]status.FlowState
}

func newTeller(t *testing.T) *teller {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(bubble.Folder(t), "e.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	x := &teller{T: t, db: db, states: map[string]status.FlowState{}}
	x.events = newEvents("told", "one", db.Queues(), func(string) queue.Encoding { return queue.EncodingAuto }, slog.New(slog.DiscardHandler))
	x.Store = told{Store: db, events: x.events, letters: &toldLetters{}, deadLettered: func(tables.DeadLetter) {}, view: func(id string) (status.Webhook, bool) {
		s, ok := x.states[id]
		return status.Webhook{State: s}, ok
	}}
	return x
}

// run sends what is due for so long.
func (x *teller) run(d time.Duration) {
	for range int(d / eventTick) {
		time.Sleep(eventTick)
		for _, key := range x.events.due(time.Now(), false) {
			if !x.events.send(x.Context(), key, func(string) {}) {
				break
			}
		}
	}
}

type toldEvent struct {
	SpecVersion, ID, Source, Type, Subject string
	Data                                   event
}

// all takes what was sent from the queue.
func (x *teller) all() (list []toldEvent) {
	x.Helper()
	q, err := x.db.Queues().Queue("told")
	if err != nil {
		x.Fatal(err)
	}
	got, err := q.Receive(x.Context(), queue.MaxReceive, time.Minute)
	if err != nil && !errors.Is(err, queue.ErrQueueNotFound) {
		x.Fatal(err)
	}
	for _, m := range got {
		body, err := queue.Decode(queue.EncodingAuto, m.Text)
		if err != nil {
			x.Fatal(err)
		}
		var e toldEvent
		if err := json.Unmarshal(body.Bytes, &e); err != nil || e.SpecVersion != "1.0" || e.ID == "" || e.Source != "/pushlease/one" {
			x.Fatalf("%v: %s", err, body.Bytes)
		}
		if content.Read(body.Bytes, "").Event == nil {
			x.Fatalf("no event: %s", body.Bytes)
		}
		if err := q.Complete(x.Context(), m); err != nil {
			x.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

func (x *teller) put(r tables.Registration) tables.Registration {
	x.Helper()
	saved, err := x.PutWebhook(x.Context(), r)
	if err != nil {
		x.Fatal(err)
	}
	return saved
}

func TestADisabledWebhookIsToldOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newTeller(t)
		r := x.put(tables.Registration{Webhook: webhook.Webhook{ID: "w", Queue: "orders"}, Enabled: true})
		r.Enabled, r.DisabledReason, r.DisabledAt = false, "gone", time.Now().UTC()
		r = x.put(r)
		x.run(2 * time.Second)
		r.Name = "changed since"
		r = x.put(r)
		x.run(2 * time.Minute)
		r.Name = "and again, long after a start"
		x.events.disabledAt = map[string]time.Time{}
		r = x.put(r)
		x.run(2 * time.Minute)
		list := x.all()
		if len(list) != 1 || list[0].Type != eventDisabled || list[0].Subject != "w" || list[0].Data.Reason != "gone" || list[0].Data.Queue != "orders" || list[0].Data.Count != 1 {
			t.Errorf("told %+v", list)
		}
		r.Enabled, r.DisabledReason, r.DisabledAt = true, "", time.Time{}
		r = x.put(r)
		r.Enabled, r.DisabledReason, r.DisabledAt = false, "operator", time.Now().UTC()
		x.put(r)
		x.run(2 * time.Second)
		if list = x.all(); len(list) != 1 || list[0].Data.Reason != "operator" {
			t.Errorf("disabled anew: told %+v", list)
		}
	})
}

func TestManyDeadLettersAreOneEventAMinute(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newTeller(t)
		put := func(n int, queueName string) {
			for range n {
				key := tables.MessageKey{Queue: queueName, MessageID: time.Now().String(), Day: time.Now()}
				d := tables.DeadLetter{ID: tables.DeadLetterID(key, "w", 0, time.Now()), MessageKey: key, WebhookID: "w", Status: tables.Waiting,
					Reason: policy.NonRetryableError, Attempts: 2, LastStatus: 400, Text: []byte("PAYLOAD"), DeadLetteredAt: time.Now()}
				if _, err := x.PutDeadLetter(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		for range 25 {
			put(20, "orders")
			x.run(eventTick)
		}
		x.run(eventEvery)
		list := x.all()
		if len(list) != 1 || list[0].Type != eventDeadLetter || list[0].Data.Count != 500 || list[0].Data.Reason != "NonRetryableError" ||
			list[0].Data.DeadLetterID == "" || list[0].Data.MessageID == "" || list[0].Data.Attempts != 2 || list[0].Data.LastStatus != 400 {
			t.Fatalf("told %+v", list)
		}
		put(3, "orders")
		x.run(2 * eventEvery)
		if list = x.all(); len(list) != 1 || list[0].Data.Count != 3 {
			t.Errorf("in the next minute: told %+v", list)
		}
		put(3, "told") // an event that was given up
		put(3, "told-poison")
		x.run(3 * eventEvery)
		if list = x.all(); len(list) != 0 {
			t.Errorf("events about events: %+v", list)
		}
	})
}

func TestAWebhookThatFailsAndRecoversIsTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newTeller(t)
		x.put(tables.Registration{Webhook: webhook.Webhook{ID: "w", Queue: "orders"}, Enabled: true})
		for _, step := range []struct {
			state status.FlowState
			told  string
		}{
			{status.Healthy, ""}, {status.Busy, ""}, {status.Failing, eventFailing}, {status.Probing, ""}, {status.Failing, ""},
			{status.Limited, eventRecovered}, {status.Paused, ""}, {status.Healthy, ""}, {status.NoToken, eventFailing + "NoToken"},
			{"deleted", ""}, {status.Healthy, ""}, // another one of its id has nothing to recover from
		} {
			if x.states["w"] = step.state; step.state == "deleted" {
				current, err := x.GetWebhook(t.Context(), "w")
				if err = errors.Join(err, x.DeleteWebhook(t.Context(), "w", current.ETag)); err != nil {
					t.Fatal(err)
				}
			} else if _, err := x.GetWebhook(t.Context(), "w"); err != nil {
				x.put(tables.Registration{Webhook: webhook.Webhook{ID: "w", Queue: "orders"}, Enabled: true})
			}
			if _, _, err := x.ListWebhooks(t.Context()); err != nil {
				t.Fatal(err)
			}
			x.run(2 * eventEvery)
			list, kinds := x.all(), ""
			for _, e := range list {
				kinds += e.Type + e.Data.Reason
			}
			if kinds != step.told {
				t.Errorf("%s: told %q, want %q", step.state, kinds, step.told)
			}
		}
	})
}

// A dead letter whose copy can't be put on the poison queue is written again with each receive of its message.
func TestADeadLetterThatIsWrittenAgainIsToldOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x, stream := newTeller(t), 0
		s := x.Store.(told)
		s.deadLettered = func(tables.DeadLetter) { stream++ }
		letter := func(id string) tables.DeadLetter {
			key := tables.MessageKey{Queue: "orders", MessageID: id, Day: time.Now()}
			return tables.DeadLetter{ID: tables.DeadLetterID(key, "w", 0, time.Now()), MessageKey: key, WebhookID: "w", Status: tables.Waiting, Text: []byte("x"), DeadLetteredAt: time.Now()}
		}
		one := letter("m1")
		for range 20 {
			if _, err := s.PutDeadLetter(t.Context(), one); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
		}
		if _, err := s.PutDeadLetter(t.Context(), letter("m2")); err != nil {
			t.Fatal(err)
		}
		x.run(2 * eventEvery)
		if list := x.all(); len(list) != 1 || list[0].Data.Count != 2 || stream != 2 {
			t.Errorf("told %+v, and %d times to the stream", list, stream)
		}
	})
}

// Storage that can't be written keeps an event for later, and a stop sends what is left.
func TestEventsAreKeptUntilTheyCanBeSent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newTeller(t)
		one := tables.DeadLetter{MessageKey: tables.MessageKey{Queue: "orders"}, WebhookID: "w"}
		meanwhile := func() { x.events.deadLetter(one) }
		x.events.queues = refusing{x.db.Queues(), &meanwhile}
		x.events.deadLetter(one)
		x.run(2 * eventEvery) // one more comes while the first is being sent
		if _, known := x.events.sentAt[eventKey{eventDeadLetter, "orders", "w"}]; !known {
			t.Fatal("nothing was tried")
		}
		x.events.queues = x.db.Queues()
		x.events.start(func(string) {})()
		if list := x.all(); len(list) != 1 || list[0].Data.Count != 2 {
			t.Errorf("told %+v", list)
		}
	})
}

// A queue that does not answer holds up a stop by the event that is being sent and one more, however
// many there are.
func TestEventsHoldUpAStopForTenSecondsAtMost(t *testing.T) {
	for _, began := range []time.Duration{0, eventTick + time.Second} { // with a round under way, and without
		bubble.Test(t, func(t *testing.T) {
			x := newTeller(t)
			var log strings.Builder
			x.events.log = slog.New(slog.NewTextHandler(&log, nil))
			x.events.queues = hanging{x.db.Queues()}
			for i := range 50 {
				x.events.add(eventFailing, event{Queue: "orders", WebhookID: strconv.Itoa(i)})
			}
			stop := x.events.start(func(string) {})
			time.Sleep(began)
			at := time.Now()
			stop()
			if took := time.Since(at); took > 2*eventTimeout {
				t.Errorf("stopped after %s", took)
			}
			if !strings.Contains(log.String(), "events were not sent before the stop") {
				t.Errorf("nothing is said of what was not sent: %s", log.String())
			}
		})
	}
}

// One refusal at the stop costs the event that it meets a try, and no other one its chance.
func TestARefusalAtTheStopDropsNoOtherEvent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newTeller(t)
		const events = 20
		for i := range events {
			x.events.add(eventFailing, event{Queue: "orders", WebhookID: strconv.Itoa(i)})
		}
		x.events.queues = &refusingOnce{Service: x.db.Queues()}
		x.events.start(func(string) {})()
		if list := x.all(); len(list) < events-1 {
			t.Errorf("%d of %d were told, with one refusal", len(list), events)
		}
	})
}

// refusingOnce refuses the first message.
type refusingOnce struct {
	queue.Service
	refused bool
}

func (r *refusingOnce) Queue(name string) (queue.Queue, error) {
	if !r.refused {
		r.refused = true
		return nil, queue.ErrBusy
	}
	return r.Service.Queue(name)
}

// hanging answers nothing until it is asked to give up.
type hanging struct{ queue.Service }

func (h hanging) Queue(name string) (queue.Queue, error) {
	q, err := h.Service.Queue(name)
	return hangingQueue{q}, err
}

type hangingQueue struct{ queue.Queue }

func (hangingQueue) Send(ctx context.Context, _ []byte, _ queue.SendOptions) (queue.Sent, error) {
	<-ctx.Done()
	return queue.Sent{}, ctx.Err()
}

// refusing takes no message; meanwhile happens once, while one is sent.
type refusing struct {
	queue.Service
	meanwhile *func()
}

func (r refusing) Queue(string) (queue.Queue, error) {
	if f := *r.meanwhile; f != nil {
		*r.meanwhile = nil
		f()
	}
	return nil, queue.ErrBusy
}
