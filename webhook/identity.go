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
	// expires is when a certificate of it ends, and ended which setting has that; zero without one.
	expires time.Time
	ended   string
	// wrong is why nothing can be sent by it.
	wrong error
	// at is when its registration was last changed.
	at   time.Time
	used time.Time // under the lock of the identities
	// before is that of the registration before this one: POSTs that began under it are still made. Under the lock, too.
	before *identity
}

// identities are those of all webhooks that have one, by webhook. Safe for concurrent use.
type identities struct {
	transport *transport.Transport
	base      *tls.Config  // of connections without an identity
	client    *http.Client // asks for tokens
	lacks     func(text string)
	guard     GuardOptions
	life      context.Context
	stop      context.CancelFunc
	work      sync.WaitGroup

	mu  sync.Mutex
	all map[string]*identity
}

func (i *identities) begin(t *transport.Transport, base *tls.Config, client *http.Client, guard GuardOptions, lacks func(text string)) {
	i.transport, i.base, i.client, i.guard, i.lacks, i.all = t, base, client, guard, lacks, map[string]*identity{}
	i.life, i.stop = context.WithCancel(context.Background())
}

// end waits for what is asked for; nobody needs it any more.
func (i *identities) end() {
	i.stop()
	i.work.Wait()
}

// of gives the identity of a webhook whose registration was last changed at that time, or why there can be none.
func (i *identities) of(w *Webhook, at time.Time) (*identity, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	newest := i.all[w.ID]
	if newest.isOf(w) {
		newest.auth, newest.tls, newest.used, newest.at = w.Auth, w.TLS, now, latest(newest.at, at) // the next comparison is of pointers alone
		return newest, newest.wrong
	}
	if newest != nil && newest.before.isOf(w) {
		newest.used = now
		return newest.before, newest.before.wrong
	}
	made := i.make(w)
	made.at, made.used = at, now
	if newest != nil && at.Before(newest.at) { // a message was in hand when the registration was changed
		i.forget(newest.before)
		newest.before, newest.used = made, now
		return made, made.wrong
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
	i.all[w.ID] = made
	return made, made.wrong
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

func (i *identities) make(w *Webhook) *identity {
	made := &identity{auth: w.Auth, tls: w.TLS}
	made.expires, made.ended = w.TLS.Expires()
	if w.Auth != nil {
		if wrong := w.Auth.Problems(i.guard); len(wrong) > 0 {
			made.wrong = wrong[0]
			return made
		}
		made.tokens = &tokens{ask: newAsker(w.Auth.OAuth2, i.client, i.guard).token, lacks: i.lacks, life: i.life, work: &i.work}
	}
	if w.TLS != nil {
		config, err := w.TLS.config(i.base)
		if err != nil {
			made.wrong = err
			return made
		}
		made.conns = &transport.Identity{TLS: config}
	}
	return made
}
