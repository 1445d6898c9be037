package webhook

import (
	"context"
	"net/http"
	"time"
)

// TokenFault says why this process has no token for a webhook to show its receiver; empty while it has one, needs
// none, or has not asked yet.
func (s *Sender) TokenFault(w *Webhook) string {
	if w.Auth == nil {
		return ""
	}
	s.identities.mu.Lock()
	id := s.identities.all[w.ID]
	if id != nil && !id.isOf(w) {
		id = id.before
	}
	known := id.isOf(w)
	s.identities.mu.Unlock()
	if !known {
		return ""
	}
	return id.tokens.fault()
}

// sendAs makes the POST of a webhook that has an identity.
func (s *Sender) sendAs(ctx context.Context, w *Webhook, r *Request, result *Result) {
	id, err := s.identities.of(w)
	if err == nil && !id.expires.IsZero() && result.StartedAt.After(id.expires) {
		err = invalid("the client certificate has expired at "+stamp(id.expires), "set tls.client_certificate and tls.client_key")
	}
	if err != nil {
		result.ErrorClass, result.Error = classRequest, err.Error()
		return
	}
	r.identity = id.conns
	defer s.identities.replaced(w, id)
	if id.tokens == nil {
		s.send(ctx, w, r, result)
		return
	}
	s.sendWithToken(ctx, id, w, r, result)
}

// sendWithToken makes the POST of a webhook whose receiver is shown a token. A 401 may mean that the token is
// not good any more, and is no delivery unless the webhook says so (Request.Meant): with a fresh one the POST is made once more, and then the answer
// counts. All of it takes no longer than a POST may.
func (s *Sender) sendWithToken(ctx context.Context, id *identity, w *Webhook, r *Request, result *Result) {
	if by := result.StartedAt.Add(w.Longest()); r.Until.IsZero() || r.Until.After(by) {
		r.Until = by
	}
	first, failed := id.tokens.get(ctx, r.tokenBy(w), 0)
	if failed != nil {
		s.fail(result, failed, failed)
		return
	}
	r.authorization = first.header
	s.send(ctx, w, r, result)
	if result.Status != http.StatusUnauthorized || r.Meant != nil && r.Meant(result) || !id.tokens.doubt(first.number) {
		return
	}
	fresh, failed := id.tokens.get(ctx, r.tokenBy(w), first.number)
	switch {
	case failed == nil && fresh.header == first.header:
		result.Note = "The token endpoint gives the token again that was answered 401."
		return
	case failed == nil && time.Until(r.Until) < w.Timeout/2:
		failed = tokenFailure("too little time was left for the POST with a fresh one")
	}
	before := *result
	*result = Result{StartedAt: before.StartedAt}
	if failed == nil {
		r.authorization, result.StartedAt = fresh.header, time.Now()
		s.send(ctx, w, r, result)
		result.StartedAt = before.StartedAt
		if result.NotBegun { // though the first POST was made
			*result, failed = Result{StartedAt: before.StartedAt}, tokenFailure("the POST with a fresh one might not be made any more")
		}
	}
	if failed != nil {
		if failed.class == classToken {
			failed = tokenFailure("answered 401 by the receiver, and then " + failed.text)
		}
		result.Redials = before.Redials
		s.fail(result, failed, failed)
		return
	}
	result.Redials += before.Redials
	result.Note = "It was answered 401 at first: a fresh token was asked for, and the POST made again with it."
}

// tokenBy is until when a POST waits for a token: half of the time for its connection, and half of what is left.
func (r *Request) tokenBy(w *Webhook) time.Time {
	now := time.Now()
	return now.Add(min(w.Timeout/2, r.Until.Sub(now)/2))
}
