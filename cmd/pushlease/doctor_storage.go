package main

import (
	"context"

	"github.com/pushlease/pushlease/internal/app"
	"github.com/pushlease/pushlease/internal/config"
)

// storageLocation is where the storage of cfg is.
func storageLocation(cfg config.Config) string { return app.StorageLocation(cfg) }

// checkStorage asks storage by calls that only read.
func checkStorage(ctx context.Context, cfg config.Config) []finding {
	var found []finding
	for _, p := range app.CheckStorage(ctx, cfg) {
		f := finding{Check: p.Name, Verdict: verdictOK, Detail: p.Detail, Cure: p.Cure}
		switch {
		case p.Warning:
			f.Verdict = verdictWarning
		case !p.OK:
			f.Verdict = verdictFailed
		case p.Unknown:
			f.Verdict = verdictSkipped
		}
		found = append(found, f)
	}
	return found
}
