package webhooktest

import (
	"strings"
	"testing"
)

// AssertNoSecrets fails the test when one of the texts holds one of the
// secrets, or the key of a secret without its prefix. Texts are what was logged
// or recorded: errors, log lines, spans, metrics, rows.
func AssertNoSecrets(t testing.TB, texts []string, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		bare := strings.TrimPrefix(secret, "whsec_")
		if bare == "" {
			t.Fatal("an empty text is in every text")
		}
		for i, text := range texts {
			if strings.Contains(text, bare) {
				t.Errorf("text %d of %d holds a secret (%d bytes long)", i+1, len(texts), len(secret))
			}
		}
	}
}
