package web

import "net/http"

// Note is what is known about a request for its log line.
type Note struct {
	ID  string
	Key string // name of the API key
	Err error
}

type NoteKey struct{}

func NoteOf(r *http.Request) *Note { return r.Context().Value(NoteKey{}).(*Note) }
