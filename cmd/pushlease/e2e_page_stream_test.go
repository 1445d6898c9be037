package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// onlyStream keeps the page from looking every few seconds, which is a timer for its look itself: what is new comes by the stream, or not at
// all. Its clock can be set ahead, as after a sleep.
const onlyStream = `
	window.ahead = 0;
	{ const now = Date.now; Date.now = () => now() + window.ahead; }
	{ const real = window.setTimeout; window.setTimeout = (run, ms, ...more) => (run.name === 'look' ? 0 : real(run, ms, ...more)); }`

// front stands before a server, and may drop what the stream says, as a line does that was cut while a laptop slept.
type front struct {
	*rotation
	drops atomic.Bool
}

// dropping is an answer of which nothing comes any more while the front drops.
type dropping struct {
	http.ResponseWriter
	drops *atomic.Bool
}

func (d dropping) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func (d dropping) Write(b []byte) (int, error) {
	if d.drops.Load() {
		return len(b), nil
	}
	return d.ResponseWriter.Write(b)
}

func newFront(t *testing.T, s *process) *front {
	t.Helper()
	f := &front{rotation: &rotation{}}
	f.turnTo(t, s)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/stream") {
			drops := &f.drops
			if drops.Load() { // a new line is no broken one
				drops = new(atomic.Bool)
			}
			w = dropping{w, drops}
		}
		f.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

// What happens is shown as it happens; and what happened while the stream was cut, the machine slept or the server was started anew is
// shown as soon as that is over.
func TestThePageFollowsTheStream(t *testing.T) {
	t.Parallel()
	store := sqliteStore(t)
	s := store.start(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Pushlease-Attempt") != "" && strings.HasSuffix(r.URL.Path, "/no") {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(receiver.Close)
	queue := queueName("live")
	yes, no := s.register(queue, receiver.URL, map[string]any{"name": "takes all"}), s.register(queue+"-no", receiver.URL+"/no", map[string]any{"name": "takes none"})
	front := newFront(t, s)
	b := newBrowser(t, front.URL)
	b.before(onlyStream)
	rows := func(want int) {
		t.Helper()
		waitUntil(t, patience, func() string {
			if n := b.eval(`[...document.querySelectorAll('main table')].at(-1)?.querySelectorAll('tbody tr').length ?? 0`); n != fmt.Sprint(want) {
				return fmt.Sprintf("%s attempts are shown, want %d", n, want)
			}
			return ""
		})
	}
	deliver := func() {
		t.Helper()
		s.waitState(30*time.Second, queue, s.publish(queue, `{}`), yes.ID, "delivered")
	}

	b.open("#/webhooks/" + yes.ID)
	b.see("There was no attempt yet", "live")
	deliver()
	rows(1)

	front.turnTo(t) // nobody answers, and the stream is cut
	front.CloseClientConnections()
	b.see("every 5 s")
	deliver()
	front.turnTo(t, s)
	b.see("live")
	rows(2)

	front.drops.Store(true) // the line is dead, and nobody has said so
	deliver()
	b.eval(`window.ahead += 60000`)
	rows(3)
	front.drops.Store(false)

	s.terminate()
	s.ended(20 * time.Second)
	b.see("every 5 s")
	s = store.start(t)
	s.waitUp()
	deliver() // no stream of this process has an event from before
	front.turnTo(t, s)
	b.see("live")
	rows(4)

	b.open("#/messages?status=4xx")
	b.see("No attempt is like that", "live")
	deliver() // is none of these
	message := s.publish(queue+"-no", `{}`)
	s.waitState(30*time.Second, queue+"-no", message, no.ID, "dead_lettered")
	rows(1)
	b.open("#/dead-letters")
	b.see("1 dead letter", "live")
	s.waitState(30*time.Second, queue+"-no", s.publish(queue+"-no", `{}`), no.ID, "dead_lettered")
	b.see("2 dead letters")
	b.quiet()
}
