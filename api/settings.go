package api

import (
	"net/http"

	"github.com/pushlease/pushlease/api/internal/web"
)

// Setting is one setting as it is in force, without secrets.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Source is default, file, environment or flag.
	Source string `json:"source"`
}

func (a *API) listSettings(w http.ResponseWriter, r *http.Request) error {
	if err := web.ReadQuery(r).Err(); err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, web.NewList(a.Settings, ""))
}
