package webhook

import (
	"net/netip"
	"slices"
	"strings"
)

// HTTPRule names receivers to which plain http is allowed: those in a range of addresses, or
// those with a host name, for containers whose addresses change. One of the two is set.
type HTTPRule struct {
	Prefix netip.Prefix
	// Host is a name, or *. and the end of names.
	Host string
}

// ParseHTTPRule reads a rule such as 10.0.0.0/8, 10.1.2.3, billing or *.svc.cluster.local.
// The error is a *content.FieldError.
func ParseHTTPRule(text string) (HTTPRule, error) {
	const form = "write a range such as 10.0.0.0/8, a host name, or *. and the end of host names, such as *.svc.cluster.local"
	if p, err := netip.ParsePrefix(text); err == nil {
		if p.Masked() != p || p.Addr().Is4In6() {
			return HTTPRule{}, invalid("the range has bits beyond its length", "write it as "+p.Masked().String())
		}
		return HTTPRule{Prefix: p}, nil
	}
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" && !addr.Is4In6() {
		return HTTPRule{Prefix: netip.PrefixFrom(addr, addr.BitLen())}, nil
	}
	name, star := strings.CutPrefix(text, "*.")
	host, err := normaliseHost(name)
	if err != nil || strings.HasPrefix(host, "[") {
		return HTTPRule{}, invalid("the rule is neither a range of addresses nor a host name", form)
	}
	if star {
		host = "*." + host
	}
	return HTTPRule{Host: host}, nil
}

func (r HTTPRule) String() string {
	if r.Host != "" {
		return r.Host
	}
	return r.Prefix.String()
}

func (r HTTPRule) takesHost(host string) bool {
	if end, ok := strings.CutPrefix(r.Host, "*"); ok {
		return strings.HasSuffix(host, end)
	}
	return r.Host != "" && r.Host == host
}

// mayHTTP says whether an http URL may have the host. What a name leads to is looked at when
// it is dialled.
func (o *GuardOptions) mayHTTP(host string) bool {
	if o.AllowPrivate {
		return true
	}
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return o.allowsHTTP(addr, host)
	}
	return slices.ContainsFunc(o.AllowHTTP, func(r HTTPRule) bool { return r.Host == "" || r.takesHost(host) })
}

// allowsHTTP says whether a socket may be opened to the address for an http URL with the
// host: where development or a range allows it, or a rule names the host. Such a host may be
// in a private network, and on this machine where its name says so.
func (o *GuardOptions) allowsHTTP(addr netip.Addr, host string) bool {
	if o.never(addr) {
		return false
	}
	if nat64.Contains(addr) {
		b := addr.As16()
		return o.allowsHTTP(netip.AddrFrom4([4]byte(b[12:])), host)
	}
	if o.AllowPrivate && o.allows(addr) {
		return true
	}
	return slices.ContainsFunc(o.AllowHTTP, func(r HTTPRule) bool {
		if r.Host == "" {
			return r.Prefix.Contains(addr)
		}
		return r.takesHost(host) && (o.allows(addr) || inAny(developerRanges, addr) && (!addr.IsLoopback() || isLocalName(host)))
	})
}

// destination is what a socket is opened for.
type destination struct {
	host  string
	plain bool
}

// allowsFor says whether a socket may be opened to the address for the destination.
func (o *GuardOptions) allowsFor(addr netip.Addr, to destination) bool {
	if to.plain {
		return o.allowsHTTP(addr, to.host)
	}
	return o.allows(addr)
}
