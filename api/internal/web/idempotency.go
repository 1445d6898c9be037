package web

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/pushlease/pushlease/queue"
)

// IdempotencyHeader names the header whose value makes a repeated request one request.
const IdempotencyHeader = "Idempotency-Key"

// IdempotencyKey reads the header of draft-ietf-httpapi-idempotency-key-header: a string
// of RFC 8941, in quotes, or what most clients send, the bare key. Empty without one.
func IdempotencyKey(r *http.Request) (string, error) {
	bad := func(what string) error {
		return Invalid(FieldError{IdempotencyHeader, what,
			fmt.Sprintf(`send one key of 1 to %d printable ASCII characters, such as a UUID; put it in "quotes" where it has blanks, commas, semicolons or quotes`, queue.MaxIdempotencyKey)})
	}
	values := r.Header.Values(IdempotencyHeader)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", bad("is there more than once")
	}
	key := strings.TrimSpace(values[0])
	if strings.HasPrefix(key, `"`) {
		var ok bool
		if key, ok = parseString(key); !ok {
			return "", bad("is not a quoted text")
		}
	} else if strings.ContainsAny(key, ` ,;"\`) {
		return "", bad("has characters that need quotes")
	}
	switch {
	case key == "":
		return "", bad("is empty")
	case len(key) > queue.MaxIdempotencyKey:
		return "", bad(fmt.Sprintf("has more than %d characters", queue.MaxIdempotencyKey))
	case strings.ContainsFunc(key, func(c rune) bool { return c < 0x20 || c > 0x7e }):
		return "", bad("has characters other than printable ASCII")
	}
	return key, nil
}

// parseString reads an sf-string of RFC 8941: only quotes and backslashes are escaped.
func parseString(s string) (string, bool) {
	text, ok := UnquoteHeader(s)
	if !ok {
		return "", false
	}
	escapes := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	return text, `"`+escapes.Replace(text)+`"` == s
}

// UnquoteHeader reads a quoted-string of RFC 9110, section 5.6.4.
func UnquoteHeader(value string) (string, bool) {
	var text []byte
	for i := 1; i < len(value); i++ {
		switch value[i] {
		case '"':
			return string(text), i == len(value)-1
		case '\\':
			if i++; i == len(value) {
				return "", false
			}
		}
		text = append(text, value[i])
	}
	return "", false
}
