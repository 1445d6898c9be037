package policy_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/policy"
)

func TestAZeroFlowIsTheDefault(t *testing.T) {
	if d := cmp.Diff(policy.DefaultFlow(), policy.Flow{}.OrDefault()); d != "" {
		t.Error(d)
	}
	if err := policy.DefaultFlow().Validate(); err != nil {
		t.Errorf("the default is not valid: %v", err)
	}
	f := policy.DefaultFlow()
	f.Concurrency = 1
	if f.OrDefault() != f {
		t.Error("a flow that says something was replaced")
	}
}

func TestBurstFollowsTheRate(t *testing.T) {
	for _, tt := range []struct {
		rate        float64
		burst, want int
	}{{0, 0, 1}, {0.5, 0, 1}, {1, 0, 1}, {2.5, 0, 3}, {50, 0, 50}, {50, 7, 7}, {math.Inf(1), 0, policy.MaxRate}} {
		if got := (policy.Flow{Rate: tt.rate, Burst: tt.burst}).EffectiveBurst(); got != tt.want {
			t.Errorf("rate %v, burst %d: %d, want %d", tt.rate, tt.burst, got, tt.want)
		}
	}
}

func TestFlowValidateNamesTheField(t *testing.T) {
	tests := []struct {
		field  string
		change func(*policy.Flow)
	}{
		{"concurrency", func(f *policy.Flow) { f.Concurrency = 0 }},
		{"concurrency", func(f *policy.Flow) { f.Concurrency = 1001 }},
		{"rate", func(f *policy.Flow) { f.Rate = -1 }},
		{"rate", func(f *policy.Flow) { f.Rate = 0.0001 }},
		{"rate", func(f *policy.Flow) { f.Rate = 10_001 }},
		{"rate", func(f *policy.Flow) { f.Rate = math.NaN() }},
		{"burst", func(f *policy.Flow) { f.Rate, f.Burst = 1, -1 }},
		{"burst", func(f *policy.Flow) { f.Rate, f.Burst = 1, 10_001 }},
		{"burst", func(f *policy.Flow) { f.Burst = 5 }},
		{"breaker.min_samples", func(f *policy.Flow) { f.Breaker.MinSamples = 0 }},
		{"breaker.failure_share", func(f *policy.Flow) { f.Breaker.FailureShare = 0 }},
		{"breaker.failure_share", func(f *policy.Flow) { f.Breaker.FailureShare = 1.1 }},
		{"breaker.failure_share", func(f *policy.Flow) { f.Breaker.FailureShare = math.NaN() }},
		{"breaker.probe_after", func(f *policy.Flow) { f.Breaker.ProbeAfter = 0 }},
		{"breaker.probe_max", func(f *policy.Flow) { f.Breaker.ProbeMax = policy.Duration(25 * time.Hour) }},
		{"breaker.probe_max", func(f *policy.Flow) { f.Breaker.ProbeMax = policy.Duration(1 * time.Second) }},
		{"auto_disable_after", func(f *policy.Flow) { f.AutoDisableAfter = -1 }},
		{"auto_disable_after", func(f *policy.Flow) { f.AutoDisableAfter = policy.DurationOrNever(time.Millisecond) }},
		{"auto_disable_min_failures", func(f *policy.Flow) { f.AutoDisableMinFailures = 0 }},
	}
	for _, tt := range tests {
		f := policy.DefaultFlow()
		tt.change(&f)
		err := f.Validate()
		if got := strings.Join(fieldsOf(err), " "); got != tt.field {
			t.Errorf("%+v: fields %q, want %q (%v)", f, got, tt.field, err)
		}
	}
}

func TestOverlayFlowChangesOnlyWhatThePatchNames(t *testing.T) {
	base := policy.DefaultFlow()
	base.Adaptive, base.Rate, base.Burst, base.Breaker.MinSamples = false, 5, 9, 30
	tests := []struct {
		name, patch string
		want        func(*policy.Flow)
	}{
		{"no patch", " ", func(*policy.Flow) {}},
		{"an empty one", "{}", func(*policy.Flow) {}},
		{"null is the default", "null", func(f *policy.Flow) { *f = policy.DefaultFlow() }},
		{"every field", `{"concurrency":3,"adaptive":false,"rate":0.5,"burst":2,"breaker":{"enabled":false,"min_samples":4,"failure_share":0.9,"probe_after":"1m","probe_max":"2m"},
			"auto_disable_after":"48h","auto_disable_min_failures":7}`, func(f *policy.Flow) {
			*f = policy.Flow{
				Concurrency: 3, Rate: 0.5, Burst: 2, AutoDisableAfter: policy.DurationOrNever(48 * time.Hour), AutoDisableMinFailures: 7,
				Breaker: policy.BreakerSettings{MinSamples: 4, FailureShare: 0.9, ProbeAfter: policy.Duration(time.Minute), ProbeMax: policy.Duration(2 * time.Minute)},
			}
		}},
		{"null resets each", `{"concurrency":null,"adaptive":null,"rate":null,"burst":null,"breaker":{"min_samples":null,"enabled":null,"failure_share":null,"probe_after":null,"probe_max":null},
			"auto_disable_after":null,"auto_disable_min_failures":null}`, func(f *policy.Flow) { *f = policy.DefaultFlow() }},
		{"part of the breaker", `{"breaker":{"enabled":false}}`, func(f *policy.Flow) { f.Breaker.Enabled = false }},
		{"the breaker reset", `{"breaker":null}`, func(f *policy.Flow) { f.Breaker.MinSamples = 10 }},
		{"adaptive again", `{"adaptive":true}`, func(f *policy.Flow) { f.Adaptive = true }},
		{"never", `{"auto_disable_after":"never"}`, func(f *policy.Flow) { f.AutoDisableAfter = 0 }},
		{"another rate keeps the burst", `{"rate":7}`, func(f *policy.Flow) { f.Rate = 7 }},
		{"no rate takes the burst away", `{"rate":0}`, func(f *policy.Flow) { f.Rate, f.Burst = 0, 0 }},
	}
	for _, tt := range tests {
		want := base
		tt.want(&want)
		got, err := policy.OverlayFlow(base, []byte(tt.patch))
		if err == nil {
			err = got.Validate()
		}
		if err != nil || got != want {
			t.Errorf("%s: %v, -want +got:\n%s", tt.name, err, cmp.Diff(want, got))
		}
	}
	if got, err := policy.OverlayFlow(policy.Flow{}, []byte(`{"rate":2}`)); err != nil || got.Concurrency != 64 {
		t.Errorf("over the zero flow: %+v, %v; want it laid over the default", got, err)
	}
}

func TestOverlayFlowRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, tt := range []struct{ patch, want string }{
		{`{"concurency":3}`, "concurency"},
		{`{"concurrency":"3","adaptive":1,"rate":"fast"}`, "adaptive concurrency rate"},
		{`{"breaker":true}`, "breaker"},
		{`{"breaker":{"window":"60s"}}`, "breaker.window"},
		{`{"auto_disable_after":120}`, "auto_disable_after"},
		{`{"auto_disable_after":"soon"}`, "auto_disable_after"},
		{`{"auto_disable_after":"0s"}`, "auto_disable_after"},
		{`[]`, "flow"},
		{`{} {}`, "flow"},
	} {
		got, err := policy.OverlayFlow(policy.DefaultFlow(), []byte(tt.patch))
		if fields := strings.Join(fieldsOf(err), " "); fields != tt.want || got != policy.DefaultFlow() {
			t.Errorf("%s: fields %q, want %q; changed: %v", tt.patch, fields, tt.want, got != policy.DefaultFlow())
		}
	}
}

func TestOverlayFlowTellsAllThatIsWrongAtOnce(t *testing.T) {
	for patch, want := range map[string]string{
		`{"concurrency":0,"rate":"fast","burst":3,"speed":1,"breaker":{"failure_share":2,"probe_after":"soon","probe_max":"1h"}}`: "breaker.failure_share, breaker.probe_after, concurrency, rate, speed",
		`{"burst":3,"speed":1}`: "burst, speed",
	} {
		_, err := policy.OverlayFlow(policy.DefaultFlow(), []byte(patch))
		var fields []string
		for _, e := range policy.FieldErrors(err) {
			fields = append(fields, e.Field)
		}
		slices.Sort(fields)
		if got := strings.Join(fields, ", "); got != want {
			t.Errorf("%s: %s, want %s", patch, got, want)
		}
	}
}

func FuzzOverlayFlow(f *testing.F) {
	for _, s := range []string{``, `null`, `{"rate":0.5,"burst":1}`, `{"breaker":{"enabled":false}}`, `{"auto_disable_after":"never"}`, `{"x":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, patch []byte) {
		got, err := policy.OverlayFlow(policy.Flow{}, patch)
		if err != nil {
			if len(policy.FieldErrors(err)) == 0 || got != policy.DefaultFlow() {
				t.Fatalf("refused without a field, or changed: %v", err)
			}
			return
		}
		if got.Validate() != nil {
			return
		}
		shown, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var stored policy.Flow
		again, err := policy.OverlayFlow(policy.Flow{}, shown)
		if err != nil || again != got || json.Unmarshal(shown, &stored) != nil || stored != got {
			t.Fatalf("%s sent back is %+v and stored %+v: %v", shown, again, stored, err)
		}
	})
}
