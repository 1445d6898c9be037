package api

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
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
	// sessionsOfKey bounds the memory of those who sign in and never sign out: as many for each
	// key, so that nobody ends the sessions of another key.
	sessionsOfKey = 100
)

// session is one browser that showed a key. The browser keeps no key, and this process keeps
// no more of the session's id and of the page's half than their hashes.
type session struct {
	key     Key
	page    [sha256.Size]byte
	expires time.Time
}

// sessions are those of this process; they end with it.
type sessions struct {
	mu   sync.Mutex
	byID map[[sha256.Size]byte]session
}

func newSessions() *sessions { return &sessions{byID: map[[sha256.Size]byte]session{}} }

// open makes a session and returns its id and the page's half. Where its key has too many, the one that
// ends first does.
func (s *sessions) open(key Key) (id, half string, made session) {
	id, half = rand.Text()+rand.Text(), rand.Text()+rand.Text()
	made = session{key, sha256.Sum256([]byte(half)), time.Now().Add(sessionLife)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoom(key)
	s.byID[sha256.Sum256([]byte(id))] = made
	return id, half, made
}

// makeRoom removes the sessions that have ended, and of a key that has as many as it may the one that
// would end first. The lock is held.
func (s *sessions) makeRoom(key Key) {
	var first [sha256.Size]byte
	var at time.Time
	n := 0
	for hash, of := range s.byID {
		if !time.Now().Before(of.expires) {
			delete(s.byID, hash)
			continue
		}
		if of.key.Name != key.Name {
			continue
		}
		if n++; at.IsZero() || of.expires.Before(at) {
			first, at = hash, of.expires
		}
	}
	if n >= sessionsOfKey {
		delete(s.byID, first)
	}
}

func (s *sessions) find(id, half string) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, ok := s.byID[sha256.Sum256([]byte(id))]
	page := sha256.Sum256([]byte(half))
	return of, ok && subtle.ConstantTimeCompare(of.page[:], page[:]) == 1 && time.Now().Before(of.expires)
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, sha256.Sum256([]byte(id)))
}

// sessionOf finds the session of a request that the page made: one from its own origin, with its
// half. An Authorization header comes before a cookie.
func (a *API) sessionOf(r *http.Request) (session, bool) {
	if len(r.Header.Values("Authorization")) > 0 {
		return session{}, false
	}
	_, of, ok := a.cookieOf(r)
	return of, ok
}

// cookieOf finds the cookie of a request that is that of a session. Others of its name may stand before
// it: whoever serves another port or a part of the domain can set them.
func (a *API) cookieOf(r *http.Request) (id string, of session, ok bool) {
	if !a.fromPage(r) {
		return "", session{}, false
	}
	for _, name := range []string{cookieName(r, true), cookieName(r, false)} {
		for _, cookie := range r.CookiesNamed(name) {
			if of, ok := a.sessions.find(cookie.Value, r.Header.Get(pageHeader)); ok {
				return cookie.Value, of, true
			}
		}
	}
	return "", session{}, false
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
	if k, ok := a.keyOf(r); ok {
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
	k, ok := a.keyOf(r) // before the body of somebody who has none is read
	if !ok {
		return web.NewProblem(web.Unauthorized, "That is no API key that is known here.",
			web.Wrong("Authorization", "is missing or not a known key", "use the token of one of the keys in the setting api_keys; pushlease api-key new makes one"))
	}
	web.NoteOf(r).Key = k.Name
	if err := web.Together(web.ReadQuery(r).Err(), web.NoBody(w, r)); err != nil {
		return err
	}
	id, half, made := a.sessions.open(k)
	http.SetCookie(w, newCookie(r, id, int(sessionLife.Seconds())))
	view := a.viewOf(k, made.expires)
	view.PageToken = half
	return web.WriteJSON(w, http.StatusCreated, view)
}

// closeSession signs out. It is no error where nobody was signed in.
func (a *API) closeSession(w http.ResponseWriter, r *http.Request) error {
	if !a.fromPage(r) {
		return notFromPage()
	}
	if err := web.Together(web.ReadQuery(r).Err(), web.NoBody(w, r)); err != nil {
		return err
	}
	if id, _, ok := a.cookieOf(r); ok {
		a.sessions.end(id)
	}
	http.SetCookie(w, newCookie(r, "", -1))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func notFromPage() error {
	return web.NewProblem(web.CrossOrigin, "Only the page that this server serves signs in and out.",
		web.Wrong(pageHeader, "is missing, or the request came from a page of another origin", "open /ui/ on this server; programs send Authorization with each request and need no session"))
}

func newCookie(r *http.Request, value string, seconds int) *http.Cookie {
	// Behind a proxy that ends TLS the browser alone may know: its Origin says so.
	secure := r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") || strings.HasPrefix(r.Header.Get("Origin"), "https://")
	return &http.Cookie{Name: cookieName(r, secure), Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode} //nolint:gosec // Secure where it is https: browsers would not send it back on http
}

// page serves the page's files.
func (a *API) page(w http.ResponseWriter, r *http.Request) error {
	name := strings.TrimPrefix(r.URL.Path, "/ui/")
	if !ui.Serve(w, name) {
		return web.NotFound(w, r)
	}
	return nil
}

// toPage is for those who leave out what comes after the address, or its last slash.
func (a *API) toPage(w http.ResponseWriter, r *http.Request) error {
	http.Redirect(w, r, "/ui/", http.StatusFound)
	return nil
}
