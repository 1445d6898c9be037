package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook/content"
)

// Bounds of a batch.
const (
	maxBatchEvents = 100
	maxBatchBytes  = 1 << 20
	// batchTime is how long events are sent for, well within the time that the server
	// has for an answer.
	batchTime = time.Minute
)

// outcome is what became of one event of a batch.
type outcome string

const (
	outcomeSent    outcome = "sent"
	outcomeUnknown outcome = "unknown" // it may or may not be in the queue
	outcomeNotSent outcome = "not_sent"
)

// eventResult says what became of one event. What storage said is there for those that
// were sent.
type eventResult struct {
	Index      int       `json:"index"`
	ID         string    `json:"id"`
	Source     string    `json:"source"`
	Outcome    outcome   `json:"outcome"`
	MessageID  string    `json:"message_id,omitempty"`
	InsertedAt time.Time `json:"inserted_at,omitzero"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	VisibleAt  time.Time `json:"visible_at,omitzero"`
}

var keyWithBatch = web.NewProblem(web.IdempotencyKeyUnsupported,
	"Each event of a batch is a message of its own.",
	web.Wrong(web.IdempotencyHeader, "is not taken with a batch", "leave it out: events are told apart by their source and id on a queue with the setting dedup: event-id; or publish them one by one, each with its own key"))

// publishBatch sends each event of a batch as a message of its own, in order, but none
// when something is wrong with any. wrong is what is known to be already.
func (a *Publisher) publishBatch(w http.ResponseWriter, r *http.Request, p publication, wrong error) error {
	ps, results, err := a.readBatch(w, r, p)
	if err = web.Together(wrong, err); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), batchTime)
	defer cancel()
	sent, err := a.sendAll(ctx, ps, results)
	a.finishBatch(r, ps, sent)
	if err != nil {
		problem := sendProblem(err)
		problem.Detail = batchDetail(len(sent), len(ps), err)
		problem.Events = results
		return problem
	}
	return web.WriteJSON(w, http.StatusAccepted, publishedView{Queue: p.queue, Events: results, Warnings: a.Warnings(r.Context(), p.queue)})
}

func batchDetail(sent, all int, err error) string {
	rest := "Send those again that are not_sent; one that is unknown may be in the queue already."
	if !queue.Ambiguous(err) {
		rest = "Send those again that are not_sent."
	}
	return fmt.Sprintf("%d of %d events were sent before a fault; events says which. %s", sent, all, rest)
}

// sendAll sends until one fails, and notes in results what became of each. It returns
// what storage said about those that were sent.
func (a *Publisher) sendAll(ctx context.Context, ps []publication, results []eventResult) ([]queue.Sent, error) {
	var all []queue.Sent
	for i, p := range ps {
		sent, _, err := a.send(ctx, p)
		if err != nil {
			if queue.Ambiguous(err) {
				results[i].Outcome = outcomeUnknown
			}
			return all, fmt.Errorf("event %d: %w", i, err)
		}
		v := newPublishedView(p, sent)
		res := &results[i]
		res.Outcome, res.MessageID = outcomeSent, v.MessageID
		res.InsertedAt, res.ExpiresAt, res.VisibleAt = v.InsertedAt, v.ExpiresAt, v.VisibleAt
		all = append(all, sent)
	}
	return all, nil
}

// finishBatch does what follows the sends. The records go together where they can.
func (a *Publisher) finishBatch(r *http.Request, ps []publication, sent []queue.Sent) {
	if len(sent) == 0 {
		return
	}
	a.Wake(ps[0].queue)
	var wg sync.WaitGroup
	for i, s := range sent {
		wg.Go(func() { a.recordPublished(r, ps[i], s) })
	}
	wg.Wait()
}

// readBatch reads and checks all events of a batch; the results begin as not_sent.
func (a *Publisher) readBatch(w http.ResponseWriter, r *http.Request, like publication) ([]publication, []eventResult, error) {
	var badHeaders error
	if hasAttributes(r.Header) {
		badHeaders = badEvent([]web.FieldError{web.Wrong("ce-*", "is a header of binary mode, which a batch does not have", "leave the ce- headers out: each event in the body holds its own attributes")})
	}
	raw, err := web.TakeBody(w, r, maxBatchBytes)
	if err != nil {
		err = web.BodyFault(err, fmt.Sprintf("send at most %d bytes and %d events at once, each event of at most %d bytes", maxBatchBytes, maxBatchEvents, queue.MaxTextBytes))
		return nil, nil, web.Together(badHeaders, err)
	}
	_, badType := messageType(r, raw)
	badHeaders = web.Together(badHeaders, badType)
	events, err := splitBatch(raw)
	if err != nil {
		return nil, nil, web.Together(badHeaders, err)
	}
	ps, results, err := a.checkBatch(r, like, events)
	return ps, results, web.Together(badHeaders, err)
}

// checkBatch checks the events one by one.
func (a *Publisher) checkBatch(r *http.Request, like publication, events []json.RawMessage) ([]publication, []eventResult, error) {
	ps := make([]publication, len(events))
	results := make([]eventResult, len(events))
	parent, state := traceContext(r)
	setting := a.Encoding(like.queue)
	var wrong, large []web.FieldError
	for i, body := range events {
		at := "[" + strconv.Itoa(i) + "]"
		_, problems := readEvent(body, func(name string) string {
			if name == "body" {
				return at
			}
			return at + "." + name
		})
		if wrong = append(wrong, problems...); len(problems) > 0 {
			continue
		}
		e, _ := content.ParseEvent(body, eventType)
		p := like
		p.outgoing = outgoing{body: body, contentType: eventType, event: true}
		if !e.Parent.IsValid() {
			p.traceParent, p.traceState = parent, state
		}
		var err error
		if p.text, err = p.encode(setting); errors.Is(err, queue.ErrTooLarge) {
			large = append(large, web.Wrong(at, fmt.Sprintf("does not fit into the %d bytes of a queue message", queue.MaxTextBytes), "put larger payloads into a blob and send its address"))
		} else if err != nil {
			return nil, nil, p.encodeProblem(err)
		}
		ps[i], results[i] = p, eventResult{Index: i, ID: e.ID, Source: e.Source, Outcome: outcomeNotSent}
	}
	switch {
	case len(wrong) > 0:
		return nil, nil, badEvent(wrong)
	case len(large) > 0:
		return nil, nil, web.Wrongs(web.TooLarge, large...)
	}
	return ps, results, nil
}

// splitBatch returns the events of a batch as they are written. It stops reading at one
// too many.
func splitBatch(raw []byte) ([]json.RawMessage, error) {
	bad := func(what string) error {
		return badEvent([]web.FieldError{web.Wrong("body", what, "send a JSON list of events: [{…},{…}]")})
	}
	doc := bytes.TrimPrefix(raw, byteOrderMark)
	dec := json.NewDecoder(bytes.NewReader(doc))
	if open, err := dec.Token(); err != nil || open != json.Delim('[') {
		if len(raw) == 0 {
			return nil, bad("is empty")
		}
		return nil, bad("is not a JSON list")
	}
	events := []json.RawMessage{}
	for dec.More() {
		var e json.RawMessage
		if dec.Decode(&e) != nil {
			return nil, bad(web.SyntaxProblem(doc))
		}
		if len(events) == maxBatchEvents {
			return nil, web.NewProblem(web.TooLarge,
				fmt.Sprintf("A batch has at most %d events.", maxBatchEvents),
				web.Wrong("body", fmt.Sprintf("has more than %d events", maxBatchEvents), fmt.Sprintf("send at most %d at once", maxBatchEvents)))
		}
		events = append(events, e)
	}
	if what := web.SyntaxProblem(doc); what != "" { // what follows the last event
		return nil, bad(what)
	}
	return events, nil
}
