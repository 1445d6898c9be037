package api

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// tellLastFailure adds to the status of a webhook that fails what its last attempt met: where that
// is a host name that leads to forbidden addresses only, with what follows from it.
func (a *API) tellLastFailure(ctx context.Context, reg tables.Registration, v *statusView) {
	if v == nil || !reg.Enabled || v.LastFailureAt.IsZero() || v.LastFailureAt.Before(v.LastSuccessAt) {
		return
	}
	last, _, err := a.History.Attempts(ctx, tables.AttemptFilter{WebhookID: reg.ID}, tables.Page{Limit: 1})
	if err != nil || len(last) == 0 || last[0].Damage.Columns != "" || last[0].StartedAt.Before(v.LastSuccessAt) {
		return // the general text stays true
	}
	name := hostName(reg.URL)
	if last[0].ErrorClass != policy.ClassBlocked || name == "" {
		v.Text += " " + lastFailure(last[0])
		return
	}
	since := ""
	if !v.FailingSince.IsZero() {
		since = ", and no POST has succeeded since " + web.Stamp(v.FailingSince)
	}
	v.Text += fmt.Sprintf(" Its host name %s leads to addresses that are forbidden here (private, loopback, link-local or denied), last at %s%s: nothing was sent to them. "+
		"Each message is tried again, up to %d attempts and for %s after its first one; then it becomes a dead letter with BlockedAddress. "+
		"Correct the record of the name in the DNS; or, if the address is meant, allow it with the setting allow_cidrs.",
		name, web.Stamp(last[0].StartedAt), since, reg.Policy.MaxAttempts, time.Duration(reg.Policy.MaxAge))
}

// lastFailure says what came of an attempt that was not taken.
func lastFailure(t tables.Attempt) string {
	what := fmt.Sprintf("was answered %d", t.Status)
	switch {
	case t.Status == 0 && t.Error != "":
		what = "got no answer (" + string(t.ErrorClass) + "): " + strings.TrimSuffix(t.Error, ".")
	case t.Status == 0:
		what = "got no answer (" + string(t.ErrorClass) + ")"
	case t.RedirectHost != "":
		what += ", which points to " + t.RedirectHost + "; redirects are not followed"
	}
	return "Its last attempt, at " + web.Stamp(t.StartedAt) + ", " + what + "."
}

// hostName is the name in a URL; empty where an address stands for it.
func hostName(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	name := u.Hostname()
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return ""
	}
	return name
}
