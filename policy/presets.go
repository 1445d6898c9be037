package policy

import (
	"fmt"
	"strings"
	"time"
)

// DefaultPreset is the preset of a webhook that names none.
const DefaultPreset = "standard"

// PresetNames lists the presets, the default first.
func PresetNames() []string {
	return []string{DefaultPreset, "once", "realtime", "moderate", "tolerant", "short", "patient"}
}

// Preset returns the policy of that name:
//
//   - standard: 8 attempts over some hours, 5 s ×4 up to 1 h.
//   - once: a single attempt and no waits, for what is worthless when late.
//   - realtime: 2 attempts, 1 s apart, and short waits only.
//   - moderate: 3 attempts within about a minute.
//   - tolerant: 5 attempts within about 20 minutes, for receivers that fail often
//     and briefly.
//   - short: 3 retries after 4, 8 and 16 minutes; made for retrying what other
//     programs put on a poison queue.
//   - patient: the example schedule of Standard Webhooks 1.0, 10 attempts over
//     three days.
//
// All add 0–30 % of jitter.
func Preset(name string) (Policy, error) {
	p := Policy{
		Preset:        name,
		MaxAttempts:   8,
		MaxAge:        Duration(24 * time.Hour),
		Backoff:       exponential(5*time.Second, 4, time.Hour),
		RetryAfterCap: Duration(24 * time.Hour),
		PauseCap:      DefaultPauseCap,
		MaxWaits:      10,
	}
	switch name {
	case DefaultPreset:
	case "once":
		p.MaxAttempts, p.MaxWaits = 1, 0
	case "realtime":
		p.MaxAttempts = 2
		p.MaxAge = Duration(5 * time.Minute)
		p.Backoff = exponential(time.Second, 2, 30*time.Second)
		p.RetryAfterCap = Duration(time.Minute)
		p.MaxWaits = 2
	case "moderate":
		p.MaxAttempts = 3
		p.Backoff = exponential(10*time.Second, 4, 10*time.Minute)
	case "tolerant":
		p.MaxAttempts = 5
		p.Backoff = exponential(10*time.Second, 4, 10*time.Minute)
	case "short":
		p.MaxAttempts = 4
		p.Backoff = exponential(4*time.Minute, 2, 16*time.Minute)
	case "patient":
		p.MaxAttempts = 10
		// The schedule takes 75 h 35 min, with all jitter 99 h; the rest is room
		// for waits that the receiver asks for.
		p.MaxAge = Duration(120 * time.Hour)
		p.Backoff = Backoff{Delays: standardWebhooks(), Jitter: presetJitter}
	default:
		return Policy{}, FieldError{
			Field: "preset", Problem: fmt.Sprintf("there is no preset %.40q", name),
			Cure: "use one of " + strings.Join(PresetNames(), ", "),
		}
	}
	return p, nil
}

// presetJitter spreads a burst that failed within one second over 18 seconds at a
// delay of 60 s, with no more than a tenth of it in any second.
const presetJitter = 0.3

func exponential(initial time.Duration, factor float64, limit time.Duration) Backoff {
	return Backoff{Initial: Duration(initial), Factor: factor, Max: Duration(limit), Jitter: presetJitter}
}

// standardWebhooks is the example schedule of Standard Webhooks 1.0, without the
// 0 of the first attempt.
func standardWebhooks() []Duration {
	const h = Duration(time.Hour)
	return []Duration{Duration(5 * time.Second), Duration(5 * time.Minute), Duration(30 * time.Minute), 2 * h, 5 * h, 10 * h, 14 * h, 20 * h, 24 * h}
}
