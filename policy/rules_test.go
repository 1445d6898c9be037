package policy_test

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

func TestRulesOverrideTheDefaultTable(t *testing.T) {
	toAbandon := outcome{policy.Abandon, policy.RetryableError, false}
	byRule := outcome{policy.DeadLetter, policy.NonRetryableError, false}
	offByRule := outcome{policy.DeadLetter, policy.NonRetryableError, true}
	rule := func(match, body, action string) policy.Rule {
		return policy.Rule{Match: match, BodyContains: body, Action: action}
	}
	status := func(s int, body string) policy.Response { return policy.Response{Status: s, Body: body} }
	failed := func(c policy.ErrorClass) policy.Response { return policy.Response{Class: c} }
	tests := []struct {
		name     string
		rules    []policy.Rule
		response policy.Response
		want     outcome
	}{
		{"401 is retried", []policy.Rule{rule("401", "", "abandon")}, status(401, ""), toAbandon},
		{"another status keeps its row", []policy.Rule{rule("401", "", "abandon")}, status(403, ""), deadLetters},
		{"a class", []policy.Rule{rule("4xx", "", "abandon")}, status(404, ""), toAbandon},
		{"the first that matches decides", []policy.Rule{rule("404", "", "complete"), rule("4xx", "", "abandon")}, status(404, ""), completes},
		{"also when it is the wider one", []policy.Rule{rule("4xx", "", "abandon"), rule("404", "", "complete")}, status(404, ""), toAbandon},
		{"410 without disabling", []policy.Rule{rule("410", "", "dead-letter")}, status(410, ""), byRule},
		{"disable", []policy.Rule{rule("402", "", "disable")}, status(402, ""), offByRule},
		{"an error class", []policy.Rule{rule("timeout", "", "dead-letter")}, failed(policy.ClassTimeout), byRule},
		{"another error class", []policy.Rule{rule("timeout", "", "dead-letter")}, failed(policy.ClassReset), toAbandon},
		{"everything", []policy.Rule{rule("*", "", "complete")}, status(500, ""), completes},
		{"everything includes no answer", []policy.Rule{rule("*", "", "dead-letter")}, failed(policy.ClassDNS), byRule},
		{"everything includes strange statuses", []policy.Rule{rule("*", "", "dead-letter")}, status(600, ""), byRule},
		{"everything is never a 2xx", []policy.Rule{rule("*", "", "dead-letter")}, status(204, ""), completes},
		{"nor a 2xx whose body broke", []policy.Rule{rule("*", "", "dead-letter")}, policy.Response{Status: 200, Class: policy.ClassReset}, completes},
		{"a 2xx by its status", []policy.Rule{rule("207", "", "abandon")}, status(207, ""), toAbandon},
		{"a 2xx by its class and text", []policy.Rule{rule("2xx", `"failed"`, "dead-letter")}, status(200, `{"status":"FAILED"}`), byRule},
		{"what a name leads to is not up to rules", []policy.Rule{rule("*", "", "complete"), rule("5xx", "", "complete")}, policy.Response{Class: policy.ClassBlocked, NameBlocked: true}, abandons},
		{"a blocked address is not up to rules", []policy.Rule{rule("*", "", "complete")}, failed(policy.ClassBlocked), outcome{policy.DeadLetter, policy.BlockedAddress, false}},
		{"nor is a faulty registration", []policy.Rule{rule("*", "", "complete")}, failed(policy.ClassRequest), outcome{policy.NoVerdict, policy.InternalFault, false}},
		{"nor is our own stopping", []policy.Rule{rule("*", "", "complete")}, failed(policy.ClassCanceled), outcome{policy.NoVerdict, policy.InternalFault, false}},
		{"a text in the body, whatever its case", []policy.Rule{rule("*", "Duplicate Invoice", "dead-letter")}, status(500, "error: DUPLICATE invoice 12"), byRule},
		{"another text", []policy.Rule{rule("*", "Duplicate Invoice", "dead-letter")}, status(500, "error: duplicate order"), toAbandon},
		{"text beyond ASCII", []policy.Rule{rule("500", "ungültig", "dead-letter")}, status(500, "KUNDE UNGÜLTIG"), byRule},
		{"a body that is not UTF-8", []policy.Rule{rule("500", "bad id", "dead-letter")}, status(500, "\xff\xfe BAD ID"), byRule},
		{"a rule that never validated matches nothing", []policy.Rule{rule("4x", "", "complete"), rule("999", "", "complete"), rule("", "", "complete"), rule("1xx", "", "complete")}, status(999, ""), toAbandon},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := preset(t, "standard")
			p.Rules = tt.rules
			d := p.Decide(first(tt.response))
			if got := outcomeOf(d); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if !oneSentence.MatchString(d.Explanation) {
				t.Errorf("explanation is not one sentence: %q", d.Explanation)
			}
		})
	}
}

func TestAbandonByRuleKeepsTheLimits(t *testing.T) {
	p := preset(t, "standard")
	p.Rules = []policy.Rule{{Match: "4xx", Action: "abandon"}}
	try := first(policy.Response{Status: 401})
	try.Charged = 7
	if d := p.Decide(try); d.Reason != policy.MaxDeliveryCountExceeded {
		t.Errorf("got %+v", d)
	}
	busy := p.Decide(first(policy.Response{Status: 429, RetryAfter: "60"}))
	if busy.Reason != policy.ReceiverBusy || busy.Charged || busy.Pause != time.Minute {
		t.Errorf("got %+v", busy)
	}
}

func TestReceiverSteersWhenItMay(t *testing.T) {
	tests := []struct {
		value  string
		status int
		want   outcome
	}{
		{"complete", 500, completes},
		{" Complete\t", 410, completes},
		{"ABANDON", 200, outcome{policy.Abandon, policy.RetryableError, false}},
		{"abandon", 404, outcome{policy.Abandon, policy.RetryableError, false}},
		{"dead-letter", 200, outcome{policy.DeadLetter, policy.ReceiverAsked, false}},
		{"disable", 500, outcome{policy.DeadLetter, policy.ReceiverAsked, true}},
		{"disable", 200, outcome{policy.DeadLetter, policy.ReceiverAsked, true}},
		{"", 404, deadLetters},
		{"hold", 404, deadLetters},
		{"complete, abandon", 404, deadLetters},
		{"deadletter", 200, completes},
	}
	for _, tt := range tests {
		p := preset(t, "standard")
		r := policy.Response{Status: tt.status, Steering: tt.value}
		if got := outcomeOf(p.Decide(first(r))); got != expected(tt.status) {
			t.Errorf("%q on %d without leave: %v, want %v", tt.value, tt.status, got, expected(tt.status))
		}
		p.AllowSteering = true
		if got := outcomeOf(p.Decide(first(r))); got != tt.want {
			t.Errorf("%q on %d: %v, want %v", tt.value, tt.status, got, tt.want)
		}
		p.Rules = []policy.Rule{{Match: "*", Action: "abandon"}}
		if tt.want.reason == policy.ReceiverAsked {
			if got := outcomeOf(p.Decide(first(r))); got != tt.want {
				t.Errorf("%q on %d beside a rule: %v, want %v", tt.value, tt.status, got, tt.want)
			}
		}
	}
}

func TestSteeringNeedsAnAnswer(t *testing.T) {
	p := preset(t, "standard")
	p.AllowSteering = true
	d := p.Decide(first(policy.Response{Class: policy.ClassReset, Steering: "complete"}))
	if d.Action != policy.Abandon {
		t.Errorf("a header without a status decided: %+v", d)
	}
}
