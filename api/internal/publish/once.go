package publish

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// The times of a publish under a key. The message must not be sent when somebody else may
// have taken the key over, so sending ends before the claim does.
const (
	keyClaimLife   = 30 * time.Second
	keyClaimMargin = 5 * time.Second
	// keyTableTime bounds each question to the table.
	keyTableTime = 4 * time.Second
	// keyTries is how often the table is asked: once more, since the claim's owner
	// makes repeating harmless.
	keyTries = 2
)

// fingerprint tells whether two requests with one key ask for the same, however they say it: what
// is left out is the same as the default. A trace is not part of it: each try has its own.
func (p publication) fingerprint() string {
	contentType, ttl := p.contentType, p.opts.TTL
	if queue.ImpliesContentType(p.body, contentType) {
		contentType = queue.DefaultContentType(p.body)
	}
	if ttl == queue.DefaultTTL {
		ttl = 0
	}
	return tables.ClaimKey(string(p.body), contentType, p.opts.Delay.String(), ttl.String())
}

// publishOnce publishes under a key: whoever gets the claim on it sends the message, and
// notes its id on the claim; everyone else gets that answer. When this process dies in
// between, the claim lapses and a repeated request sends a second message, which the
// dispatcher drops, because both carry the key.
func (a *Publisher) publishOnce(w http.ResponseWriter, r *http.Request, p publication) error {
	now := time.Now().UTC().Truncate(time.Millisecond)
	c := tables.Claim{
		Key: tables.ClaimKey("publish", p.queue, p.key), Owner: rand.Text(), At: now, Until: now.Add(keyClaimLife),
		BodyHash: p.fingerprint(),
	}
	// From here on the caller may hang up: what was begun is brought to an end, so that
	// a repeated request finds its outcome.
	ctx := context.WithoutCancel(r.Context())
	current, won, err := a.claimKey(ctx, c)
	if err != nil {
		a.releaseKey(ctx, c)
		if errors.Is(err, tables.ErrDamaged) {
			a.Logger.ErrorContext(ctx, "a request is refused: another program has changed the claim on its Idempotency-Key",
				"queue", p.queue, "request_id", web.NoteOf(r).ID, "error", err)
			return damagedKey(err)
		}
		fault := web.StorageFault("look up the Idempotency-Key", err)
		fault.Detail = "Storage could not be asked whether this Idempotency-Key was used before, so nothing was published. Send the request again in a moment, with the same key; /readyz says what is wrong."
		return fault
	}
	if !won {
		return a.answerAgain(w, r, p, current, c)
	}
	sendCtx, cancel := context.WithDeadline(ctx, c.Until.Add(-keyClaimMargin))
	sent, handed, err := a.send(sendCtx, p)
	cancel()
	switch {
	case err != nil && queue.Ambiguous(err):
		return sentPerhaps(err)
	case err != nil:
		a.releaseKey(ctx, c)
		return sendProblem(err)
	}
	if !handed {
		a.Wake(p.queue)
	}
	c.MessageID, c.Until = sent.ID, sent.InsertedAt
	var recorded sync.WaitGroup
	recorded.Go(func() { a.recordPublished(r, p, sent) })
	a.finishKey(r, p.queue, c)
	recorded.Wait()
	return a.accepted(w, r, p, sent)
}

// damagedKey answers where another program has changed the claim on a key.
func damagedKey(err error) error {
	p := web.NewProblem(web.Damaged, "Whether this Idempotency-Key was used before can't be read any more, so nothing was published. Asking again does not help.",
		web.Wrong(web.IdempotencyHeader, "has a row in storage that another program has changed", "delete that row, which the log names, and send the request again; or use a new key, where a second message does no harm"))
	p.Cause = err
	return p
}

// claimKey asks for the claim. An error says neither yes nor no.
func (a *Publisher) claimKey(ctx context.Context, c tables.Claim) (current tables.Claim, won bool, err error) {
	for range keyTries {
		tryCtx, cancel := context.WithTimeout(ctx, keyTableTime)
		current, won, err = a.Claims.Claim(tryCtx, c, time.Now())
		cancel()
		if err == nil {
			return current, won, nil
		}
	}
	return tables.Claim{}, false, fmt.Errorf("claim idempotency key: %w", err)
}

// releaseKey frees the key of a message that was not sent. Where that fails it is free
// when the claim lapses.
func (a *Publisher) releaseKey(ctx context.Context, c tables.Claim) {
	ctx, cancel := context.WithTimeout(ctx, keyTableTime)
	defer cancel()
	_ = a.Claims.ReleaseClaim(ctx, c)
}

// finishKey notes the message on the claim. Its Until, which does not end a claim that is
// done, is when the message was inserted.
func (a *Publisher) finishKey(r *http.Request, name string, c tables.Claim) {
	var err error
	for range keyTries {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), keyTableTime)
		err = a.Claims.FinishClaim(ctx, c)
		cancel()
		if err == nil || errors.Is(err, tables.ErrConflict) || errors.Is(err, tables.ErrNotFound) {
			break
		}
	}
	if err != nil {
		a.unfinished.Add(r.Context(), 1)
		a.Logger.WarnContext(r.Context(), "published, but the idempotency key could not be kept; a repeated request sends another message, which is dropped when it is received",
			"message", c.MessageID, "queue", name, "request_id", web.NoteOf(r).ID, "error", err)
	}
}

// answerAgain answers a request whose key somebody has: mine lost to current.
func (a *Publisher) answerAgain(w http.ResponseWriter, r *http.Request, p publication, current, mine tables.Claim) error {
	switch {
	case current.BodyHash != mine.BodyHash:
		return web.NewProblem(web.IdempotencyKeyReused,
			"A request with this key and another body, content type, delay or ttl was sent to this queue within the last 7 days.",
			web.Wrong(web.IdempotencyHeader, "was used for another message", "use a new key for each message, and the old one only to repeat the very same request"))
	case current.State != tables.Done:
		return web.NewProblem(web.InProgress, "A request with this Idempotency-Key has not ended yet, or was cut short less than half a minute ago.",
			web.Wrong(web.IdempotencyHeader, "is in use by a request that has not ended", "send the same request again after the time in Retry-After: it is answered as the first one was"))
	}
	sent := queue.Sent{ID: current.MessageID, InsertedAt: current.Until}
	switch p.opts.TTL {
	case queue.NoExpiry:
	case 0:
		sent.ExpiresAt = sent.InsertedAt.Add(queue.DefaultTTL)
	default:
		sent.ExpiresAt = sent.InsertedAt.Add(p.opts.TTL)
	}
	w.Header().Set("Idempotency-Replayed", "true")
	return a.accepted(w, r, p, sent)
}

// sentPerhaps answers when storage gave no answer to a send under a key. The claim is left
// to lapse, so that a repeated request comes after whatever became of this one.
func sentPerhaps(err error) error {
	p := web.StorageFault("publish the message", err)
	p.Detail = "Storage did not answer, so the message may or may not be in the queue. Sending the same request again with the same Idempotency-Key is safe: where it is received within 7 days the message is delivered once. Wait as Retry-After says; /readyz says what is wrong."
	p.Header["Retry-After"] = web.Seconds(keyClaimLife)
	return p
}
