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
		made.tokens = &tokens{ask: newAsker(w.Auth.OAuth2, i.client).token, life: i.life, work: &i.work}
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
