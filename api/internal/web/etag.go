package web

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
func EtagOf(storeETag string) string { return `"` + version(storeETag) + `"` }

func version(storeETag string) string {
	sum := sha256.Sum256([]byte(storeETag))
	return hex.EncodeToString(sum[:12])
}

// Preconditions says why a request may not be done to a row that is there, by its If-Match and
// If-None-Match (RFC 9110, section 13). The ETag of an answer to GET has the row's version and, after
// a point, that of what is shown, which can change while the row stays: for a change the row's counts.
func Preconditions(r *http.Request, storeETag string) error {
	current := func(tag string) bool {
		row, _, _ := strings.Cut(tag, ".")
		return row == version(storeETag)
	}
	if want := IfMatch(r); want != "" && !names(want, false, current) {
		return ErrPrecondition
	}
	if names(ifNoneMatch(r), true, current) {
		return errNoneMatch
	}
	return nil
}

var errNoneMatch = NewProblem(Exists,
	"If-None-Match asks for this only where there is nothing, or another version.",
	FieldError{"If-None-Match", "names what is there", "leave If-None-Match out, or send If-Match with the ETag of the version to change"})

// names reports whether a list of ETags has one that is, or is *. A weak one, which may be of another
// body, counts only where weak says so.
func names(list string, weak bool, is func(tag string) bool) bool {
	for candidate := range strings.SplitSeq(list, ",") {
		c := strings.TrimSpace(candidate)
		if weak {
			c = strings.TrimPrefix(c, "W/")
		}
		if c == "*" || len(c) >= 2 && c[0] == '"' && c[len(c)-1] == '"' && is(c[1:len(c)-1]) {
			return true
		}
	}
	return false
}

// IfMatch returns the request's If-Match, on one line.
func IfMatch(r *http.Request) string { return strings.Join(r.Header.Values("If-Match"), ",") }

func ifNoneMatch(r *http.Request) string { return strings.Join(r.Header.Values("If-None-Match"), ",") }

// WriteVersion answers a GET with what is made of a row, under an ETag that changes with either: 304
// where the caller has just that already.
func WriteVersion(w http.ResponseWriter, r *http.Request, storeETag string, v any) error {
	body, err := json.Marshal(v)
	if err != nil { // no type that is written here can fail
		panic(err)
	}
	sum := sha256.Sum256(body)
	tag := version(storeETag) + "." + hex.EncodeToString(sum[:8])
	if want := IfMatch(r); want != "" && !names(want, false, func(have string) bool { return have == tag || have == version(storeETag) }) {
		return ErrPrecondition
	}
	w.Header().Set("ETag", `"`+tag+`"`)
	if names(ifNoneMatch(r), true, func(have string) bool { return have == tag }) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return WriteJSON(w, http.StatusOK, json.RawMessage(body))
}

// Stamp writes a time for people.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
