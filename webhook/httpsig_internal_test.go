package webhook

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"net/url"
	"testing"
)

// The vectors of RFC 9421, appendix B.2, that are of a request and whose signatures are the same each time.
func TestTheSignatureIsThatOfTheRFC(t *testing.T) {
	target, err := url.Parse("https://example.com/foo?param=Value&Pet=dog")
	if err != nil {
		t.Fatal(err)
	}
	r := signedRequest(target, http.Header{
		"Date": {"Tue, 20 Apr 2021 02:07:55 GMT"}, "Content-Type": {"application/json"}, "Content-Length": {"18"},
	})
	decode := func(text string) []byte {
		bytes, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	secret := decode("uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==")
	private, err := x509.ParsePKCS8PrivateKey(decode("MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		components []string
		params     string
		sign       func([]byte) []byte
		want       string
	}{
		{"B.2.5", []string{"date", "@authority", "content-type"}, `;created=1618884473;keyid="test-shared-secret"`,
			func(base []byte) []byte { return hmacOf(secret, base) }, "pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8="},
		{"B.2.6", []string{"date", "@method", "@path", "@authority", "content-type", "content-length"}, `;created=1618884473;keyid="test-key-ed25519"`,
			func(base []byte) []byte { return ed25519.Sign(private.(ed25519.PrivateKey), base) }, "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="},
	} {
		base, _ := signatureBase(r, c.components, c.params)
		if got := base64.StdEncoding.EncodeToString(c.sign([]byte(base))); got != c.want {
			t.Errorf("%s: signed %s; of\n%s", c.name, got, base)
		}
	}
}

// The components of section 2.2, as its examples have them.
func TestComponentsAreAsTheRFCHasThem(t *testing.T) {
	for _, c := range []struct{ url, name, want string }{
		{"https://www.example.com/path?param=value", "@method", "POST"},
		{"https://www.example.com/path?param=value", "@target-uri", "https://www.example.com/path?param=value"},
		{"https://www.example.com/path?param=value", "@authority", "www.example.com"},
		{"https://www.example.com:443/path", "@authority", "www.example.com"},
		{"http://www.example.com:80", "@authority", "www.example.com"},
		{"http://www.example.com:443/", "@authority", "www.example.com:443"},
		{"http://www.example.com/", "@scheme", "http"},
		{"https://www.example.com/path?param=value", "@request-target", "/path?param=value"},
		{"https://www.example.com/path?param=value", "@path", "/path"},
		{"https://www.example.com", "@path", "/"},
		{"https://www.example.com", "@target-uri", "https://www.example.com/"},
		{"https://www.example.com/a%20b/c?queryString=", "@path", "/a%20b/c"},
		{"https://www.example.com/path?param=value&foo=bar&baz=bat%2Dman", "@query", "?param=value&foo=bar&baz=bat%2Dman"},
		{"https://www.example.com/path", "@query", "?"},
	} {
		target, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := derivedComponents[c.name](signedRequest(target, nil)); got != c.want {
			t.Errorf("%s of %s is %q, want %q", c.name, c.url, got, c.want)
		}
	}
}
