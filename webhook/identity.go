package webhook

import (
	"context"
	"crypto/tls"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/pushlease/pushlease/webhook/internal/transport"
)

// forgottenAfter is how long what nobody sends by is kept: its webhook may be deleted.
const forgottenAfter = time.Hour

// identity is who pushlease is to the receiver of one webhook, as that was registered at a time. Another
// registration makes another one.
type identity struct {
	auth *Auth
	tls  *TLS
	// tokens are shown to the receiver, unless they are nil.
	tokens *tokens
	// conns is whose the connections are; nil is anybody's.
	conns *transport.Identity
	// expires is when its certificate ends; zero without one.
	expires time.Time
	used    time.Time // under the lock of the identities
	// before is that of the registration before this one: POSTs that began under it are still made. Under the lock, too.
	before *identity
}

// identities are those of all webhooks that have one, by webhook. Safe for concurrent use.
type identities struct {
	transport *transport.Transport
	base      *tls.Config  // of connections without an identity
	client    *http.Client // asks for tokens
	guard     GuardOptions
	life      context.Context
	stop      context.CancelFunc
	work      sync.WaitGroup

	mu  sync.Mutex
	all map[string]*identity
}

func (i *identities) begin(t *transport.Transport, base *tls.Config, client *http.Client, guard GuardOptions) {
	i.transport, i.base, i.client, i.guard, i.all = t, base, client, guard, map[string]*identity{}
	i.life, i.stop = context.WithCancel(context.Background())
}

// end waits for what is asked for; nobody needs it any more.
func (i *identities) end() {
	i.stop()
	i.work.Wait()
}

// of gives the identity of a webhook, or why there can be none.
func (i *identities) of(w *Webhook) (*identity, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	newest := i.all[w.ID]
	if newest.isOf(w) {
		newest.auth, newest.tls, newest.used = w.Auth, w.TLS, now // the next comparison is of pointers alone
		return newest, nil
	}
	if newest != nil && newest.before.isOf(w) {
		newest.used = now
		return newest.before, nil
	}
	made, err := i.make(w)
	if err != nil {
		return nil, err
	}
	for id, old := range i.all {
		if id == w.ID || now.Sub(old.used) > forgottenAfter {
			delete(i.all, id)
			i.forget(old)
			i.forget(old.before)
		}
	}
	if newest != nil {
		newest.before, made.before = nil, newest
	}
	made.used = now
	i.all[w.ID] = made
	return made, nil
}

// forget closes the connections of an identity, where it has any.
func (i *identities) forget(old *identity) {
	if old != nil && old.conns != nil {
		i.transport.Forget(old.conns)
	}
}

// replaced forgets the connections of an identity by which a POST was made, unless that is its webhook's newest one.
func (i *identities) replaced(w *Webhook, by *identity) {
	if by.conns == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.all[w.ID] != by {
		i.transport.Forget(by.conns)
	}
}

// isOf tells whether an identity, where there is one, is that of the registration.
func (d *identity) isOf(w *Webhook) bool {
	return d != nil && (d.auth == w.Auth || reflect.DeepEqual(d.auth, w.Auth)) && (d.tls == w.TLS || reflect.DeepEqual(d.tls, w.TLS))
}

func (i *identities) make(w *Webhook) (*identity, error) {
	made := &identity{auth: w.Auth, tls: w.TLS, expires: w.TLS.Expires()}
	if w.Auth != nil {
		if wrong := w.Auth.Problems(i.guard); len(wrong) > 0 {
			return nil, wrong[0]
		}
		asker, err := newAsker(w.Auth.OAuth2, i.client, i.guard)
		if err != nil {
			return nil, err
		}
		made.tokens = &tokens{ask: asker.token, life: i.life, work: &i.work}
	}
	if w.TLS != nil {
		config, err := w.TLS.config(i.base)
		if err != nil {
			return nil, err
		}
		made.conns = &transport.Identity{TLS: config}
	}
	return made, nil
}

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
