package webhook

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/webhook/content"
)

// TLS is how connections to the receiver are made, where that is not as with any other.
type TLS struct {
	// ClientCertificate is shown to a receiver that asks for one: in PEM, with those between it and its
	// authority after it. ClientKey is its private key.
	ClientCertificate string `json:"client_certificate,omitempty"`
	ClientKey         Hidden `json:"client_key,omitempty"`
	// CA are certificates in PEM by which the receiver is verified, in the place of the system's.
	CA string `json:"ca,omitempty"`
	// MinVersion is the least version of TLS: 1.2, which is the default, or 1.3.
	MinVersion string `json:"min_version,omitempty"`
	// ServerName takes the place of the URL's host: it is asked for (SNI), and the receiver's certificate is for it.
	ServerName string `json:"server_name,omitempty"`
}

// maxPEM bounds certificates, in bytes.
const maxPEM = 64 << 10

// identitySessions is how many sessions of one identity are kept, for shorter handshakes.
const identitySessions = 16

var minVersions = map[string]uint16{"": tls.VersionTLS12, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Problems says what is wrong with a TLS that is being registered for a webhook with the URL. No text repeats a value.
func (t *TLS) Problems(url string, now time.Time) (all []*content.FieldError) {
	add := func(field string, wrong *content.FieldError) {
		if wrong != nil {
			all = append(all, wrongPart(field, wrong.Problem, wrong.Cure))
		}
	}
	if !strings.HasPrefix(strings.ToLower(url), "https:") {
		add("", wrongPart("", "the URL is not https", "use https, or set tls to null"))
	}
	pair, wrong := t.certificate()
	if wrong == nil && pair != nil {
		chain, _ := certificates(t.ClientCertificate)
		for i := len(chain) - 1; i >= 0 && wrong == nil; i-- {
			wrong = notNow(chain[i], now)
		}
	}
	if wrong != nil {
		add(wrong.Field, wrong)
	}
	list, wrong := t.authorities()
	for _, c := range list {
		if wrong == nil && now.After(c.NotAfter) {
			wrong = wrongPart("", "it holds a certificate that has expired at "+stamp(c.NotAfter), "give the one that is in force")
		}
	}
	add("ca", wrong)
	if _, known := minVersions[t.MinVersion]; !known {
		add("min_version", wrongPart("", "it is no version that there is", `give "1.2", the default, or "1.3"`))
	}
	if name, err := normaliseHost(t.ServerName); t.ServerName != "" && (err != nil || name != t.ServerName || strings.ContainsAny(name, "[:") || endsInNumber(name)) {
		add("server_name", wrongPart("", "it is no host name", "give the name in the receiver's certificate, in lower case, such as hooks.example.com"))
	}
	return all
}

// certificate reads the client's certificate and key; nil without one.
func (t *TLS) certificate() (*tls.Certificate, *content.FieldError) {
	const form = "give the certificate in PEM, -----BEGIN CERTIFICATE-----, with those between it and its authority after it"
	switch {
	case t.ClientCertificate == "" && t.ClientKey == "":
		return nil, nil
	case t.ClientCertificate == "":
		return nil, wrongPart("client_certificate", "it is missing beside the key", form)
	case t.ClientKey == "":
		return nil, wrongPart("client_key", "it is missing beside the certificate", "give the private key in PEM, without a passphrase")
	}
	chain, ok := certificates(t.ClientCertificate)
	if !ok {
		return nil, wrongPart("client_certificate", "it holds something else than certificates", form)
	}
	pair, err := tls.X509KeyPair([]byte(t.ClientCertificate), []byte(t.ClientKey))
	leaf := chain[0]
	switch {
	case err != nil && strings.Contains(err.Error(), "does not match"):
		return nil, wrongPart("client_key", "it is not the key of the certificate", "give the key that the certificate was made with, and the client's own certificate first")
	case err != nil:
		return nil, wrongPart("client_key", "it is no private key that can be used", "give the private key in PEM, without a passphrase")
	case len(leaf.ExtKeyUsage) > 0 && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny):
		return nil, wrongPart("client_certificate", "it is not one for clients", "have one made with the extended key usage clientAuth")
	}
	pair.Leaf = leaf
	return &pair, nil
}

// notNow says why a client's certificate is not valid at a time.
func notNow(leaf *x509.Certificate, now time.Time) *content.FieldError {
	switch {
	case now.After(leaf.NotAfter):
		return wrongPart("client_certificate", "it has expired at "+stamp(leaf.NotAfter)+", or one of those after it has", "have it renewed, and give the new one with its key")
	case now.Before(leaf.NotBefore):
		return wrongPart("client_certificate", "it is not valid before "+stamp(leaf.NotBefore), "see that this machine's clock is right, or register it then")
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// authorities reads the private CA; none where the system's are meant.
func (t *TLS) authorities() ([]*x509.Certificate, *content.FieldError) {
	if t.CA == "" {
		return nil, nil
	}
	list, ok := certificates(t.CA)
	if !ok {
		return nil, wrongPart("", "it holds something else than certificates", "give the authority's certificate in PEM, -----BEGIN CERTIFICATE-----")
	}
	if slices.ContainsFunc(list, func(c *x509.Certificate) bool { return !c.BasicConstraintsValid || !c.IsCA }) {
		return nil, wrongPart("", "it holds a certificate that is not an authority's", "give that of the authority which signs receivers, with CA:TRUE, and not the receiver's own")
	}
	return list, nil
}

// certificates reads one or more in PEM, and nothing else.
func certificates(text string) (list []*x509.Certificate, ok bool) {
	rest := []byte(text)
	if len(rest) > maxPEM {
		return nil, false
	}
	for len(bytes.TrimSpace(rest)) > 0 {
		block, after := pem.Decode(rest)
		if block == nil || block.Type != "CERTIFICATE" {
			return nil, false
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, false
		}
		list, rest = append(list, c), after
	}
	return list, len(list) > 0
}

// Expires is when the first certificate of the client's chain ends, or the last authority of its own if that is sooner, and in which
// setting that is: nothing can be sent from then on. The zero time without one.
func (t *TLS) Expires() (end time.Time, setting string) {
	if t == nil {
		return time.Time{}, ""
	}
	if chain, ok := certificates(t.ClientCertificate); ok {
		end, setting = slices.MinFunc(chain, byEnd).NotAfter, "tls.client_certificate"
	}
	if list, ok := certificates(t.CA); ok {
		if last := slices.MaxFunc(list, byEnd).NotAfter; end.IsZero() || last.Before(end) {
			end, setting = last, "tls.ca"
		}
	}
	return end, setting
}

func byEnd(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }

// OnlyCertificates is a text in PEM without what stands beside its certificates, which may be a part of a key; as it is where it is no such text.
func OnlyCertificates(text string) string {
	list, ok := certificates(text)
	if !ok {
		return text
	}
	var all []byte
	for _, c := range list {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return strings.TrimSpace(string(all))
}

// config is base as the registration has it. It shares no session with others, since one carries who the client is.
func (t *TLS) config(base *tls.Config) (*tls.Config, error) {
	pair, wrong := t.certificate()
	if wrong != nil {
		return nil, wrong
	}
	list, wrong := t.authorities()
	if wrong != nil {
		return nil, wrong
	}
	c := base.Clone()
	c.MinVersion, c.ServerName, c.ClientSessionCache = minVersions[t.MinVersion], t.ServerName, tls.NewLRUClientSessionCache(identitySessions)
	if pair != nil {
		c.Certificates = []tls.Certificate{*pair}
	}
	if len(list) > 0 {
		c.RootCAs = x509.NewCertPool()
	}
	for _, authority := range list {
		c.RootCAs.AddCert(authority)
	}
	return c, nil
}

// Shown is what may be shown of a TLS: mark stands for the key.
func (t *TLS) Shown(mark string) *TLS {
	if t == nil || t.ClientKey == "" {
		return t
	}
	shown := *t
	shown.ClientKey = Hidden(mark)
	return &shown
}
