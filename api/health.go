package api

import (
	"context"
	_ "embed"
	"net/http"
	"slices"
	"time"
)

//go:embed openapi.yaml
var openapiYAML []byte

func openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openapiYAML) // the caller is gone: nobody left to tell
	return nil
}

// healthz says that the process is up. It asks nothing: a store that is down must
// not have the process killed.
func (a *API) healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, struct {
		Status  string `json:"status"`
		Version string `json:"version"`
	}{"ok", a.Version})
}

// readyTimeout bounds the checks of /readyz; orchestrators give up sooner or
// later too.
const readyTimeout = 5 * time.Second

func (a *API) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	checks := slices.Clone(a.Ready(ctx))
	ready := !slices.ContainsFunc(checks, func(c Check) bool { return !c.OK })
	if !a.may(r, ScopeRead) { // the details name parts of the installation
		for i := range checks {
			checks[i].Detail = ""
		}
	}
	if !ready {
		p := newProblem(http.StatusServiceUnavailable, "not-ready", "Not ready", "At least one check fails; see checks.")
		p.Checks = checks
		return p
	}
	return writeJSON(w, http.StatusOK, struct {
		Status string  `json:"status"`
		Checks []Check `json:"checks"`
	}{"ready", orEmpty(checks)})
}

func (a *API) metrics(w http.ResponseWriter, r *http.Request) error {
	a.Metrics.ServeHTTP(w, r)
	return nil
}
