package web

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// MaxTries bounds how often a change is tried again when someone else changed
// the row in between.
const MaxTries = 5

// ErrBusyRow is the answer to a change that others kept coming before.
var ErrBusyRow = NewProblem(Busy,
	"The change could not be made because others kept changing the same thing.",
	FieldError{"request", "lost to other changes", "send it again in a moment"})

// EtagOf is the strong ETag of a row. A store's own ETag can be a weak one and
// have quotes in it, so a hash of it is shown.
func EtagOf(storeETag string) string {
	sum := sha256.Sum256([]byte(storeETag))
	return `"` + hex.EncodeToString(sum[:12]) + `"`
}

// Matches reports whether If-Match names the row's version. Weak ETags never
// match (RFC 9110 section 13.1.1).
func Matches(ifMatch, storeETag string) bool {
	current := EtagOf(storeETag)
	for candidate := range strings.SplitSeq(ifMatch, ",") {
		if c := strings.TrimSpace(candidate); c == "*" || c == current {
			return true
		}
	}
	return false
}

// IfMatch returns the request's If-Match, on one line.
func IfMatch(r *http.Request) string { return strings.Join(r.Header.Values("If-Match"), ",") }

// Stamp writes a time for people.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
