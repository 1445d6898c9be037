package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Duration is a time.Duration that is written as hours, minutes and seconds, such as 1h30m, 30s
// or 0.00068s: Go reads that, and with PT before it, in upper case, so do all who read ISO 8601.
type Duration time.Duration

// MarshalText writes what String returns.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads any Go string such as "30s" or "1h30m".
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.40q is not a duration: write a number and a unit, such as 30s, 5m or 1h30m", text)
	}
	*d = Duration(v)
	return nil
}

// String has no part that is zero, and a fraction of seconds only.
func (d Duration) String() string {
	var b strings.Builder
	left := uint64(d)
	if d < 0 {
		b.WriteByte('-')
		left = -left
	}
	for _, part := range []struct {
		unit string
		size uint64
	}{{"h", uint64(time.Hour)}, {"m", uint64(time.Minute)}} {
		if n := left / part.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, part.unit)
		}
		left %= part.size
	}
	whole, fraction := left/uint64(time.Second), left%uint64(time.Second)
	switch {
	case fraction > 0:
		b.WriteString(strings.TrimRight(fmt.Sprintf("%d.%09d", whole, fraction), "0") + "s")
	case whole > 0 || d == 0:
		fmt.Fprintf(&b, "%ds", whole)
	}
	return b.String()
}

// Policy is what one webhook's answers mean; pure data, shown in the API. Make
// one with Preset and change what differs; Validate says what is wrong.
type Policy struct {
	// Preset is the name of the preset it began as.
	Preset string `json:"preset"`
	// MaxAttempts is the number of charged attempts after which a delivery is
	// dead-lettered; with 1, and MaxWaits 0, nothing is tried twice.
	MaxAttempts int `json:"max_attempts"`
	// MaxAge is how long after the delivery's first attempt a further one may
	// still begin.
	MaxAge Duration `json:"max_age"`
	// Backoff is the delay between attempts.
	Backoff Backoff `json:"backoff"`
	// RetryAfterCap is the longest wait that a receiver can ask for, jitter included; it
	// gets a third of the time that is left at most. With 0 receivers can't ask for any.
	RetryAfterCap Duration `json:"retry_after_cap"`
	// PauseCap is the longest time for which a 429 or 503 keeps the webhook's other messages
	// from it.
	PauseCap Duration `json:"pause_cap"`
	// MaxWaits is how many waits of a delivery that a 429 or 503 asked for are
	// not charged.
	MaxWaits int `json:"max_waits"`
	// AllowSteering lets the answer header pushlease-decision (complete,
	// abandon, dead-letter or disable) override the rules and the table: it is
	// about this one message, which they know nothing of.
	AllowSteering bool `json:"allow_steering"`
	// Rules override the default table; the first that matches decides.
	Rules []Rule `json:"rules,omitempty"`
}

// DefaultPauseCap is the PauseCap of the presets, and of policies that were stored before
// there was one.
const DefaultPauseCap = Duration(15 * time.Minute)

// UnmarshalJSON reads a policy as it is stored.
func (p *Policy) UnmarshalJSON(text []byte) error {
	type stored Policy
	if err := json.Unmarshal(text, (*stored)(p)); err != nil {
		return err
	}
	if p.PauseCap == 0 {
		p.PauseCap = DefaultPauseCap
	}
	return nil
}

// Backoff is the schedule of delays between attempts: either exponential, or a
// list whose last entry repeats.
type Backoff struct {
	// Initial is the delay after the first attempt.
	Initial Duration `json:"initial,omitempty"`
	// Factor multiplies the delay after each further attempt.
	Factor float64 `json:"factor,omitempty"`
	// Max bounds the delay before jitter.
	Max Duration `json:"max,omitempty"`
	// Delays replaces Initial, Factor and Max.
	Delays []Duration `json:"delays,omitempty"`
	// Jitter adds up to this share of the delay (0.3 is +0–30 %); it never
	// shortens one.
	Jitter float64 `json:"jitter"`
}

// Rule overrides the default table for answers that match.
type Rule struct {
	// Match is a status (404), a class of statuses (4xx), an ErrorClass
	// (timeout, connect, dns, tls, reset, protocol), or * for everything that
	// is not 2xx, no answer included. Blocked addresses are never up to rules.
	Match string `json:"match"`
	// BodyContains narrows Match to answers whose body has this text, without
	// regard to case. Only the beginning of the body is looked at.
	BodyContains string `json:"body_contains,omitempty"`
	// Action is complete, abandon, dead-letter or disable; disable also
	// dead-letters the message.
	Action string `json:"action"`
}
