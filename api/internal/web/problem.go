// Package web is what every resource of the API needs of HTTP: problems, JSON bodies, queries,
// pages, ETags, idempotency keys, and the note that each request leaves for its log line.
package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// Problem is an error answer, RFC 9457. Kind becomes its type.
type Problem struct {
	Type     string       `json:"type"`
	Title    string       `json:"title"`
	Status   int          `json:"status"`
	Detail   string       `json:"detail"`
	Instance string       `json:"instance,omitempty"`
	Errors   []FieldError `json:"errors,omitempty"`
	// Checks are those of /readyz.
	Checks any `json:"checks,omitempty"`
	// Events says what became of each event of a batch that was not sent whole.
	Events any `json:"events,omitempty"`

	// Cause is for the log, not for the caller.
	Cause  error             `json:"-"`
	Header map[string]string `json:"-"`
}

// FieldError names one thing wrong with a request and what to do about it. It
// never repeats a value that could be a secret or a payload.
type FieldError struct {
	Field   string `json:"field"`
	Problem string `json:"problem"`
	Cure    string `json:"cure"`
}

// Wrong is the FieldError of a field: what is wrong with it, and the cure.
func Wrong(field, problem, cure string) FieldError { return FieldError{field, problem, cure} }

func (p *Problem) Error() string {
	if p.Cause != nil {
		return p.Detail + ": " + p.Cause.Error()
	}
	return p.Detail
}

func (p *Problem) Unwrap() error { return p.Cause }

// problemType prefixes the names of the kinds; they are names, not addresses.
const problemType = "urn:pushlease:problem:"

// NewProblem makes an error answer.
func NewProblem(kind Kind, detail string, errs ...FieldError) *Problem {
	p := &Problem{Type: problemType + kind.Name, Title: kind.Title, Status: kind.Status, Detail: detail, Errors: errs}
	if kind.Wait > 0 {
		p.Header = map[string]string{"Retry-After": Seconds(kind.Wait)}
	}
	return p
}

// Of reports whether p is of a kind.
func (p *Problem) Of(kind Kind) bool { return p.Type == problemType+kind.Name }

// maxErrors bounds the errors of one answer: a request of a megabyte could have
// an answer of twenty.
const maxErrors = 50

// Invalid answers 400 with everything that is wrong.
func Invalid(errs ...FieldError) *Problem { return Wrongs(InvalidRequest, errs...) }

// Wrongs is a problem of a kind with everything that is wrong, up to maxErrors.
func Wrongs(kind Kind, errs ...FieldError) *Problem {
	more := len(errs) - maxErrors
	errs = errs[:min(len(errs), maxErrors)]
	detail := make([]string, len(errs))
	for i, e := range errs {
		detail[i] = e.Field + " " + e.Problem
	}
	text := strings.Join(detail, "; ")
	if more > 0 {
		text += "; and " + strconv.Itoa(more) + " more"
	}
	return NewProblem(kind, text+".", errs...)
}

// Together is one answer for all that is wrong with a request: of the kind of the first
// problem, with the fields of all of them. It is nil when there is none. An error that is
// no problem stands alone.
func Together(errs ...error) error {
	var all *Problem
	for _, err := range errs {
		var p *Problem
		switch {
		case err == nil:
			continue
		case !errors.As(err, &p):
			return err
		case all == nil:
			first := *p
			all = &first
			continue
		}
		all.Detail += " " + p.Detail
		all.Errors = slices.Concat(all.Errors, p.Errors)
		all.Errors = all.Errors[:min(len(all.Errors), maxErrors)]
	}
	if all == nil {
		return nil
	}
	return all
}

// Missing is the 404 for something that is not there.
func Missing(detail, field, cure string) *Problem {
	return NewProblem(NotFoundKind, detail, FieldError{field, "names nothing that is there", cure})
}

// ErrPrecondition is the 412 for an If-Match that no longer holds.
var ErrPrecondition = NewProblem(Changed,
	"If-Match does not name the current version.",
	FieldError{"If-Match", "is not the current ETag", "read it again, and send the ETag of that answer, or leave If-Match out"})

// StorageFault answers 503: our store could not be asked or did not answer. doing
// completes "could not …".
func StorageFault(doing string, err error) *Problem {
	p := NewProblem(StorageUnavailable,
		"Could not "+doing+"; the fault is in pushlease's storage, not in the request. Send the request again in a moment; /readyz says what is wrong.")
	if why := Known(err); why != "" {
		p.Detail = "Could not " + doing + ": " + why
	}
	p.Cause = err
	return p
}

// Known says why storage refused a call, where only a person can mend that; empty otherwise.
func Known(err error) string {
	switch {
	case errors.Is(err, queue.ErrTakenAway):
		return "the file that keeps everything was taken away while pushlease has it open, so nothing new is accepted. /readyz and the log say where it was saved, and what to do."
	case errors.Is(err, queue.ErrFull):
		return "the disk that keeps everything is full. Free some space there, then send the request again."
	case errors.Is(err, queue.ErrLocked):
		return "another process keeps the file that keeps everything locked. End what holds it open (a backup, a shell), then send the request again."
	}
	return ""
}

// ListFault turns a store's answer to a list into a problem.
func ListFault(doing string, err error) *Problem {
	if errors.Is(err, tables.ErrBadCursor) {
		return Invalid(BadCursor)
	}
	return StorageFault(doing, err)
}

// BadCursor is what is wrong with a cursor that no answer gave.
var BadCursor = FieldError{"cursor", "is not one that this list gave, in this version of pushlease", "use the next_cursor of the page before as it is, or leave cursor out to begin at the first page"}

// WriteProblem answers with err, which is a *Problem or a fault of ours.
func WriteProblem(w http.ResponseWriter, r *http.Request, err error) {
	var found *Problem
	if !errors.As(err, &found) {
		found = NewProblem(Internal,
			"The request could not be handled. The log line of this request says more; its id is in instance.")
	}
	p := *found
	p.Instance = "urn:pushlease:request:" + NoteOf(r).ID
	for name, value := range p.Header {
		w.Header().Set(name, value)
	}
	writeBody(w, p.Status, "application/problem+json", &p)
}

// WriteJSON answers with a value.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	writeBody(w, status, "application/json", v)
	return nil
}

func writeBody(w http.ResponseWriter, status int, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil { // no type that is written here can fail
		panic(err)
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller is gone: nobody left to tell
}

// NotFound answers for an address that there is not.
func NotFound(http.ResponseWriter, *http.Request) error {
	return Missing("Nothing is served here.", "path", "use one of the addresses in /api/v1/openapi.yaml")
}

// MethodNotAllowed answers for a method that an address does not have.
func MethodNotAllowed(_ http.ResponseWriter, r *http.Request) error {
	path := r.URL.Path
	if r.URL.RawPath != "" {
		path = r.URL.RawPath
	}
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if chi.RouteContext(r.Context()).Routes.Match(chi.NewRouteContext(), m, path) {
			allowed = append(allowed, m)
			if m == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
	}
	list := strings.Join(allowed, ", ")
	p := NewProblem(MethodNotAllowedKind, "It takes: "+list+".", FieldError{"method", "is not taken here", "use one of: " + list})
	p.Header = map[string]string{"Allow": list}
	return p
}
