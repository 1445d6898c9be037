package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// problem is an error answer, RFC 9457. Kind becomes its type.
type problem struct {
	Type     string       `json:"type"`
	Title    string       `json:"title"`
	Status   int          `json:"status"`
	Detail   string       `json:"detail"`
	Instance string       `json:"instance,omitempty"`
	Errors   []fieldError `json:"errors,omitempty"`
	// Checks are those of /readyz.
	Checks any `json:"checks,omitempty"`
	// Events says what became of each event of a batch that was not sent whole.
	Events any `json:"events,omitempty"`

	// cause is for the log, not for the caller.
	cause  error
	header map[string]string
}

// fieldError names one thing wrong with a request and what to do about it. It
// never repeats a value that could be a secret or a payload.
type fieldError struct {
	Field   string `json:"field"`
	Problem string `json:"problem"`
	Cure    string `json:"cure"`
}

func (p *problem) Error() string {
	if p.cause != nil {
		return p.Detail + ": " + p.cause.Error()
	}
	return p.Detail
}

func (p *problem) Unwrap() error { return p.cause }

// problemType prefixes the kinds; they are names, not addresses.
const problemType = "urn:pushlease:problem:"

func newProblem(status int, kind, title, detail string, errs ...fieldError) *problem {
	return &problem{Type: problemType + kind, Title: title, Status: status, Detail: detail, Errors: errs}
}

// maxErrors bounds the errors of one answer: a request of a megabyte could have
// an answer of twenty.
const maxErrors = 50

// invalid answers 400 with everything that is wrong, up to maxErrors.
func invalid(errs ...fieldError) *problem {
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
	return newProblem(http.StatusBadRequest, "invalid-request", "The request is not valid", text+".", errs...)
}

// together is one answer for all that is wrong with a request: of the kind of the first
// problem, with the fields of all of them. It is nil when there is none. An error that is
// no problem stands alone.
func together(errs ...error) error {
	var all *problem
	for _, err := range errs {
		var p *problem
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

func missing(what, detail, field, cure string) *problem {
	return newProblem(http.StatusNotFound, "not-found", "There is no such "+what, detail,
		fieldError{field, "names nothing that is there", cure})
}

func conflict(kind, title, detail string, errs ...fieldError) *problem {
	return newProblem(http.StatusConflict, kind, title, detail, errs...)
}

var errPrecondition = newProblem(http.StatusPreconditionFailed, "changed", "It was changed since you read it",
	"If-Match does not name the current version.",
	fieldError{"If-Match", "is not the current ETag", "read it again, and send the ETag of that answer, or leave If-Match out"})

// retryAfter is what a 503 suggests: long enough for a throttled store to
// recover, short enough for a person to wait.
const retryAfter = 5 * time.Second

// storageFault answers 503: our store could not be asked or did not answer. doing
// completes "could not …".
func storageFault(doing string, err error) *problem {
	p := newProblem(http.StatusServiceUnavailable, "storage-unavailable", "Storage did not answer",
		"Could not "+doing+"; the fault is in pushlease's storage, not in the request. Send the request again in a moment; /readyz says what is wrong.")
	if why := known(err); why != "" {
		p.Detail = "Could not " + doing + ": " + why
	}
	p.cause = err
	p.header = map[string]string{"Retry-After": strconv.Itoa(int(retryAfter.Seconds()))}
	return p
}

// known says why storage refused a call, where only a person can mend that; empty otherwise.
func known(err error) string {
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

// listFault turns a store's answer to a list into a problem.
func listFault(doing string, err error) *problem {
	if errors.Is(err, tables.ErrBadCursor) {
		return invalid(badCursor)
	}
	return storageFault(doing, err)
}

var badCursor = fieldError{"cursor", "is not one that this list gave", "use the next_cursor of the page before as it is, or leave cursor out to begin at the first page"}

// writeProblem answers with err, which is a *problem or a fault of ours.
func writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	var found *problem
	if !errors.As(err, &found) {
		found = newProblem(http.StatusInternalServerError, "internal", "Something went wrong in pushlease",
			"The request could not be handled. The log line of this request says more; its id is in instance.")
	}
	p := *found
	p.Instance = "urn:pushlease:request:" + noteOf(r).id
	for name, value := range p.header {
		w.Header().Set(name, value)
	}
	writeBody(w, p.Status, "application/problem+json", &p)
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
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

func notFound(http.ResponseWriter, *http.Request) error {
	return missing("address", "Nothing is served here.", "path", "use one of the addresses in /api/v1/openapi.yaml")
}

func methodNotAllowed(_ http.ResponseWriter, r *http.Request) error {
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
	p := newProblem(http.StatusMethodNotAllowed, "method-not-allowed", "This address does not take that method",
		"It takes: "+list+".", fieldError{"method", "is not taken here", "use one of: " + list})
	p.header = map[string]string{"Allow": list}
	return p
}
