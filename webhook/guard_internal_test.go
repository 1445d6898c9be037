package webhook

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

func TestAllows(t *testing.T) {
	lan := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("64:ff9b::/96")}
	for text, want := range map[string][3]bool{ // production, development, with ranges
		"8.8.8.8": {true, true, true}, "2606:4700::1": {true, true, true}, "192.0.1.1": {true, true, true}, "100.128.0.1": {true, true, true},
		"172.32.0.1": {true, true, true}, "198.20.0.1": {true, true, true}, "223.255.255.255": {true, true, true}, "2001:200::1": {true, true, true},
		"127.0.0.1": {false, true, false}, "127.255.0.1": {false, true, false}, "10.1.2.3": {false, true, true}, "172.16.0.1": {false, true, false},
		"192.168.0.1": {false, true, false}, "::1": {false, true, false}, "fd12::1": {false, true, false}, "169.254.1.1": {false, false, true},
		"169.254.169.254": {}, "169.254.170.2": {}, "fd00:ec2::254": {}, "168.63.129.16": {}, "100.100.100.200": {}, "fd20:ce::254": {},
		"0.0.0.0": {}, "0.1.2.3": {}, "100.64.0.1": {}, "100.127.255.255": {}, "192.0.0.1": {}, "192.0.2.1": {}, "192.88.99.1": {}, "198.18.0.1": {},
		"198.19.255.255": {}, "198.51.100.1": {}, "203.0.113.1": {}, "224.0.0.1": {}, "239.255.255.255": {}, "240.0.0.1": {}, "255.255.255.255": {},
		"::": {}, "::ffff:8.8.8.8": {}, "::8.8.8.8": {}, "::ffff:0:8.8.8.8": {}, "64:ff9b::8.8.8.8": {true, true, true}, "64:ff9b::192.168.0.1": {false, true, false},
		"64:ff9b::10.0.0.1": {false, true, true}, "64:ff9b::169.254.169.254": {}, "64:ff9b:1::1": {}, "64:ff9b:1::8.8.8.8": {}, "100::1": {}, "2001::1": {}, "2001:2::1": {}, "2001:db8::1": {},
		"2002:808:808::1": {}, "3fff::1": {}, "5f00::1": {}, "fe80::1": {}, "fec0::1": {}, "ff02::1": {}, "fe80::1%eth0": {}, "2606:4700::1%1": {}, "4000::1": {},
	} {
		addr := netip.MustParseAddr(text)
		for i, options := range []GuardOptions{{}, {AllowPrivate: true}, {AllowCIDRs: lan}} {
			if got := options.allows(addr); got != want[i] {
				t.Errorf("%s with options %d: %v, want %v", text, i, got, want[i])
			}
		}
		all := GuardOptions{AllowPrivate: true, AllowCIDRs: lan, DenyCIDRs: prefixes("0.0.0.0/0", "::/0")}
		if all.allows(addr) {
			t.Errorf("%s is allowed although everything is denied", text)
		}
	}
	if (&GuardOptions{}).allows(netip.Addr{}) {
		t.Error("no address is allowed")
	}
}

// The socket is checked by itself, whatever was checked before.
func TestSocketIsCheckedAtConnect(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := newGuard(GuardOptions{}, nil, nil).dialer(t.Context(), "tcp", listener.Addr().String())
	if !errors.Is(err, ErrBlockedAddress) {
		t.Errorf("connection %v, error %v", conn, err)
	}
}
