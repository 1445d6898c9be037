package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Overlay lays a JSON object over base, the way that the API creates and changes
// policies; an empty patch changes nothing.
//
//   - A field that the patch does not name stays as it is in base.
//   - null gives a field the value of the preset; for the whole patch, all
//     fields.
//   - preset begins anew from that preset, even if base began as the same one; the
//     patch's other fields are laid over it. null is DefaultPreset.
//   - backoff is merged field by field. The two kinds of schedule exclude each
//     other: naming only fields of the one removes the fields of the other.
//   - Lists (rules, backoff.delays) are replaced whole.
//
// The error joins a FieldError for each unknown field and each value of a wrong
// type; the returned Policy is then base. Whether the values make sense is for
// Validate.
func Overlay(base Policy, patch []byte) (Policy, error) {
	if len(bytes.TrimSpace(patch)) == 0 {
		return base, nil
	}
	var o overlay
	p := o.policy(base, patch)
	if len(o.problems) > 0 {
		return base, errors.Join(o.problems...)
	}
	return p, nil
}

type overlay struct{ problems }

// null tells whether raw is the JSON null.
func null(raw []byte) bool { return string(bytes.TrimSpace(raw)) == "null" }

func (o *overlay) policy(p Policy, patch []byte) Policy {
	fields := o.object("policy", patch, "preset", "max_attempts", "max_age", "backoff", "retry_after_cap", "pause_cap", "max_waits", "allow_steering", "rules")
	name, named := fields["preset"]
	if named {
		o.set("preset", name, func() { p.Preset = DefaultPreset }, &p.Preset)
	}
	preset, err := Preset(p.Preset)
	if err != nil {
		if len(o.problems) == 0 { // a preset of a wrong type was reported already
			o.problems = append(o.problems, err)
		}
		return p
	}
	if named || null(patch) {
		p = preset
	}
	p.Rules, p.Backoff.Delays = slices.Clone(p.Rules), slices.Clone(p.Backoff.Delays)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[field]
		switch field {
		case "max_attempts":
			o.set(field, raw, func() { p.MaxAttempts = preset.MaxAttempts }, &p.MaxAttempts)
		case "max_age":
			o.set(field, raw, func() { p.MaxAge = preset.MaxAge }, &p.MaxAge)
		case "backoff":
			p.Backoff = o.backoff(p.Backoff, preset.Backoff, raw)
		case "retry_after_cap":
			o.set(field, raw, func() { p.RetryAfterCap = preset.RetryAfterCap }, &p.RetryAfterCap)
		case "pause_cap":
			o.set(field, raw, func() { p.PauseCap = preset.PauseCap }, &p.PauseCap)
		case "max_waits":
			o.set(field, raw, func() { p.MaxWaits = preset.MaxWaits }, &p.MaxWaits)
		case "allow_steering":
			o.set(field, raw, func() { p.AllowSteering = preset.AllowSteering }, &p.AllowSteering)
		case "rules":
			p.Rules = o.rules(preset.Rules, raw)
		}
	}
	return p
}

func (o *overlay) backoff(b, preset Backoff, raw []byte) Backoff {
	if null(raw) {
		return preset
	}
	fields := o.object("backoff", raw, "initial", "factor", "max", "delays", "jitter")
	if len(b.Delays) > 0 { // where an exponential schedule begins if it takes the list's place
		b.Initial, b.Factor, b.Max = preset.Initial, preset.Factor, preset.Max
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		raw, path := fields[field], "backoff."+field
		switch field {
		case "initial":
			o.set(path, raw, func() { b.Initial = preset.Initial }, &b.Initial)
		case "factor":
			o.set(path, raw, func() { b.Factor = preset.Factor }, &b.Factor)
		case "max":
			o.set(path, raw, func() { b.Max = preset.Max }, &b.Max)
		case "delays":
			b.Delays = o.delays(preset.Delays, raw)
		case "jitter":
			o.set(path, raw, func() { b.Jitter = preset.Jitter }, &b.Jitter)
		}
	}
	exponential := given(fields, "initial") || given(fields, "factor") || given(fields, "max")
	switch {
	case exponential && !given(fields, "delays"):
		b.Delays = nil
	case len(b.Delays) > 0: // what is given beside the list is refused, and nothing else
		if !given(fields, "initial") {
			b.Initial = 0
		}
		if !given(fields, "factor") {
			b.Factor = 0
		}
		if !given(fields, "max") {
			b.Max = 0
		}
	}
	return b
}

// given tells whether fields gives name a value of its own.
func given(fields map[string]json.RawMessage, name string) bool {
	raw, ok := fields[name]
	return ok && !null(raw)
}

func (o *overlay) delays(preset []Duration, raw []byte) []Duration {
	if null(raw) {
		return preset
	}
	var delays []Duration
	for i, item := range o.list("backoff.delays", raw, MaxDelays) {
		var d Duration
		path := fmt.Sprintf("backoff.delays[%d]", i)
		o.set(path, item, o.refuseNull(path), &d)
		delays = append(delays, d)
	}
	return delays
}

func (o *overlay) rules(preset []Rule, raw []byte) []Rule {
	if null(raw) {
		return preset
	}
	var rules []Rule
	for i, item := range o.list("rules", raw, MaxRules) {
		var rule Rule
		path := fmt.Sprintf("rules[%d]", i)
		if null(item) {
			o.refuseNull(path)()
			continue
		}
		fields := o.object(path, item, "match", "body_contains", "action")
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			at := map[string]*string{"match": &rule.Match, "body_contains": &rule.BodyContains, "action": &rule.Action}[field]
			o.set(path+"."+field, fields[field], o.refuseNull(path+"."+field), at)
		}
		rules = append(rules, rule)
	}
	return rules
}

func (o *overlay) refuseNull(path string) func() {
	return func() { o.add(path, "give it a value, or leave it out", "null has no meaning here") }
}

// set decodes raw into to, or calls reset when it is null.
func (o *overlay) set(path string, raw []byte, reset func(), to any) {
	if null(raw) {
		reset()
		return
	}
	err := json.Unmarshal(raw, to)
	if err == nil {
		return
	}
	var want string
	switch to.(type) {
	case *Duration:
		want = `write a string of a number and a unit, such as "30s", "5m" or "1h30m"`
	case *DurationOrNever:
		want = `write a string of a number and a unit, such as "120h", or "never"`
	case *int:
		want = "write a whole number"
	case *float64:
		want = "write a number"
	case *bool:
		want = "write true or false"
	default:
		want = "write a string"
	}
	o.add(path, want, "%s is not such a value", shown(string(raw)))
}

// object decodes raw as an object that has only known fields; null is an empty
// one.
func (o *overlay) object(path string, raw []byte, known ...string) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		o.add(path, "write a JSON object with the fields "+strings.Join(known, ", "), "%s is not a JSON object", shown(string(raw)))
		return nil
	}
	prefix := path + "."
	if path == "policy" || path == "flow" {
		prefix = ""
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, name) {
			o.add(prefix+shown(name), "use only "+strings.Join(known, ", "), "there is no such field")
			delete(fields, name)
		}
	}
	return fields
}

// list decodes raw as an array of at most so many items.
func (o *overlay) list(path string, raw []byte, most int) []json.RawMessage {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		o.add(path, "write a JSON array", "%s is not a JSON array", shown(string(raw)))
		return nil
	}
	if len(items) > most {
		o.add(path, fmt.Sprintf("use at most %d", most), "there are %d", len(items))
		return nil
	}
	return items
}

// shown is the beginning of what was sent, fit for an error.
func shown(raw string) string {
	cut := raw[:min(len(raw), 40)]
	safe := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(cut, ""))
	if len(cut) < len(raw) {
		safe += "…"
	}
	return safe
}
