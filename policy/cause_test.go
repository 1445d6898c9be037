package policy

import (
	"strings"
	"testing"
	"time"
)

// C95: what is known of the cause stands in the explanation, which every list, timeline, dead letter and log shows.
func TestTheExplanationNamesTheCause(t *testing.T) {
	p, err := Preset("standard")
	if err != nil {
		t.Fatal(err)
	}
	for want, r := range map[string]Response{
		"could be made (the certificate has expired): attempt 1":          {Class: ClassTLS, Cause: "the certificate has expired"},
		"broke before the webhook answered (the receiver reset it)":       {Class: ClassReset, Cause: "the receiver reset it"},
		"cut short by pushlease itself (this machine has no socket left)": {Class: ClassCanceled, Cause: "this machine has no socket left"},
		"answered 301, a redirect to other.example (redirects are never":  {Status: 301, Redirect: "other.example"},
		"answered 307 (redirects are never followed)":                     {Status: 307},
		"answered 500: attempt 1":                                         {Status: 500, Cause: "of no use beside an answer"},
		"could be made: attempt 1":                                        {Class: ClassConnect},
	} {
		now := time.Now()
		if d := p.Decide(Try{Now: now, FirstAt: now, Response: r}); !strings.Contains(d.Explanation, want) {
			t.Errorf("%q does not say %q", d.Explanation, want)
		}
	}
}
