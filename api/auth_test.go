package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
)

func TestWithoutKeysOnlyThisMachineIsServed(t *testing.T) {
	h := newHarness(t)
	tests := []struct {
		name, peer, host string
		header, value    string
		want             int
		field            string
	}{
		{name: "loopback", peer: "127.0.0.1:5000", host: "127.0.0.1:8080", want: 200},
		{name: "loopback IPv6", peer: "[::1]:5000", host: "[::1]:8080", want: 200},
		{name: "IPv4 in IPv6", peer: "[::ffff:127.0.0.1]:5000", host: "localhost", want: 200},
		{name: "another loopback address", peer: "127.9.9.9:5000", host: "LOCALHOST:8080", want: 200},
		{name: "another machine", peer: "192.0.2.1:5000", host: "localhost:8080", want: 403, field: "the caller's address"},
		{name: "another machine on the network", peer: "10.0.0.1:5000", host: "localhost:8080", want: 403, field: "the caller's address"},
		{name: "no address", peer: "@", host: "localhost:8080", want: 403, field: "the caller's address"},
		{name: "a name made to resolve here", peer: "127.0.0.1:5000", host: "rebind.example:8080", want: 403, field: "Host"},
		{name: "a name that begins like localhost", peer: "127.0.0.1:5000", host: "localhost.example", want: 403, field: "Host"},
		{name: "an address that is not this machine", peer: "127.0.0.1:5000", host: "0.0.0.0:8080", want: 403, field: "Host"},
		{name: "no host", peer: "127.0.0.1:5000", host: "", want: 403, field: "Host"},
		{name: "a proxy", peer: "127.0.0.1:5000", host: "127.0.0.1:8080", header: "X-Forwarded-For", value: "192.0.2.1", want: 403, field: "X-Forwarded-For"},
		{name: "the Functions host", peer: "127.0.0.1:5000", host: "127.0.0.1:8080", header: "X-Azure-Functions-InvocationId", value: "1", want: 403, field: "X-Azure-Functions-Invocationid"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, target := range []string{"/api/v1/webhooks", "/metrics", "/api/v1/openapi.yaml"} {
				r := request("GET", target, "")
				r.RemoteAddr, r.Host = tt.peer, tt.host
				if tt.header != "" {
					r.Header.Set(tt.header, tt.value)
				}
				a := h.serve(tt.want, r)
				if tt.field != "" {
					a.wantProblem(tt.field)
					if !strings.Contains(string(a.body), "api_keys") {
						t.Errorf("the answer does not say how to set keys: %s", a.body)
					}
				}
			}
		})
	}
}

func TestWithoutKeysNothingThatAProxyBringsIsServed(t *testing.T) {
	h := newHarness(t)
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via", "X-Original-URL", "X-Azure-Functions-InvocationId", "X-Azure-Functions-HostVersion",
		"X-Forwarded", "X-Forwarded-Server", "X-Forwarded-Port", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP", "X-Envoy-External-Address", "X-ARR-ClientCert", "X-Original-Host"} {
		h.do(http.StatusForbidden, "GET", "/api/v1/webhooks", "", name, "x").wantProblem(http.CanonicalHeaderKey(name))
	}
}

// nginx with nothing but proxy_pass http://127.0.0.1:8080 names that host and sends no header
// of its own, but speaks HTTP/1.0.
func TestWithoutKeysTheProtocolOfProxiesIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		h      *harness
	}{{"without keys", http.StatusForbidden, newHarness(t)}, {"with keys", http.StatusOK, newHarness(t, withKeys)}} {
		r := request("GET", "/api/v1/openapi.yaml", "")
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0
		if a := tt.h.serve(tt.status, r); tt.status == http.StatusForbidden {
			a.wantProblem("the protocol HTTP/1.0")
		}
	}
}

func TestWithoutKeysWebPagesOfOthersChangeNothing(t *testing.T) {
	h := newHarness(t)
	const body = `{"queue":"orders","url":"https://example.com/hook"}`
	for _, headers := range [][]string{
		{"Origin", "https://evil.example"},
		{"Origin", "null"},
		{"Origin", "http://localhost:9999"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
	} {
		h.do(http.StatusForbidden, "POST", "/api/v1/webhooks", body, headers...).wantProblem("Origin")
		h.do(http.StatusForbidden, "POST", "/api/v1/queues/orders/messages", "hello", headers...).wantProblem("Origin")
	}
	for _, headers := range [][]string{{}, {"Origin", "http://localhost:8080"}, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}} {
		h.do(http.StatusCreated, "POST", "/api/v1/webhooks", body, headers...)
	}
}

// The browser of who is on this machine would have it read a hundred thousand rows for any page that is open in it.
func TestWithoutKeysWebPagesOfOthersReadNothing(t *testing.T) {
	h := newHarness(t)
	for _, site := range []string{"cross-site", "same-site"} {
		h.do(http.StatusForbidden, "GET", "/api/v1/dead-letters/summary", "", "Sec-Fetch-Site", site).wantProblem("Origin")
		h.do(http.StatusForbidden, "GET", "/metrics", "", "Sec-Fetch-Site", site).wantProblem("Origin")
		h.do(http.StatusOK, "GET", "/ui/", "", "Sec-Fetch-Site", site) // a link
	}
	for _, site := range []string{"same-origin", "none"} {
		h.do(http.StatusOK, "GET", "/api/v1/dead-letters/summary", "", "Sec-Fetch-Site", site)
	}
}

// scopeOf is what each route needs; a route that is not here fails the test.
var scopeOf = map[string]Scope{
	"GET /metrics":                                  ScopeRead,
	"GET /api/v1/webhooks":                          ScopeRead,
	"POST /api/v1/webhooks":                         ScopeAdmin,
	"GET /api/v1/webhooks/{id}":                     ScopeRead,
	"PUT /api/v1/webhooks/{id}":                     ScopeAdmin,
	"PATCH /api/v1/webhooks/{id}":                   ScopeAdmin,
	"DELETE /api/v1/webhooks/{id}":                  ScopeAdmin,
	"POST /api/v1/webhooks/{id}/enable":             ScopeOperate,
	"POST /api/v1/webhooks/{id}/disable":            ScopeOperate,
	"POST /api/v1/webhooks/{id}/test":               ScopeOperate,
	"POST /api/v1/webhooks/{id}/rotate-secret":      ScopeAdmin,
	"POST /api/v1/webhooks/{id}/rotate-signing-key": ScopeAdmin,
	"GET /api/v1/queues":                            ScopeRead,
	"GET /api/v1/queues/{queue}":                    ScopeRead,
	"DELETE /api/v1/queues/{queue}":                 ScopeAdmin,
	"POST /api/v1/queues/{queue}/messages":          ScopePublish,
	"POST /api/v1/queues/{queue}/match":             ScopeRead,
	"GET /api/v1/messages":                          ScopeRead,
	"GET /api/v1/messages/{id}":                     ScopeRead,
	"GET /api/v1/attempts":                          ScopeRead,
	"GET /api/v1/queues/{queue}/messages":           ScopeRead,
	"GET /api/v1/queues/{queue}/messages?body=true": ScopeOperate,
	"GET /api/v1/instances":                         ScopeRead,
	"GET /api/v1/audit":                             ScopeOperate,
	"GET /api/v1/settings":                          ScopeAdmin,
	"GET /api/v1/stats":                             ScopeRead,
	"GET /api/v1/stream":                            ScopeRead,
	"GET /api/v1/dead-letters":                      ScopeRead,
	"GET /api/v1/dead-letters/summary":              ScopeRead,
	"GET /api/v1/replays":                           ScopeRead,
	"POST /api/v1/replays":                          ScopeOperate,
	"GET /api/v1/replays/{id}":                      ScopeRead,
	"DELETE /api/v1/replays/{id}":                   ScopeOperate,
	"POST /api/v1/dead-letters/purge":               ScopeOperate,
	"GET /api/v1/dead-letters/{id}":                 ScopeRead,
	"DELETE /api/v1/dead-letters/{id}":              ScopeOperate,
	"GET /api/v1/dead-letters/{id}/body":            ScopeOperate,
	"POST /api/v1/dead-letters/{id}/replay":         ScopeOperate,
	"GET /api/v1/dead-letters/{id}?body=true":       ScopeOperate,
	"GET /healthz":                                  scopeAnyone,
	"GET /readyz":                                   scopeAnyone,
	"GET /api/v1/openapi.yaml":                      scopeAnyone,
	"GET /.well-known/webhook-keys/{id}":            scopeAnyone,
	"GET /api/v1/session":                           scopeAnyone,
	"GET /":                                         scopeAnyone,
	"GET /ui":                                       scopeAnyone,
	"GET /ui/":                                      scopeAnyone,
	"GET /ui/{file}":                                scopeAnyone,
	"POST /api/v1/session":                          scopeAnyone,
	"DELETE /api/v1/session":                        scopeAnyone,
}

// implied lists the keys that may do what needs the scope.
var implied = map[Scope][]Scope{
	ScopePublish: {ScopePublish, ScopeAdmin},
	ScopeRead:    {ScopeRead, ScopeOperate, ScopeAdmin},
	ScopeOperate: {ScopeOperate, ScopeAdmin},
	ScopeAdmin:   {ScopeAdmin},
	scopeAnyone:  {ScopePublish, ScopeRead, ScopeOperate, ScopeAdmin},
}

func TestEveryRouteNeedsItsScope(t *testing.T) {
	h := newHarness(t, withKeys)
	h.api.stream.stop() // a stream does not end by itself
	routes := []string{"GET /api/v1/dead-letters/{id}?body=true", "GET /api/v1/queues/{queue}/messages?body=true"}
	err := chi.Walk(h.api.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routes = append(routes, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range routes {
		scope, ok := scopeOf[route]
		if !ok {
			t.Errorf("%s: nobody has said which scope it needs", route)
			continue
		}
		method, target, _ := strings.Cut(route, " ")
		target = strings.NewReplacer("{id}", "none", "{queue}", "orders").Replace(target)
		for key, allowed := range map[Scope]bool{ScopePublish: false, ScopeRead: false, ScopeOperate: false, ScopeAdmin: false} {
			for _, s := range implied[scope] {
				allowed = allowed || s == key
			}
			r := request(method, target, "")
			r.RemoteAddr, r.Host = "192.0.2.1:5000", "push.example"
			r.Header.Set("Authorization", "Bearer "+string(key))
			r.Header.Set(pageHeader, "1") // what else signing in and out needs
			w := httptest.NewRecorder()
			h.api.ServeHTTP(w, r)
			if got := w.Code != http.StatusForbidden; got != allowed {
				t.Errorf("%s with a key for %s = %d: allowed %t, want %t", route, key, w.Code, got, allowed)
			}
		}
		if scope != scopeAnyone {
			h.do(http.StatusUnauthorized, method, target, "").wantProblem("Authorization")
		}
	}
}

func TestTokensThatAreNotKnownAreRefused(t *testing.T) {
	h := newHarness(t, withKeys)
	for _, headers := range [][]string{
		{},
		{"Authorization", "Bearer wrong"},
		{"Authorization", "Bearer "},
		{"Authorization", "Bearer"},
		{"Authorization", "read"},
		{"Authorization", "Basic read"},
		{"Authorization", "Bearer read", "Authorization", "Bearer read"},
	} {
		a := h.do(http.StatusUnauthorized, "GET", "/api/v1/webhooks", "", headers...)
		a.wantProblem("Authorization")
		if a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%v: no WWW-Authenticate", headers)
		}
	}
	h.do(http.StatusOK, "GET", "/api/v1/webhooks", "", "Authorization", "bearer read")
}

func TestKeysThatMeanNothingAreRefusedAtTheStart(t *testing.T) {
	_, err := New(Options{Keys: []Key{{}, {Name: "a"}, {Name: "b", Hash: [32]byte{1}}, {Name: "c", Hash: [32]byte{1}, Scopes: []Scope{"root"}}}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Keys[0]", "Keys[1]", "Keys[2]", "Keys[3]", "option Webhooks is missing", "option Sender is missing", "option Logger is missing"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

// C83: under the Functions host every request comes over loopback, whoever sent it.
func TestUnderAHostNobodyIsServedWithoutKeys(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Hosted = true })
	for _, r := range []*http.Request{
		request("GET", "/api/v1/webhooks", ""), request("POST", publishTarget, "{}"), request("GET", "/api/v1/webhooks", "", "X-Ms-Invocation-Id", "1"),
		request("GET", "/metrics", ""), request("GET", "/api/v1/openapi.yaml", ""),
	} {
		h.serve(http.StatusForbidden, r).wantProblem("Authorization")
	}
	h.do(http.StatusOK, "GET", "/healthz", "")
	if a := h.do(http.StatusOK, "GET", "/readyz", ""); a.get("storage") != nil {
		t.Errorf("/readyz says %s", a.body)
	}
}

func TestMarksOfProxiesOfManyVendors(t *testing.T) {
	h := newHarness(t)
	for _, name := range []string{"X-Ms-Invocation-Id", "Cloudfront-Viewer-Address", "X-Akamai-Edgescape", "Ngrok-Trace-Id", "X-Vercel-Id", "Fly-Region", "Do-Connecting-Ip", "Tailscale-User-Login"} {
		h.do(http.StatusForbidden, "GET", "/api/v1/webhooks", "", name, "x").wantProblem(name)
	}
}
