package web

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// PathParam returns a part of the path, unescaped: chi routes on the escaped
// path when there is one.
func PathParam(r *http.Request, name string) string {
	v := chi.URLParam(r, name)
	if r.URL.RawPath == "" {
		return v
	}
	if plain, err := url.PathUnescape(v); err == nil {
		return plain
	}
	return v
}

// QueueParam returns the queue that the path names.
func QueueParam(r *http.Request) (string, error) {
	name := PathParam(r, "queue")
	if err := queue.ValidateName(name); err != nil {
		return "", Invalid(BadQueue(err))
	}
	return name, nil
}

// BadQueue says what is wrong with a queue name, and how one looks.
func BadQueue(err error) FieldError {
	return FieldError{"queue", "is not a queue name: " + err.Error(), "use 3 to 63 lower-case letters, digits and single hyphens, such as orders or orders-eu"}
}

// Query reads a request's query parameters and gathers what is wrong with them. A
// parameter that is not known is refused: a filter that was misspelt must not
// silently show everything.
type Query struct {
	Values   url.Values
	Problems []FieldError
}

// ReadQuery reads the query parameters, of which those that are not known are refused.
func ReadQuery(r *http.Request, known ...string) *Query {
	q := &Query{}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		q.Fail("query", "is not a valid query string", "separate parameters with & and percent-encode their values")
		return q
	}
	q.Values = values
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case functionsKey(r, name):
		case !slices.Contains(known, name):
			cure := "this address takes no query parameters"
			if len(known) > 0 {
				cure = "use one of: " + strings.Join(known, ", ")
			}
			q.Fail(ShownName(name), "is not a parameter of this address", cure)
		case len(values[name]) > 1:
			q.Fail(name, "is there more than once", "give it once")
		}
	}
	return q
}

// functionsKey reports whether the parameter is one that the Functions host took
// its own key from and left in the query.
func functionsKey(r *http.Request, name string) bool {
	return (name == "code" || name == "clientId") && r.Header.Get("X-Azure-Functions-InvocationId") != ""
}

// ShownName makes a name that the caller made up fit to be shown.
func ShownName(name string) string {
	odd := func(c rune) bool {
		return c != '-' && c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}
	if name != "" && len(name) <= 64 && !strings.ContainsFunc(name, odd) {
		return name
	}
	return strconv.QuoteToASCII(tables.CutText(name, 64))
}

// Fail adds what is wrong with a parameter, and its cure.
func (q *Query) Fail(field, what, cure string) {
	q.Problems = append(q.Problems, FieldError{field, what, cure})
}

// Err is the 400 with everything that is wrong, or nil.
func (q *Query) Err() error {
	if len(q.Problems) == 0 {
		return nil
	}
	return Invalid(q.Problems...)
}

// MaxIDBytes bounds the ids that can be asked for; storage makes none so long.
const MaxIDBytes = 256

// Text returns a parameter that names something.
func (q *Query) Text(name string) string {
	v := q.Values.Get(name)
	if len(v) > MaxIDBytes || !utf8.ValidString(v) {
		q.Fail(name, "is not an id", "copy the id from an answer of this API")
		return ""
	}
	return v
}

// Short returns a parameter that is a text of at most max bytes.
func (q *Query) Short(name string, max int) string {
	v := q.Values.Get(name)
	if len(v) > max || !utf8.ValidString(v) {
		q.Fail(name, "is too long, or no text", fmt.Sprintf("give at most %d bytes of UTF-8", max))
		return ""
	}
	return v
}

// Queue returns the parameter queue, or nothing where it is missing or is no name.
func (q *Query) Queue() string {
	const name = "queue"
	v := q.Values.Get(name)
	if v == "" {
		return ""
	}
	if err := queue.ValidateName(v); err != nil {
		q.Problems = append(q.Problems, BadQueue(err))
	}
	return v
}

// OneOf returns a parameter that must be one of the values that there are.
func OneOf[T ~string](q *Query, name string, allowed []T) T {
	v := T(q.Values.Get(name))
	if v != "" && !slices.Contains(allowed, v) {
		list := make([]string, len(allowed))
		for i, a := range allowed {
			list[i] = string(a)
		}
		q.Fail(name, "is not a value that there is", "use one of: "+strings.Join(list, ", "))
	}
	return v
}

// Bool returns a parameter that is true or false.
func (q *Query) Bool(name string) bool {
	switch q.Values.Get(name) {
	case "", "false":
	case "true":
		return true
	default:
		q.Fail(name, "is not true or false", "write "+name+"=true or "+name+"=false")
	}
	return false
}

// Span returns the parameters from and until; zero times where they are not given.
func (q *Query) Span() (from, until time.Time) {
	from, until, problems := ReadSpan(q.Values.Get("from"), q.Values.Get("until"))
	q.Problems = append(q.Problems, problems...)
	return from, until
}

// Seconds returns a duration from 0 to max, rounded up to whole seconds, which is
// what storage counts in.
func (q *Query) Seconds(name string, max time.Duration) time.Duration {
	v := q.Values.Get(name)
	if v == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		q.Fail(name, "is not a duration", "write a number and a unit, such as 30s, 5m or 1h30m")
		return 0
	}
	if d < 0 || d > max {
		q.Fail(name, "is out of range", fmt.Sprintf("give 0s to %s", max))
		return 0
	}
	return (d + time.Second - 1).Truncate(time.Second)
}

// defaultLimit is the length of a page when none is asked for.
const defaultLimit = 50

// MaxCursorBytes bounds the cursors that stores are asked to read.
const MaxCursorBytes = 4 << 10

// Page returns the parameters limit and cursor.
func (q *Query) Page() tables.Page {
	page := tables.Page{Limit: defaultLimit, After: tables.Cursor(q.Values.Get("cursor"))}
	if v := q.Values.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > tables.MaxPage {
			q.Fail("limit", "is not a number that can be used", fmt.Sprintf("give a whole number from 1 to %d", tables.MaxPage))
		}
		page.Limit = n
	}
	if len(page.After) > MaxCursorBytes {
		q.Problems = append(q.Problems, BadCursor)
	}
	return page
}

// List is one page of a list.
type List[T any] struct {
	Data []T `json:"data"`
	// NextCursor is null on the last page.
	NextCursor *tables.Cursor `json:"next_cursor"`
}

// NewList makes a page of a list; next is where the following one begins.
func NewList[T any](data []T, next tables.Cursor) List[T] {
	l := List[T]{Data: OrEmpty(data)}
	if next != "" {
		l.NextCursor = &next
	}
	return l
}

// OrEmpty makes a list show as [] rather than null.
func OrEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// nameCursor is the cursor of the lists that are ordered by name: it stays good
// while names come and go.
func nameCursor(list, name string) tables.Cursor {
	return tables.Cursor(base64.RawURLEncoding.EncodeToString([]byte(list + " " + name)))
}

// PageByName cuts the page out of all, which is in ascending order of name. list is which list it is:
// no other takes its cursors.
func PageByName[T any](list string, all []T, name func(T) string, page tables.Page) ([]T, tables.Cursor, error) {
	if page.After != "" {
		text, err := base64.RawURLEncoding.Strict().DecodeString(string(page.After))
		after, ours := strings.CutPrefix(string(text), list+" ")
		if err != nil || !ours || after == "" {
			return nil, "", Invalid(BadCursor)
		}
		i, found := slices.BinarySearchFunc(all, after, func(t T, s string) int { return strings.Compare(name(t), s) })
		if found {
			i++
		}
		all = all[i:]
	}
	if len(all) <= page.Limit {
		return all, "", nil
	}
	all = all[:page.Limit]
	return all, nameCursor(list, name(all[len(all)-1])), nil
}

// StatusOrClass reads an HTTP status, such as 503, or a class of them, such as 5xx.
func (q *Query) StatusOrClass(name string) (status, class int) {
	v := q.Values.Get(name)
	if v == "" {
		return 0, 0
	}
	if len(v) == 3 && v[0] >= '1' && v[0] <= '5' {
		if v[1:] == "xx" {
			return 0, int(v[0] - '0')
		}
		if n, err := strconv.Atoi(v); err == nil {
			return n, 0
		}
	}
	q.Fail(name, "is not an HTTP status", "write one such as 503, or a class such as 5xx; use error_class for attempts without an answer")
	return 0, 0
}
