package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"time"
)

// register registers a webhook through some instance, until one answers.
func (w *world) register(spec Webhook) {
	filter := ""
	if spec.Picky {
		filter = `,"filter":{"types":["nothing.has.this.type"]}`
	}
	body := fmt.Appendf(nil, `{"queue":%q,"url":"http://%s.example/hook","name":%q,"timeout":%q,
		"policy":{"preset":"standard","max_attempts":%d,"backoff":{"initial":"2s","factor":2,"max":"30s"}},
		"flow":{"auto_disable_after":"never","breaker":{"probe_max":"1m"}}%s}`, spec.Queue, spec.Name, spec.Name, spec.Timeout, spec.Attempts, filter)
	for {
		if i := w.somebody(); i != nil {
			if w.registeredAlready(i, spec.Name) {
				return
			}
			status, answer := i.ask(http.MethodPost, "/api/v1/webhooks", body)
			var created struct{ ID string }
			switch {
			case status == http.StatusCreated && json.Unmarshal(answer, &created) == nil:
				w.mu.Lock()
				w.webhooks[spec.Name] = &registered{id: created.ID, at: w.now()}
				w.mu.Unlock()
				w.note("operator", "registered "+spec.Name+" as "+created.ID)
				return
			case status >= 400 && status < 500:
				w.violate("plan", fmt.Sprintf("registering %s: %d %s", spec.Name, status, answer))
				return
			}
		}
		if !w.pause(time.Second) {
			return
		}
	}
}

// registeredAlready finds out whether an unanswered registration took effect.
func (w *world) registeredAlready(i *instance, name string) bool {
	status, answer := i.ask(http.MethodGet, "/api/v1/webhooks?limit=500", nil)
	var list struct{ Data []struct{ ID, Name string } }
	if status != http.StatusOK || json.Unmarshal(answer, &list) != nil {
		return false
	}
	for _, r := range list.Data {
		w.mu.Lock()
		known := w.webhooks[name]
		if r.Name == name && (known == nil || known.id == "") {
			w.webhooks[name] = &registered{id: r.ID, at: w.now()}
			w.mu.Unlock()
			return true
		}
		w.mu.Unlock()
	}
	return false
}

// somebody is an instance that is up, or nil.
func (w *world) somebody() *instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.slots {
		if i != nil && i.up() {
			return i
		}
	}
	return nil
}

// pause is false when the run is over.
func (w *world) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.over:
		return false
	}
}

// change does something to a webhook, until it is answered. Whether it took effect is not
// known while it is under way: nobody may count on the webhook any more.
func (w *world) change(name, method, path string) {
	for {
		w.mu.Lock()
		r := w.webhooks[name]
		if r != nil && r.changed == 0 {
			r.changed = w.now()
		}
		w.mu.Unlock()
		if r == nil {
			return
		}
		if i := w.somebody(); i != nil {
			status, _ := i.ask(method, "/api/v1/webhooks/"+r.id+path, nil)
			if status > 0 && status < 500 {
				w.note("operator", fmt.Sprintf("%s %s%s: %d", method, name, path, status))
				if method == http.MethodDelete {
					w.mu.Lock()
					r.deleted = true
					w.mu.Unlock()
				}
				return
			}
		}
		if !w.pause(time.Second) {
			return
		}
	}
}

// publishAll sends messages through the API of an instance.
func (w *world) publishAll(s Step) {
	for range s.Count {
		m := w.newMessage(s.Queue, s.Event, s.TTL)
		w.mu.Lock()
		i := w.slots[s.Instance]
		w.mu.Unlock()
		if i == nil || !i.up() {
			i = w.somebody()
		}
		if i != nil {
			path := "/api/v1/queues/" + s.Queue + "/messages"
			if s.TTL > 0 {
				path += "?ttl=" + s.TTL.String()
			}
			from := w.now()
			status, answer := i.ask(http.MethodPost, path, m.body())
			var sent struct {
				ID string `json:"message_id"`
			}
			switch {
			case status == http.StatusAccepted && json.Unmarshal(answer, &sent) == nil:
				w.accept(m, sent.ID)
				w.note("publisher", fmt.Sprintf("m%d accepted by %s as %s", m.n, i.name, sent.ID))
				w.mu.Lock()
				w.publish = append(w.publish, published{m.n, i, from, w.now()})
				w.mu.Unlock()
			case status >= 400 && status < 500:
				w.violate("publish", fmt.Sprintf("m%d refused: %d %s", m.n, status, answer))
			default:
				w.note("publisher", fmt.Sprintf("m%d: no answer from %s (%d)", m.n, i.name, status))
			}
		}
		if s.Gap > 0 && !w.pause(s.Gap) {
			return
		}
	}
}

// putAll sends messages past us, straight onto the account's queue.
func (w *world) putAll(s Step) {
	ask := func(method, path string, body []byte) *httptest.ResponseRecorder {
		req := httptest.NewRequestWithContext(context.Background(), method, "http://queue.standin/standin/"+path, bytes.NewReader(body))
		answer := httptest.NewRecorder()
		w.account.Handler("queue").ServeHTTP(answer, req)
		return answer
	}
	ask(http.MethodPut, s.Queue, nil)
	for range s.Count {
		m := w.newMessage(s.Queue, s.Event, s.TTL)
		var text bytes.Buffer
		_ = xml.EscapeText(&text, m.text(s.Form)) // a buffer takes everything
		q := url.Values{}
		if s.TTL > 0 {
			q.Set("messagettl", fmt.Sprint(int(s.TTL/time.Second)))
		}
		answer := ask(http.MethodPost, s.Queue+"/messages?"+q.Encode(), fmt.Appendf(nil, "<QueueMessage><MessageText>%s</MessageText></QueueMessage>", text.Bytes()))
		var put struct {
			ID string `xml:"QueueMessage>MessageId"`
		}
		if answer.Code != http.StatusCreated || xml.Unmarshal(answer.Body.Bytes(), &put) != nil {
			w.violate("plan", fmt.Sprintf("putting m%d: %d", m.n, answer.Code))
		}
		w.mu.Lock()
		m.accepted, m.newer = true, s.Form == newer
		if m.newer { // the account's text does not say which one it is
			m.id, m.put = put.ID, true
			w.byID[put.ID] = m
		}
		w.mu.Unlock()
		if s.Gap > 0 && !w.pause(s.Gap) {
			return
		}
	}
}

// replayAll replays every dead letter that waits.
func (w *world) replayAll() {
	i := w.somebody()
	if i == nil {
		return
	}
	status, answer := i.ask(http.MethodPost, "/api/v1/replays", []byte(`{"status":"waiting","all":true,"rate":50}`))
	w.note("operator", fmt.Sprintf("replays what waits: %d %.200s", status, answer))
	if status >= 400 && status < 500 {
		w.violate("plan", fmt.Sprintf("replaying what waits: %d %s", status, answer))
	}
}

// purgeAll deletes every dead letter but those that are being replayed.
func (w *world) purgeAll() {
	i := w.somebody()
	if i == nil {
		return
	}
	from := w.now()
	listed, ok := w.listDeadLetters(i)
	if !ok {
		return
	}
	status, answer := i.ask(http.MethodPost, "/api/v1/dead-letters/purge", []byte(`{"all":true,"dry_run":false}`))
	w.note("operator", fmt.Sprintf("purges the %d dead letters: %d %.200s", len(listed), status, answer))
	if status >= 400 && status < 500 {
		w.violate("plan", fmt.Sprintf("purging: %d %s", status, answer))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.purges = append(w.purges, purge{span{from, w.now()}, listed})
}
