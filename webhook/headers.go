package webhook

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

const (
	maxHeaders     = 50
	maxHeaderName  = 256
	maxHeaderValue = 4096
)

// reservedHeaders are set by pushlease or by HTTP itself, or would change what
// is sent. With Idempotency-Key net/http repeats a POST by itself, unseen.
var reservedHeaders = map[string]bool{
	"accept-encoding": true, "baggage": true, "connection": true, "content-length": true,
	"expect": true, "host": true, "http2-settings": true, "idempotency-key": true,
	"keep-alive": true, "te": true, "traceparent": true, "tracestate": true, "trailer": true,
	"transfer-encoding": true, "upgrade": true, "x-idempotency-key": true,
}

var reservedPrefixes = []string{"webhook-", "pushlease-", "proxy-"}

// ValidateHeaders says whether a webhook may have these headers: at most 50,
// names that are HTTP tokens and not reserved, values of at most 4096 bytes of
// printable ASCII, no name twice. Content-Type and User-Agent are allowed and
// replace what would be sent. The error is a *content.FieldError that does not repeat a
// value.
func ValidateHeaders(headers map[string]string) error {
	if len(headers) > maxHeaders {
		return invalid(fmt.Sprintf("there are %d headers", len(headers)), fmt.Sprintf("keep at most %d", maxHeaders))
	}
	if len(headers) == 0 { // nearly always, and asked for each POST
		return nil
	}
	seen := make(map[string]bool, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if err := validateHeaderName(name); err != nil {
			return err
		}
		key := http.CanonicalHeaderKey(name)
		if seen[key] {
			return invalid(fmt.Sprintf("the header %s is there twice", key), "keep one of them; upper and lower case make no difference")
		}
		seen[key] = true
		if err := validateHeaderValue(name, headers[name]); err != nil {
			return err
		}
	}
	return nil
}

func validateHeaderName(name string) error {
	if name == "" || len(name) > maxHeaderName || strings.ContainsFunc(name, notTokenRune) {
		return invalid("a header has a name that HTTP does not allow", "use letters, digits and -, for example X-Tenant")
	}
	lower := strings.ToLower(name)
	reserved := reservedHeaders[lower]
	for _, prefix := range reservedPrefixes {
		reserved = reserved || strings.HasPrefix(lower, prefix)
	}
	if reserved {
		return invalid(fmt.Sprintf("the header %s is reserved", lower), "use another name")
	}
	return nil
}

func validateHeaderValue(name, value string) error {
	if len(value) > maxHeaderValue {
		return invalid(fmt.Sprintf("the value of the header %s has %d bytes", name, len(value)), fmt.Sprintf("keep it within %d", maxHeaderValue))
	}
	if strings.ContainsFunc(value, notPrintableASCII) {
		return invalid(fmt.Sprintf("the value of the header %s has characters that HTTP does not carry", name), "use printable ASCII, without line ends")
	}
	if strings.TrimSpace(value) != value {
		return invalid(fmt.Sprintf("the value of the header %s begins or ends with a blank", name), "remove it; HTTP would drop it")
	}
	return nil
}

// setMessageHeaders sets those that came with a message. None can take the place of what
// pushlease sets or of what HTTP is made of.
func setMessageHeaders(header http.Header, fromMessage map[string]string) {
	for name, value := range fromMessage {
		if validateHeaderName(name) == nil && !strings.ContainsFunc(value, notPrintableASCII) {
			header.Set(name, value)
		}
	}
}

func notPrintableASCII(r rune) bool { return r < ' ' || r > '~' }

// notTokenRune: RFC 9110 section 5.6.2.
func notTokenRune(r rune) bool {
	return r > '~' || !isAlphanumeric(byte(r)) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
