package api

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// maxTries bounds how often a change is tried again when someone else changed
// the row in between.
const maxTries = 5

var errBusyRow = conflict("busy", "Others are changing it at the same time",
	"The change could not be made because others kept changing the same thing.",
	fieldError{"request", "lost to other changes", "send it again in a moment"})

// etagOf is the strong ETag of a row. A store's own ETag can be a weak one and
// have quotes in it, so a hash of it is shown.
func etagOf(storeETag string) string {
	sum := sha256.Sum256([]byte(storeETag))
	return `"` + hex.EncodeToString(sum[:12]) + `"`
}

// matches reports whether If-Match names the row's version. Weak ETags never
// match (RFC 9110 section 13.1.1).
func matches(ifMatch, storeETag string) bool {
	current := etagOf(storeETag)
	for candidate := range strings.SplitSeq(ifMatch, ",") {
		if c := strings.TrimSpace(candidate); c == "*" || c == current {
			return true
		}
	}
	return false
}

// ifMatch returns the request's If-Match, on one line.
func ifMatch(r *http.Request) string { return strings.Join(r.Header.Values("If-Match"), ",") }

// stamp writes a time for people.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
