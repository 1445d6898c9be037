package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/pushlease/pushlease/api/internal/web"
)

// Scope is what a key is allowed.
type Scope string

// The scopes of a key.
const (
	// ScopePublish sends messages.
	ScopePublish Scope = "publish"
	// ScopeRead reads everything but message bodies, secrets and header values.
	ScopeRead Scope = "read"
	// ScopeOperate replays and deletes dead letters, reads their bodies, and
	// enables, disables and tests webhooks. It implies ScopeRead.
	ScopeOperate Scope = "operate"
	// ScopeAdmin registers webhooks, rotates secrets and deletes queues. It implies all others.
	ScopeAdmin Scope = "admin"

	// scopeAnyone needs no key where there are keys; without keys it is for this
	// machine like everything else.
	scopeAnyone Scope = ""
)

// scopes are all of them.
var scopes = []Scope{ScopePublish, ScopeRead, ScopeOperate, ScopeAdmin}

// Key is one caller that is let in.
type Key struct {
	// Name tells keys apart in the log.
	Name string
	// Hash is the SHA-256 of the token.
	Hash [sha256.Size]byte
	// Scopes that the key has.
	Scopes []Scope
}

func (k Key) validate() error {
	if k.Name == "" {
		return errors.New("a key needs a name")
	}
	if k.Hash == [sha256.Size]byte{} {
		return fmt.Errorf("key %s has no hash", k.Name)
	}
	if len(k.Scopes) == 0 {
		return fmt.Errorf("key %s has no scope", k.Name)
	}
	for _, s := range k.Scopes {
		if !slices.Contains(scopes, s) {
			return fmt.Errorf("key %s has an unknown scope; use publish, read, operate or admin", k.Name)
		}
	}
	return nil
}

func (k Key) has(s Scope) bool {
	return slices.Contains(k.Scopes, s) || slices.Contains(k.Scopes, ScopeAdmin) ||
		s == ScopeRead && slices.Contains(k.Scopes, ScopeOperate)
}

// authorize says why the request may not do what needs s; nil when it may.
func (a *API) authorize(r *http.Request, s Scope) error {
	if len(a.Keys) == 0 && a.Hosted {
		return web.NewProblem(web.LocalOnly,
			"No API keys are set, and the Functions host brings every request, so that none can be told to be from this machine.",
			web.Wrong("Authorization", "can't be checked", setKeys))
	}
	if len(a.Keys) == 0 {
		return a.authorizeLocal(r)
	}
	if s == scopeAnyone {
		return nil
	}
	k, ok := a.callerOf(r)
	if !ok {
		p := web.NewProblem(web.Unauthorized,
			"The request has no API key that is known here.",
			web.Wrong("Authorization", "is missing or not a known key", "send the header Authorization: Bearer <token>, once, with the token of an API key"))
		p.Header = map[string]string{"WWW-Authenticate": `Bearer realm="pushlease"`}
		return p
	}
	web.NoteOf(r).Key = k.Name
	if !k.has(s) {
		p := web.NewProblem(web.ScopeMissing,
			fmt.Sprintf("This needs the scope %s.", s),
			web.Wrong("Authorization", fmt.Sprintf("is a key without the scope %s", s), "use a key that has it, or give it to this one in the setting api_keys"))
		p.Header = map[string]string{"WWW-Authenticate": fmt.Sprintf(`Bearer realm="pushlease", error="insufficient_scope", scope="%s"`, s)}
		return p
	}
	return nil
}

// may reports whether the caller, who was let in, also has s.
func (a *API) may(r *http.Request, s Scope) bool {
	if len(a.Keys) == 0 {
		return !a.Hosted && a.authorizeLocal(r) == nil
	}
	k, ok := a.callerOf(r)
	return ok && k.has(s)
}

// callerOf finds the key that the request is made with: its own, or that of the session of somebody
// who signed in with the page.
func (a *API) callerOf(r *http.Request) (Key, bool) {
	if of, ok := a.sessionOf(r); ok {
		return of.key, true
	}
	_, k, ok := a.keyOf(r)
	return k, ok
}

// keyOf finds the request's key, and the token that it came as.
func (a *API) keyOf(r *http.Request) (token string, k Key, ok bool) {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 {
		return "", Key{}, false
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", Key{}, false
	}
	token = strings.TrimSpace(token)
	k, ok = a.keyOfToken(token)
	return token, k, ok
}

// keyOfToken looks at all keys, and compares hashes in constant time, so that the time taken tells nothing
// about any of them.
func (a *API) keyOfToken(token string) (Key, bool) {
	sum := sha256.Sum256([]byte(token))
	found := -1
	for i := range a.Keys {
		if subtle.ConstantTimeCompare(sum[:], a.Keys[i].Hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return Key{}, false
	}
	return a.Keys[found], true
}

// setKeys is the cure for everything that is refused for want of keys.
const setKeys = "set API keys (setting api_keys, PUSHLEASE_API_KEYS; make one with: pushlease api-key new) and send one as Authorization: Bearer <token>"

// authorizeLocal lets in what comes from this machine and was meant for it. The
// peer's address alone does not prove that: a page in a browser here can reach
// us under a name that it makes resolve to 127.0.0.1, and a proxy here brings
// requests from elsewhere. So the Host must be a loopback one too, no proxy may
// have left its mark, and a browser may write only from a page of ours. A proxy or
// tunnel that leaves none, and names localhost, can't be told from a program here:
// who forwards anything has to set keys.
func (a *API) authorizeLocal(r *http.Request) error {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return localOnly("the caller's address", "is not on this machine")
	}
	if !loopbackHost(r.Host) {
		return localOnly("Host", "is not localhost or a loopback address")
	}
	if name := proxyHeader(r.Header); name != "" {
		return localOnly(name, "shows that the request came through a proxy")
	}
	if !r.ProtoAtLeast(1, 1) { // nginx, told no more than where to, leaves no other mark
		return localOnly("the protocol "+r.Proto, "is what proxies speak")
	}
	if a.crossSite.Check(r) != nil || readsAcross(r) {
		return web.NewProblem(web.CrossOrigin,
			"Without API keys, a browser can change nothing here from a page of another origin, and reads nothing but the page.",
			web.Wrong("Origin", "is another one than this server's", "use curl or the pushlease command, or "+setKeys))
	}
	return nil
}

// readsAcross reports whether a page of another origin has a browser read here. It could not see the answer, but some take
// a long time to make. A link to the page itself may stand anywhere.
func readsAcross(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && r.URL.Path != "/" && !strings.HasPrefix(r.URL.Path, "/ui")
}

// proxyHeaders are left by proxies, load balancers, tunnels and the Functions host;
// one that ends in - stands for all that begin so.
var proxyHeaders = []string{
	"Forwarded", "Via", "X-Forwarded", "X-Forwarded-", "X-Real-Ip", "X-Original-", "X-Rewrite-Url", "X-Proxy-",
	"Client-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "Fastly-Client-Ip", "Fly-Client-Ip", "X-Remote-",
	"X-Ms-", "Cf-", "Cdn-Loop", "Cloudfront-", "Akamai-", "X-Akamai-", "Incap-Client-Ip", "X-Sucuri-", "Ali-Cdn-", "X-Vercel-", "X-Nf-", "Fly-",
	"Ngrok-", "X-Ngrok-", "X-Render-", "Rndr-Id", "X-Railway-", "Do-Connecting-Ip", "Tailscale-", "X-Varnish", "X-Sent-From", "Surrogate-", "X-Envoy-", "X-Arr-", "X-Azure-", "X-Appgw-", "X-Amzn-", "X-Appengine-", "X-Cloud-Trace-Context",
}

// proxyHeader returns the first header, by name, that a proxy has left; empty when
// there is none.
func proxyHeader(h http.Header) string {
	found := ""
	for name := range h {
		left := slices.ContainsFunc(proxyHeaders, func(mark string) bool {
			return name == mark || strings.HasSuffix(mark, "-") && strings.HasPrefix(name, mark)
		})
		if left && (found == "" || name < found) {
			found = name
		}
	}
	return found
}

func localOnly(field, what string) *web.Problem {
	return web.NewProblem(web.LocalOnly,
		"No API keys are set, so only requests from this machine, addressed to localhost, are served.",
		web.Wrong(field, what, "call http://localhost or http://127.0.0.1 on the machine itself, or "+setKeys))
}

func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
