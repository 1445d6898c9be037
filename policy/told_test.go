package policy_test

import (
	"testing"

	"github.com/pushlease/pushlease/policy"
)

// A 401 is meant where somebody speaks of it, and not by a rule that takes it among others.
func TestWhichRulesMeanAStatus(t *testing.T) {
	for name, c := range map[string]struct {
		rule     policy.Rule
		steering string
		meant    bool
	}{
		"none":               {meant: false},
		"this one":           {rule: policy.Rule{Match: "401", Action: "dead-letter"}, meant: true},
		"this one, tried":    {rule: policy.Rule{Match: "401", Action: "abandon"}, meant: true},
		"its class":          {rule: policy.Rule{Match: "4xx", Action: "dead-letter"}, meant: false},
		"everything":         {rule: policy.Rule{Match: "*", Action: "abandon"}, meant: false},
		"taken by its class": {rule: policy.Rule{Match: "4xx", Action: "complete"}, meant: true},
		"another text":       {rule: policy.Rule{Match: "401", BodyContains: "expired", Action: "complete"}, meant: false},
		"steered":            {rule: policy.Rule{Match: "4xx", Action: "dead-letter"}, steering: "abandon", meant: true},
		"steered by nothing": {steering: "planted", meant: false},
	} {
		p := policy.Policy{AllowSteering: true}
		if c.rule.Match != "" {
			p.Rules = []policy.Rule{c.rule}
		}
		if meant := p.Told(policy.Response{Status: 401, Steering: c.steering, Body: "no"}); meant != c.meant {
			t.Errorf("%s: %v", name, meant)
		}
	}
	p := policy.Policy{Rules: []policy.Rule{{Match: "4xx", Action: "abandon"}}}
	if p.Told(policy.Response{Status: 401, Steering: "complete"}) {
		t.Error("a steering header that is not allowed")
	}
}
