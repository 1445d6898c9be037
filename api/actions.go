package api

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

// testView is what a test POST gave, and what would have followed for a message.
type testView struct {
	MessageID    string            `json:"message_id"`
	StartedAt    time.Time         `json:"started_at"`
	Duration     policy.Duration   `json:"duration"`
	Status       int               `json:"status,omitempty"`
	ErrorClass   policy.ErrorClass `json:"error_class,omitempty"`
	Error        string            `json:"error,omitempty"`
	RetryAfter   string            `json:"retry_after,omitempty"`
	RedirectHost string            `json:"redirect_host,omitempty"`
	Snippet      string            `json:"snippet,omitempty"`
	Note         string            `json:"note,omitempty"`
	Decision     decisionView      `json:"decision"`
	// Request is what was sent; left out where nothing could be.
	Request *sentView `json:"request,omitempty"`
}

// sentView is a request as it was sent, without what makes it be believed.
type sentView struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// newSentView leaves out the URL's query, the signature and the values of the webhook's own headers.
func newSentView(reg *tables.Registration, header http.Header, body []byte) *sentView {
	v := &sentView{Method: http.MethodPost, URL: shownURL(reg.URL, false), Headers: map[string]string{}, Body: string(body)}
	for name, values := range header {
		v.Headers[name] = strings.Join(values, ", ")
	}
	for name := range reg.Headers {
		if name = http.CanonicalHeaderKey(name); header[name] != nil {
			v.Headers[name] = redacted
		}
	}
	for _, name := range append(reg.Signatures.HeaderNames(), http.CanonicalHeaderKey(webhook.HeaderSignature)) {
		v.Headers[name] = redacted
	}
	if reg.Auth != nil {
		v.Headers["Authorization"] = redacted
	}
	return v
}

type decisionView struct {
	Action      policy.Action   `json:"action"`
	Reason      policy.Reason   `json:"reason"`
	Delay       policy.Duration `json:"delay,omitzero"`
	Charged     bool            `json:"charged"`
	Disable     bool            `json:"disable"`
	Pause       policy.Duration `json:"pause,omitzero"`
	Explanation string          `json:"explanation"`
}

// testWebhook sends one POST, as a first attempt would, and changes nothing:
// no message, no record, and the webhook stays as it is whatever it answers. A test takes
// as long as the webhook does, so few are under way at a time.
func (a *API) testWebhook(w http.ResponseWriter, r *http.Request) error {
	if err := errors.Join(web.ReadQuery(r).Err(), web.NoBody(w, r)); err != nil {
		return err
	}
	reg, err := a.loadWebhook(r)
	if err != nil {
		return err
	}
	if !a.tests.begin(reg.ID) {
		return web.NewProblem(web.TestsUnderWay,
			fmt.Sprintf("At most %d tests of one webhook are under way at a time, and %d of all.", testsOfOne, testsOfAll),
			web.Wrong("id", "is of a webhook that can't be tested now", "wait until the tests have ended, which takes as long as their webhooks do"))
	}
	defer a.tests.end(reg.ID)
	if err := patience(w, reg.Longest()+testMargin); err != nil {
		return err
	}
	id := "test_" + strings.ToLower(rand.Text())
	body, err := json.Marshal(map[string]any{"pushlease": "test", "webhook_id": reg.ID, "message_id": id})
	if err != nil {
		return err
	}
	origin := content.Origin{MessageID: id, Queue: reg.Queue, InsertedAt: time.Now()}
	request := reg.Request(content.Read(body, "application/json"), origin, 1)
	var shown *sentView
	request.Seen = func(header http.Header) { shown = newSentView(&reg, header, request.Body) }
	request.Registered = reg.UpdatedAt
	request.FreshToken = true                 // what was granted since the last one is in it
	request.Fresh = true                      // whether the receiver can be reached now is what is asked
	if by, ok := r.Context().Deadline(); ok { // a host waits for no longer, and the answer is still to be written
		request.Until = by.Add(-min(testMargin, time.Until(by)/4))
	}
	request.Meant = func(res *webhook.Result) bool { return reg.Policy.Told(responseOf(res)) }
	res := a.Sender.Send(r.Context(), &reg.Webhook, request)
	known, _ := a.Dispatcher.Webhook(reg.ID) // what its messages are decided by, too
	decision := reg.Policy.Decide(policy.Try{
		Now: res.StartedAt.Add(res.Duration), FirstAt: res.StartedAt, Random: mathrand.Float64(), LastOK: known.Failing.LastSuccess, NotItsFault: known.Refusing,
		Response: responseOf(&res),
	})
	return web.WriteJSON(w, http.StatusOK, testView{
		MessageID: id, StartedAt: web.UTC(res.StartedAt), Duration: policy.Duration(res.Duration), Status: res.Status,
		ErrorClass: policy.ErrorClass(res.ErrorClass), Error: res.Error, RetryAfter: res.RetryAfter,
		RedirectHost: res.RedirectHost, Snippet: tables.CutText(res.Snippet(&reg.Webhook), tables.MaxSnippetUnits),
		Note: res.Note, Request: shown,
		Decision: decisionView{
			Action: decision.Action, Reason: decision.Reason, Delay: policy.Duration(decision.Delay), Charged: decision.Charged,
			Disable: decision.Disable, Pause: policy.Duration(decision.Pause), Explanation: decision.Explanation,
		},
	})
}

const (
	// testsOfOne and testsOfAll bound the tests under way, so that nobody makes a load of
	// them, and no slow webhook takes all.
	testsOfOne = 2
	testsOfAll = 16
)

// tests counts the tests under way, by webhook.
type tests struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// begin reports whether one more may begin; end must follow then.
func (t *tests) begin(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all >= testsOfAll || t.of[id] >= testsOfOne {
		return false
	}
	if t.of == nil {
		t.of = map[string]int{}
	}
	t.all++
	t.of[id]++
	return true
}

func (t *tests) end(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if t.of[id]--; t.of[id] == 0 {
		delete(t.of, id)
	}
}

// testMargin is the time beyond the webhook's timeout to answer the caller in.
const testMargin = 10 * time.Second

// patience gives a request its own deadlines in place of the server's, which are
// made for requests that need no answer from elsewhere: net/http would cancel
// the test when the time to read the request is over.
func patience(w http.ResponseWriter, d time.Duration) error {
	c, deadline := http.NewResponseController(w), time.Now().Add(d)
	err := errors.Join(c.SetReadDeadline(deadline), c.SetWriteDeadline(deadline))
	if err != nil && !errors.Is(err, http.ErrNotSupported) { // not every server has deadlines
		return fmt.Errorf("set the request's deadlines: %w", err)
	}
	return nil
}

// Bounds of a rotation.
const (
	defaultOverlap = 24 * time.Hour
	maxOverlap     = 7 * 24 * time.Hour
	// maxSecrets bounds the signatures that each request carries.
	maxSecrets = 5
)

// rotationView is the answer to a rotation: the only one that shows the new secret.
type rotationView struct {
	Secret  string       `json:"secret"`
	Secrets []secretView `json:"secrets"`
}

// rotateSecret adds a new secret and lets the old ones sign beside it until the overlap ends, so
// that receivers can change over one after the other.
func (a *API) rotateSecret(w http.ResponseWriter, r *http.Request) error {
	if err := web.ReadQuery(r).Err(); err != nil {
		return err
	}
	in, err := web.ReadFields(w, r, true)
	if err != nil {
		return err
	}
	if err := web.OnlyFields(in, "secret", "overlap", "first"); err != nil {
		return err
	}
	now := time.Now().UTC()
	to, err := readRotation(in, now)
	if err != nil {
		return err
	}
	saved, err := a.change(r, func(reg *tables.Registration) error { return to.rotate(reg, now) })
	if err != nil {
		return err
	}
	w.Header().Set("ETag", web.EtagOf(saved.ETag))
	return web.WriteJSON(w, http.StatusOK, rotationView{Secret: to.fresh.Key, Secrets: a.view(r, saved).Secrets})
}

// rotation is what a rotation asks for.
type rotation struct {
	fresh   webhook.Secret
	overlap time.Duration
	// overlapField says how long that is; the request as a whole where it is left out.
	overlapField string
	// newFirst makes the new secret's signature the first one: some libraries read no other.
	newFirst bool
}

func readRotation(in web.Fields, now time.Time) (rotation, error) {
	e := &editor{as: creating}
	raw, ok := in["secret"]
	if !ok {
		raw = json.RawMessage("null")
	}
	fresh, _ := e.readSecret(raw, now)
	overlap, overlapField := e.overlap(in)
	first := "old"
	if raw, ok := in["first"]; ok && !web.IsNull(raw) {
		const cure = `write "old" (the default: receivers have the old secret until they are changed over) or "new"`
		if problem := web.Decode("first", raw, &first, cure); problem != nil {
			e.problems = append(e.problems, *problem)
		} else if first != "old" && first != "new" {
			e.fail("first", "is not a value that there is", cure)
		}
	}
	if len(e.problems) > 0 {
		return rotation{}, web.Invalid(e.problems...)
	}
	return rotation{fresh, overlap, overlapField, first == "new"}, nil
}

// rotate puts the new secret into the list, whose last one signs first.
func (to rotation) rotate(reg *tables.Registration, now time.Time) error {
	fresh, end := to.fresh, now.Add(to.overlap)
	secrets := []webhook.Secret{fresh}
	for _, old := range reg.Secrets {
		if old.Key == fresh.Key {
			return web.Invalid(web.Wrong("secret", "is one that the webhook has already", "give another one, or leave it out to have one made"))
		}
		if old.ExpiresAt.IsZero() || old.ExpiresAt.After(end) {
			old.ExpiresAt = end
		}
		if old.ExpiresAt.After(now) {
			secrets = append(secrets, old)
		}
	}
	if len(secrets) > maxSecrets {
		return web.NewProblem(web.TooManySecrets,
			fmt.Sprintf("A webhook signs with at most %d secrets.", maxSecrets),
			web.Wrong(to.overlapField, "would keep too many old secrets", "wait until an old one has ended (see secrets of the webhook), or rotate with a shorter overlap; 0s ends them all"))
	}
	if to.newFirst {
		secrets = append(secrets[1:], fresh)
	}
	reg.Secrets = secrets
	return nil
}

func responseOf(res *webhook.Result) policy.Response {
	return policy.Response{
		Status: res.Status, Class: policy.ErrorClass(res.ErrorClass), NameBlocked: res.NameBlocked, RetryAfter: res.RetryAfter, Cause: res.Error, Redirect: res.RedirectHost,
		RateLimit: res.RateLimit, Steering: res.Steering, Date: res.Date, Body: string(res.Body),
	}
}
