package api

import (
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

// sentEvents are the events of which a job has sent a copy. Safe for concurrent use.
type sentEvents struct {
	mu   sync.Mutex
	byID map[string]string // event by dead letter
	sent map[string]bool
}

// first notes that the dead letter is sent for its event, and reports whether no other was.
func (s *sentEvents) first(event, id string) bool {
	if event == "" {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent == nil {
		s.byID, s.sent = map[string]string{}, map[string]bool{}
	}
	if s.byID[id] == event { // asked again about the same one
		return true
	}
	if s.sent[event] {
		return false
	}
	s.byID[id], s.sent[event] = event, true
	return true
}

// forget takes the note back: the dead letter was not sent.
func (s *sentEvents) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if event, noted := s.byID[id]; noted {
		delete(s.byID, id)
		delete(s.sent, event)
	}
}
