package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

func (i *issuer) certPEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw}))
}

func (i *issuer) keyPEM(t testing.TB) webhook.Hidden {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return webhook.Hidden(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// client makes a certificate for clients of that name.
func client(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject, c.DNSNames, c.ExtKeyUsage = pkix.Name{CommonName: name}, nil, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
}

// mutual is a receiver with a private authority that takes only clients which another one has signed.
type mutual struct {
	*httptest.Server
	clients *issuer
	ca      string

	mu     sync.Mutex
	seen   []string          // the client of each POST
	conns  map[string]string // the first client on each connection
	closed map[string]chan struct{}
}

func newMutual(t *testing.T, change func(*httptest.Server)) *mutual {
	t.Helper()
	root := issue(t, nil, authority("private root"))
	m := &mutual{clients: issue(t, nil, authority("clients")), ca: root.certPEM(), conns: map[string]string{}, closed: map[string]chan struct{}{}}
	serving := issue(t, root, func(c *x509.Certificate) { c.DNSNames = []string{"inside.example"} })
	pool := x509.NewCertPool()
	pool.AddCert(m.clients.cert)
	m.Server = httptest.NewUnstartedServer(http.HandlerFunc(m.serve))
	m.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	m.Config.ConnState = func(c net.Conn, s http.ConnState) {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch s {
		case http.StateNew:
			m.closed[c.RemoteAddr().String()] = make(chan struct{})
		case http.StateClosed:
			close(m.closed[c.RemoteAddr().String()])
		}
	}
	m.TLS = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{serving.cert.Raw}, PrivateKey: serving.key}},
		ClientCAs:    pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}
	change(m.Server)
	m.StartTLS()
	t.Cleanup(m.Close)
	return m
}

func (m *mutual) serve(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := r.TLS.PeerCertificates[0].Subject.CommonName
	m.seen = append(m.seen, name)
	if first, used := m.conns[r.RemoteAddr]; used && first != name {
		w.WriteHeader(http.StatusTeapot)
	}
	m.conns[r.RemoteAddr] = name
	_, _ = fmt.Fprintf(w, "%s %s %s", r.Proto, name, r.TLS.ServerName)
}

// hook is a webhook with a certificate of that name.
func (m *mutual) hook(t *testing.T, id, name string) *webhook.Webhook {
	t.Helper()
	own := issue(t, m.clients, client(name))
	_, port, _ := net.SplitHostPort(m.Listener.Addr().String())
	w := hook()
	w.ID, w.URL = id, "https://example.com:"+port+"/hook"
	w.TLS = &webhook.TLS{ClientCertificate: own.certPEM(), ClientKey: own.keyPEM(t), CA: m.ca, ServerName: "inside.example"}
	if wrong := w.TLS.Problems(w.URL, time.Now()); len(wrong) > 0 {
		t.Fatalf("it could not be registered: %v", wrong)
	}
	return w
}

func mutualSender(t *testing.T) *webhook.Sender {
	return newSender(t, nil, with(resolving("example.com", addresses("127.0.0.1"))))
}

func TestAReceiverSeesTheCertificateOfEachWebhook(t *testing.T) {
	for name, change := range map[string]func(*httptest.Server){
		"HTTP/1.1": func(*httptest.Server) {},
		"HTTP/2.0": func(s *httptest.Server) { s.EnableHTTP2 = true },
		"TLS 1.2":  func(s *httptest.Server) { s.TLS.MaxVersion = tls.VersionTLS12 },
	} {
		t.Run(name, func(t *testing.T) {
			m, s := newMutual(t, change), mutualSender(t)
			one, other := m.hook(t, "wh_1", "one"), m.hook(t, "wh_2", "other")
			var work sync.WaitGroup
			for range 5 {
				for _, w := range []*webhook.Webhook{one, other} {
					work.Go(func() { wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200) })
				}
			}
			work.Wait()
			for range 3 { // sessions are taken up again on new connections
				for w, want := range map[*webhook.Webhook]string{one: " one inside.example", other: " other inside.example"} {
					fresh := message("{}")
					fresh.Fresh = true
					got := s.Send(t.Context(), w, fresh)
					if wantAnswer(t, got, 200); !strings.HasSuffix(string(got.Body), want) || strings.HasPrefix(name, "HTTP") && !strings.HasPrefix(string(got.Body), name) {
						t.Errorf("it saw %q, want %q over %s", got.Body, want, name)
					}
				}
			}
			nobody := *one
			nobody.ID, nobody.TLS = "wh_3", &webhook.TLS{CA: m.ca, ServerName: "inside.example"}
			got := s.Send(t.Context(), &nobody, message("{}"))
			if got.Status != 0 || !strings.Contains(got.Error, "set tls.client_certificate") { // the connection may end before the alert is read
				t.Errorf("without a certificate it says %q", got.Error)
			}
		})
	}
}

// A changed registration is another client, and the old one's connections end.
func TestACertificateIsReplacedWithoutARestart(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint(http2), func(t *testing.T) {
			m, s := newMutual(t, func(s *httptest.Server) { s.EnableHTTP2 = http2 }), mutualSender(t)
			wantAnswer(t, s.Send(t.Context(), m.hook(t, "wh_1", "old"), message("{}")), 200)
			m.mu.Lock()
			var old chan struct{}
			for address := range m.conns {
				old = m.closed[address]
			}
			m.mu.Unlock()
			renewed := m.hook(t, "wh_1", "new")
			if got := s.Send(t.Context(), renewed, message("{}")); !strings.Contains(string(got.Body), " new ") {
				t.Errorf("it saw %q", got.Body)
			}
			select {
			case <-old:
			case <-time.After(20 * time.Second):
				t.Error("the connection of the old certificate stays open")
			}
		})
	}
}

// The POST for which a connection is being opened when its registration is replaced leaves none behind.
func TestAConnectionThatIsOpenedForAReplacedCertificateEnds(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint(http2), func(t *testing.T) {
			m := newMutual(t, func(s *httptest.Server) { s.EnableHTTP2 = http2 })
			opening, replaced, first := make(chan struct{}), make(chan struct{}), true
			var mu sync.Mutex
			s := newSender(t, func(ctx context.Context, network, _ string) (net.Conn, error) {
				mu.Lock()
				wait := first
				first = false
				mu.Unlock()
				if wait {
					close(opening)
					<-replaced
				}
				return new(net.Dialer).DialContext(ctx, network, m.Listener.Addr().String())
			}, with(resolving("example.com", addresses("127.0.0.1"))))
			old, renewed := m.hook(t, "wh_1", "old"), m.hook(t, "wh_1", "new")
			var work sync.WaitGroup
			work.Go(func() { wantAnswer(t, s.Send(t.Context(), old, message("{}")), 200) })
			<-opening
			wantAnswer(t, s.Send(t.Context(), renewed, message("{}")), 200)
			close(replaced)
			work.Wait()
			wantAnswer(t, s.Send(t.Context(), old, message("{}")), 200) // of a message that was in hand
			m.mu.Lock()
			var ended []chan struct{}
			for address, name := range m.conns {
				if name == "old" {
					ended = append(ended, m.closed[address])
				}
			}
			m.mu.Unlock()
			for _, end := range ended {
				select {
				case <-end:
				case <-time.After(20 * time.Second):
					t.Error("a connection of the old certificate stays open")
				}
			}
		})
	}
}

// A message that was in hand when its registration was changed is sent by that, and the connections of the newer one stay.
func TestAnOlderRegistrationTakesNoConnectionFromANewerOne(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint(http2), func(t *testing.T) {
			m, s := newMutual(t, func(s *httptest.Server) { s.EnableHTTP2 = http2 }), mutualSender(t)
			old, renewed, at := m.hook(t, "wh_1", "old"), m.hook(t, "wh_1", "new"), time.Now()
			send := func(w *webhook.Webhook, at time.Time) {
				t.Helper()
				r := message("{}")
				r.Registered = at
				wantAnswer(t, s.Send(t.Context(), w, r), 200)
			}
			send(renewed, at)
			send(old, at.Add(-time.Second))
			for range 5 {
				send(renewed, at)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			conns := map[string]int{}
			for _, name := range m.conns {
				conns[name]++
			}
			if conns["new"] != 1 || conns["old"] != 1 {
				t.Errorf("%v connections", conns)
			}
		})
	}
}

// What of a registration ends first is known, and in which setting it stands.
func TestTheFirstEndOfACertificateIsKnown(t *testing.T) {
	soon, later := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(2*time.Hour).Truncate(time.Second)
	ends := func(at time.Time) string {
		return issue(t, nil, func(c *x509.Certificate) { authority("x")(c); c.NotAfter = at }).certPEM()
	}
	for name, c := range map[string]struct {
		is      webhook.TLS
		at      time.Time
		setting string
	}{
		"none":            {webhook.TLS{}, time.Time{}, ""},
		"chain":           {webhook.TLS{ClientCertificate: ends(later) + ends(soon)}, soon, "tls.client_certificate"},
		"authority":       {webhook.TLS{ClientCertificate: ends(later), CA: ends(soon)}, soon, "tls.ca"},
		"two authorities": {webhook.TLS{CA: ends(soon) + ends(later)}, later, "tls.ca"},
	} {
		if at, setting := c.is.Expires(); !at.Equal(c.at) || setting != c.setting {
			t.Errorf("%s: %v in %q", name, at, setting)
		}
	}
	// A private authority that has ended is its operator's to renew, and no message's fault.
	s, w := newSender(t, fails(nil)), hook()
	w.URL, w.TLS = "https://example.com/hook", &webhook.TLS{CA: ends(time.Now().Add(-time.Minute))}
	got := s.Send(t.Context(), w, message("{}"))
	if wantFailure(t, got, "request"); !strings.Contains(got.Error, "tls.ca has expired at 20") {
		t.Errorf("it says %q", got.Error)
	}
}

// What stands beside certificates may be a part of a key, and is not kept.
func TestOnlyCertificatesAreKept(t *testing.T) {
	one, two := issue(t, nil, authority("one")), issue(t, nil, authority("two"))
	key := string(one.keyPEM(t))
	broken := strings.TrimSuffix(key, "-----END PRIVATE KEY-----\n")
	for _, text := range []string{broken + one.certPEM() + two.certPEM(), one.certPEM() + broken + two.certPEM(), "subject=CN\n" + one.certPEM() + "issuer=SECRET\n" + two.certPEM()} {
		got := webhook.OnlyCertificates(text)
		if got != strings.TrimSpace(one.certPEM()+two.certPEM()) {
			t.Errorf("kept is %q", got)
		}
	}
	if got := webhook.OnlyCertificates(key); got != key {
		t.Errorf("of what is none: %q", got)
	}
}

func TestACertificateThatTheReceiverRefusesIsNamed(t *testing.T) {
	m, s := newMutual(t, func(*httptest.Server) {}), mutualSender(t)
	w := m.hook(t, "wh_1", "one")
	stranger := issue(t, issue(t, nil, authority("another")), client("stranger"))
	w.TLS.ClientCertificate, w.TLS.ClientKey = stranger.certPEM(), stranger.keyPEM(t)
	got := s.Send(t.Context(), w, message("{}"))
	if got.Status != 0 || !strings.Contains(got.Error, "the client certificate") {
		t.Errorf("it says %q", got.Error)
	}
	w = m.hook(t, "wh_2", "two")
	w.TLS.CA = m.clients.certPEM()
	if got := s.Send(t.Context(), w, message("{}")); got.ErrorClass != "tls" || len(m.seen) > 0 {
		t.Errorf("a receiver of another authority: %s %q, seen %v", got.ErrorClass, got.Error, m.seen)
	}
	w = m.hook(t, "wh_3", "three")
	w.TLS.ServerName = ""
	if got := s.Send(t.Context(), w, message("{}")); got.Error != "the receiver's certificate is for another name" {
		t.Errorf("without server_name: %s %q", got.ErrorClass, got.Error)
	}
	m = newMutual(t, func(s *httptest.Server) { s.TLS.MaxVersion = tls.VersionTLS12 })
	w = m.hook(t, "wh_4", "four")
	w.TLS.MinVersion = "1.3"
	if got := s.Send(t.Context(), w, message("{}")); !strings.Contains(got.Error, "tls.min_version") {
		t.Errorf("TLS 1.2 only: %s %q", got.ErrorClass, got.Error)
	}
}

// One that has ended since it was registered is its operator's to renew, and no message's fault.
func TestWithAnExpiredCertificateNothingIsSent(t *testing.T) {
	root := issue(t, nil, authority("clients"))
	own := issue(t, root, func(c *x509.Certificate) { client("late")(c); c.NotAfter = time.Now().Add(-time.Minute) })
	d := &dials{next: fails(nil)}
	s, w := newSender(t, d.dial), hook()
	w.URL = "https://example.com/hook"
	w.TLS = &webhook.TLS{ClientCertificate: own.certPEM(), ClientKey: own.keyPEM(t)}
	got := s.Send(t.Context(), w, message("{}"))
	if wantFailure(t, got, "request"); !strings.HasPrefix(got.Error, "the certificate in tls.client_certificate has expired at 20") || !strings.Contains(got.Error, "set tls.client_certificate") || len(d.list()) > 0 {
		t.Errorf("%q, dialled %v", got.Error, d.list())
	}
	webhooktest.AssertNoSecrets(t, []string{fmt.Sprintf("%v %#v", w.TLS, w.TLS)}, strings.Split(string(w.TLS.ClientKey), "\n")[1])
	if echoed := w.Redact("you sent " + strings.Split(string(w.TLS.ClientKey), "\n")[1]); echoed != "you sent [redacted]" {
		t.Errorf("%q is recorded", echoed)
	}
}

func TestWhatIsWrongWithACertificateIsNamed(t *testing.T) {
	root := issue(t, nil, authority("root"))
	good, other := issue(t, root, client("good")), issue(t, root, client("other"))
	valid := webhook.TLS{ClientCertificate: good.certPEM() + root.certPEM(), ClientKey: good.keyPEM(t), CA: root.certPEM(), MinVersion: "1.3", ServerName: "hooks.example.com"}
	ending := func(at time.Time) string {
		return issue(t, nil, func(c *x509.Certificate) { authority("old")(c); c.NotAfter = at }).certPEM()
	}
	for name, c := range map[string]struct {
		change func(*webhook.TLS)
		field  string
		says   string
	}{
		"good":                {func(*webhook.TLS) {}, "", ""},
		"CA alone":            {func(w *webhook.TLS) { w.ClientCertificate, w.ClientKey = "", "" }, "", ""},
		"no key":              {func(w *webhook.TLS) { w.ClientKey = "" }, "client_key", "missing"},
		"no certificate":      {func(w *webhook.TLS) { w.ClientCertificate = "" }, "client_certificate", "missing"},
		"another key":         {func(w *webhook.TLS) { w.ClientKey = other.keyPEM(t) }, "client_key", "not the key of the certificate"},
		"order of chain":      {func(w *webhook.TLS) { w.ClientCertificate = root.certPEM() + good.certPEM() }, "client_key", "not the key of the certificate"},
		"key is none":         {func(w *webhook.TLS) { w.ClientKey = "SECRET" }, "client_key", "no private key"},
		"certificate is none": {func(w *webhook.TLS) { w.ClientCertificate = "SECRET" }, "client_certificate", "something else"},
		"key in its place":    {func(w *webhook.TLS) { w.ClientCertificate = string(good.keyPEM(t)) }, "client_certificate", "something else"},
		"too long":            {func(w *webhook.TLS) { w.ClientCertificate += strings.Repeat("\n", 65<<10) }, "client_certificate", "something else"},
		"expired": {func(w *webhook.TLS) {
			old := issue(t, root, func(c *x509.Certificate) { client("old")(c); c.NotAfter = time.Now().Add(-time.Minute) })
			w.ClientCertificate, w.ClientKey = old.certPEM(), old.keyPEM(t)
		}, "client_certificate", "it has expired at 20"},
		"chain that expired": {func(w *webhook.TLS) { w.ClientCertificate = good.certPEM() + ending(time.Now().Add(-time.Minute)) }, "client_certificate", "one of those after it"},
		"not yet": {func(w *webhook.TLS) {
			early := issue(t, root, func(c *x509.Certificate) { client("early")(c); c.NotBefore = time.Now().Add(time.Minute) })
			w.ClientCertificate, w.ClientKey = early.certPEM(), early.keyPEM(t)
		}, "client_certificate", "it is not valid before 20"},
		"for servers": {func(w *webhook.TLS) {
			server := issue(t, root, func(*x509.Certificate) {})
			w.ClientCertificate, w.ClientKey = server.certPEM(), server.keyPEM(t)
		}, "client_certificate", "not one for clients"},
		"CA is none":      {func(w *webhook.TLS) { w.CA = good.certPEM() }, "ca", "not an authority's"},
		"CA is no PEM":    {func(w *webhook.TLS) { w.CA = "SECRET" }, "ca", "something else"},
		"CA that expired": {func(w *webhook.TLS) { w.CA = ending(time.Now().Add(-time.Minute)) }, "ca", "expired at 20"},
		"version":         {func(w *webhook.TLS) { w.MinVersion = "1.1" }, "min_version", "no version"},
		"name":            {func(w *webhook.TLS) { w.ServerName = "127.0.0.1" }, "server_name", "no host name"},
		"name with port":  {func(w *webhook.TLS) { w.ServerName = "a.example:443" }, "server_name", "no host name"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := valid
			c.change(&changed)
			wrong := changed.Problems("https://example.com/", time.Now())
			if c.says == "" {
				if len(wrong) > 0 {
					t.Error(wrong)
				}
				return
			}
			if len(wrong) != 1 || wrong[0].Field != c.field || !strings.Contains(wrong[0].Problem, c.says) || wrong[0].Cure == "" || strings.Contains(wrong[0].Error(), "SECRET") {
				t.Errorf("%v, want %s: %s", wrong, c.field, c.says)
			}
		})
	}
	if wrong := valid.Problems("http://example.com/", time.Now()); len(wrong) != 1 {
		t.Errorf("for http: %v", wrong)
	}
}
