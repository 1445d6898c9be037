package webhooktest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Received is one request as the receiver saw it.
type Received struct {
	At               time.Time
	Method           string
	Path             string
	Host             string
	Header           http.Header
	ContentLength    int64
	TransferEncoding []string
	Body             []byte
	SHA256           [sha256.Size]byte
}

// Receiver is a scripted webhook receiver in memory. It is safe for concurrent
// use.
type Receiver struct {
	listener *pipeListener
	server   *http.Server
	done     chan struct{}

	mu       sync.Mutex
	received []Received
	dialed   []string
}

// NewReceiver starts a receiver that records every request and then lets the
// handler answer; nil answers 200. Close it at the end of the test, and inside
// the bubble that it was made in.
func NewReceiver(handler http.Handler) *Receiver {
	if handler == nil {
		handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	}
	r := &Receiver{listener: newPipeListener(), done: make(chan struct{})}
	r.server = &http.Server{Handler: r.record(handler), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go func() {
		defer close(r.done)
		_ = r.server.Serve(r.listener)
	}()
	return r
}

// Status answers every request with the status.
func Status(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

// Sequence answers the first request with the first handler and so on; the last
// one repeats.
func Sequence(handlers ...http.Handler) http.Handler {
	var mu sync.Mutex
	next := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		h := handlers[min(next, len(handlers)-1)]
		next++
		mu.Unlock()
		h.ServeHTTP(w, r)
	})
}

// Dial connects to the receiver, whatever the address. It is for
// webhook.Options.DialContext.
func (r *Receiver) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	conn, err := r.listener.dial(ctx)
	if err == nil {
		r.mu.Lock()
		r.dialed = append(r.dialed, address)
		r.mu.Unlock()
	}
	return conn, err
}

// Received gives the requests so far, in the order of their arrival.
func (r *Receiver) Received() []Received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.received)
}

// Dialed gives the addresses that were dialled so far.
func (r *Receiver) Dialed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.dialed)
}

// Close ends all connections and waits for the server to end; handlers have to
// end by themselves when their request's context does.
func (r *Receiver) Close() {
	_ = r.listener.Close()
	_ = r.server.Close()
	<-r.done
}

func (r *Receiver) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		at := time.Now()
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return // the sender broke off: this is no request
		}
		r.mu.Lock()
		r.received = append(r.received, Received{
			At: at, Method: q.Method, Path: q.URL.RequestURI(), Host: q.Host, Header: q.Header.Clone(),
			ContentLength: q.ContentLength, TransferEncoding: q.TransferEncoding,
			Body: body, SHA256: sha256.Sum256(body),
		})
		r.mu.Unlock()
		q.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, q)
	})
}
