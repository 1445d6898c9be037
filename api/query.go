package api

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

// pathParam returns a part of the path, unescaped: chi routes on the escaped
// path when there is one.
func pathParam(r *http.Request, name string) string {
	v := chi.URLParam(r, name)
	if r.URL.RawPath == "" {
		return v
	}
	if plain, err := url.PathUnescape(v); err == nil {
		return plain
	}
	return v
}

// queueParam returns the queue that the path names.
func queueParam(r *http.Request) (string, error) {
	name := pathParam(r, "queue")
	if err := queue.ValidateName(name); err != nil {
		return "", invalid(badQueue(err))
	}
	return name, nil
}

func badQueue(err error) fieldError {
	return fieldError{"queue", "is not a queue name: " + err.Error(), "use 3 to 63 lower-case letters, digits and single hyphens, such as orders or orders-eu"}
}

// query reads a request's query parameters and gathers what is wrong with them. A
// parameter that is not known is refused: a filter that was misspelt must not
// silently show everything.
type query struct {
	values   url.Values
	problems []fieldError
}

func readQuery(r *http.Request, known ...string) *query {
	q := &query{}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		q.fail("query", "is not a valid query string", "separate parameters with & and percent-encode their values")
		return q
	}
	q.values = values
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
			q.fail(shownName(name), "is not a parameter of this address", cure)
		case len(values[name]) > 1:
			q.fail(name, "is there more than once", "give it once")
		}
	}
	return q
}

// functionsKey reports whether the parameter is one that the Functions host took
// its own key from and left in the query.
func functionsKey(r *http.Request, name string) bool {
	return (name == "code" || name == "clientId") && r.Header.Get("X-Azure-Functions-InvocationId") != ""
}

// shownName makes a name that the caller made up fit to be shown.
func shownName(name string) string {
	odd := func(c rune) bool {
		return c != '-' && c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}
	if name != "" && len(name) <= 64 && !strings.ContainsFunc(name, odd) {
		return name
	}
	return strconv.QuoteToASCII(tables.CutText(name, 64))
}

func (q *query) fail(field, what, cure string) {
	q.problems = append(q.problems, fieldError{field, what, cure})
}

func (q *query) err() error {
	if len(q.problems) == 0 {
		return nil
	}
	return invalid(q.problems...)
}

// maxIDBytes bounds the ids that can be asked for; storage makes none so long.
const maxIDBytes = 256

// text returns a parameter that names something.
func (q *query) text(name string) string {
	v := q.values.Get(name)
	if len(v) > maxIDBytes || !utf8.ValidString(v) {
		q.fail(name, "is not an id", "copy the id from an answer of this API")
		return ""
	}
	return v
}

func (q *query) queue() string {
	const name = "queue"
	v := q.values.Get(name)
	if v == "" {
		return ""
	}
	if err := queue.ValidateName(v); err != nil {
		q.problems = append(q.problems, badQueue(err))
	}
	return v
}

// oneOf returns a parameter that must be one of the values that there are.
func oneOf[T ~string](q *query, name string, allowed []T) T {
	v := T(q.values.Get(name))
	if v != "" && !slices.Contains(allowed, v) {
		list := make([]string, len(allowed))
		for i, a := range allowed {
			list[i] = string(a)
		}
		q.fail(name, "is not a value that there is", "use one of: "+strings.Join(list, ", "))
	}
	return v
}

func (q *query) bool(name string) bool {
	switch q.values.Get(name) {
	case "", "false":
	case "true":
		return true
	default:
		q.fail(name, "is not true or false", "write "+name+"=true or "+name+"=false")
	}
	return false
}

func (q *query) time(name string) time.Time {
	v := q.values.Get(name)
	if v == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, v)
	if err != nil || t.Year() < 1970 || t.Year() > 9998 {
		q.fail(name, "is not a time", "write it as RFC 3339 with a zone, such as 2026-01-31T15:04:05Z (a + in a query is written %2B)")
		return time.Time{}
	}
	return t.UTC()
}

// span returns the parameters from and until.
func (q *query) span() (from, until time.Time) {
	from, until = q.time("from"), q.time("until")
	if !from.IsZero() && !until.IsZero() && !from.Before(until) {
		q.fail("until", "is not after from", "from is inclusive and until exclusive; give a later until")
	}
	return from, until
}

// seconds returns a duration from 0 to max, rounded up to whole seconds, which is
// what storage counts in.
func (q *query) seconds(name string, max time.Duration) time.Duration {
	v := q.values.Get(name)
	if v == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		q.fail(name, "is not a duration", "write a number and a unit, such as 30s, 5m or 1h30m")
		return 0
	}
	if d < 0 || d > max {
		q.fail(name, "is out of range", fmt.Sprintf("give 0s to %s", max))
		return 0
	}
	return (d + time.Second - 1).Truncate(time.Second)
}

// defaultLimit is the length of a page when none is asked for.
const defaultLimit = 50

// maxCursorBytes bounds the cursors that stores are asked to read.
const maxCursorBytes = 4 << 10

// page returns the parameters limit and cursor.
func (q *query) page() tables.Page {
	page := tables.Page{Limit: defaultLimit, After: tables.Cursor(q.values.Get("cursor"))}
	if v := q.values.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > tables.MaxPage {
			q.fail("limit", "is not a number that can be used", fmt.Sprintf("give a whole number from 1 to %d", tables.MaxPage))
		}
		page.Limit = n
	}
	if len(page.After) > maxCursorBytes {
		q.problems = append(q.problems, badCursor)
	}
	return page
}

// list is one page of a list.
type list[T any] struct {
	Data []T `json:"data"`
	// NextCursor is null on the last page.
	NextCursor *tables.Cursor `json:"next_cursor"`
}

func newList[T any](data []T, next tables.Cursor) list[T] {
	l := list[T]{Data: orEmpty(data)}
	if next != "" {
		l.NextCursor = &next
	}
	return l
}

// orEmpty makes a list show as [] rather than null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// nameCursor is the cursor of the lists that are ordered by name: it stays good
// while names come and go.
func nameCursor(name string) tables.Cursor {
	return tables.Cursor(base64.RawURLEncoding.EncodeToString([]byte(name)))
}

// pageByName cuts the page out of all, which is in ascending order of name.
func pageByName[T any](all []T, name func(T) string, page tables.Page) ([]T, tables.Cursor, error) {
	if page.After != "" {
		after, err := base64.RawURLEncoding.Strict().DecodeString(string(page.After))
		if err != nil || len(after) == 0 {
			return nil, "", invalid(badCursor)
		}
		i, found := slices.BinarySearchFunc(all, string(after), func(t T, s string) int { return strings.Compare(name(t), s) })
		if found {
			i++
		}
		all = all[i:]
	}
	if len(all) <= page.Limit {
		return all, "", nil
	}
	all = all[:page.Limit]
	return all, nameCursor(name(all[len(all)-1])), nil
}
