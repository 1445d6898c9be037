package api

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// messageView is what happened to a message and what happens next.
type messageView struct {
	MessageID string     `json:"message_id"`
	Queue     string     `json:"queue"`
	Size      int        `json:"size"`
	BodyHash  string     `json:"body_hash,omitempty"`
	Encoding  string     `json:"encoding,omitempty"`
	ExpiresAt time.Time  `json:"expires_at,omitzero"`
	Events    []event    `json:"events"`
	Next      []nextView `json:"next"`
}

// event is one thing that happened.
type event struct {
	At           time.Time    `json:"at"`
	Kind         eventKind    `json:"event"`
	WebhookID    string       `json:"webhook_id,omitempty"`
	Generation   int          `json:"generation"`
	Text         string       `json:"text"`
	Attempt      *attemptView `json:"attempt,omitempty"`
	DeadLetterID string       `json:"dead_letter_id,omitempty"`
	SameEventAs  string       `json:"same_event_as,omitempty"`
}

// eventKind names what happened.
type eventKind string

// The kinds, in the order in which they happen at one moment.
const (
	eventPublished    eventKind = "published"
	eventAttempt      eventKind = "attempt"
	eventDelivered    eventKind = "delivered"
	eventUnmatched    eventKind = "unmatched"
	eventDuplicate    eventKind = "duplicate"
	eventWithdrawn    eventKind = "withdrawn"
	eventHeld         eventKind = "held"
	eventDeadLettered eventKind = "dead_lettered"
	eventReplayed     eventKind = "replayed"
)

var eventOrder = map[eventKind]int{
	eventPublished: 0, eventAttempt: 1, eventDelivered: 2, eventUnmatched: 2, eventDuplicate: 2, eventWithdrawn: 2, eventHeld: 3, eventDeadLettered: 4, eventReplayed: 5,
}

// nextView is where the message stands with one webhook; with an empty webhook id,
// as a whole.
type nextView struct {
	WebhookID    string        `json:"webhook_id,omitempty"`
	State        tables.State  `json:"state"`
	Reason       policy.Reason `json:"reason,omitempty"`
	Generation   int           `json:"generation"`
	Attempts     int           `json:"attempts"`
	Charged      int           `json:"charged"`
	Waits        int           `json:"waits"`
	NextAt       time.Time     `json:"next_at,omitzero"`
	DeadLetterID string        `json:"dead_letter_id,omitempty"`
	// Damaged names the columns that another program has changed so that they can't be read.
	Damaged string `json:"damaged,omitempty"`
	// SameEventAs is the message that had the event before.
	SameEventAs string `json:"same_event_as,omitempty"`
	Text        string `json:"text"`
}

// getMessage shows the timeline of one message.
func (a *API) getMessage(w http.ResponseWriter, r *http.Request) error {
	q := web.ReadQuery(r, "queue")
	name, id := q.Queue(), web.PathParam(r, "id")
	if err := q.Err(); err != nil {
		return err
	}
	if len(id) > web.MaxIDBytes {
		return noMessage
	}
	deliveries, attempts, err := a.History.Message(r.Context(), name, id)
	known := !errors.Is(err, tables.ErrNotFound)
	if known && err != nil {
		return web.StorageFault("read the message's records", err)
	}
	var dead []tables.DeadLetter
	switch {
	case !known:
		dead, err = a.searchDeadLetters(r.Context(), name, id)
	case slices.ContainsFunc(deliveries, wasDeadLettered):
		dead, err = a.deadLettersOf(r.Context(), deliveries)
	}
	if err != nil {
		return err
	}
	view := newMessageView(id, deliveries, attempts, dead, time.Now())
	gone, err := a.takenAway(r.Context(), deliveries, time.Now())
	if err != nil {
		return err
	}
	for i := range view.Next {
		if away, ok := gone[round{view.Next[i].WebhookID, view.Next[i].Generation}]; ok {
			view.Next[i].Text, view.Next[i].NextAt = away.text, time.Time{}
			if away.lost {
				view.Next[i].State = lostState
			}
			continue
		}
		a.tellWhatKeeps(&view.Next[i])
		a.tellThatNobodyTakes(r.Context(), view.Queue, &view.Next[i], view.ExpiresAt)
	}
	return web.WriteJSON(w, http.StatusOK, view)
}

// tellWhatKeeps adds that a delivery's webhook can't be sent to now, as far as this
// instance knows: its time alone does not say that.
func (a *API) tellWhatKeeps(n *nextView) {
	if n.State != tables.Pending && n.State != tables.Held {
		return
	}
	s, ok := a.Dispatcher.Webhook(n.WebhookID)
	if !ok {
		return
	}
	switch s.State {
	case status.NoToken:
		n.Text += " No token can be had to show its webhook: " + s.Why + "."
	case status.Paused:
		n.Text += " Its webhook has asked not to be sent anything until " + web.Stamp(s.Until) + "."
	case status.Failing:
		n.Text += " Its webhook mostly fails: nothing but a probe is sent to it, the next one at " + web.Stamp(s.Until) + "."
	case status.Probing:
		n.Text += " Its webhook mostly failed: nothing but a probe is sent to it, and that is due or under way."
	}
}

var noMessage = web.Missing("Nothing is recorded about that message: it was never received or published here, its records are older than the retention, or it is on a queue without a webhook.",
	"id", "take the message_id from the answer to its publish, from GET /api/v1/attempts or from GET /api/v1/dead-letters; leave the parameter queue out to look everywhere")

func newMessageView(id string, deliveries []tables.Delivery, attempts []tables.Attempt, dead []tables.DeadLetter, now time.Time) messageView {
	v := messageView{MessageID: id, Events: []event{}, Next: []nextView{}}
	for _, d := range dead {
		v.Queue, v.Size, v.BodyHash = d.Queue, d.Size, d.BodyHash
		v.Events = append(v.Events, deadLetterEvents(d)...)
	}
	for _, t := range attempts {
		v.Queue = t.Queue
		v.Events = append(v.Events, attemptEvent(t))
	}
	for _, d := range deliveries {
		v.Queue, v.Size, v.BodyHash, v.Encoding = d.Queue, d.Size, d.BodyHash, d.Encoding
		if !d.ExpiresAt.IsZero() {
			v.ExpiresAt = web.UTC(d.ExpiresAt)
		}
		if d.WebhookID == "" && d.Generation == 0 && d.State != tables.Published {
			// What came of the message as a whole took the place of the record of its publish.
			v.Events = append(v.Events, event{At: web.UTC(d.Day), Kind: eventPublished, Text: "Put on the queue."})
		}
		if e, ok := deliveryEvent(d, dead); ok {
			if e.Kind == eventDelivered {
				e.Text += takenAgain(d, attempts)
			}
			v.Events = append(v.Events, e)
		}
		if !d.Overtaken(deliveries) {
			next := newNextView(d, dead, now)
			if next.State == tables.DeadLettered {
				next.Text = letterText(d.DeadLetterID, dead) + damageText(d.Damage)
			}
			v.Next = append(v.Next, next)
		}
	}
	slices.SortStableFunc(v.Events, func(x, y event) int {
		return cmp.Or(x.At.Compare(y.At), cmp.Compare(eventOrder[x.Kind], eventOrder[y.Kind]))
	})
	return v
}

func attemptEvent(t tables.Attempt) event {
	view := newAttemptView(t)
	outcome := "no answer (" + string(t.ErrorClass) + ")"
	switch {
	case t.Status != 0:
		outcome = "answered " + strconv.Itoa(t.Status)
	case t.ErrorClass == "" && t.Damage.Columns != "":
		outcome = "it can't be read what came of it,"
	}
	text := fmt.Sprintf("Attempt %d: %s after %s.", t.Number, outcome, t.Duration.Round(time.Millisecond))
	if t.Explanation != "" {
		text += " " + t.Explanation
	}
	text += damageText(t.Damage)
	return event{At: web.UTC(t.StartedAt), Kind: eventAttempt, WebhookID: t.WebhookID, Generation: t.Generation, Text: text, Attempt: &view}
}

// deliveryEvent is the event of reaching a state that is not told by an attempt or a
// dead letter.
func deliveryEvent(d tables.Delivery, dead []tables.DeadLetter) (event, bool) {
	e := event{At: web.UTC(d.UpdatedAt), WebhookID: d.WebhookID, Generation: d.Generation}
	switch d.State {
	case tables.Published:
		e.Kind, e.Text = eventPublished, "Published through the API."
		if of := d.CopyOf(); of != "" {
			e.DeadLetterID, e.Text = of, "Put on the queue as the copy of dead letter "+of+"."
		}
	case tables.Delivered:
		e.Kind, e.Text = eventDelivered, "The webhook has taken the message."
	case tables.Unmatched:
		e.Kind, e.Text = eventUnmatched, "No webhook's filter takes the message: it was deleted without a POST."
	case tables.Duplicate:
		if of := d.CopyOf(); of != "" {
			e.Kind, e.DeadLetterID, e.Text = eventDuplicate, of, "It is the copy of dead letter "+of+", which was replayed or deleted: it was removed without a POST."
			break
		}
		e.Kind, e.SameEventAs, e.Text = eventDuplicate, d.SameEventAs, "The same event was delivered with "+otherMessage(d)+": this one was deleted without a POST."
	case tables.Withdrawn:
		e.Kind, e.Text = eventWithdrawn, "The webhook was deleted before it got the message; the others settle it."
	case tables.Held:
		e.Kind, e.Text = eventHeld, fmt.Sprintf("Held (%s).", d.Reason)
	case tables.DeadLettered:
		if of := d.CopyOf(); of != "" {
			e.Kind, e.DeadLetterID, e.Text = eventDeadLettered, of, fmt.Sprintf("Given up (%s): it is the copy of dead letter %s, and no other one was made.", d.Reason, of)
			break
		}
		if isAmong(dead, d.DeadLetterID) {
			return event{}, false
		}
		e.Kind, e.DeadLetterID = eventDeadLettered, d.DeadLetterID
		e.Text = fmt.Sprintf("Dead-lettered (%s); the dead letter has since been deleted or cleaned up.", d.Reason)
	default:
		return event{}, false
	}
	return e, true
}

// takenAgain says who POSTed a message that the webhook took more than once; empty when it did not. An
// attempt that was answered, or written, after its lease says so.
func takenAgain(d tables.Delivery, attempts []tables.Attempt) string {
	var takes []string
	for _, t := range attempts {
		taken := t.Status/100 == 2 && (t.Action == policy.Complete || t.Action == policy.NoVerdict) // it decided, or came too late to
		if taken && t.WebhookID == d.WebhookID && t.Generation == d.Generation {
			takes = append(takes, fmt.Sprintf("%s, whose answer came at %s", cmp.Or(t.Instance, "an instance"), web.Stamp(t.StartedAt.Add(t.Duration))))
		}
	}
	if len(takes) < 2 {
		return ""
	}
	return fmt.Sprintf(" It was delivered %d times: by %s. As a rule the attempt of one says why: its lease had ended while its POST was under way, or it was written late, so that the other did not know of it.", len(takes), strings.Join(takes, ", and by "))
}

func deadLetterEvents(d tables.DeadLetter) []event {
	text := fmt.Sprintf("Dead-lettered (%s).", d.Reason)
	if d.Description != "" {
		text += " " + d.Description
	}
	events := []event{{At: web.UTC(d.DeadLetteredAt), Kind: eventDeadLettered, WebhookID: d.WebhookID, Generation: d.Generation, Text: text, DeadLetterID: d.ID}}
	if d.Replays > 0 {
		text := "A replay was asked for."
		if d.Replays > 1 {
			text = fmt.Sprintf("A replay was asked for, the %d. time.", d.Replays)
		}
		events = append(events, event{At: web.UTC(d.ReplayedAt), Kind: eventReplayed, WebhookID: d.WebhookID, Generation: d.Generation + d.Replays, Text: text, DeadLetterID: d.ID})
	}
	return events
}

func newNextView(d tables.Delivery, dead []tables.DeadLetter, now time.Time) nextView {
	if d.State == tables.DeadLettering && isAmong(dead, d.DeadLetterID) {
		d.State = tables.DeadLettered // only that is not on record: whoever made the dead letter may have died
	}
	v := nextView{
		WebhookID: d.WebhookID, State: d.State, Reason: d.Reason, Generation: d.Generation, Attempts: d.Attempts,
		Charged: d.Charged, Waits: d.Waits, NextAt: web.UTC(d.NextAt), DeadLetterID: d.DeadLetterID, SameEventAs: d.SameEventAs,
		Damaged: d.Damage.Columns, Text: whatIsNext(d, now),
	}
	switch {
	case d.Damage.Undecided:
		v.State, v.Reason = damagedState, ""
	case d.Over(now):
		v.State, v.NextAt = lostState, time.Time{}
	}
	return v
}

// States that are shown and not stored.
const (
	// damagedState is that of a delivery of which can't be read how far it has come.
	damagedState tables.State = "damaged"
	// lostState is that of a message which is surely not on its queue any more, and has no outcome here.
	lostState tables.State = "lost"
)

// damageText says what of a row can't be read; empty where all can.
func damageText(d tables.Damage) string {
	if d.Columns == "" {
		return ""
	}
	return " Another program has changed its row in storage: not to be read is " + d.Columns + "."
}

// whatIsNext says in a sentence what happens next and when.
func whatIsNext(d tables.Delivery, now time.Time) string {
	if d.Damage.Undecided {
		return "Not known: whether the webhook has the message can't be told." + damageText(d.Damage) +
			" A process that remembers the message goes on with it as it was. Another one looks at it again every 30 s or so, and sends it in doubt in the last two minutes of its life only. Mend the row, or delete it where the message may be sent again."
	}
	return stateText(d, now) + damageText(d.Damage)
}

func stateText(d tables.Delivery, now time.Time) string {
	if d.Over(now) {
		return lostText(d)
	}
	switch d.State {
	case tables.Published:
		if d.NextAt.After(now) {
			return "Delayed by its publisher: it can be received from " + web.Stamp(d.NextAt) + "."
		}
		return "On the queue: it is received as soon as the queue's poller has a free slot. A queue is not polled while none of its webhooks is enabled and can be sent to: GET /api/v1/webhooks?queue=" + d.Queue + " says so."
	case tables.Delivered:
		return "Nothing: it is delivered."
	case tables.Unmatched:
		return "Nothing: no webhook's filter takes it. POST /api/v1/queues/" + d.Queue + "/match says what a message like it would meet now."
	case tables.Duplicate:
		if of := d.CopyOf(); of != "" {
			return "Nothing: it is the copy of dead letter " + of + ", which was replayed or deleted."
		}
		return "Nothing: its event was delivered with " + otherMessage(d) + "."
	case tables.Withdrawn:
		return "Nothing: its webhook was deleted."
	case tables.Held:
		return heldText(d)
	case tables.DeadLettering:
		return "It is being dead-lettered: its dead letter is written with the next receive at the latest."
	case tables.DeadLettered:
		return "Nothing by itself. While its dead letter waits, POST /api/v1/dead-letters/" + d.DeadLetterID + "/replay sends it again."
	}
	attempt := fmt.Sprintf("Attempt %d", d.Attempts+1)
	switch {
	case d.NextAt.IsZero():
		return attempt + " is under way or follows at once."
	case d.NextAt.After(now):
		return attempt + " is due at " + web.Stamp(d.NextAt) + "."
	}
	return attempt + " has been due since " + web.Stamp(d.NextAt) + " and follows when the message is received next."
}

// letterText says what can come of what was given up, by the message's dead letters.
func letterText(id string, dead []tables.DeadLetter) string {
	i := slices.IndexFunc(dead, func(l tables.DeadLetter) bool { return l.ID == id })
	if i < 0 {
		return "Nothing: its dead letter was deleted or cleaned up."
	}
	switch l := &dead[i]; l.Status {
	case tables.Replayed:
		return fmt.Sprintf("Nothing: a replay was asked for at %s, and has ended; what came of it is told under generation %d.", web.Stamp(l.ReplayedAt), l.Generation+l.Replays)
	case tables.Replaying:
		return fmt.Sprintf("Its replay is under way, which was asked for at %s: see generation %d.", web.Stamp(l.ReplayedAt), l.Generation+l.Replays)
	}
	return "Nothing by itself. POST /api/v1/dead-letters/" + id + "/replay sends it again."
}

// lostText says what can be known of a message that is surely not on its queue any more.
func lostText(d tables.Delivery) string {
	end := "Nothing: the message's life ended at " + web.Stamp(d.ExpiresAt)
	switch {
	case d.State == tables.DeadLettering:
		return end + fmt.Sprintf(", when it was being dead-lettered (%s): whoever did that died before the dead letter was written.", d.Reason)
	case d.Attempts == 0:
		return end + ", and it was never sent. It expired unseen, or someone else took it from the queue or cleared that."
	}
	return end + fmt.Sprintf(", after %d attempts without an outcome. It expired, or someone else took it from the queue or cleared that.", d.Attempts)
}

// otherMessage names the message that had the event.
func otherMessage(d tables.Delivery) string {
	if d.SameEventAs == "" {
		return "this message before"
	}
	return "message " + d.SameEventAs
}

func heldText(d tables.Delivery) string {
	until := ""
	if !d.ExpiresAt.IsZero() {
		until = " It is dead-lettered before the message expires at " + web.Stamp(d.ExpiresAt) + "."
	}
	switch d.Reason {
	case policy.WebhookDisabled:
		return "Held until the webhook is enabled: POST /api/v1/webhooks/" + d.WebhookID + "/enable releases it, as a rule within seconds, and within 10 minutes at the latest." + until
	case policy.WebhookDeleted:
		return "Held because its webhook is not registered any more." + until
	case policy.EventInWork:
		if d.SameEventAs == "" {
			return "Held because another program has changed the row that says whether its event was delivered; the log names that row: delete it. Looked at again at " + web.Stamp(d.NextAt) + "." + until
		}
		return "Held while the same event is being delivered with " + otherMessage(d) + "; looked at again at " + web.Stamp(d.NextAt) + "." + until
	case policy.NoWebhook:
		return "Held because no webhook of the queue takes it: register one, or enable one." + until
	case policy.Undecodable:
		return "Held because a newer version of pushlease wrote it: update every instance. Looked at again at " + web.Stamp(d.NextAt) + "." + until
	case policy.WebhookBusy, policy.WebhookPaused, policy.WebhookFailing, policy.NoToken:
		return "Held because the webhook can't be sent to; GET /api/v1/webhooks/" + d.WebhookID + " says why. Looked at again at " + web.Stamp(d.NextAt) + "." + until
	}
	return "Held until an operator acts." + until
}
