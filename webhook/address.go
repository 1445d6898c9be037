package webhook

import (
	"net/netip"
	"slices"
)

// GuardOptions say which addresses requests may go to. The zero value allows
// public addresses over https only.
type GuardOptions struct {
	// AllowPrivate also allows http, loopback (127.0.0.0/8, ::1), private
	// (RFC 1918) and unique-local addresses, and the names that stand for them.
	// For development.
	AllowPrivate bool
	// AllowHTTP names the receivers to which plain http is allowed, in production too.
	AllowHTTP []HTTPRule
	// AllowCIDRs are allowed although they are not public. Metadata addresses
	// stay refused.
	AllowCIDRs []netip.Prefix
	// DenyCIDRs are refused, whatever else allows them.
	DenyCIDRs []netip.Prefix
}

// Addresses from which clouds hand out credentials. Nothing allows them.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // most clouds
	netip.MustParseAddr("169.254.170.2"),   // Amazon ECS
	netip.MustParseAddr("169.254.170.23"),  // Amazon EKS
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon over IPv6
	netip.MustParseAddr("fd00:ec2::23"),    // Amazon EKS over IPv6
	netip.MustParseAddr("fd20:ce::254"),    // Google over IPv6
	netip.MustParseAddr("168.63.129.16"),   // Azure wire server: a public range
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle
}

// IANA's special-purpose registries, without the blocks of developerRanges.
var forbidden4 = prefixes(
	"0.0.0.0/8",       // this network
	"100.64.0.0/10",   // carrier-grade NAT
	"169.254.0.0/16",  // link-local
	"192.0.0.0/24",    // IETF protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // 6to4 relay
	"198.18.0.0/15",   // benchmarking
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, and broadcast
)

// Of IPv6 only 2000::/3 is global unicast. That alone refuses the unspecified
// address, link-local, site-local, multicast, SRv6 5f00::/16, discard 100::/64,
// and what hides IPv4: mapped, compatible, and NAT64 of local use, 64:ff9b:1::/48.
var global6 = netip.MustParsePrefix("2000::/3")

var forbidden6 = prefixes(
	"2001::/23",     // IETF protocol assignments: Teredo, benchmarking, ORCHID
	"2001:db8::/32", // documentation
	"2002::/16",     // 6to4
	"3fff::/20",     // documentation
)

// developerRanges are what AllowPrivate allows.
var developerRanges = prefixes("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")

// nat64 carries an IPv4 address in its last four bytes (RFC 6052). A resolver with DNS64
// makes such an address for each name that has only an IPv4 one.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

func inAny(list []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// never says whether nothing allows an address.
func (o *GuardOptions) never(addr netip.Addr) bool {
	return !addr.IsValid() || addr.Zone() != "" || addr.Is4In6() || inAny(o.DenyCIDRs, addr) || slices.Contains(metadataAddresses, addr)
}

// allows says whether a socket may be opened to the address. An IPv4 address in
// its IPv6-mapped form is refused; resolvers that answer so are unmapped first. One behind
// NAT64 is judged as the IPv4 address that it leads to, by every rule: a range that allows
// the translation prefix allows nothing behind it.
func (o *GuardOptions) allows(addr netip.Addr) bool {
	switch {
	case o.never(addr):
		return false
	case nat64.Contains(addr):
		b := addr.As16()
		return o.allows(netip.AddrFrom4([4]byte(b[12:])))
	case inAny(o.AllowCIDRs, addr):
		return true
	case inAny(developerRanges, addr):
		return o.AllowPrivate
	case addr.Is4():
		return !inAny(forbidden4, addr)
	}
	return global6.Contains(addr) && !inAny(forbidden6, addr)
}
