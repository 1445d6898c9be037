package webhook

import (
	"context"
	"net/http"
	"time"
)

// sendAs makes the POST of a webhook that has an identity.
func (s *Sender) sendAs(ctx context.Context, w *Webhook, r *Request, result *Result) {
	id, err := s.identities.of(w, r.Registered)
	if err == nil && !id.expires.IsZero() && result.StartedAt.After(id.expires) {
		err = invalid("the certificate in "+id.ended+" has expired at "+stamp(id.expires), "set "+id.ended)
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
	s.sendWithToken(ctx, id.tokens, w, r, result)
}

// sendWithToken makes the POST of a webhook whose receiver is shown a token. A 401 may mean that the token is
// not good any more, and is no delivery unless the webhook says so (Request.Meant): with a fresh one the POST is made once more, and then the answer
// counts. All of it takes no longer than a POST may.
func (s *Sender) sendWithToken(ctx context.Context, tokens *tokens, w *Webhook, r *Request, result *Result) {
	began, after := result.StartedAt, 0
	if by := began.Add(w.Longest()); r.Until.IsZero() || r.Until.After(by) {
		r.Until = by
	}
	if r.FreshToken {
		after = tokens.anew()
	}
	first, failed := tokens.get(ctx, r.tokenBy(w), after)
	if failed != nil {
		s.fail(result, failed, failed)
		result.NotBegun = failed.class == classToken
		return
	}
	if !s.show(ctx, tokens, first, false, w, r, result) {
		return
	}
	fresh, failed := tokens.get(ctx, r.tokenBy(w), first.number)
	switch {
	case failed == nil && fresh.header == first.header:
		result.Note = "The token endpoint gives the token again that was answered 401."
		return
	case failed == nil && time.Until(r.Until) < w.Timeout/2:
		failed = tokenFailure("too little time was left for the POST with a fresh one")
	}
	before := *result
	*result = Result{StartedAt: began}
	if failed == nil {
		s.show(ctx, tokens, fresh, true, w, r, result)
		if result.NotBegun { // though the first POST was made
			*result, failed = Result{StartedAt: began}, tokenFailure("the POST with a fresh one might not be made any more")
		}
	}
	if failed != nil {
		if failed.class == classToken {
			failed = &failure{class: classToken, text: "answered 401 by the receiver, and then " + failed.text, tokenAt: failed.tokenAt}
		}
		result.Redials = before.Redials
		s.fail(result, failed, failed)
		return
	}
	result.Redials += before.Redials
	result.Note = "It was answered 401 at first: a fresh token was asked for, and the POST made again with it."
}

// show makes a POST with a token, a fresh one because of a 401 to the same message or another one, whose connection has all of its time, and has the tokens know what came of it. It tells whether the answer
// is 401, and may be the token's fault.
func (s *Sender) show(ctx context.Context, tokens *tokens, t token, fresh bool, w *Webhook, r *Request, result *Result) (refused bool) {
	began := result.StartedAt
	r.authorization, result.StartedAt = t.header, time.Now()
	s.send(ctx, w, r, result)
	result.StartedAt = began
	switch result.Status {
	case 0:
	case http.StatusUnauthorized:
		return tokens.refuse(t.number, r.Meant != nil && r.Meant(result), fresh)
	default:
		tokens.answered(t.number, result.Status)
	}
	return false
}

// tokenBy is until when a POST waits for a token: half of the time for its connection, and half of what is left.
func (r *Request) tokenBy(w *Webhook) time.Time {
	now := time.Now()
	return now.Add(min(w.Timeout/2, r.Until.Sub(now)/2))
}
