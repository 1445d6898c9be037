package transport

import (
	"context"
	"net/http"
	"slices"
	"time"
)

const (
	// maxAge is how long a connection is used for new requests. A busy one never ends by
	// itself, so this is what makes a change in the DNS take effect; it leaves 15 s of a
	// minute for caches.
	maxAge = 45 * time.Second
	// renewing bounds the opening of the connection that takes the place of old ones, and
	// renewAgain is the pause after one that could not be opened.
	renewing   = 10 * time.Second
	renewAgain = 5 * time.Second

	// maxIdleTime is below the 60 s after which common servers and load balancers close,
	// often just as the next request arrives.
	maxIdleTime = 30 * time.Second
	// sweepEvery is how often connections that nobody used are looked for.
	sweepEvery = 10 * time.Second

	// maxIdle is how many connections may be idle in all, and maxIdlePerHost at one host: or as many
	// as were busy there at once lately, so that a receiver that answers in step is not dialled anew each time.
	maxIdle        = 2048
	maxIdlePerHost = 256

	// silence is how long requests may wait without a byte from their host until what is
	// idle there is taken for dead: a middle that forgot its flows says nothing.
	silence = 3 * time.Second
	// distrusted is how long a host that sent what nobody had asked for gets a connection
	// for each request.
	distrusted = 10 * time.Minute
	// probation is how long no connection to a host is used twice after its first answer. One
	// that says more than it was asked for is found out then, not by the next message.
	probation = 50 * time.Millisecond
	// firstWords is how long a new connection to a host of which nothing is known, or nothing
	// good, is listened to before the request is written. Who answers all that connect has said
	// it then, or says it before the request can have arrived.
	firstWords = 5 * time.Millisecond
	// plain is how long a host that wants HTTP/1.1 gets it at first, and plainMax how long at most.
	plain    = 10 * time.Minute
	plainMax = 24 * time.Hour
)

// connection is what an exchange needs.
type connection interface {
	// exchange makes one, of which the transport has counted the beginning.
	exchange(r *http.Request, now, deadline time.Time) (*http.Response, error)
	// release gives it back without one.
	release()
	// drop ends it, when what is in flight has ended.
	drop()
}

// origin is what connections are shared by.
type origin struct {
	scheme, address string
	http1           bool // HTTP/2 is not to be offered
	identity        *Identity
}

// host is all that is known about an origin, under the transport's lock.
type host struct {
	origin
	idle   []*conn   // the last used at the end
	shared []*h2conn // HTTP/2, the newest at the end
	flight *flight   // a connection is being opened, for all who wait
	only1  bool      // TLS has shown that it speaks HTTP/1.1: nothing could be shared

	waiting int // requests that have had no byte of an answer
	most    int // the most of these since the sweep before the last, and mostNow since the last
	mostNow int
	since   time.Time // when the first of them began to wait, or the last byte came

	valid    time.Time // connections that are older are used no more
	renew    time.Time // when the next connection may take the place of old ones
	failing  time.Time // since when none could be opened for that, for a reason of this kind
	allowed  time.Duration
	asked    time.Time // when a request was last made
	renewing bool
	tried    time.Time // the end of its probation
	distrust time.Time // until when no connection is used twice
	plain    time.Time // until when HTTP/2 is not offered
	plainFor time.Duration
}

func (t *Transport) hostOf(o origin) *host {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hosts[o]
	if h == nil {
		h = &host{origin: o}
		t.hosts[o] = h
	}
	h.asked = time.Now()
	return h
}

// begin says that a request waits for the host's answer; ended is its end. The lock is held.
func (h *host) begin(now time.Time) {
	if h.waiting++; h.waiting == 1 {
		h.since = now
	}
	h.mostNow = max(h.mostNow, h.waiting)
}

// ended says that a request waits no more. answered is when a byte of its answer came.
func (t *Transport) ended(h *host, answered time.Time) {
	t.mu.Lock()
	h.waiting--
	if !answered.IsZero() {
		h.since = answered
		if h.tried.IsZero() {
			h.tried = answered.Add(probation)
		}
	}
	t.mu.Unlock()
}

// take gives a connection on which an exchange has begun, with when it did and has to be over;
// or nil where a new one is needed.
func (t *Transport) take(ctx context.Context, h *host, limits *Limits) (c connection, now, deadline time.Time) {
	for ctx.Err() == nil {
		now = time.Now()
		deadline = limits.deadline(now)
		c, wait, drop := t.pick(h, now)
		dropAll(drop)
		if wait > 0 {
			pause(ctx, wait)
			continue
		}
		one, exclusive := c.(*conn)
		if !exclusive {
			return c, now, deadline
		}
		// It is looked at only now: what was said while it was idle is for nobody.
		one.wire.until(deadline)
		state, _ := one.look()
		if state == quiet {
			return one, now, deadline
		}
		t.ended(h, time.Time{})
		_ = one.wire.Close()
		if state == talking {
			t.suspect(h)
		}
	}
	return nil, now, deadline
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// pick chooses a connection, or says that one is there that has to rest. drop are those that
// are used no more.
func (t *Transport) pick(h *host, now time.Time) (c connection, wait time.Duration, drop []connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	silent := h.waiting > 0 && now.Sub(h.since) > silence
	drop = t.remove(h,
		func(c *conn) bool { return silent || now.Sub(c.rested) >= maxIdleTime || c.born.Before(h.valid) },
		func(c *h2conn) bool {
			return silent && now.Sub(c.proven()) > silence || c.client.Err() != nil || c.born.Before(h.valid)
		})
	if n := len(h.idle); n > 0 {
		if now.Before(h.tried) {
			return nil, h.tried.Sub(now), drop
		}
		last := h.idle[n-1]
		h.idle[n-1] = nil
		h.idle = h.idle[:n-1]
		t.idle--
		t.keepYoung(h, last.born, now)
		h.begin(now)
		return last, 0, drop
	}
	for _, shared := range slices.Backward(h.shared) {
		if shared.room(len(h.shared)) && shared.client.Reserve() == nil {
			t.keepYoung(h, shared.born, now)
			h.begin(now)
			return shared, 0, drop
		}
	}
	return nil, 0, drop
}

// remove takes connections out of the pool. The lock is held, so the caller drops them later.
func (t *Transport) remove(h *host, idle func(*conn) bool, shared func(*h2conn) bool) (drop []connection) {
	before := len(h.idle)
	h.idle = slices.DeleteFunc(h.idle, func(c *conn) bool {
		if !idle(c) {
			return false
		}
		drop = append(drop, c)
		return true
	})
	t.idle -= before - len(h.idle)
	h.shared = slices.DeleteFunc(h.shared, func(c *h2conn) bool {
		if !shared(c) {
			return false
		}
		drop = append(drop, c)
		return true
	})
	return drop
}

func dropAll(drop []connection) {
	for _, c := range drop {
		c.drop()
	}
}

// keepYoung opens a connection in the place of old ones, which go on until it is there, for
// as long as the reason allows why it is not. The lock is held.
func (t *Transport) keepYoung(h *host, born, now time.Time) {
	if now.Sub(born) < maxAge || h.renewing || now.Before(h.renew) {
		return
	}
	h.renewing = true
	t.work.Go(func() {
		began := time.Now()
		ctx, stop := context.WithTimeout(t.life, renewing)
		defer stop()
		c, err := t.dial(ctx, h)
		t.mu.Lock()
		h.renewing = false
		if allowed := t.keepOld(err); h.failing.IsZero() || allowed != h.allowed {
			h.failing, h.allowed = began, allowed
		}
		switch {
		case err == nil:
			h.valid, h.failing = began, time.Time{}
		case time.Since(h.failing) < h.allowed:
			h.renew = time.Now().Add(renewAgain)
		default:
			h.valid, h.failing = time.Now(), time.Time{}
		}
		t.mu.Unlock()
		if err == nil {
			c.release()
		}
	})
}

// keepOld is the configuration's KeepOld; without an error nothing has to be kept.
func (t *Transport) keepOld(err error) time.Duration {
	if err == nil {
		return 0
	}
	return t.config.KeepOld(err)
}

// give puts a connection back that can carry a further exchange.
func (t *Transport) give(c *conn) {
	if state, _ := c.look(); state != quiet {
		_ = c.wire.Close()
		if state == talking {
			t.suspect(c.host)
		}
		return
	}
	t.mu.Lock()
	h := c.host
	c.rested = time.Now()
	keep := !t.closed && t.hosts[h.origin] == h && t.idle < maxIdle && len(h.idle) < max(maxIdlePerHost, h.most, h.mostNow) &&
		!c.rested.Before(h.distrust) && !c.born.Before(h.valid)
	if keep {
		h.idle = append(h.idle, c)
		t.idle++
		t.sweepLater()
	}
	t.mu.Unlock()
	if !keep {
		c.drop()
	}
}

// proven is whether a host answers what it is asked, as far as is known.
func (t *Transport) proven(h *host) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !h.tried.IsZero() && h.distrust.IsZero()
}

// suspect is about a host on whose connection something was that nobody had asked for. The
// next time it may come just after a request was written, and would be its answer.
func (t *Transport) suspect(h *host) {
	t.mu.Lock()
	h.distrust = time.Now().Add(distrusted)
	drop := t.remove(h, func(*conn) bool { return true }, func(*h2conn) bool { return false })
	t.mu.Unlock()
	dropAll(drop)
}

// retire takes out the connections to a host that have not answered since then, and the one that was found dead.
func (t *Transport) retire(h *host, since time.Time, dead connection) {
	t.mu.Lock()
	drop := t.remove(h,
		func(c *conn) bool { return c == dead || c.proven().Before(since) },
		func(c *h2conn) bool { return c == dead || c.proven().Before(since) })
	t.mu.Unlock()
	dropAll(drop)
}

// sweepLater arranges for idle connections to be closed. The lock is held.
func (t *Transport) sweepLater() {
	if t.sweeping || t.closed {
		return
	}
	t.sweeping = true
	t.sweeper = time.AfterFunc(sweepEvery, t.sweep)
}

func (t *Transport) sweep() {
	var drop []connection
	t.mu.Lock()
	t.sweeping = false
	now := time.Now()
	for o, h := range t.hosts {
		drop = append(drop, t.remove(h,
			func(c *conn) bool { return now.Sub(c.rested) >= maxIdleTime || c.born.Before(h.valid) },
			func(c *h2conn) bool { return c.client.Err() != nil || c.born.Before(h.valid) })...)
		h.most, h.mostNow = h.mostNow, h.waiting
		if h.forgettable(now) {
			delete(t.hosts, o)
		}
	}
	if len(t.hosts) > 0 {
		t.sweepLater()
	}
	t.mu.Unlock()
	dropAll(drop)
}

// forgettable is whether nothing is known about a host that may be asked again soon.
func (h *host) forgettable(now time.Time) bool {
	return now.Sub(h.asked) >= maxIdleTime && len(h.idle) == 0 && len(h.shared) == 0 && h.waiting == 0 && h.flight == nil && !h.renewing &&
		!now.Before(h.distrust) && !now.Before(h.plain.Add(h.plainFor))
}
