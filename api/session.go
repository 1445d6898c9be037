package api

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/api/ui"
)

const (
	// sessionCookie begins the name of the cookie of somebody who signed in with the page. Cookies
	// know no port, so the port follows: two servers of one host would sign each other's users out.
	sessionCookie = "pushlease_session"
	// hostPrefix has browsers take the cookie over https alone, and from no other host of the domain.
	hostPrefix = "__Host-"
	// pageHeader goes with each request of the page. Pages of other origins can't send it
	// without being allowed to, which nobody is. After signing in its value is the page's half of
	// the session, which the browser gives to this origin alone: a cookie that comes without it says
	// nothing, and every server of the host gets to see the cookie, on whatever port.
	pageHeader = "Pushlease-Page"
	// sessionLife is how long somebody stays signed in.
	sessionLife = 12 * time.Hour
	// maxSealed bounds the token of who signs in: browsers drop a cookie of more than 4,096 bytes.
	maxSealed = 2048
)

// session is one browser that showed a key. No process keeps it: the cookie is the key's token, sealed under the page's
// half, so that every instance can open it, a restart ends nothing, and neither part alone is worth anything.
type session struct {
	key     Key
	expires time.Time
}

// sealOf is what seals a session's token. Each half is used for one session.
func sealOf(half string) cipher.AEAD {
	sum := sha256.Sum256([]byte(half))
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		panic(err) // 32 bytes are the length of a key
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return seal
}

// sealed is the value of the cookie called name: when the session ends, and the token.
func sealed(name, half, token string, expires time.Time) string {
	text := binary.BigEndian.AppendUint64(nil, uint64(expires.Unix())) //nolint:gosec // after 1970
	return base64.RawURLEncoding.EncodeToString(sealOf(half).Seal(nil, nil, append(text, token...), []byte(name)))
}

// opened is the session of the cookie called name. It ends with its time, and when its key is one of this server's no more.
func (a *API) opened(name, half, value string) (session, bool) {
	closed, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return session{}, false
	}
	text, err := sealOf(half).Open(nil, nil, closed, []byte(name))
	if err != nil || len(text) < 8 {
		return session{}, false
	}
	expires := time.Unix(int64(binary.BigEndian.Uint64(text)), 0)
	k, ok := a.keyOfToken(string(text[8:]))
	return session{k, expires}, ok && time.Now().Before(expires)
}

// sessionOf finds the session of a request that the page made: one from its own origin, with its
// half. An Authorization header comes before a cookie. Other cookies of its name may stand before the session's: whoever
// serves another port or a part of the domain can set them.
func (a *API) sessionOf(r *http.Request) (session, bool) {
	if len(r.Header.Values("Authorization")) > 0 || !a.fromPage(r) {
		return session{}, false
	}
	for _, name := range []string{cookieName(r, true), cookieName(r, false)} {
		for _, cookie := range r.CookiesNamed(name) {
			if of, ok := a.opened(name, r.Header.Get(pageHeader), cookie.Value); ok {
				return of, true
			}
		}
	}
	return session{}, false
}

// cookieName is the cookie's name on this host and port.
func cookieName(r *http.Request, secure bool) string {
	name := sessionCookie
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			name += "_" + port
		}
	}
	if secure {
		name = hostPrefix + name
	}
	return name
}

// fromPage reports whether a page of this origin made the request.
func (a *API) fromPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get(pageHeader) != "" && (site == "" || site == "same-origin") && a.crossSite.Check(r) == nil
}

// sessionView says who the caller is and what it may do.
type sessionView struct {
	KeysSet  bool   `json:"keys_set"`
	SignedIn bool   `json:"signed_in"`
	Key      string `json:"key,omitempty"`
	// PageToken is the page's half of a session that was just made.
	PageToken string    `json:"page_token,omitempty"`
	Scopes    []Scope   `json:"scopes"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	Instance  string    `json:"instance,omitempty"`
	Version   string    `json:"version,omitempty"`
}

// viewOf tells of what k allows, implied scopes included.
func (a *API) viewOf(k Key, expires time.Time) sessionView {
	v := sessionView{KeysSet: true, SignedIn: true, Key: k.Name, Scopes: []Scope{}, ExpiresAt: web.UTC(expires), Instance: a.Instance, Version: a.Version}
	for _, s := range scopes {
		if k.has(s) {
			v.Scopes = append(v.Scopes, s)
		}
	}
	return v
}

// getSession says who is asking. Without keys everybody who is let in may do all.
func (a *API) getSession(w http.ResponseWriter, r *http.Request) error {
	if err := web.ReadQuery(r).Err(); err != nil {
		return err
	}
	if len(a.Keys) == 0 {
		return web.WriteJSON(w, http.StatusOK, sessionView{Scopes: scopes, Instance: a.Instance, Version: a.Version})
	}
	if of, ok := a.sessionOf(r); ok {
		return web.WriteJSON(w, http.StatusOK, a.viewOf(of.key, of.expires))
	}
	if _, k, ok := a.keyOf(r); ok {
		return web.WriteJSON(w, http.StatusOK, a.viewOf(k, time.Time{}))
	}
	return web.WriteJSON(w, http.StatusOK, sessionView{KeysSet: true, Scopes: []Scope{}})
}

// openSession signs a browser in: it shows the key once, as any caller does, and gets a cookie that
// no script can read.
func (a *API) openSession(w http.ResponseWriter, r *http.Request) error {
	if !a.fromPage(r) {
		return notFromPage()
	}
	token, k, ok := a.keyOf(r) // before the body of somebody who has none is read
	if !ok {
		return web.NewProblem(web.Unauthorized, "That is no API key that is known here.",
			web.Wrong("Authorization", "is missing or not a known key", "use the token of one of the keys in the setting api_keys; pushlease api-key new makes one"))
	}
	web.NoteOf(r).Key = k.Name
	if err := web.Together(web.ReadQuery(r).Err(), web.NoBody(w, r)); err != nil {
		return err
	}
	if len(token) > maxSealed {
		return web.Invalid(web.Wrong("Authorization", "is too long for a cookie", fmt.Sprintf("sign in with a key whose token has %d bytes at most; pushlease api-key new makes one", maxSealed)))
	}
	half, expires := rand.Text()+rand.Text(), time.Now().Add(sessionLife).Truncate(time.Second)
	cookie := newCookie(r, int(sessionLife.Seconds())) //nolint:gosec // newCookie says how it is kept
	cookie.Value = sealed(cookie.Name, half, token, expires)
	http.SetCookie(w, cookie)
	view := a.viewOf(k, expires)
	view.PageToken = half
	return web.WriteJSON(w, http.StatusCreated, view)
}

// closeSession signs out: the browser forgets the cookie, and the page its half. It is no error where nobody was signed in.
func (a *API) closeSession(w http.ResponseWriter, r *http.Request) error {
	if !a.fromPage(r) {
		return notFromPage()
	}
	if err := web.Together(web.ReadQuery(r).Err(), web.NoBody(w, r)); err != nil {
		return err
	}
	http.SetCookie(w, newCookie(r, -1))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func notFromPage() error {
	return web.NewProblem(web.CrossOrigin, "Only the page that this server serves signs in and out.",
		web.Wrong(pageHeader, "is missing, or the request came from a page of another origin", "open /ui/ on this server; programs send Authorization with each request and need no session"))
}

func newCookie(r *http.Request, seconds int) *http.Cookie {
	// Behind a proxy that ends TLS the browser alone may know: its Origin says so.
	secure := r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") || strings.HasPrefix(r.Header.Get("Origin"), "https://")
	return &http.Cookie{Name: cookieName(r, secure), Path: "/", MaxAge: seconds, HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode} //nolint:gosec // Secure where it is https: browsers would not send it back on http
}

// page serves the page's files.
func (a *API) page(w http.ResponseWriter, r *http.Request) error {
	name := strings.TrimPrefix(r.URL.Path, "/ui/")
	if !ui.Serve(w, r, name) {
		return web.NotFound(w, r)
	}
	return nil
}

// home sends who comes with a browser, and knows no more than the server's name, to the page.
func (a *API) home(w http.ResponseWriter, r *http.Request) error {
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return web.NotFound(w, r)
	}
	return a.toPage(w, r)
}

// toPage is for those who leave out what comes after the address, or its last slash.
func (a *API) toPage(w http.ResponseWriter, r *http.Request) error {
	http.Redirect(w, r, "/ui/", http.StatusFound)
	return nil
}
