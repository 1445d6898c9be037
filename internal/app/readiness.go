package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/pushlease/pushlease/api"
)

// readinessEvery is how often the checks of /readyz are looked at for the log.
const readinessEvery = 5 * time.Second

// tellReadiness logs each check that begins to fail, with what it says to do, and that it
// passes again: not everybody asks /readyz. It costs no storage transaction.
func (a *App) tellReadiness(ctx context.Context) {
	tick := time.NewTicker(readinessEvery)
	defer tick.Stop()
	told := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if !a.draining.Load() {
				tellChecks(a.log, a.ready(ctx), told)
			}
		}
	}
}

// tellChecks logs what has changed; told are the names of those that failed before.
func tellChecks(log *slog.Logger, checks []api.Check, told map[string]bool) {
	failing := map[string]bool{}
	for _, c := range checks {
		if c.OK {
			continue
		}
		if failing[c.Name] = true; !told[c.Name] {
			log.Warn("a check fails", "check", c.Name, "detail", c.Detail, "degraded_only", c.Degrades)
		}
		told[c.Name] = true
	}
	for name := range told {
		if !failing[name] {
			delete(told, name)
			log.Info("a check passes again", "check", name)
		}
	}
}
