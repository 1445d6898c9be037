package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// oauthReceiver is a receiver that takes the newest token of the endpoint beside it, and echoes what it is shown.
type oauthReceiver struct {
	*httptest.Server

	mu     sync.Mutex
	secret string // the client's, as the endpoint knows it
	number int    // of the newest token
	good   bool   // it is taken
	taken  []string
}

func newOAuthReceiver(t *testing.T, secret string) *oauthReceiver {
	o := &oauthReceiver{secret: secret}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if r.URL.Path == "/token" {
			o.token(w, r)
			return
		}
		shown := r.Header.Get("Authorization")
		if !o.good || shown != fmt.Sprintf("Bearer PLANTED-TOKEN-%d", o.number) {
			w.WriteHeader(http.StatusUnauthorized)
		} else {
			body, _ := io.ReadAll(r.Body)
			o.taken = append(o.taken, string(body))
		}
		_, _ = fmt.Fprintf(w, "you sent %s", shown)
	}))
	t.Cleanup(o.Close)
	return o
}

// token answers as a token endpoint. The lock is held.
func (o *oauthReceiver) token(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if _, secret, _ := r.BasicAuth(); secret != o.secret {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, `{"error":"invalid_client","error_description":"%s is not the secret"}`, secret)
		return
	}
	o.number, o.good = o.number+1, true
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": fmt.Sprintf("PLANTED-TOKEN-%d", o.number), "token_type": "Bearer", "expires_in": 3600})
}

func (o *oauthReceiver) wait(t *testing.T, n int) {
	t.Helper()
	waitUntil(t, 20*time.Second, func() string {
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.taken) < n {
			return fmt.Sprintf("%d of %d messages were taken", len(o.taken), n)
		}
		return ""
	})
}

// A webhook from a file shows its receiver a token: one that is revoked is made good for, and a wrong secret keeps
// messages, uncharged, until it is set right. Nothing that is secret is in what pushlease tells.
func TestAReceiverIsShownATokenOfOAuth(t *testing.T) {
	p := sqliteStore(t).start(t)
	t.Setenv(serverEnv, p.url)
	const secret = "PLANTED-SECRET-1"
	o, queue := newOAuthReceiver(t, secret), queueName("oauth")
	for _, planted := range []string{"PLANTED-SECRET", "PLANTED-TOKEN"} {
		hideFromLogs(planted)
	}
	declared := fmt.Sprintf(`
webhooks:
  - id: %[1]s
    queue: %[1]s
    url: %[2]s/hook
    auth:
      oauth2:
        token_url: %[2]s/token
        client_id: pushlease
        client_secret: {env: PLANTED}
`, queue, o.URL)
	file := writeFile(t, t.TempDir(), "webhooks.yaml", declared)
	t.Setenv("PLANTED", secret)
	shown := strings.Builder{}
	run := func(args ...string) string {
		t.Helper()
		r := execute(t, "", args...)
		if r.code != exitOK {
			t.Fatalf("%v: code %d: %s%s", args, r.code, r.out, r.err)
		}
		shown.WriteString(r.out + r.err)
		return r.out
	}
	run("apply", "-f", file)
	p.publish(queue, `{"n":1}`)
	o.wait(t, 1)

	o.mu.Lock()
	o.good = false // revoked
	o.mu.Unlock()
	p.publish(queue, `{"n":2}`)
	o.wait(t, 2)
	p.waitEmpty(20*time.Second, queue)
	if all := p.attempts(queue); len(all) != 2 || !strings.Contains(all[0].Explanation+all[1].Explanation, "answered 401 at first: a fresh token") {
		t.Fatalf("the attempts are %+v", all)
	}

	t.Setenv("PLANTED", "PLANTED-SECRET-2")
	run("apply", "-f", file)
	p.publish(queue, `{"n":3}`)
	const fault = "the token endpoint answered 401 invalid_client: set auth.oauth2.client_secret"
	waitUntil(t, 20*time.Second, func() string {
		if status := run("webhooks", "get", queue); !strings.Contains(status, "no_token") || !strings.Contains(status, fault) || !strings.Contains(status, "a token from "+o.URL+"/token for the client pushlease") {
			return "the status says " + status
		}
		return ""
	})
	if all := p.attempts(queue); len(all) != 2 {
		t.Errorf("attempts without a token: %+v", all)
	}
	if n := p.metric("pushlease_webhook_without_token", "queue", queue); n != 1 {
		t.Errorf("the metric says %v", n)
	}
	o.mu.Lock()
	o.secret = "PLANTED-SECRET-2"
	o.mu.Unlock()
	o.wait(t, 3)

	exported := run("export", "--queue", queue)
	variable := strings.ToUpper(strings.ReplaceAll("hook_"+queue, "-", "_")) + "_OAUTH2_CLIENT_SECRET"
	if !strings.Contains(exported, "set what is not shown: "+variable+"\n") {
		t.Errorf("exported as %s", exported)
	}
	t.Setenv(variable, "PLANTED-SECRET-2")
	if again := run("apply", "-f", writeFile(t, t.TempDir(), "exported.yaml", exported)); !strings.Contains(again, "1 unchanged") {
		t.Errorf("what was exported says %s", again)
	}
	if first := p.attempts(queue)[0]; first.Snippet != "you sent [redacted]" || strings.Contains(shown.String(), "PLANTED-") {
		t.Errorf("it tells %s", shown.String())
	}
}

// mutualReceiver asks for a client certificate, has one of a private authority itself, and keeps whom it saw.
type mutualReceiver struct {
	*httptest.Server
	authority *signedPair

	mu   sync.Mutex
	seen []string
}

// signedPair is a certificate and its key.
type signedPair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// signPair makes one for a name, which is also that of a server; by nil is an authority.
func signPair(t *testing.T, name string, by *signedPair) *signedPair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	parent := &signedPair{template, key}
	if by == nil {
		template.IsCA, template.BasicConstraintsValid = true, true
	} else {
		parent = by
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, &key.PublicKey, parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signedPair{cert, key}
}

// write writes certificate and key as files of a folder, and keeps the key out of every log.
func (p *signedPair) write(t *testing.T, dir, name string) (certificate, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	hideFromLogs(strings.Split(text, "\n")[1])
	return writeFile(t, dir, name+".pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw}))), writeFile(t, dir, name+".key", text)
}

func newMutualReceiver(t *testing.T) *mutualReceiver {
	m := &mutualReceiver{authority: signPair(t, "authority", nil)}
	own, clients := signPair(t, "inside.example", m.authority), x509.NewCertPool()
	clients.AddCert(m.authority.cert)
	m.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.seen = append(m.seen, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	m.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	m.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{own.cert.Raw}, PrivateKey: own.key}}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert}
	m.StartTLS()
	t.Cleanup(m.Close)
	return m
}

func (m *mutualReceiver) saw() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.seen, " ")
}

// A receiver sees the certificate that the command line registered, and the next one without a restart.
func TestAReceiverSeesAClientCertificate(t *testing.T) {
	p := sqliteStore(t).start(t)
	t.Setenv(serverEnv, p.url)
	m, queue, dir := newMutualReceiver(t), queueName("mtls"), t.TempDir()
	first, firstKey := signPair(t, "first", m.authority).write(t, dir, "first")
	second, secondKey := signPair(t, "second", m.authority).write(t, dir, "second")
	ca, _ := m.authority.write(t, dir, "ca")
	run := func(args ...string) string {
		t.Helper()
		r := execute(t, "", args...)
		if r.code != exitOK || strings.Contains(r.out+r.err, "PRIVATE KEY") {
			t.Fatalf("%v: code %d: %s%s", args, r.code, r.out, r.err)
		}
		return r.out
	}
	for _, want := range []string{"", "first", "first second"} {
		switch want {
		case "": // what the receiver wants is told where nothing of it is set
			run("webhooks", "put", queue, "--queue", queue, "--url", m.URL, "--ca", ca, "--tls-file", writeFile(t, dir, "tls.json", `{"server_name":"inside.example"}`))
			if r := execute(t, "", "webhooks", "test", queue); r.code == exitOK || !strings.Contains(r.out, "set tls.client_certificate") {
				t.Errorf("a test without a certificate: %s%s", r.out, r.err)
			}
			continue
		case "first":
			if text := run("webhooks", "update", queue, "--client-certificate", first, "--client-key", firstKey); !strings.Contains(text, "with a client certificate until") || !strings.Contains(text, "expires at") {
				t.Errorf("it says %s", text)
			}
		default:
			run("webhooks", "update", queue, "--client-certificate", second, "--client-key", secondKey)
		}
		p.publish(queue, `{"n":1}`)
		waitUntil(t, 20*time.Second, func() string {
			if saw := m.saw(); saw != want {
				return "it saw " + saw
			}
			return ""
		})
	}
	if r := execute(t, "", "webhooks", "update", queue, "--client-certificate", first); r.code != exitRefused || !strings.Contains(r.err, "not the key of the certificate") {
		t.Errorf("a certificate without its key: %d %s", r.code, r.err)
	}
	exported := writeFile(t, dir, "exported.yaml", run("export", "--queue", queue))
	variable := strings.ToUpper(strings.ReplaceAll("hook_"+queue, "-", "_")) + "_CLIENT_KEY"
	key, err := os.ReadFile(secondKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(variable, string(key))
	if again := run("apply", "-f", exported); !strings.Contains(again, "1 unchanged") {
		t.Errorf("what was exported says %s", again)
	}
}
