package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/internal/azureconn"
)

// C92: what the storage's signature lacks is told at the start, by doctor and by readiness.
func TestWhatASignatureLacksIsToldEverywhere(t *testing.T) {
	warning := azureconn.Right{Text: "ends soon", Cure: "renew it", Warning: true}
	partly := azureconn.Right{Text: "lacks p", Cure: "make a new one", Partly: true}
	wholly := azureconn.Right{Text: "lacks a", Cure: "make a new one"}
	for name, tt := range map[string]struct {
		faults       []azureconn.Right
		ok, degrades bool
	}{
		"nothing":        {nil, true, false},
		"a warning":      {[]azureconn.Right{warning}, true, false},
		"partly":         {[]azureconn.Right{partly}, false, true},
		"wholly":         {[]azureconn.Right{wholly}, false, false},
		"wholly, partly": {[]azureconn.Right{wholly, partly}, false, false},
		"partly, wholly": {[]azureconn.Right{partly, warning, wholly}, false, false},
	} {
		c := sasCheck(tt.faults)
		if c.OK != tt.ok || c.Degrades != tt.degrades {
			t.Errorf("%s: %+v", name, c)
		}
		if !tt.ok && (!strings.Contains(c.Detail, "lacks") || !strings.Contains(c.Detail, "make a new one") || strings.Contains(c.Detail, "soon")) {
			t.Errorf("%s: %q", name, c.Detail)
		}
		for i, p := range sasProbes(tt.faults) {
			if p.OK || p.Warning != tt.faults[i].Warning || p.Cure == "" {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
	var log bytes.Buffer
	tellSASFaults(slog.New(slog.NewJSONHandler(&log, nil)), []azureconn.Right{warning, wholly})
	if text := log.String(); !strings.Contains(text, `"WARN","msg":"ends soon"`) || !strings.Contains(text, `"ERROR","msg":"lacks a"`) {
		t.Errorf("the log says %s", text)
	}
}
