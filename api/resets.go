package api

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/tables"
)

// resets says which nulls of a change have taken away what was set. Null means the default there (RFC 7396), and
// programs that write it for what they leave alone would lose settings in silence.
func (a *API) resets(before tables.Registration, in web.Fields) (warnings []string) {
	for _, name := range in.Names() {
		for _, n := range nullsOf(in[name], name != "headers") {
			after := before
			if err := a.edit(&after, web.Fields{name: n.alone}, changing); err == nil && !reflect.DeepEqual(after, before) {
				warnings = append(warnings, name+n.path+" was null, which has set it to its default: leave out what is to stay as it is.")
			}
		}
	}
	return warnings
}

// nullMember is a null in a value: where, and the value with nothing else in it.
type nullMember struct {
	path  string
	alone json.RawMessage
}

// nullsOf finds the nulls in a value, with inside also those in its objects, in order.
func nullsOf(raw json.RawMessage, inside bool) (found []nullMember) {
	if web.IsNull(raw) {
		return []nullMember{{alone: raw}}
	}
	var members map[string]json.RawMessage
	if !inside || json.Unmarshal(raw, &members) != nil {
		return nil
	}
	for name, value := range members {
		for _, n := range nullsOf(value, true) {
			if alone, err := json.Marshal(map[string]json.RawMessage{name: n.alone}); err == nil {
				found = append(found, nullMember{"." + name + n.path, alone})
			}
		}
	}
	slices.SortFunc(found, func(a, b nullMember) int { return cmp.Compare(a.path, b.path) })
	return found
}
