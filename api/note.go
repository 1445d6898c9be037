package api

import "net/http"

// note is what is known about a request for its log line.
type note struct {
	id  string
	key string // name of the API key
	err error
}

type noteKey struct{}

func noteOf(r *http.Request) *note { return r.Context().Value(noteKey{}).(*note) }
