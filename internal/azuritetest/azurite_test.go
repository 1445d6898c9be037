package azuritetest

import (
	"net/http"
	"testing"
)

func TestAzuriteAnswersOnBothServices(t *testing.T) {
	a := Start(t)
	if again := Start(t); again != a {
		t.Error("a second emulator was started")
	}
	for _, url := range []string{a.QueueURL + "?comp=list", a.TableURL + "/Tables"} {
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		// No signature was sent, so an answer at all is what counts.
		if res.StatusCode != http.StatusForbidden {
			t.Errorf("%s: status %d, want 403", url, res.StatusCode)
		}
	}
}
