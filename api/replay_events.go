package api

import (
	"cmp"
	"crypto/sha256"
	"sync"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook/content"
)

// eventOf names what a dead letter's message is told apart by besides its id, for its webhook,
// as the dispatcher does for messages: its event on a queue that tells messages apart by these,
// or the key that it was published with; empty for none. Another body is not the same event.
func (a *API) eventOf(d tables.DeadLetter) string {
	body, err := queue.Decode(a.setting(d), d.Text)
	if err != nil || body.Replay != nil {
		return ""
	}
	key := body.IdempotencyKey
	if a.ByEvent(d.Queue) {
		contentType := body.ContentType
		if contentType == "" {
			contentType = queue.DefaultContentType(body.Bytes)
		}
		if c := content.Read(body.Bytes, contentType); c.Event != nil {
			key = c.Event.Key()
		}
	}
	if key == "" {
		return ""
	}
	sum := sha256.Sum256(body.Bytes)
	return tables.ClaimKey(d.Queue, d.WebhookID, string(sum[:]), key)
}

// maxSentEvents is how many events later at least a job still knows that it has sent one, and half
// of what it remembers: a job of millions would otherwise end the process. It is some 26 MB.
const maxSentEvents = 500_000

// eventHash stands for an event.
type eventHash [16]byte

// sentEvents are the events of which a job has sent a copy, the last of them. Safe for concurrent use.
type sentEvents struct {
	mu            sync.Mutex
	lately, older map[eventHash]struct{}
	bound         int // of each of both; zero means maxSentEvents
}

// eventTurn is the turn of one dead letter.
type eventTurn struct {
	of    *sentEvents
	event eventHash
	noted bool
}

// first notes that the dead letter is sent for its event, and reports whether no other was.
func (t *eventTurn) first(event string) bool {
	if event == "" {
		return true
	}
	sum := sha256.Sum256([]byte(event))
	hash := eventHash(sum[:len(eventHash{})])
	if t.noted && t.event == hash { // asked again
		return true
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	_, lately := t.of.lately[hash]
	if _, before := t.of.older[hash]; lately || before {
		return false
	}
	t.event, t.noted = hash, true
	t.of.note(hash)
	return true
}

// note remembers an event, for which the oldest half is forgotten where there are too many. The lock is held.
func (s *sentEvents) note(hash eventHash) {
	if s.lately == nil || len(s.lately) >= cmp.Or(s.bound, maxSentEvents) {
		s.lately, s.older = map[eventHash]struct{}{}, s.lately
	}
	s.lately[hash] = struct{}{}
}

// forget takes the note back: the dead letter was not sent.
func (t *eventTurn) forget() {
	if !t.noted {
		return
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	delete(t.of.lately, t.event)
	delete(t.of.older, t.event)
}
