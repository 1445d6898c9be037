package api

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/api/ui"
)

const (
	// sessionCookie names the cookie of somebody who signed in with the page.
	sessionCookie = "pushlease_session"
	// pageHeader goes with each request of the page. Pages of other origins can't send it
	// without being allowed to, which nobody is: so a cookie that comes without it says nothing.
	pageHeader = "Pushlease-Page"
	// sessionLife is how long somebody stays signed in.
	sessionLife = 12 * time.Hour
	// sessionsOfKey bounds the memory of those who sign in and never sign out: as many for each
	// key, so that nobody ends the sessions of another key.
	sessionsOfKey = 100
)

// session is one browser that showed a key. The browser keeps no key, and this process keeps
// no more of the session's id than its hash.
type session struct {
	key     Key
	expires time.Time
}

// sessions are those of this process; they end with it.
type sessions struct {
	mu   sync.Mutex
	byID map[[sha256.Size]byte]session
}

func newSessions() *sessions { return &sessions{byID: map[[sha256.Size]byte]session{}} }

// open makes a session and returns its id. Where its key has too many, the one that ends first does.
func (s *sessions) open(key Key) (id string, made session) {
	id, made = rand.Text()+rand.Text(), session{key, time.Now().Add(sessionLife)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoom(key)
	s.byID[sha256.Sum256([]byte(id))] = made
	return id, made
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

func (s *sessions) find(id string) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, ok := s.byID[sha256.Sum256([]byte(id))]
	return of, ok && time.Now().Before(of.expires)
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, sha256.Sum256([]byte(id)))
}

// sessionOf finds the session of a request that the page made: one from its own origin, with its
// header. An Authorization header comes before a cookie.
func (a *API) sessionOf(r *http.Request) (session, bool) {
	if len(r.Header.Values("Authorization")) > 0 || !a.fromPage(r) {
		return session{}, false
	}
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return session{}, false
	}
	return a.sessions.find(cookie.Value)
}

// fromPage reports whether a page of this origin made the request.
func (a *API) fromPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header.Get(pageHeader) != "" && (site == "" || site == "same-origin") && a.crossSite.Check(r) == nil
}

// sessionView says who the caller is and what it may do.
type sessionView struct {
	KeysSet   bool      `json:"keys_set"`
	SignedIn  bool      `json:"signed_in"`
	Key       string    `json:"key,omitempty"`
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
	id, made := a.sessions.open(k)
	http.SetCookie(w, cookieOf(r, id, int(sessionLife.Seconds())))
	return web.WriteJSON(w, http.StatusCreated, a.viewOf(k, made.expires))
}

// closeSession signs out. It is no error where nobody was signed in.
func (a *API) closeSession(w http.ResponseWriter, r *http.Request) error {
	if !a.fromPage(r) {
		return notFromPage()
	}
	if err := web.Together(web.ReadQuery(r).Err(), web.NoBody(w, r)); err != nil {
		return err
	}
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		a.sessions.end(cookie.Value)
	}
	http.SetCookie(w, cookieOf(r, "", -1))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func notFromPage() error {
	return web.NewProblem(web.CrossOrigin, "Only the page that this server serves signs in and out.",
		web.Wrong(pageHeader, "is missing, or the request came from a page of another origin", "open /ui/ on this server; programs send Authorization with each request and need no session"))
}

func cookieOf(r *http.Request, value string, seconds int) *http.Cookie {
	// Behind a proxy that ends TLS the browser alone may know: its Origin says so.
	secure := r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") || strings.HasPrefix(r.Header.Get("Origin"), "https://")
	return &http.Cookie{Name: sessionCookie, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode} //nolint:gosec // Secure where it is https: browsers would not send it back on http
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
