package policy

import "time"

// AutoDisableState is since when a webhook only fails, as one instance has seen it.
type AutoDisableState struct {
	// FailingSince is when the first message failed after the last 2xx; zero when
	// none has.
	FailingSince time.Time `json:"failing_since,omitzero"`
	// FailedMessages is how many messages have failed since then.
	FailedMessages int `json:"failed_messages"`
	// LastSuccess is when it last answered 2xx.
	LastSuccess time.Time `json:"last_success_at,omitzero"`
}

// AutoDisable tells when a webhook has failed for so long that it is disabled. The
// zero AutoDisable is ready.
type AutoDisable struct{ state AutoDisableState }

// Failed counts a message whose first attempt in this state has failed (Sign.Failed).
// The caller leaves out further attempts of a message that was counted, and what
// failed during an Outage.
func (a *AutoDisable) Failed(now time.Time) {
	if a.state.FailingSince.IsZero() || a.state.FailingSince.After(now) { // the clock was set back
		a.state.FailingSince = now
	}
	a.state.FailedMessages++
}

// Succeeded takes in a 2xx.
func (a *AutoDisable) Succeeded(now time.Time) { a.state = AutoDisableState{LastSuccess: now} }

// Reset begins anew: the webhook was enabled or has another URL.
func (a *AutoDisable) Reset() { a.state = AutoDisableState{LastSuccess: a.state.LastSuccess} }

// State is a snapshot.
func (a *AutoDisable) State() AutoDisableState { return a.state }

// Restore goes on from a snapshot, after a restart.
func (a *AutoDisable) Restore(st AutoDisableState) {
	st.FailedMessages = max(st.FailedMessages, 0)
	a.state = st
}

// Due tells whether the webhook is to be disabled: what one instance has seen, or
// Together of all.
func (st AutoDisableState) Due(f Flow, now time.Time) bool {
	return f.AutoDisableAfter > 0 && !st.FailingSince.IsZero() && st.FailedMessages >= f.AutoDisableMinFailures &&
		now.Sub(st.FailingSince) >= time.Duration(f.AutoDisableAfter)
}

// Together is what several instances have seen of one webhook. A 2xx that one of them
// got counts for all: it ends what the others had counted before. So does since, when
// the webhook was last enabled or got its URL, of which an instance may not know yet.
// Messages may count more than once when several instances tried them.
func Together(since time.Time, states ...AutoDisableState) AutoDisableState {
	var all AutoDisableState
	for _, st := range states {
		all.LastSuccess = later(all.LastSuccess, st.LastSuccess)
	}
	reset := later(all.LastSuccess, since)
	for _, st := range states {
		if st.FailingSince.IsZero() || st.FailingSince.Before(reset) {
			continue
		}
		if all.FailingSince.IsZero() || st.FailingSince.Before(all.FailingSince) {
			all.FailingSince = st.FailingSince
		}
		all.FailedMessages += st.FailedMessages
	}
	return all
}
