package webhook_test

import (
	"fmt"
	"io"
	"net/netip"
	"testing"

	"github.com/pushlease/pushlease/webhook"
)

func rules(t *testing.T, texts ...string) (all []webhook.HTTPRule) {
	for _, text := range texts {
		r, err := webhook.ParseHTTPRule(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// C46: http is allowed where the operator said so, and nowhere else.
func TestHTTPIsAllowedToNamedReceiversOnly(t *testing.T) {
	ranges, hosts := webhook.GuardOptions{AllowHTTP: rules(t, "10.0.0.0/8")}, webhook.GuardOptions{AllowHTTP: rules(t, "*.svc", "billing", "localhost")}
	denied := ranges
	denied.DenyCIDRs = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	wide := webhook.GuardOptions{AllowHTTP: rules(t, "0.0.0.0/0", "*.svc", "::/0")}
	for _, c := range []struct {
		name, url, address string
		guard              webhook.GuardOptions
		registered         bool
		dialled            string
	}{
		{"literal in the range", "http://10.1.2.3/", "", ranges, true, "[10.1.2.3:80]"},
		{"name in the range", "http://billing.svc/", "10.1.2.3", ranges, true, "[10.1.2.3:80]"},
		{"behind NAT64", "http://billing.svc/", "64:ff9b::a01:203", ranges, true, "[[64:ff9b::a01:203]:80]"},
		{"name outside", "http://billing.svc/", "93.184.215.14", ranges, true, "[]"},
		{"literal outside", "http://93.184.215.14/", "", ranges, false, "[]"},
		{"metadata", "http://169.254.169.254/", "", wide, false, "[]"},
		{"name that leads to metadata", "http://a.svc/", "169.254.169.254", wide, true, "[]"},
		{"denied", "http://10.1.2.3/", "", denied, false, "[]"},
		{"https in the range", "https://10.1.2.3/", "", ranges, false, "[]"},
		{"host", "http://a.svc/", "10.9.9.9", hosts, true, "[10.9.9.9:80]"},
		{"exact host", "http://billing:8080/", "192.168.1.1", hosts, true, "[192.168.1.1:8080]"},
		{"public host", "http://a.b.svc/", "93.184.215.14", hosts, true, "[93.184.215.14:80]"},
		{"host that leads to this machine", "http://a.svc/", "127.0.0.1", hosts, true, "[]"},
		{"this machine by its name", "http://localhost:9000/", "127.0.0.1", hosts, true, "[127.0.0.1:9000]"},
		{"host that only looks so", "http://a.svc.evil.example/", "10.9.9.9", hosts, false, "[]"},
		{"the end alone", "http://svc/", "10.9.9.9", hosts, false, "[]"},
		{"literal beside hosts", "http://10.9.9.9/", "", hosts, false, "[]"},
		{"nothing allowed", "http://a.svc/", "10.9.9.9", webhook.GuardOptions{}, false, "[]"},
		{"ranges for https only", "http://10.1.2.3/", "", webhook.GuardOptions{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, false, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := webhook.ValidateURL(c.url, c.guard); (err == nil) != c.registered {
				t.Errorf("registered: %v", err)
			}
			d := &dials{next: fails(io.EOF)}
			resolver := &names{answers: map[string][]answer{}}
			for _, host := range []string{"billing.svc", "a.svc", "a.b.svc", "billing", "localhost", "a.svc.evil.example", "svc"} {
				if c.address != "" {
					resolver.answers[host] = []answer{addresses(c.address)}
				}
			}
			s := newSender(t, d.dial, with(resolver), guarded(c.guard))
			defer s.Close()
			w := hook()
			w.URL = c.url
			got := s.Send(t.Context(), w, message("{}"))
			first := "[]"
			if list := d.list(); len(list) > 0 {
				first = fmt.Sprint(list[:1])
			}
			if first != c.dialled || !c.registered && got.ErrorClass != "request" && got.ErrorClass != "blocked" {
				t.Errorf("dialled %v, %q %s, want %s", d.list(), got.ErrorClass, got.Error, c.dialled)
			}
		})
	}
	for _, bad := range []string{"", "*", "*.", "10.1.2.3/8", "a b", "http://x", "*.*.svc", "::ffff:10.0.0.0/104"} {
		if r, err := webhook.ParseHTTPRule(bad); err == nil {
			t.Errorf("%q is a rule: %v", bad, r)
		}
	}
}
