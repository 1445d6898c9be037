package policy_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

func fieldsOf(err error) []string {
	var fields []string
	for _, e := range policy.FieldErrors(err) {
		fields = append(fields, e.Field)
	}
	return fields
}

type change = func(*policy.Policy)

func dur(d time.Duration) policy.Duration { return policy.Duration(d) }

func rules(rs ...policy.Rule) change { return func(p *policy.Policy) { p.Rules = rs } }

func list(ds ...policy.Duration) change {
	return func(p *policy.Policy) { p.Backoff = policy.Backoff{Delays: ds} }
}

var validations = []struct {
	name   string
	change change
	want   string // fields, separated by blanks
}{
	{"nothing", func(*policy.Policy) {}, ""},
	{"unknown preset", func(p *policy.Policy) { p.Preset = "fast" }, "preset"},
	{"no attempts", func(p *policy.Policy) { p.MaxAttempts = 0 }, "max_attempts"},
	{"too many attempts", func(p *policy.Policy) { p.MaxAttempts = 1001 }, "max_attempts"},
	{"negative waits", func(p *policy.Policy) { p.MaxWaits = -1 }, "max_waits"},
	{"too many waits", func(p *policy.Policy) { p.MaxWaits = 1001 }, "max_waits"},
	{"no age", func(p *policy.Policy) { p.MaxAge = 0 }, "max_age"},
	{"too old", func(p *policy.Policy) { p.MaxAge = dur(31 * 24 * time.Hour) }, "max_age"},
	{"age shorter than the first delay", func(p *policy.Policy) { p.MaxAge = dur(4 * time.Second) }, "max_age"},
	{"which is nothing to a single attempt", func(p *policy.Policy) { p.MaxAge, p.MaxAttempts = dur(4*time.Second), 1 }, ""},
	{"negative cap", func(p *policy.Policy) { p.RetryAfterCap = -1 }, "retry_after_cap"},
	{"cap beyond seven days", func(p *policy.Policy) { p.RetryAfterCap = dur(policy.MaxDelay + 1) }, "retry_after_cap"},
	{"cap of zero", func(p *policy.Policy) { p.RetryAfterCap = 0 }, ""},
	{"negative jitter", func(p *policy.Policy) { p.Backoff.Jitter = -0.1 }, "backoff.jitter"},
	{"jitter above 1", func(p *policy.Policy) { p.Backoff.Jitter = 30 }, "backoff.jitter"},
	{"jitter NaN", func(p *policy.Policy) { p.Backoff.Jitter = math.NaN() }, "backoff.jitter"},
	{"factor NaN", func(p *policy.Policy) { p.Backoff.Factor = math.NaN() }, "backoff.factor"},
	{"factor infinite", func(p *policy.Policy) { p.Backoff.Factor = math.Inf(1) }, "backoff.factor"},
	{"factor below 1", func(p *policy.Policy) { p.Backoff.Factor = 0.5 }, "backoff.factor"},
	{"factor 1", func(p *policy.Policy) { p.Backoff.Factor = 1 }, ""},
	{"no initial delay", func(p *policy.Policy) { p.Backoff.Initial = 0 }, "backoff.initial"},
	{"negative delays", func(p *policy.Policy) { p.Backoff.Initial, p.Backoff.Max = -1, -1 }, "backoff.initial backoff.max"},
	{"maximum below the first delay", func(p *policy.Policy) { p.Backoff.Max = dur(time.Second) }, "backoff.max"},
	{"maximum beyond seven days", func(p *policy.Policy) { p.Backoff.Max = dur(policy.MaxDelay + 1) }, "backoff.max"},
	{"no schedule", func(p *policy.Policy) { p.Backoff = policy.Backoff{} }, "backoff.initial backoff.max backoff.factor"},
	{"a list", list(dur(time.Second), dur(time.Minute)), ""},
	{"a list with zero, negative and long delays", list(0, -1, dur(time.Second), dur(policy.MaxDelay+1)), "backoff.delays[0] backoff.delays[1] backoff.delays[3]"},
	{"a long list", list(slices.Repeat([]policy.Duration{dur(time.Second)}, 101)...), "backoff.delays"},
	{"both kinds of schedule", func(p *policy.Policy) { p.Backoff.Delays = []policy.Duration{dur(time.Second)} }, "backoff.initial backoff.factor backoff.max"},
	{"a list and a factor NaN", func(p *policy.Policy) {
		p.Backoff = policy.Backoff{Delays: []policy.Duration{dur(time.Second)}, Factor: math.NaN()}
	}, "backoff.factor"},
	{"sound rules", rules(
		policy.Rule{Match: "404", BodyContains: "soon", Action: "abandon"}, policy.Rule{Match: "404", Action: "complete"},
		policy.Rule{Match: "4xx", Action: "abandon"}, policy.Rule{Match: "timeout", Action: "dead-letter"},
		policy.Rule{Match: "*", Action: "disable"}, policy.Rule{Match: "207", Action: "abandon"}, policy.Rule{Match: "2xx", Action: "complete"}), ""},
	{"empty rule", rules(policy.Rule{}), "rules[0].action rules[0].match"},
	{"unknown actions", rules(policy.Rule{Match: "404", Action: "retry"}, policy.Rule{Match: "405", Action: "hold"}), "rules[0].action rules[1].action"},
	{"matches of nothing", rules(
		policy.Rule{Match: "1xx", Action: "abandon"}, policy.Rule{Match: "199", Action: "abandon"}, policy.Rule{Match: "600", Action: "abandon"},
		policy.Rule{Match: "4XX", Action: "abandon"}, policy.Rule{Match: "40x", Action: "abandon"}, policy.Rule{Match: "2+1", Action: "abandon"},
		policy.Rule{Match: "blocked", Action: "abandon"}, policy.Rule{Match: "canceled", Action: "complete"}, policy.Rule{Match: "request", Action: "abandon"}),
		"rules[0].match rules[1].match rules[2].match rules[3].match rules[4].match rules[5].match rules[6].match rules[7].match rules[8].match"},
	{"a text where there is no answer", rules(policy.Rule{Match: "dns", BodyContains: "x", Action: "abandon"}), "rules[0].body_contains"},
	{"an overlong text", rules(policy.Rule{Match: "*", BodyContains: strings.Repeat("x", 257), Action: "abandon"}), "rules[0].body_contains"},
	{"a blank text", rules(policy.Rule{Match: "*", BodyContains: " \n", Action: "abandon"}), "rules[0].body_contains"},
	{"a text that is not UTF-8", rules(policy.Rule{Match: "*", BodyContains: "\xff", Action: "abandon"}), "rules[0].body_contains"},
	{"the same rule twice", rules(policy.Rule{Match: "404", Action: "abandon"}, policy.Rule{Match: "404", Action: "complete"}), "rules[1].match"},
	{"a status after its class", rules(policy.Rule{Match: "4xx", Action: "abandon"}, policy.Rule{Match: "404", Action: "complete"}), "rules[1].match"},
	{"rules after everything", rules(
		policy.Rule{Match: "*", Action: "abandon"}, policy.Rule{Match: "404", Action: "complete"}, policy.Rule{Match: "5xx", Action: "complete"},
		policy.Rule{Match: "tls", Action: "complete"}, policy.Rule{Match: "*", BodyContains: "x", Action: "complete"}),
		"rules[1].match rules[2].match rules[3].match rules[4].match"},
	{"a longer text after a shorter one", rules(
		policy.Rule{Match: "5xx", BodyContains: "Duplicate", Action: "abandon"}, policy.Rule{Match: "500", BodyContains: "a duplicate invoice", Action: "complete"}), "rules[1].match"},
	{"a shorter text after a longer one", rules(
		policy.Rule{Match: "5xx", BodyContains: "a duplicate invoice", Action: "abandon"}, policy.Rule{Match: "500", BodyContains: "Duplicate", Action: "complete"}), ""},
	{"too many rules", func(p *policy.Policy) {
		for i := range 101 {
			p.Rules = append(p.Rules, policy.Rule{Match: fmt.Sprint(400 + i), Action: "abandon"})
		}
	}, "rules"},
}

func TestValidateNamesEachFieldThatIsWrong(t *testing.T) {
	for _, tt := range validations {
		t.Run(tt.name, func(t *testing.T) {
			p := preset(t, "standard")
			tt.change(&p)
			err := p.Validate()
			if got := strings.Join(fieldsOf(err), " "); got != tt.want {
				t.Errorf("fields %q, want %q: %v", got, tt.want, err)
			}
			for _, e := range policy.FieldErrors(err) {
				if e.Problem == "" || e.Cure == "" || len(e.Error()) > 300 {
					t.Errorf("not helpful: %q", e.Error())
				}
			}
		})
	}
}

// A rule that Validate calls unreachable never decides, and one that it lets
// through can.
func TestUnreachableRulesNeverDecide(t *testing.T) {
	matches := []string{"*", "2xx", "3xx", "4xx", "5xx", "200", "404", "500", "timeout", "dns"}
	texts := []string{"", "ab", "ABC"}
	responses := []policy.Response{{Class: policy.ClassTimeout}, {Class: policy.ClassDNS}, {Class: policy.ClassTLS}, {Status: 600}}
	for _, status := range []int{200, 201, 302, 404, 405, 500, 501} {
		for _, body := range []string{"", "xabx", "xabcx"} {
			responses = append(responses, policy.Response{Status: status, Body: body})
		}
	}
	p := preset(t, "standard")
	for _, m1 := range matches {
		for _, m2 := range matches {
			for _, t1 := range texts {
				for _, t2 := range texts {
					p.Rules = []policy.Rule{{Match: m1, BodyContains: t1, Action: "complete"}, {Match: m2, BodyContains: t2, Action: "disable"}}
					if err := p.Validate(); err != nil && !slices.Equal(fieldsOf(err), []string{"rules[1].match"}) {
						continue // a text beside an error class
					}
					reached := slices.ContainsFunc(responses, func(r policy.Response) bool {
						return strings.HasSuffix(p.Decide(first(r)).Explanation, "as rule 2 says.")
					})
					if valid := p.Validate() == nil; valid != reached {
						t.Errorf("%+v: valid %v, second rule reached %v", p.Rules, valid, reached)
					}
				}
			}
		}
	}
}

func TestFieldErrorsFindsThemInsideOtherErrors(t *testing.T) {
	p := preset(t, "standard")
	p.MaxAttempts, p.MaxWaits = 0, -1
	err := errors.Join(errors.New("other"), fmt.Errorf("policy: %w", policy.FieldError{Field: "a", Problem: "b", Cure: "c"}), p.Validate())
	if got := fieldsOf(err); !slices.Equal(got, []string{"a", "max_attempts", "max_waits"}) {
		t.Errorf("got %v", got)
	}
	if got := policy.FieldErrors(nil); got != nil {
		t.Errorf("nil has %v", got)
	}
}
