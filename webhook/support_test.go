package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

func stalledDial(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// names is a scripted resolver. The n-th lookup of a name gives its n-th answer;
// the last one repeats.
type names struct {
	mu      sync.Mutex
	answers map[string][]answer
	lookups int
}

type answer struct {
	addrs []netip.Addr
	err   error
}

func addresses(texts ...string) answer {
	var a answer
	for _, text := range texts {
		a.addrs = append(a.addrs, netip.MustParseAddr(text))
	}
	return a
}

func resolving(host string, answers ...answer) *names {
	return &names{answers: map[string][]answer{host: answers}}
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lookups++
	list := n.answers[host]
	if len(list) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(list) > 1 {
		n.answers[host] = list[1:]
	}
	return list[0].addrs, list[0].err
}

func (n *names) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lookups
}

// dials records what was dialled and passes it on.
type dials struct {
	mu        sync.Mutex
	addresses []string
	next      webhook.DialFunc
}

func (d *dials) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.mu.Lock()
	d.addresses = append(d.addresses, address)
	d.mu.Unlock()
	return d.next(ctx, network, address)
}

func (d *dials) list() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.addresses...)
}

func fails(err error) webhook.DialFunc {
	return func(context.Context, string, string) (net.Conn, error) { return nil, err }
}

// certificate is one for example.com and 127.0.0.1, and the roots that trust it.
func certificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return server.TLS.Certificates[0], roots
}

func trusting(roots *x509.CertPool) func(*webhook.Options) {
	return func(o *webhook.Options) { o.RootCAs = roots }
}

func with(r webhook.Resolver) func(*webhook.Options) {
	return func(o *webhook.Options) { o.Resolver = r }
}

func guarded(g webhook.GuardOptions) func(*webhook.Options) {
	return func(o *webhook.Options) { o.Guard = g }
}

// eitherProtocol serves HTTP/2 with one script and HTTP/1.1 with the other, as TLS negotiates.
func eitherProtocol(t *testing.T, two, one webhooktest.Script) (*webhook.Sender, *webhook.Webhook) {
	t.Helper()
	return overTLS(t, []string{"h2", "http/1.1"}, two, one)
}

// onlyHTTP2 is a webhook whose receiver refuses a handshake without it.
func onlyHTTP2(t *testing.T, two webhooktest.Script) (*webhook.Sender, *webhook.Webhook) {
	t.Helper()
	return overTLS(t, []string{"h2"}, two, webhooktest.Hang)
}

func overTLS(t *testing.T, protocols []string, two, one webhooktest.Script) (*webhook.Sender, *webhook.Webhook) {
	t.Helper()
	cert, roots := certificate(t)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{cert}, NextProtos: protocols,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if !slices.ContainsFunc(protocols, func(p string) bool { return slices.Contains(hello.SupportedProtos, p) }) {
				return nil, errors.New("no protocol in common") // package tls lets HTTP/1.1 through
			}
			return nil, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	wire := webhooktest.ServeWire(t, listener, func(c *webhooktest.Conn) {
		secure := c.Conn.(*tls.Conn)
		if secure.Handshake() != nil {
			return
		}
		if secure.ConnectionState().NegotiatedProtocol == "h2" {
			two(c)
		} else {
			one(c)
		}
	})
	w := hook()
	w.URL = strings.Replace(wire.URL(), "http:", "https:", 1)
	return newSender(t, nil, trusting(roots)), w
}
