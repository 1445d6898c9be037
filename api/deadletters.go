package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// deadLetterView is one dead letter as it is shown: without its replay token, and
// without its body unless that was asked for.
type deadLetterView struct {
	ID             string                  `json:"id"`
	Queue          string                  `json:"queue"`
	MessageID      string                  `json:"message_id"`
	WebhookID      string                  `json:"webhook_id,omitempty"`
	Generation     int                     `json:"generation"`
	Status         tables.DeadLetterStatus `json:"status"`
	Reason         policy.Reason           `json:"reason"`
	Description    string                  `json:"description,omitempty"`
	Attempts       int                     `json:"attempts"`
	LastStatus     int                     `json:"last_status,omitempty"`
	LastErrorClass policy.ErrorClass       `json:"last_error_class,omitempty"`
	FirstAt        time.Time               `json:"first_at,omitzero"`
	LastAt         time.Time               `json:"last_at,omitzero"`
	DeadLetteredAt time.Time               `json:"dead_lettered_at"`
	InsertedAt     time.Time               `json:"inserted_at,omitzero"`
	DequeueCount   int64                   `json:"dequeue_count"`
	Encoding       string                  `json:"encoding,omitempty"`
	Size           int                     `json:"size"`
	BodyHash       string                  `json:"body_hash,omitempty"`
	CopiedToQueue  string                  `json:"copied_to_queue,omitempty"`
	Replays        int                     `json:"replays"`
	ReplayedAt     time.Time               `json:"replayed_at,omitzero"`
	Instance       string                  `json:"instance,omitempty"`
	Body           *bodyView               `json:"body,omitempty"`
	Warnings       []string                `json:"warnings,omitempty"`
}

// bodyView is a dead letter's body. Text is there only when the body is UTF-8.
type bodyView struct {
	Base64      []byte  `json:"base64"`
	Text        *string `json:"text"`
	ContentType string  `json:"content_type"`
	// Encoding is how the stored text was read; undecodable when it could not
	// be, and the body is then the text itself.
	Encoding string `json:"encoding"`
}

func newDeadLetterView(d tables.DeadLetter) deadLetterView {
	var warnings []string
	if why := damage(d); why != "" {
		warnings = []string{"Its row can't be gone by: " + why + "."}
	}
	return deadLetterView{
		Warnings: warnings,
		ID:       d.ID, Queue: d.Queue, MessageID: d.MessageID, WebhookID: d.WebhookID, Generation: d.Generation,
		Status: d.Status, Reason: d.Reason, Description: d.Description, Attempts: d.Attempts, LastStatus: d.LastStatus,
		LastErrorClass: d.LastErrorClass, FirstAt: web.UTC(d.FirstAt), LastAt: web.UTC(d.LastAt), DeadLetteredAt: web.UTC(d.DeadLetteredAt),
		InsertedAt: web.UTC(d.InsertedAt), DequeueCount: d.DequeueCount, Encoding: d.Encoding, Size: d.Size, BodyHash: d.BodyHash,
		CopiedToQueue: d.CopiedToQueue, Replays: d.Replays, ReplayedAt: web.UTC(d.ReplayedAt), Instance: d.Instance,
	}
}

// listDeadLetters lists dead letters, newest first, without bodies.
func (a *API) listDeadLetters(w http.ResponseWriter, r *http.Request) error {
	q := web.ReadQuery(r, "queue", "webhook", "message", "reason", "answer", "cause", "status", "from", "until", "limit", "cursor")
	filter := deadLetterFilter(q)
	page := q.Page()
	if err := q.Err(); err != nil {
		return err
	}
	rows, next, err := a.DeadLetters.ListDeadLetters(r.Context(), filter, page)
	if err != nil {
		return web.ListFault("list the dead letters", err)
	}
	views := make([]deadLetterView, len(rows))
	for i, d := range rows {
		views[i] = newDeadLetterView(d)
	}
	return web.WriteJSON(w, http.StatusOK, web.NewList(views, next))
}

// getDeadLetter shows one dead letter; its body only to a key that may operate,
// and only when asked.
func (a *API) getDeadLetter(w http.ResponseWriter, r *http.Request) error {
	q := web.ReadQuery(r, "body", "force")
	withBody, force := q.Bool("body"), q.Bool("force")
	if err := q.Err(); err != nil {
		return err
	}
	if withBody {
		if err := a.authorize(r, ScopeOperate); err != nil {
			return err
		}
	}
	d, err := a.loadDeadLetter(r.Context(), web.PathParam(r, "id"))
	if err != nil {
		return err
	}
	view := newDeadLetterView(d)
	if withBody {
		if err := a.unchanged(d, force); err != nil {
			return err
		}
		view.Body = a.readBody(d)
	}
	return web.WriteVersion(w, r, d.ETag, view)
}

// getDeadLetterBody answers the body's bytes as they were. They come from
// outside: the answer is a download of octets, so that no browser runs them.
func (a *API) getDeadLetterBody(w http.ResponseWriter, r *http.Request) error {
	q := web.ReadQuery(r, "force")
	force := q.Bool("force")
	if err := q.Err(); err != nil {
		return err
	}
	d, err := a.loadDeadLetter(r.Context(), web.PathParam(r, "id"))
	if err == nil {
		err = a.unchanged(d, force)
	}
	if err != nil {
		return err
	}
	body := a.readBody(d)
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="body"`)
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Pushlease-Content-Type", body.ContentType)
	_, _ = w.Write(body.Base64) // the caller is gone: nobody left to tell
	return nil
}

func (a *API) loadDeadLetter(ctx context.Context, id string) (tables.DeadLetter, error) {
	if _, _, ok := tables.SplitDeadLetterID(id); !ok {
		return tables.DeadLetter{}, noDeadLetter
	}
	d, err := a.DeadLetters.GetDeadLetter(ctx, id)
	switch {
	case errors.Is(err, tables.ErrNotFound):
		return tables.DeadLetter{}, noDeadLetter
	case err != nil:
		return tables.DeadLetter{}, web.StorageFault("read the dead letter", err)
	}
	return d, nil
}

var noDeadLetter = web.Missing("No dead letter has that id. It may have been deleted or cleaned up.", "id", "take an id from GET /api/v1/dead-letters")

// readBody decodes a dead letter's text as its queue would. The token of a
// replay pointer that was itself dead-lettered is taken out.
func (a *API) readBody(d tables.DeadLetter) *bodyView {
	view := &bodyView{Base64: d.Text, Encoding: "undecodable"}
	if b, err := queue.Decode(a.setting(d), d.Text); err == nil {
		view.Base64, view.ContentType, view.Encoding = b.Bytes, b.ContentType, string(b.Encoding)
		if b.Replay != nil {
			view.Base64, _ = queue.EncodeReplay(queue.EncodingNone, queue.Replay{DeadLetter: b.Replay.DeadLetter}) // strings can't fail to encode
		}
	}
	view.Base64 = web.OrEmpty(view.Base64)
	if view.ContentType == "" {
		view.ContentType = queue.DefaultContentType(view.Base64)
	}
	if utf8.Valid(view.Base64) {
		text := string(view.Base64)
		view.Text = &text
	}
	return view
}

// copyLeft is the header that names the queue on which a deleted dead letter has a copy.
const copyLeft = "Pushlease-Copy-Left"

// deleteDeadLetter ends a dead letter: nothing is kept of the message here, and a replay that is
// under way ends. A copy on a poison queue is another message, which others may read, and stays.
func (a *API) deleteDeadLetter(w http.ResponseWriter, r *http.Request) error {
	if err := errors.Join(web.ReadQuery(r).Err(), web.NoBody(w, r)); err != nil {
		return err
	}
	id, etag := web.PathParam(r, "id"), ""
	d, err := a.loadDeadLetter(r.Context(), id)
	if err == nil {
		err = web.Preconditions(r, d.ETag)
	}
	if err != nil {
		return err
	}
	if web.IfMatch(r) != "" {
		etag = d.ETag
	}
	if err := a.endDeadLetter(r.Context(), &d, etag); err != nil {
		return err
	}
	a.audit(r, tables.Audit{Action: tables.DeadLetterDeleted, Queue: d.Queue, WebhookID: d.WebhookID, DeadLetterID: d.ID})
	if d.CopiedToQueue != "" {
		w.Header().Set(copyLeft, d.CopiedToQueue)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// endDeadLetter deletes a dead letter and ends what the records of its message say is still done about it, at once, and also
// when the caller hangs up: otherwise the dead letter is written again.
func (a *API) endDeadLetter(ctx context.Context, d *tables.DeadLetter, etag string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayTimeout)
	defer cancel()
	switch err := a.DeadLetters.DeleteDeadLetter(ctx, d.ID, etag); {
	case errors.Is(err, tables.ErrNotFound):
		return noDeadLetter
	case errors.Is(err, tables.ErrConflict):
		return web.ErrPrecondition
	case err != nil:
		if _, getErr := a.DeadLetters.GetDeadLetter(ctx, d.ID); !errors.Is(getErr, tables.ErrNotFound) { // else the answer alone was lost
			return web.StorageFault("delete the dead letter", err)
		}
	}
	a.backlog.forget(d.Queue)
	a.endRecords(ctx, d)
	return nil
}

func (a *API) endRecords(ctx context.Context, d *tables.DeadLetter) {
	if err := tables.EndMaking(ctx, a.Deliveries, d); err != nil {
		a.Logger.Warn("whether a dead letter that was deleted was still being made is not known; it may be written again", "dead_letter", d.ID, "error", err)
	}
	if d.ReplayToCome(queue.ReplayLife) {
		if err := tables.EndReplay(ctx, a.Deliveries, a.DeadLetters, d); err != nil {
			a.Logger.Warn("the record of a replay whose dead letter was deleted could not be ended; it says that the replay goes on", "dead_letter", d.ID, "error", err)
		}
	}
}

// replayTimeout bounds the steps of asking for a replay. They go on when the
// caller hangs up: half a replay helps nobody.
const replayTimeout = 20 * time.Second

// replayDeadLetter has a dead letter POSTed again.
func (a *API) replayDeadLetter(w http.ResponseWriter, r *http.Request) error {
	q := web.ReadQuery(r, "force")
	force := q.Bool("force")
	if err := errors.Join(q.Err(), web.NoBody(w, r)); err != nil {
		return err
	}
	marked, err := a.replayOne(r.Context(), web.PathParam(r, "id"), func(ctx context.Context, d tables.DeadLetter) error {
		if err := errors.Join(web.Preconditions(r, d.ETag), a.unchanged(d, force)); err != nil {
			return err
		}
		return a.replayable(ctx, d, force)
	})
	if err != nil {
		return err
	}
	a.audit(r, tables.Audit{Action: tables.DeadLetterReplayed, Queue: marked.Queue, WebhookID: marked.WebhookID, DeadLetterID: marked.ID})
	view := newDeadLetterView(marked)
	view.Warnings = append(view.Warnings, a.replayWarnings(r.Context(), marked)...)
	w.Header().Set("ETag", web.EtagOf(marked.ETag))
	return web.WriteJSON(w, http.StatusAccepted, view)
}

// replayOne is the one way by which dead letters are replayed, one or many. The row is
// reserved with a fresh token, the message that points to it is sent with the token, and the
// row says that it is replaying; one file does all of that at once. A crash leaves a row
// that is reserved for 90 s, or a message that is delivered whatever the row says. check
// says why a row as it is now can't be replayed.
func (a *API) replayOne(ctx context.Context, id string, check func(context.Context, tables.DeadLetter) error) (tables.DeadLetter, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replayTimeout)
	defer cancel()
	before, marked, err := a.reserve(ctx, id, check)
	if err != nil {
		return marked, err
	}
	if a.RecordedReplays == nil {
		if err := a.sendReplay(ctx, before, marked); err != nil {
			return marked, err
		}
		marked = a.showReplaying(ctx, marked)
	}
	a.Dispatcher.Wake(marked.Queue)
	a.backlog.forget(marked.Queue)
	a.replayed.Add(ctx, 1, metric.WithAttributes(attribute.String("queue", marked.Queue)))
	return marked, nil
}

// reserve returns the row as it was and as it was written.
func (a *API) reserve(ctx context.Context, id string, check func(context.Context, tables.DeadLetter) error) (before, reserved tables.DeadLetter, err error) {
	token := newReplayToken()
	for range web.MaxTries {
		before, err = a.loadDeadLetter(ctx, id)
		if err != nil {
			return before, reserved, err
		}
		if err := check(ctx, before); err != nil {
			return before, reserved, err
		}
		next := a.asItIs(before)
		next.Status, next.ReplayToken = tables.Waiting, token
		next.Replays, next.ReplayedAt = before.Replays+1, time.Now().UTC()
		reserved, err = a.mark(ctx, next)
		switch {
		case err == nil:
			return before, reserved, nil
		case errors.Is(err, tables.ErrNotFound):
			return before, reserved, noDeadLetter
		case !errors.Is(err, tables.ErrConflict):
			reserved, err = a.reservedAfterAll(ctx, next, err)
			return before, reserved, err
		}
	}
	return before, reserved, web.ErrBusyRow
}

// reservedAfterAll looks whether a reservation took effect whose answer was lost.
func (a *API) reservedAfterAll(ctx context.Context, d tables.DeadLetter, lost error) (tables.DeadLetter, error) {
	now, err := a.DeadLetters.GetDeadLetter(ctx, d.ID)
	if err == nil && now.ReplayToken == d.ReplayToken {
		return now, nil
	}
	p := web.StorageFault("mark the dead letter for replay", lost)
	if err != nil && a.RecordedReplays != nil { // its message is sent with the mark
		p.Cause = maybeSentError{lost}
	}
	return d, p
}

// showReplaying says on the row that its replay is under way. The dispatcher may have been faster, and
// says it before its first POST where this is cut short.
func (a *API) showReplaying(ctx context.Context, reserved tables.DeadLetter) tables.DeadLetter {
	next := reserved
	next.Status = tables.Replaying
	saved, err := a.DeadLetters.UpdateDeadLetter(ctx, next)
	if err == nil {
		return saved
	}
	if now, err := a.DeadLetters.GetDeadLetter(ctx, reserved.ID); err == nil {
		return now
	}
	return next
}

// RecordedReplays is a store that keeps dead letters and queues together.
type RecordedReplays interface {
	// SendReplay replaces the dead letter's row, as tables.DeadLetters's UpdateDeadLetter
	// does, and sends text to its queue: both or neither.
	SendReplay(ctx context.Context, d tables.DeadLetter, text []byte) (tables.DeadLetter, error)
}

// mark writes the row of a dead letter that is to be replayed; where the store can, the
// replay is sent with it, and under way.
func (a *API) mark(ctx context.Context, d tables.DeadLetter) (tables.DeadLetter, error) {
	if a.RecordedReplays == nil {
		return a.DeadLetters.UpdateDeadLetter(ctx, d)
	}
	text, err := a.replayText(d)
	if err != nil {
		return d, err
	}
	d.Status = tables.Replaying
	return a.RecordedReplays.SendReplay(ctx, d, text)
}

// replayText is the message that points to a dead letter that was marked.
func (a *API) replayText(marked tables.DeadLetter) ([]byte, error) {
	return queue.EncodeReplay(a.Encoding(marked.Queue), queue.Replay{DeadLetter: marked.ID, Token: marked.ReplayToken})
}

// replayable says why a dead letter can't be replayed now.
func (a *API) replayable(ctx context.Context, d tables.DeadLetter, force bool) error {
	if left := d.ReplayEndsIn(); left > 0 && !force {
		p := web.NewProblem(web.Replaying,
			fmt.Sprintf("A replay was asked for at %s and is not delivered yet.", web.Stamp(d.ReplayedAt)),
			web.Wrong("status", "is replaying", fmt.Sprintf("follow it at /api/v1/messages/%s, ask again after %s, or add ?force=true to start over (the webhook may then be sent it twice)", d.MessageID, tables.ReplayPatience)))
		p.Header = map[string]string{"Retry-After": web.Seconds(left + time.Second)} // rounded up
		return p
	}
	if d.WebhookID == "" {
		return nil
	}
	switch _, err := a.Webhooks.GetWebhook(ctx, d.WebhookID); {
	case errors.Is(err, tables.ErrNotFound):
		return web.NewProblem(web.WebhookDeleted,
			"The replay would have nowhere to go.",
			web.Wrong("webhook_id", "names a webhook that was deleted", "read the body at /api/v1/dead-letters/"+d.ID+"/body and publish it to the queue again, or delete the dead letter"))
	case err != nil:
		return webhookFault(err)
	}
	return nil
}

// sendReplay sends the pointer. When that surely failed the row goes back to what it was, so
// that the next replay is not told that one is under way; otherwise its reservation ends soon.
func (a *API) sendReplay(ctx context.Context, before, reserved tables.DeadLetter) error {
	text, err := a.replayText(reserved)
	if err != nil {
		return err
	}
	q, err := a.Queues.Queue(reserved.Queue)
	if err != nil {
		return err
	}
	if _, err = q.Send(ctx, text, queue.SendOptions{}); err == nil {
		return nil
	}
	p := web.StorageFault("send the replay", err)
	if queue.Ambiguous(err) {
		p.Cause = maybeSentError{err}
		p.Detail = fmt.Sprintf("Storage did not answer, so the replay may or may not be under way. Follow it at /api/v1/messages/%s; if nothing comes of it, replay again after %s.", reserved.MessageID, tables.ReplayReserved)
		return p
	}
	undone := before
	undone.ETag = reserved.ETag
	if _, err := a.DeadLetters.UpdateDeadLetter(ctx, undone); err != nil {
		p.Cause = errors.Join(p.Cause, fmt.Errorf("undo the mark: %w", err))
	}
	return p
}

// maybeSentError is one after which nobody knows whether the replay was sent.
type maybeSentError struct{ error }

func (e maybeSentError) Unwrap() error { return e.error }

// replayWarnings says what will keep the replay waiting, and that it goes in circles.
func (a *API) replayWarnings(ctx context.Context, d tables.DeadLetter) []string {
	var warnings []string
	if n := d.Generation + d.Replays; n > maxGenerations {
		warnings = append(warnings, fmt.Sprintf("This is replay %d of the message: it comes back as a dead letter each time. A replay by filter leaves it out.", n))
	}
	if d.WebhookID == "" {
		return warnings
	}
	if reg, err := a.Webhooks.GetWebhook(ctx, d.WebhookID); err == nil && !reg.Enabled {
		warnings = append(warnings, "The webhook is disabled: the replay is held until it is enabled (POST /api/v1/webhooks/"+reg.ID+"/enable).")
	}
	return warnings
}

// newReplayToken makes the secret that only the row and the pointer share.
func newReplayToken() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
