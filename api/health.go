package api

import (
	"context"
	_ "embed"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
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
	return web.WriteJSON(w, http.StatusOK, struct {
		Status  string `json:"status"`
		Version string `json:"version"`
	}{"ok", a.Version})
}

// readyTimeout bounds the checks of /readyz; orchestrators give up sooner or
// later too.
const readyTimeout = 5 * time.Second

// readyz says whether requests should be sent here. What is wrong and would be no better
// elsewhere leaves it ready, and degraded.
func (a *API) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	checks := slices.Clone(a.Ready(ctx))
	ready, status := !slices.ContainsFunc(checks, Check.unready), "ready"
	if slices.ContainsFunc(checks, func(c Check) bool { return !c.OK }) {
		status = "degraded"
	}
	storage := a.Storage
	if !a.may(r, ScopeRead) {
		checks, storage = kindsOf(checks), ""
	}
	if !ready {
		p := web.NewProblem(web.NotReady, "At least one check fails; see checks.")
		p.Checks = checks
		return p
	}
	return web.WriteJSON(w, http.StatusOK, struct {
		Status  string  `json:"status"`
		Checks  []Check `json:"checks"`
		Storage string  `json:"storage,omitempty"`
	}{status, web.OrEmpty(checks), storage})
}

// kindsOf is what everybody may know of the checks: one for each kind, the first
// word of the name, which passes when all of its kind do. What follows it and the
// details name parts of the installation.
func kindsOf(checks []Check) []Check {
	var kinds []Check
	for _, c := range checks {
		kind, _, _ := strings.Cut(c.Name, " ")
		i := slices.IndexFunc(kinds, func(k Check) bool { return k.Name == kind })
		if i < 0 {
			i, kinds = len(kinds), append(kinds, Check{Name: kind, OK: true})
		}
		kinds[i].OK = kinds[i].OK && c.OK
	}
	return kinds
}

func (a *API) metrics(w http.ResponseWriter, r *http.Request) error {
	a.Metrics.ServeHTTP(w, r)
	return nil
}
