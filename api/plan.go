package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/tables"
)

// planAction is what a PUT of a webhook would do.
type planAction string

const (
	planCreate  planAction = "create"
	planReplace planAction = "replace"
	planNothing planAction = "nothing"
)

// planView is in the answer to a PUT with dry_run=true, and in no other.
type planView struct {
	Action  planAction   `json:"action"`
	Changes []changeView `json:"changes"`
}

// changeView is one setting that would change. What is not there on one side is left out. Values of headers are
// hidden, and what may be a key in a URL.
type changeView struct {
	Field string          `json:"field"`
	From  json.RawMessage `json:"from,omitempty"`
	To    json.RawMessage `json:"to,omitempty"`
}

// planWebhook answers what putWebhook would do, and writes nothing. The ETag is that of what is there.
func (a *API) planWebhook(w http.ResponseWriter, r *http.Request, id string, in web.Fields) error {
	there, err := a.loadWebhook(r)
	isNew := errors.Is(err, noWebhook)
	switch {
	case isNew && web.IfMatch(r) != "":
		return web.ErrPrecondition
	case isNew:
		err = nil
	case err == nil && r.Header.Get("If-None-Match") != "":
		return errExists
	case err == nil:
		err = web.Preconditions(r, there.ETag)
	}
	if err != nil {
		return err
	}
	next, plan := there, planView{Action: planCreate, Changes: []changeView{}}
	if isNew {
		next, err = a.newRegistration(id, in)
	} else if err = a.replace(&next, in); err == nil {
		plan, err = a.planOf(r, there, next)
	}
	if err != nil {
		return err
	}
	view := a.view(r, next)
	view.Plan = &plan
	if len(there.SigningKeys) == 0 { // one that was made would not be the one that signs
		view.SigningKeys = nil
	}
	view.Warnings = slices.Concat(a.warningsOf(r.Context(), next), a.waitingWarnings(r.Context(), next))
	if !isNew {
		w.Header().Set("ETag", web.EtagOf(there.ETag))
	}
	return web.WriteJSON(w, http.StatusOK, view)
}

// planOf compares what may be set of two registrations, part by part.
func (a *API) planOf(r *http.Request, before, after tables.Registration) (planView, error) {
	old, err := a.settingsOf(r, before)
	if err != nil {
		return planView{}, err
	}
	now, err := a.settingsOf(r, after)
	if err != nil {
		return planView{}, err
	}
	plan := planView{Action: planNothing, Changes: []changeView{}}
	for _, field := range slices.Sorted(maps.Keys(union(old, now))) {
		was, is := old[field], now[field]
		if was.value != is.value {
			plan.Changes = append(plan.Changes, changeView{field, was.shown, is.shown})
		}
	}
	if len(plan.Changes) > 0 {
		plan.Action = planReplace
	}
	return plan, nil
}

// settingView is one value that may be set: what is compared, and what is shown of it.
type settingView struct {
	value string
	shown json.RawMessage
}

// settingsOf are the settings of a registration by name: of objects each member by itself.
func (a *API) settingsOf(r *http.Request, reg tables.Registration) (map[string]settingView, error) {
	v := a.view(r, reg)
	all := map[string]settingView{}
	for field, value := range map[string]any{
		"name": v.Name, "timeout": v.Timeout, "enabled": v.Enabled, "format": v.Format, "http_version": v.HTTPVersion,
		"policy": v.Policy, "flow": v.Flow, "filter": v.Filter,
	} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", field, err)
		}
		var members map[string]json.RawMessage
		if reflect.ValueOf(value).Kind() != reflect.Struct || json.Unmarshal(text, &members) != nil {
			members = map[string]json.RawMessage{"": text}
		}
		for member, text := range members {
			name := field
			if member != "" {
				name += "." + member
			}
			all[name] = settingView{string(text), text}
		}
	}
	shown, err := json.Marshal(shownURL(reg.URL, false)) // plans end up in the logs of deployments
	if err != nil {
		return nil, fmt.Errorf("encode url: %w", err)
	}
	all["url"] = settingView{reg.URL, shown}
	identity, err := a.identitySettings(reg)
	if err != nil {
		return nil, err
	}
	maps.Copy(all, identity)
	for name, value := range reg.Headers {
		all["headers."+name] = settingView{value, json.RawMessage(`"` + redacted + `"`)}
	}
	return all, nil
}

func union(a, b map[string]settingView) map[string]settingView {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
