package web

import (
	"net/http"

	"go.opentelemetry.io/otel/trace"
)

// Note is what is known about a request for its log line.
type Note struct {
	ID  string
	Key string // name of the API key
	Err error
	// Span is that of the request; nil where it has none.
	Span trace.Span
}

// NoteKey finds a request's note in its context.
type NoteKey struct{}

// NoteOf returns what the log line of a request will say besides.
func NoteOf(r *http.Request) *Note { return r.Context().Value(NoteKey{}).(*Note) }
