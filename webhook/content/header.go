package content

import "strings"

const (
	// DefaultType is the content type of bytes of which nothing is known.
	DefaultType = "application/octet-stream"
	// maxHeaderValue bounds header values that come with a message, in bytes.
	maxHeaderValue = 256
)

// HeaderValue makes a header value from something that came with a message: it
// ends before the first character that a header can not carry.
func HeaderValue(s string) string {
	if i := strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
		s = s[:i]
	}
	return strings.TrimSpace(s[:min(len(s), maxHeaderValue)])
}
