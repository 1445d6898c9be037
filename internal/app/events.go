package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// The types of the events that tell an operator what happened.
const (
	eventDisabled   = "pushlease.webhook.disabled"
	eventFailing    = "pushlease.webhook.failing"
	eventRecovered  = "pushlease.webhook.recovered"
	eventDeadLetter = "pushlease.dead_letter"
)

const (
	// eventEvery is how often one kind of event is sent about one webhook; what comes between is
	// counted.
	eventEvery = time.Minute
	// eventTick is how often it is looked which events are due.
	eventTick = time.Second
	// eventTimeout bounds sending one, and all of the last ones.
	eventTimeout = 5 * time.Second
	// maxEventKinds bounds what is counted at a time; what is beyond is told in the log only.
	maxEventKinds = 10_000
)

// events sends what happens to webhooks and messages as messages, to the queue that the
// operator named. Nothing is told about that queue itself, so that no event makes another.
// What is under way when the process is killed is not told. A nil one does nothing; safe
// for concurrent use.
type events struct {
	queue    string
	queues   queue.Service
	encoding func(queue string) queue.Encoding
	instance string
	log      *slog.Logger

	mu      sync.Mutex
	pending map[eventKey]*event
	sentAt  map[eventKey]time.Time
	// states are how the webhooks fared when they were looked at last, and disabledAt when
	// they were disabled as it was told.
	states     map[string]bool
	disabledAt map[string]time.Time
}

type eventKey struct{ kind, queue, webhook string }

// event is what happened once or more. Its members are the data of the CloudEvents event.
type event struct {
	Queue     string    `json:"queue"`
	WebhookID string    `json:"webhook_id,omitempty"`
	Count     int       `json:"count"`
	Since     time.Time `json:"since"`
	// Reason is why, the last time.
	Reason string `json:"reason,omitempty"`
	// What follows is about the last dead letter.
	DeadLetterID string `json:"dead_letter_id,omitempty"`
	MessageID    string `json:"message_id,omitempty"`
	Attempts     int    `json:"attempts,omitempty"`
	LastStatus   int    `json:"last_status,omitempty"`
}

// add counts an event. It is sent when its kind may be.
func (e *events) add(kind string, ev event) {
	if e == nil {
		return
	}
	if ev.Queue == e.queue || ev.Queue == e.queue+"-poison" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	key := eventKey{kind, ev.Queue, ev.WebhookID}
	ev.Count, ev.Since = 1, time.Now().UTC()
	if before := e.pending[key]; before != nil {
		ev.Count, ev.Since = before.Count+1, before.Since
	} else if len(e.pending) >= maxEventKinds {
		e.log.Warn("an event is not sent: too many kinds wait", "type", kind, "queue", ev.Queue, "webhook", ev.WebhookID)
		return
	}
	e.pending[key] = &ev
}

func (e *events) deadLetter(d tables.DeadLetter) {
	e.add(eventDeadLetter, event{Queue: d.Queue, WebhookID: d.WebhookID, Reason: string(d.Reason),
		DeadLetterID: d.ID, MessageID: d.MessageID, Attempts: d.Attempts, LastStatus: d.LastStatus})
}

// changed is told of a registration that was written.
func (e *events) changed(r tables.Registration) {
	if e == nil {
		return
	}
	e.mu.Lock()
	again := r.Enabled || r.DisabledAt.Equal(e.disabledAt[r.ID]) || time.Since(r.DisabledAt) > eventEvery
	e.disabledAt[r.ID] = r.DisabledAt
	e.mu.Unlock()
	if !again {
		e.add(eventDisabled, event{Queue: r.Queue, WebhookID: r.ID, Reason: r.DisabledReason})
	}
}

// forget forgets the webhooks that are there no more: one of the same id is another one. Those whose row can't be read are there.
func (e *events) forget(all []tables.Registration, bad []tables.RowError) {
	there := make(map[string]bool, len(all))
	for _, r := range all {
		there[r.ID] = true
	}
	for _, r := range bad {
		there[r.ID] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.states, func(id string, _ bool) bool { return !there[id] })
}

// whyFailing is the reason that an event names.
var whyFailing = map[status.FlowState]string{status.NoToken: "NoToken"}

// look compares how webhooks fare with how they did. Those that are seen for the first time
// have nothing to be compared with.
func (e *events) look(all []tables.Registration, bad []tables.RowError, view func(id string) (status.Webhook, bool)) {
	if e == nil {
		return
	}
	e.forget(all, bad)
	for _, r := range all {
		s, ok := view(r.ID)
		if !ok || s.State == status.Disabled {
			continue
		}
		failing := s.State == status.Failing || s.State == status.Probing || s.State == status.NoToken
		e.mu.Lock()
		before, known := e.states[r.ID]
		e.states[r.ID] = failing
		e.mu.Unlock()
		switch {
		case !known || before == failing:
		case failing:
			e.add(eventFailing, event{Queue: r.Queue, WebhookID: r.ID, Reason: whyFailing[s.State]})
		default:
			e.add(eventRecovered, event{Queue: r.Queue, WebhookID: r.ID})
		}
	}
}

// run sends what is due, until ctx ends; then what is left, for as long as one may take. A round ends with
// the first event that can't be sent, since the others are for the next one; the last has none.
func (e *events) run(ctx context.Context, wake func(queue string)) {
	tick := time.NewTicker(eventTick)
	defer tick.Stop()
	for ctx.Err() == nil {
		for _, key := range e.due(time.Now(), false) {
			if ctx.Err() != nil || !e.send(context.WithoutCancel(ctx), key, wake) {
				break
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventTimeout)
	defer cancel()
	for _, key := range e.due(time.Now(), true) {
		if last.Err() != nil {
			break
		}
		e.send(last, key, wake)
	}
	if n := e.left(); n > 0 {
		e.log.Warn("events were not sent before the stop", "events_queue", e.queue, "events", n)
	}
}

// left counts what waits to be told.
func (e *events) left() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.pending {
		n += max(ev.Count, 1)
	}
	return n
}

// start sends events until stop, which waits for the last ones.
func (e *events) start(wake func(queue string)) (stop func()) {
	if e == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.run(ctx, wake)
	}()
	return func() { cancel(); <-ended }
}

// due are the events whose time has come. Dead letters mostly come in numbers, so they are
// counted for a while first.
func (e *events) due(now time.Time, all bool) []eventKey {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.sentAt, func(_ eventKey, at time.Time) bool { return now.Sub(at) >= eventEvery })
	var keys []eventKey
	for key, ev := range e.pending {
		_, lately := e.sentAt[key]
		early := key.kind == eventDeadLetter && now.Sub(ev.Since) < eventEvery
		if all || !lately && !early {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b eventKey) int { return strings.Compare(a.kind+a.queue+a.webhook, b.kind+b.queue+b.webhook) })
	return keys
}

// send sends one event, and reports whether it could. One that surely was not sent is tried again a
// minute later.
func (e *events) send(ctx context.Context, key eventKey, wake func(queue string)) bool {
	e.mu.Lock()
	ev := e.pending[key]
	delete(e.pending, key)
	e.sentAt[key] = time.Now()
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	text, err := e.text(key.kind, ev)
	if err == nil {
		var q queue.Queue
		if q, err = e.queues.Queue(e.queue); err == nil {
			_, err = q.Send(ctx, text, queue.SendOptions{})
		}
	}
	if err == nil {
		wake(e.queue)
		return true
	}
	e.log.Warn("an event could not be sent", "events_queue", e.queue, "type", key.kind, "queue", key.queue, "webhook", key.webhook, "error", err)
	if queue.Ambiguous(err) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if later := e.pending[key]; later != nil {
		later.Count, later.Since = later.Count+ev.Count, ev.Since
	} else {
		e.pending[key] = ev
	}
	return false
}

// text is the queue message: a CloudEvents event in JSON.
func (e *events) text(kind string, ev *event) ([]byte, error) {
	body, err := json.Marshal(struct {
		SpecVersion string    `json:"specversion"`
		ID          string    `json:"id"`
		Source      string    `json:"source"`
		Type        string    `json:"type"`
		Subject     string    `json:"subject,omitempty"`
		Time        time.Time `json:"time"`
		ContentType string    `json:"datacontenttype"`
		Data        *event    `json:"data"`
	}{"1.0", strings.ToLower(rand.Text()), "/pushlease/" + e.instance, kind, ev.WebhookID, time.Now().UTC(), "application/json", ev})
	if err != nil {
		return nil, err
	}
	return queue.Encode(e.encoding(e.queue), body, "")
}

// told is a store that tells of what is written to it.
type told struct {
	tables.Store
	events       *events
	view         func(id string) (status.Webhook, bool)
	deadLettered func(tables.DeadLetter)
	letters      *toldLetters
}

const (
	// lettersTold is for how long it is remembered that a dead letter was told: while its copy can't be put on the poison
	// queue its row is written again every ten minutes at most.
	lettersTold = time.Hour
	// maxLettersTold bounds how many are remembered; where there are more all are forgotten, and some are told twice.
	maxLettersTold = 20_000
)

// toldLetters are the dead letters that were told lately. Safe for concurrent use.
type toldLetters struct {
	mu sync.Mutex
	at map[string]time.Time
}

// first reports whether the dead letter is to be told, and remembers that it is.
func (l *toldLetters) first(id string) bool {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	last, there := l.at[id]
	if len(l.at) >= maxLettersTold {
		maps.DeleteFunc(l.at, func(_ string, at time.Time) bool { return now.Sub(at) >= lettersTold })
	}
	if l.at == nil || len(l.at) >= maxLettersTold {
		l.at = map[string]time.Time{}
	}
	l.at[id] = now
	return !there || now.Sub(last) >= lettersTold
}

func newTold(s tables.Store, e *events, view func(id string) (status.Webhook, bool), deadLettered func(tables.DeadLetter)) told {
	return told{Store: s, events: e, view: view, deadLettered: deadLettered, letters: &toldLetters{}}
}

func (t told) PutDeadLetter(ctx context.Context, d tables.DeadLetter) (tables.DeadLetter, error) {
	saved, err := t.Store.PutDeadLetter(ctx, d)
	if err == nil && t.letters.first(saved.ID) {
		t.events.deadLetter(saved)
		t.deadLettered(saved)
	}
	return saved, err
}

func (t told) PutWebhook(ctx context.Context, r tables.Registration) (tables.Registration, error) {
	saved, err := t.Store.PutWebhook(ctx, r)
	if err == nil {
		t.events.changed(saved)
	}
	return saved, err
}

// ListWebhooks is asked for at every refresh of the registrations, which is often enough to
// see how they fare.
func (t told) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	all, bad, err := t.Store.ListWebhooks(ctx)
	if err == nil {
		t.events.look(all, bad, t.view)
	}
	return all, bad, err
}

// newEvents is nil where no queue for events is named.
func newEvents(name, instance string, queues queue.Service, encoding func(string) queue.Encoding, log *slog.Logger) *events {
	if name == "" {
		return nil
	}
	return &events{
		queue: name, queues: queues, encoding: encoding, instance: instance, log: log,
		pending: map[eventKey]*event{}, sentAt: map[eventKey]time.Time{}, states: map[string]bool{}, disabledAt: map[string]time.Time{},
	}
}
