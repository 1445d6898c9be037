package api

import (
	"cmp"
	"encoding/json"
	"mime"
	"net/http"
	"reflect"
	"slices"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/tables"
)

// In a merge patch (RFC 7396) null means the default. Programs that say application/json write null for what
// they leave alone, and would lose settings by it: there it changes nothing (C106, C107), but for the
// null of one header, which is how that is taken away.
const mergePatch = "application/merge-patch+json"

func isMergePatch(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && media == mergePatch
}

// withoutNulls leaves out the nulls of a change, and says of which it has made a difference.
func (a *API) withoutNulls(before tables.Registration, in web.Fields) (kept web.Fields, warnings []string) {
	kept = web.Fields{}
	for name, value := range in {
		if value = withoutNull(value, name != "headers"); value != nil {
			kept[name] = value
		}
	}
	for _, path := range a.resetting(before, in) {
		warnings = append(warnings, path+" was null, which leaves it as it is: send Content-Type: "+mergePatch+" to set it to its default.")
	}
	return kept, warnings
}

// withoutNull leaves out the null members of objects; nil for null itself.
func withoutNull(raw json.RawMessage, inside bool) json.RawMessage {
	if web.IsNull(raw) {
		return nil
	}
	var members map[string]json.RawMessage
	if !inside || json.Unmarshal(raw, &members) != nil {
		return raw
	}
	nulls := false
	for name, value := range members {
		rest := withoutNull(value, true)
		if nulls = nulls || string(rest) != string(value); rest == nil {
			delete(members, name)
		} else {
			members[name] = rest
		}
	}
	if !nulls {
		return raw // as it was written, for what is said of it
	}
	text, err := json.Marshal(members)
	if err != nil {
		return raw
	}
	return text
}

// resets says which nulls of a merge patch have taken away what was set.
func (a *API) resets(before tables.Registration, in web.Fields) (warnings []string) {
	for _, path := range a.resetting(before, in) {
		warnings = append(warnings, path+" was null, which has set it to its default: leave out what is to stay as it is.")
	}
	return warnings
}

// resetting are the nulls of a change that set something to its default which is not there.
func (a *API) resetting(before tables.Registration, in web.Fields) (paths []string) {
	for _, name := range in.Names() {
		for _, n := range nullsOf(in[name], name != "headers") {
			after := before
			if err := a.edit(&after, web.Fields{name: n.alone}, changing); err == nil && !reflect.DeepEqual(after, before) {
				paths = append(paths, name+n.path)
			}
		}
	}
	return paths
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
