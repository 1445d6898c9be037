package policy

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Flow is how fast one instance may send to one webhook, and when it stops trying;
// pure data. The zero Flow, which registrations of before there were any have, means
// DefaultFlow: see OrDefault.
type Flow struct {
	// Concurrency is the most POSTs in flight at once.
	Concurrency int `json:"concurrency"`
	// Adaptive lets a Window, which follows what the webhook can take, keep them below
	// Concurrency, and a Pacer learn the rate that it takes; else it is Concurrency all the time.
	Adaptive bool `json:"adaptive"`
	// Rate is the most POSTs that begin in a second, on average; 0 is no limit.
	Rate float64 `json:"rate"`
	// Burst is how many POSTs may begin at once after a pause; 0 is as many as Rate,
	// at least 1.
	Burst int `json:"burst"`
	// Breaker stops sending to a webhook that mostly fails.
	Breaker BreakerSettings `json:"breaker"`
	// AutoDisableAfter is how long a webhook may fail without one 2xx before it is
	// disabled, once at least AutoDisableMinFailures messages have failed; 0 is never.
	AutoDisableAfter       DurationOrNever `json:"auto_disable_after"`
	AutoDisableMinFailures int             `json:"auto_disable_min_failures"`
}

// BreakerSettings are the numbers of a Breaker. Samples are counted over
// BreakerWindow.
type BreakerSettings struct {
	Enabled bool `json:"enabled"`
	// MinSamples is how many answers there must be before it opens, and FailureShare
	// the share of them that must be failures.
	MinSamples   int     `json:"min_samples"`
	FailureShare float64 `json:"failure_share"`
	// ProbeAfter is the time from its opening to the first probe, and between probes at
	// least. They become rarer with the length of the outage, up to ProbeMax: see OutageWait.
	ProbeAfter Duration `json:"probe_after"`
	ProbeMax   Duration `json:"probe_max"`
}

// The limits of a Flow.
const (
	MaxConcurrency        = 1000
	MinRate               = 0.001
	MaxRate               = 10_000
	MaxBurst              = 10_000
	MaxMinSamples         = 10_000
	MinProbeAfter         = time.Second
	MaxProbeAfter         = 24 * time.Hour
	MinAutoDisableAfter   = time.Second
	MaxAutoDisableAfter   = 90 * 24 * time.Hour
	MaxAutoDisableMinimum = 100_000
)

// DefaultFlow is the flow of a webhook that names none.
func DefaultFlow() Flow {
	return Flow{
		Concurrency: 64, Adaptive: true,
		Breaker: BreakerSettings{
			Enabled: true, MinSamples: 10, FailureShare: 0.5,
			ProbeAfter: Duration(2 * time.Second), ProbeMax: Duration(15 * time.Minute),
		},
		AutoDisableAfter:       DurationOrNever(5 * 24 * time.Hour),
		AutoDisableMinFailures: 20,
	}
}

// OrDefault is f, or DefaultFlow when f is the zero Flow.
func (f Flow) OrDefault() Flow {
	if f == (Flow{}) {
		return DefaultFlow()
	}
	return f
}

// EffectiveBurst is Burst, or what stands for it: Rate rounded up, at least 1.
func (f Flow) EffectiveBurst() int {
	if f.Burst > 0 {
		return f.Burst
	}
	return max(int(math.Ceil(min(f.Rate, MaxRate))), 1)
}

// DurationOrNever is a Duration whose zero is written as never.
type DurationOrNever time.Duration

const never = "never"

func (d DurationOrNever) String() string {
	if d == 0 {
		return never
	}
	return Duration(d).String()
}

// MarshalText writes what String returns.
func (d DurationOrNever) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a Go string such as "120h", or never. It refuses 0s, which could
// mean at once.
func (d *DurationOrNever) UnmarshalText(text []byte) error {
	if string(text) == never {
		*d = 0
		return nil
	}
	if err := (*Duration)(d).UnmarshalText(text); err != nil {
		return err
	}
	if *d == 0 {
		return errors.New("0s could mean at once or never: write never")
	}
	return nil
}

// Validate returns everything that is wrong with f, joined: each a FieldError.
func (f Flow) Validate() error {
	var ps problems
	ps.checkCount("concurrency", f.Concurrency, 1, MaxConcurrency)
	if f.Rate != 0 && !(f.Rate >= MinRate && f.Rate <= MaxRate) { // not so when it is NaN
		ps.add("rate", fmt.Sprintf("use POSTs per second from %v to %d, such as 50 or 0.5, or 0 for no limit", MinRate, MaxRate), "%v is out of range", f.Rate)
	}
	ps.checkCount("burst", f.Burst, 0, MaxBurst)
	if f.Burst > 0 && f.Rate == 0 {
		ps.add("burst", "leave it out, or set rate", "it has no effect without a rate")
	}
	f.Breaker.check(&ps)
	if d := time.Duration(f.AutoDisableAfter); d != 0 && (d < MinAutoDisableAfter || d > MaxAutoDisableAfter) {
		ps.add("auto_disable_after", fmt.Sprintf("use %s to %s, such as \"120h\", or \"never\"", MinAutoDisableAfter, MaxAutoDisableAfter), "%s is out of range", d)
	}
	ps.checkCount("auto_disable_min_failures", f.AutoDisableMinFailures, 1, MaxAutoDisableMinimum)
	return errors.Join(ps...)
}

func (b BreakerSettings) check(ps *problems) {
	ps.checkCount("breaker.min_samples", b.MinSamples, 1, MaxMinSamples)
	if !(b.FailureShare > 0 && b.FailureShare <= 1) {
		ps.add("breaker.failure_share", "use a share above 0 and up to 1, such as 0.5", "%v is out of range", b.FailureShare)
	}
	for _, d := range []struct {
		field string
		value Duration
	}{{"breaker.probe_after", b.ProbeAfter}, {"breaker.probe_max", b.ProbeMax}} {
		if d.value < Duration(MinProbeAfter) || d.value > Duration(MaxProbeAfter) {
			ps.add(d.field, fmt.Sprintf("use %s to %s", MinProbeAfter, MaxProbeAfter), "%s is out of range", d.value)
			return
		}
	}
	if b.ProbeMax < b.ProbeAfter {
		ps.addWith([]string{"breaker.probe_after"}, "breaker.probe_max", "use a breaker.probe_max of at least breaker.probe_after", "the longest wait, %s, is shorter than the first one, %s", b.ProbeMax, b.ProbeAfter)
	}
}

// OverlayFlow lays a JSON object over base as Overlay does for a Policy: what the
// patch does not name stays, null is the default, breaker is merged field by field,
// and a rate of 0 without a burst takes the burst away. A zero base counts as
// DefaultFlow. The error joins a FieldError for each problem; the returned Flow is
// then base. Whether the values make sense is for Validate.
func OverlayFlow(base Flow, patch []byte) (Flow, error) {
	base = base.OrDefault()
	if len(bytes.TrimSpace(patch)) == 0 {
		return base, nil
	}
	if null(patch) {
		return DefaultFlow(), nil
	}
	var o overlay
	f := o.flow(base, patch)
	if len(o.problems) > 0 {
		return base, errors.Join(append(o.problems, othersWrong(f, o.problems)...)...)
	}
	return f, nil
}

// othersWrong is what is wrong with a flow beside the fields that can't be read, and beside
// what depends on one of these: all is to be told at once.
func othersWrong(f Flow, unread []error) (more []error) {
	skip := map[string]bool{}
	for _, e := range FieldErrors(errors.Join(unread...)) {
		skip[e.Field] = true
		switch e.Field {
		case "rate":
			skip["burst"] = true
		case "breaker.probe_after":
			skip["breaker.probe_max"] = true
		}
	}
	for _, e := range FieldErrors(f.Validate()) {
		if !skip[e.Field] {
			more = append(more, e)
		}
	}
	return more
}

func (o *overlay) flow(f Flow, patch []byte) Flow {
	preset := DefaultFlow()
	fields := o.object("flow", patch, "concurrency", "adaptive", "rate", "burst", "breaker", "auto_disable_after", "auto_disable_min_failures")
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[field]
		switch field {
		case "concurrency":
			o.set(field, raw, func() { f.Concurrency = preset.Concurrency }, &f.Concurrency)
		case "adaptive":
			o.set(field, raw, func() { f.Adaptive = preset.Adaptive }, &f.Adaptive)
		case "rate":
			o.set(field, raw, func() { f.Rate = preset.Rate }, &f.Rate)
		case "burst":
			o.set(field, raw, func() { f.Burst = preset.Burst }, &f.Burst)
		case "breaker":
			f.Breaker = o.breaker(f.Breaker, preset.Breaker, raw)
		case "auto_disable_after":
			o.set(field, raw, func() { f.AutoDisableAfter = preset.AutoDisableAfter }, &f.AutoDisableAfter)
		case "auto_disable_min_failures":
			o.set(field, raw, func() { f.AutoDisableMinFailures = preset.AutoDisableMinFailures }, &f.AutoDisableMinFailures)
		}
	}
	if _, named := fields["burst"]; !named && f.Rate == 0 {
		f.Burst = preset.Burst
	}
	return f
}

func (o *overlay) breaker(b, preset BreakerSettings, raw []byte) BreakerSettings {
	if null(raw) {
		return preset
	}
	fields := o.object("breaker", raw, "enabled", "min_samples", "failure_share", "probe_after", "probe_max")
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		raw, path := fields[field], "breaker."+field
		switch field {
		case "enabled":
			o.set(path, raw, func() { b.Enabled = preset.Enabled }, &b.Enabled)
		case "min_samples":
			o.set(path, raw, func() { b.MinSamples = preset.MinSamples }, &b.MinSamples)
		case "failure_share":
			o.set(path, raw, func() { b.FailureShare = preset.FailureShare }, &b.FailureShare)
		case "probe_after":
			o.set(path, raw, func() { b.ProbeAfter = preset.ProbeAfter }, &b.ProbeAfter)
		case "probe_max":
			o.set(path, raw, func() { b.ProbeMax = preset.ProbeMax }, &b.ProbeMax)
		}
	}
	return b
}
