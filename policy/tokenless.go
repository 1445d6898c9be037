package policy

import "time"

// FaultTold is for how long a fault of a webhook's own registration is told after it was met: what waits for it is looked at again sooner.
const FaultTold = 35 * time.Minute

// Tokenless holds a webhook for whose receiver no token can be had, until it is worth trying again; then one POST does. The zero value holds nothing.
type Tokenless struct {
	why    string
	at     time.Time
	trying bool
}

// Ask holds it until then.
func (h *Tokenless) Ask(why string, again, now time.Time) {
	h.why, h.at = why+", at "+now.UTC().Format(time.RFC3339), again
}

// Held tells whether it was held, and has not had a token since.
func (h *Tokenless) Held() bool { return h.why != "" }

// Until is until when nothing may be sent; zero when one POST may try.
func (h *Tokenless) Until(now time.Time) time.Time {
	if h.why == "" || !h.at.After(now) {
		return time.Time{}
	}
	return h.at
}

// Room is how many more POSTs may find out whether the webhook can be sent to, where its breaker lets n do that; negative where none has to.
func (h *Tokenless) Room(n int) int {
	switch {
	case h.why == "":
		return n
	case h.trying || n == 0:
		return 0
	}
	return 1
}

// Try tells whether the POST that begins now is the one that tries, and Over that a POST has ended.
func (h *Tokenless) Try() bool {
	h.trying = h.why != ""
	return h.trying
}

// Over takes in that a POST has ended, which tried or did not.
func (h *Tokenless) Over(tried bool) { h.trying = h.trying && !tried }

// Reset ends it: there is a token, or the webhook was changed.
func (h *Tokenless) Reset() { h.why = "" }

// Told is why no token can be had; empty also when nobody has tried again for long.
func (h *Tokenless) Told(now time.Time) string {
	if now.Sub(h.at) >= FaultTold {
		return ""
	}
	return h.why
}

// unfitTold is how often it is told in the log.
const unfitTold = time.Minute

// Unfit remembers why no request could be made to a webhook.
type Unfit struct {
	why        string
	at, logged time.Time
}

// Tell takes it in, and reports whether the log is to say it now.
func (u *Unfit) Tell(why string, now time.Time) (log bool) {
	u.why, u.at = why, now
	if log = now.Sub(u.logged) >= unfitTold; log {
		u.logged = now
	}
	return log
}

// Reset forgets it: one could be made.
func (u *Unfit) Reset() { u.why = "" }

// Told is why; empty also when that is long ago.
func (u *Unfit) Told(now time.Time) string {
	if now.Sub(u.at) >= FaultTold {
		return ""
	}
	return u.why
}
