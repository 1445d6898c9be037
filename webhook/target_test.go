package webhook_test

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

var (
	production  = webhook.GuardOptions{}
	development = webhook.GuardOptions{AllowPrivate: true}
)

func TestGoodURLsAreTaken(t *testing.T) {
	for _, raw := range []string{
		"https://good.example/", "https://good.example", "https://GOOD.example:8443/a?b=c", "https://good.example./x",
		"https://bücher.example/ü?q=%C3%BC", "https://good.example/a b", "https://xn--bcher-kva.example/", "https://8.8.8.8/", "https://[2606:4700::1111]:443/", "https://[64:ff9b::5db8:d70e]/",
		"https://a_b.example/", "HTTPS://good.example/", "https://good.example:65535/", "https://localhost.example/",
		"https://1password.example/", "https://r3---sn.example/", "https://faß.example/", "https://例え.テスト/", "https://0x7f.example/", "https://good.example/%20",
		"https://good.example/" + strings.Repeat("a", 2048-21),
	} {
		if err := webhook.ValidateURL(raw, production); err != nil {
			t.Errorf("%q: %v", raw, err)
		}
	}
	for _, raw := range []string{"http://localhost:8080/hook", "http://127.0.0.1/", "https://10.1.2.3/", "http://[::1]:9000/", "http://receiver:8080/", "http://a.localhost/", "http://[fd00::1]/"} {
		if err := webhook.ValidateURL(raw, development); err != nil {
			t.Errorf("development, %q: %v", raw, err)
		}
	}
	lan := webhook.GuardOptions{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for _, raw := range []string{"https://10.1.2.3/", "https://api.internal/"} {
		if err := webhook.ValidateURL(raw, lan); err != nil {
			t.Errorf("with 10.0.0.0/8, %q: %v", raw, err)
		}
	}
}

// badURLs are refused whatever is allowed (C31).
var badURLs = []string{
	"", " ", "https://", "https:///x", "https:good.example", "good.example", "//good.example/", "/x", "ftp://good.example/", "javascript:alert(1)",
	"file:///etc/passwd", "https://good.example/#f", "https://good.example/#", "https://u:p@good.example/", "https://u@good.example/",
	"https://@good.example/", "http://good.example@127.0.0.1/", "https://good.example:0/", "https://good.example:65536/", "https://good.example:/",
	"https://good.example:a/", "https://good.example:-1/", "https://good .example/", " https://good.example/", "https://good.example/\r\nX: 1", "https://good.example/? HTTP/1.1", "https://good.example/?q=ü",
	"https://good.example\\@127.0.0.1/", "https://good..example/", "https://.example/", "https://./", "https://%31%32%37.0.0.1/", "https://good%00.example/",
	"https://good%E3%80%82%E3%80%82example/", "https://[fe80::1%25eth0]/", "https://[::1%25lo]/", "https://[::1", "https://::1/", "https://[127.0.0.1]/",
	"https://2130706433/", "https://0x7f.1/", "https://0177.0.0.1/", "https://127.1/", "https://0x7f000001/", "https://0/", "https://127.0.0.1.1/",
	"https://256.0.0.1/", "https://1.2.3/", "https://a.0x/", "https://a.1/", "https://a.１/", "https://01.2.3.4/",
	"https://" + strings.Repeat("a", 64) + ".example/", "https://" + strings.Repeat("a.", 130) + "example/",
	"https://good.example/" + strings.Repeat("a", 2048-20), "https://<script>/", "https://ex\u00adample\u200b\u2028.x y/", "https://xn--a/",
}

// privateURLs are refused in production.
var privateURLs = []string{
	"http://good.example/", "https://localhost/", "https://LOCALHOST./", "https://a.localhost/", "https://ｌocalhost/", "https://x.internal/", "https://internal/",
	"https://127.0.0.1/", "https://127.0.0.1./", "https://１２７.0.0.1/", "https://127。0。0。1/", "https://10.0.0.1/", "https://192.168.1.1/", "https://172.31.0.1/", "https://[::1]/", "https://[fd00::1]/",
	"https://[64:ff9b::7f00:1]/", "https://[64:ff9b::a00:1]/",
}

// neverURLs are literals that nothing but a range of the operator allows.
var neverURLs = []string{
	"https://169.254.169.254/", "https://168.63.129.16/", "https://0.0.0.0/", "https://100.64.0.1/", "https://192.0.0.1/", "https://198.18.0.1/", "https://192.0.2.1/",
	"https://224.0.0.1/", "https://240.0.0.1/", "https://255.255.255.255/", "https://[::]/", "https://[::ffff:127.0.0.1]/", "https://[::ffff:8.8.8.8]/", "https://[::7f00:1]/",
	"https://[64:ff9b::a9fe:a9fe]/", "https://[64:ff9b:1::1]/", "https://[2002:7f00:1::]/", "https://[2001:0:1::1]/", "https://[fe80::1]/", "https://[fec0::1]/", "https://[ff02::1]/",
	"https://[5f00::1]/", "https://[2001:db8::1]/", "https://[100::1]/", "https://[fd00:ec2::254]/", "https://[3fff::1]/",
}

func TestBadURLsAreRefused(t *testing.T) {
	refused := func(raw string, guard webhook.GuardOptions) {
		t.Helper()
		err := webhook.ValidateURL(raw, guard)
		var field *content.FieldError
		if !errors.As(err, &field) || field.Problem == "" || field.Cure == "" {
			t.Errorf("%q: %v", raw, err)
		}
	}
	for _, raw := range badURLs {
		refused(raw, production)
		refused(raw, development)
		if len(raw) < 2048 {
			refused(strings.Replace(raw, "https://", "http://", 1), development)
		}
	}
	for _, raw := range privateURLs {
		refused(raw, production)
	}
	for _, raw := range neverURLs {
		refused(raw, production)
		refused(raw, development)
	}
}

func TestURLErrorsDoNotRepeatTheURL(t *testing.T) {
	for _, raw := range []string{"https://u:hunter2@good.example/", "https://good.example:99999/hunter2", "http://good.example/hunter2", "https://good.example/?hunter2#", "https://%zz/hunter2"} {
		if err := webhook.ValidateURL(raw, production); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func FuzzValidateURL(f *testing.F) {
	for _, raw := range badURLs {
		f.Add(raw)
	}
	for _, raw := range append(privateURLs, neverURLs...) {
		f.Add(raw)
	}
	f.Add("https://good.example/")
	f.Fuzz(func(t *testing.T, raw string) {
		if webhook.ValidateURL(raw, production) != nil {
			return
		}
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "https" || u.User != nil || u.Hostname() == "" || len(raw) > 2048 {
			t.Errorf("taken: %q", raw)
		}
		if addr, err := netip.ParseAddr(strings.TrimSuffix(u.Hostname(), ".")); err == nil && (addr.IsPrivate() || addr.IsLoopback() || addr.Zone() != "") {
			t.Errorf("taken: %q", raw)
		}
	})
}

// C30: headers are checked at registration.
func TestHeadersAreValidated(t *testing.T) {
	many := map[string]string{}
	for i := range 51 {
		many["X-"+strings.Repeat("a", i+1)] = "1"
	}
	for name, headers := range map[string]map[string]string{
		"CR LF in name": {"a\r\nX": "1"}, "CR LF in value": {"X-A": "a\r\nX: 1"}, "LF": {"X-A": "a\nb"}, "NUL": {"X-A": "\x00"}, "DEL": {"X-A": "\x7f"},
		"not ASCII": {"X-A": "é"}, "name not ASCII": {"X-é": "1"}, "bad UTF-8": {"X-A": "\xff"}, "name bad UTF-8": {"X-\xff": "1"},
		"100 KB": {"X-A": strings.Repeat("a", 100<<10)}, "4097 bytes": {"X-A": strings.Repeat("a", 4097)}, "long name": {strings.Repeat("a", 257): "1"},
		"no name": {"": "1"}, "blank in name": {"X A": "1"}, "colon": {"X:": "1"}, "pseudo": {":path": "/"}, "twice": {"X-A": "1", "x-a": "2"}, "too many": many,
		"leading blank": {"X-A": " 1"}, "trailing blank": {"X-A": "1 "},
		"signature": {"Webhook-Signature": "v1,x"}, "id": {"WEBHOOK-ID": "1"}, "ours": {"pushlease-queue": "x"}, "length": {"content-length": "1"},
		"encoding": {"Transfer-Encoding": "chunked"}, "connection": {"Connection": "close"}, "te": {"TE": "trailers"}, "trailer": {"Trailer": "X"},
		"upgrade": {"Upgrade": "h2c"}, "expect": {"Expect": "100-continue"}, "host": {"hOST": "x"}, "trace": {"Traceparent": "x"}, "state": {"tracestate": "x"},
		"baggage": {"Baggage": "a=b"}, "keep-alive": {"Keep-Alive": "1"}, "proxy": {"Proxy-Authorization": "x"}, "proxy connection": {"Proxy-Connection": "x"},
		"idempotency": {"Idempotency-Key": "1"}, "x idempotency": {"x-idempotency-key": "1"}, "compression": {"Accept-Encoding": "gzip"}, "settings": {"HTTP2-Settings": "x"},
	} {
		t.Run(name, func(t *testing.T) {
			var field *content.FieldError
			if err := webhook.ValidateHeaders(headers); !errors.As(err, &field) || field.Problem == "" || field.Cure == "" || len(err.Error()) > 500 {
				t.Errorf("got %v", err)
			}
		})
	}
	delete(many, "X-a")
	for _, headers := range []map[string]string{
		nil, {}, many, {"Authorization": "Bearer x", "X-A": "", "Content-Type": "text/plain", "User-Agent": "x"}, {"!#$%&'*+-.^_`|~1aZ": "a b~!"}, {"X-A": strings.Repeat("a", 4096)},
	} {
		if err := webhook.ValidateHeaders(headers); err != nil {
			t.Errorf("%v", err)
		}
	}
}

func TestARefusedURLIsToldWhatIsAllowed(t *testing.T) {
	for _, allowHTTP := range []bool{false, true} {
		for _, raw := range []string{"ftp://example.com/", "localhost:9000/hook"} {
			var wrong *content.FieldError
			if err := webhook.ValidateURL(raw, webhook.GuardOptions{AllowPrivate: allowHTTP}); !errors.As(err, &wrong) {
				t.Fatalf("%s: %v", raw, err)
			}
			if got := strings.Contains(wrong.Problem+wrong.Cure, "http://"); got != allowHTTP {
				t.Errorf("%s, http allowed %t: %s; %s", raw, allowHTTP, wrong.Problem, wrong.Cure)
			}
		}
	}
}
