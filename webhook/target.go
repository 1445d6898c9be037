package webhook

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// maxURL is the longest URL that can be registered, in bytes.
const maxURL = 2048

// hostProfile maps a name as browsers do: case, full-width characters, other
// full stops, internationalised labels.
var hostProfile = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false), idna.CheckHyphens(false))

// ValidateURL says whether a webhook may be registered with the URL. It looks at
// the text only; which addresses a name has is checked whenever one is dialled.
// The error is a *content.FieldError that does not repeat the URL.
func ValidateURL(raw string, guard GuardOptions) error {
	target, err := parseTarget(raw, &guard)
	if err != nil {
		return err
	}
	host := target.Hostname()
	if addr, err := netip.ParseAddr(host); err == nil {
		if !guard.allowsFor(addr, destination{host, target.Scheme == "http"}) {
			return invalid("the URL's address is not public", "use a public address, or have the operator allow this one")
		}
		return nil
	}
	if isLocalName(host) && target.Scheme == "https" && !guard.AllowPrivate && len(guard.AllowCIDRs) == 0 {
		return invalid("the URL's host is a name for this machine or this network", "use a public name")
	}
	return nil
}

// isLocalName: RFC 6761 section 6.3, and ICANN's reserved .internal.
func isLocalName(host string) bool {
	return host == "localhost" || host == "internal" ||
		strings.HasSuffix(host, ".localhost") || strings.HasSuffix(host, ".internal")
}

// parseTarget reads a registered URL and gives it with its host in the one form
// that is checked, dialled and sent.
func parseTarget(raw string, guard *GuardOptions) (*url.URL, error) {
	scheme, example := "https://", "write it as https://hooks.example.com/path"
	if guard.AllowPrivate {
		scheme, example = "https:// or http://", "write it as https://hooks.example.com/path or http://localhost:9000"
	}
	if len(raw) > maxURL {
		return nil, invalid("the URL is longer than 2048 bytes", "shorten it")
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return nil, invalid("the URL can not be read", example)
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, invalid("the URL does not begin with "+scheme, example)
	case u.User != nil:
		return nil, invalid("the URL holds a user name or password", "send it in a header, such as Authorization, instead")
	case strings.Contains(raw, "#"):
		return nil, invalid("the URL has a fragment", "remove # and what follows it; it would not be sent")
	case strings.ContainsFunc(u.RawQuery, func(r rune) bool { return r <= ' ' || r > '~' }):
		// net/http would write it as it is, blanks into the request line too.
		return nil, invalid("the URL's query has blanks or characters that are not ASCII", "percent-encode them")
	}
	host, err := normaliseHost(u.Hostname())
	if err != nil {
		return nil, err
	}
	if u.Scheme == "http" && !guard.mayHTTP(host) {
		return nil, invalid("the URL is not https", "use https, or have the operator name the receiver in allow_http; for development there is serve --dev")
	}
	port, err := normalisePort(u)
	if err != nil {
		return nil, err
	}
	u.Host = host + port
	return u, nil
}

func normalisePort(u *url.URL) (string, error) {
	if u.Port() == "" {
		if strings.HasSuffix(u.Host, ":") {
			return "", invalid("the URL's port is empty", "remove the colon or write a port from 1 to 65535")
		}
		return "", nil
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 {
		return "", invalid("the URL's port is not one", "write a port from 1 to 65535")
	}
	return ":" + strconv.FormatUint(port, 10), nil
}

// normaliseHost gives an IPv6 literal in brackets, an IPv4 literal in four
// decimal numbers, or a name in lower-case ASCII without a dot at its end.
func normaliseHost(host string) (string, error) {
	if host == "" {
		return "", invalid("the URL has no host", "write it as https://hooks.example.com/path")
	}
	if strings.Contains(host, ":") {
		addr, err := netip.ParseAddr(host)
		if err != nil || addr.Zone() != "" {
			return "", invalid("the URL's IPv6 address can not be used", "write it in brackets and without a zone")
		}
		return "[" + addr.String() + "]", nil
	}
	name, err := hostProfile.ToASCII(host)
	name = strings.TrimSuffix(name, ".")
	if err != nil || !isHostName(name) {
		return "", invalid("the URL's host is not a name", "use letters, digits and - between dots")
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.String(), nil
	}
	if endsInNumber(name) {
		// Some resolvers read 2130706433, 0x7f.1 and 127.1 as 127.0.0.1.
		return "", invalid("the URL's host looks like a number and is not an IPv4 address", "write the address as four decimal numbers, such as 192.0.2.1")
	}
	return name, nil
}

func isHostName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !isAlphanumeric(c) && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// endsInNumber is how the URL standard tells an IPv4 address from a name.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}
