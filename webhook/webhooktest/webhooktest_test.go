package webhooktest_test

import (
	"testing"

	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// probe takes the failures that would be the test's.
type probe struct {
	testing.TB
	failures int
}

func (p *probe) Helper()               {}
func (p *probe) Errorf(string, ...any) { p.failures++ }

func TestAssertNoSecretsFindsThem(t *testing.T) {
	for text, want := range map[string]int{
		"status 200":             0,
		"key whsec_c2VjcmV0":     1,
		"key c2VjcmV0 elsewhere": 1,
		"at https://u:pw@host/":  1,
	} {
		p := &probe{TB: t}
		webhooktest.AssertNoSecrets(p, []string{text}, "whsec_c2VjcmV0", "u:pw@")
		if p.failures != want {
			t.Errorf("%q: %d failures, want %d", text, p.failures, want)
		}
	}
}
