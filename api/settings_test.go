package api

import (
	"net/http"
	"testing"
)

// Who may change what is sent may see how the instance is set up, and nobody else: addresses are among the values.
func TestSettingsAreForAdmins(t *testing.T) {
	h := newHarness(t, withKeys, func(o *Options) {
		o.Settings = []Setting{{"storage", "sqlite:pushlease.db", "environment"}, {"drain", "30s", "default"}}
	})
	const target = "/api/v1/settings"
	a := h.do(http.StatusOK, "GET", target, "", "Authorization", "Bearer admin")
	if a.text("data", 0, "name") != "storage" || a.text("data", 0, "value") != "sqlite:pushlease.db" || a.text("data", 0, "source") != "environment" || a.text("data", 1, "source") != "default" {
		t.Errorf("settings: %s", a.body)
	}
	for _, scope := range []Scope{ScopePublish, ScopeRead, ScopeOperate} {
		h.do(http.StatusForbidden, "GET", target, "", "Authorization", "Bearer "+string(scope))
	}
	h.do(http.StatusUnauthorized, "GET", target, "")
	h.do(http.StatusBadRequest, "GET", target+"?limit=1", "", "Authorization", "Bearer admin")
}
