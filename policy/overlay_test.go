package policy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/policy"
)

func TestOverlayChangesOnlyWhatThePatchNames(t *testing.T) {
	customised := func(p *policy.Policy) {
		p.MaxAttempts = 99
		p.AllowSteering = true
		p.Backoff.Factor = 3
		p.Rules = []policy.Rule{{Match: "404", Action: "abandon"}}
	}
	seconds := func(ns ...int) (ds []policy.Duration) {
		for _, n := range ns {
			ds = append(ds, policy.Duration(time.Duration(n)*time.Second))
		}
		return ds
	}
	listed := func(p *policy.Policy) { p.Backoff = policy.Backoff{Delays: seconds(1, 2), Jitter: 0.5} }
	nothing := func(*policy.Policy) {}
	tests := []struct {
		name   string
		preset string
		base   func(*policy.Policy)
		patch  string
		from   string // the preset that want changes; empty: base
		want   func(*policy.Policy)
	}{
		{"no patch", "standard", customised, ``, "", nothing},
		{"empty patch", "standard", customised, ` {} `, "", nothing},
		{"some fields", "standard", customised, `{"max_attempts":3,"max_age":"2h"}`, "", func(p *policy.Policy) { p.MaxAttempts, p.MaxAge = 3, policy.Duration(2*time.Hour) }},
		{"every scalar", "standard", nothing, `{"retry_after_cap":"0s","max_waits":0,"allow_steering":true}`, "", func(p *policy.Policy) { p.RetryAfterCap, p.MaxWaits, p.AllowSteering = 0, 0, true }},
		{"null resets", "standard", customised, `{"max_attempts":null,"allow_steering":null,"rules":null,"backoff":null,"max_age":null,"retry_after_cap":null,"max_waits":null}`, "standard", nothing},
		{"null resets to the policy's own preset", "short", customised, `{"max_attempts":null}`, "", func(p *policy.Policy) { p.MaxAttempts = 4 }},
		{"a null patch resets everything", "short", customised, `null`, "short", nothing},
		{"another preset begins anew", "standard", customised, `{"preset":"short"}`, "short", nothing},
		{"with the other fields on top", "standard", customised, `{"max_attempts":2,"preset":"short"}`, "short", func(p *policy.Policy) { p.MaxAttempts = 2 }},
		{"so does the same preset", "standard", customised, `{"preset":"standard"}`, "standard", nothing},
		{"a null preset is the default", "short", customised, `{"preset":null}`, "standard", nothing},
		{"part of the schedule", "standard", nothing, `{"backoff":{"initial":"1s"}}`, "", func(p *policy.Policy) { p.Backoff.Initial = policy.Duration(time.Second) }},
		{"part of the schedule reset", "standard", customised, `{"backoff":{"factor":null,"initial":null,"max":null,"jitter":null}}`, "", func(p *policy.Policy) { p.Backoff.Factor = 4 }},
		{"an empty schedule patch", "standard", customised, `{"backoff":{}}`, "", nothing},
		{"a list takes the exponential schedule's place", "standard", nothing, `{"backoff":{"delays":["1s","2s"],"jitter":0.5}}`, "", listed},
		{"an exponential schedule takes the list's place", "standard", listed, `{"backoff":{"initial":"1s"}}`, "", func(p *policy.Policy) {
			p.Backoff = policy.Backoff{Initial: policy.Duration(time.Second), Factor: 4, Max: policy.Duration(time.Hour), Jitter: 0.5}
		}},
		{"a list reset to an exponential preset", "standard", listed, `{"backoff":{"delays":null,"jitter":null}}`, "standard", nothing},
		{"an empty list is none", "standard", listed, `{"backoff":{"delays":[],"jitter":0.3}}`, "standard", nothing},
		{"the list stays", "standard", listed, `{"backoff":{"jitter":0}}`, "", func(p *policy.Policy) { p.Backoff.Jitter = 0 }},
		{"a list reset to a list preset", "patient", listed, `{"backoff":{"delays":null,"jitter":0.3}}`, "patient", nothing},
		{"rules are replaced whole", "standard", customised, `{"rules":[{"match":"5xx","body_contains":"x","action":"disable"},{"match":"*","action":"complete"}]}`, "", func(p *policy.Policy) {
			p.Rules = []policy.Rule{{Match: "5xx", BodyContains: "x", Action: "disable"}, {Match: "*", Action: "complete"}}
		}},
		{"rules are removed", "standard", customised, `{"rules":[]}`, "", func(p *policy.Policy) { p.Rules = nil }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base, want := preset(t, tt.preset), preset(t, tt.preset)
			tt.base(&base)
			if tt.base(&want); tt.from != "" {
				want = preset(t, tt.from)
			}
			tt.want(&want)
			got, err := policy.Overlay(base, []byte(tt.patch))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(asJSON(t, want), asJSON(t, got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if err := got.Validate(); err != nil {
				t.Errorf("not valid: %v", err)
			}
		})
	}
}

func asJSON(t *testing.T, p policy.Policy) string {
	t.Helper()
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestOverlayRefusesWhatItDoesNotKnow(t *testing.T) {
	tests := []struct{ patch, want string }{
		{`{"max_attempt":3}`, "max_attempt"},
		{`{"MAX_ATTEMPTS":3,"maxAge":"1h"}`, "MAX_ATTEMPTS maxAge"},
		{`{"backoff":{"inital":"1s","max":"x"}}`, "backoff.inital backoff.max"},
		{`{"rules":[{"match":"404","action":"abandon"},{"status":404,"action":"abandon"}]}`, "rules[1].status"},
		{`{"max_attempts":"3"}`, "max_attempts"},
		{`{"max_attempts":1.5}`, "max_attempts"},
		{`{"max_attempts":1e40}`, "max_attempts"},
		{`{"max_age":30}`, "max_age"},
		{`{"max_age":"30"}`, "max_age"},
		{`{"max_age":"` + strings.Repeat("9", 5000) + `h"}`, "max_age"},
		{`{"allow_steering":"yes"}`, "allow_steering"},
		{`{"backoff":"fast"}`, "backoff"},
		{`{"backoff":{"factor":1e999}}`, "backoff.factor"},
		{`{"backoff":{"delays":"1s"}}`, "backoff.delays"},
		{`{"backoff":{"delays":["1s",null,2]}}`, "backoff.delays[1] backoff.delays[2]"},
		{`{"rules":{"404":"abandon"}}`, "rules"},
		{`{"rules":[null,7,{"match":404},{"match":null}]}`, "rules[0] rules[1] rules[2].match rules[3].match"},
		{`{"rules":[` + strings.Repeat(`{},`, 100) + `{}]}`, "rules"},
		{`{"preset":"fast"}`, "preset"},
		{`{"preset":3}`, "preset"},
		{`{"a\u001b[2Jb":1}`, "a?[2Jb"},
		{"\x1b\xff", "policy"},
		{`[]`, "policy"},
		{`"standard"`, "policy"},
		{`{"max_attempts":3`, "policy"},
		{`{} {}`, "policy"},
		{strings.Repeat(`{"backoff":`, 20000), "policy"},
	}
	base := preset(t, "standard")
	for _, tt := range tests {
		got, err := policy.Overlay(base, []byte(tt.patch))
		if fields := strings.Join(fieldsOf(err), " "); fields != tt.want {
			t.Errorf("%.60s: fields %q, want %q: %v", tt.patch, fields, tt.want, err)
		}
		if err != nil && len(err.Error()) > 800 {
			t.Errorf("%.60s: the error repeats the input", tt.patch)
		}
		if err != nil && (strings.Contains(err.Error(), "\x1b") || strings.Contains(err.Error(), "\xff")) {
			t.Errorf("%q: the error holds control characters: %q", tt.patch, err)
		}
		if !cmp.Equal(got, base) {
			t.Errorf("%.60s: refused, but changed", tt.patch)
		}
	}
}

func TestOverlayLeavesTheBaseAlone(t *testing.T) {
	base := preset(t, "patient")
	base.Rules = []policy.Rule{{Match: "404", Action: "abandon"}}
	before := asJSON(t, base)
	got, err := policy.Overlay(base, []byte(`{"max_attempts":3}`))
	if err != nil {
		t.Fatal(err)
	}
	got.Rules[0].Match, got.Backoff.Delays[0] = "500", 0
	if asJSON(t, base) != before {
		t.Error("a change of the result reached the base")
	}
}

func FuzzOverlay(f *testing.F) {
	for _, s := range []string{``, `null`, `{"preset":"short","max_attempts":null}`, `{"backoff":{"delays":["1s"]}}`, `{"rules":[{"match":"4xx","body_contains":"x","action":"abandon"}]}`, `{"x":1}`} {
		for i := range policy.PresetNames() {
			f.Add([]byte(s), uint(i))
		}
	}
	f.Fuzz(func(t *testing.T, patch []byte, n uint) {
		names := policy.PresetNames()
		base := preset(t, names[n%uint(len(names))])
		got, err := policy.Overlay(base, patch)
		if err != nil {
			if len(policy.FieldErrors(err)) == 0 || !cmp.Equal(got, base) {
				t.Fatalf("refused without a field, or changed: %v", err)
			}
			return
		}
		if got.Validate() != nil {
			return
		}
		// What is shown can be sent back and gives the same, and decides within bounds.
		shown, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := policy.Overlay(base, shown)
		if err != nil || asJSON(t, again) != asJSON(t, got) {
			t.Fatalf("%s sent back: %v", shown, err)
		}
		for _, status := range []int{200, 404, 429, 500} {
			d := got.Decide(first(policy.Response{Status: status, RetryAfter: "60"}))
			checkBounds(t, got, d, start, time.Time{})
		}
	})
}

func TestPresetsSurviveJSON(t *testing.T) {
	for _, name := range policy.PresetNames() {
		var back policy.Policy
		if err := json.Unmarshal([]byte(asJSON(t, preset(t, name))), &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(preset(t, name), back); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	if slices.Contains(policy.PresetNames(), "") {
		t.Error("a preset without a name")
	}
}
