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

// publishAll sends messages through the API of an instance.
func (w *world) publishAll(s Step) {
	if s.Form == batch {
		w.publishBatch(s)
		return
	}
	for range s.Count {
		w.publishOne(s, w.newMessage(s))
		if s.Gap > 0 && !w.pause(s.Gap) {
			return
		}
	}
}

// through is the instance of a step, or another one that is up; nil where none is.
func (w *world) through(s Step) *instance {
	w.mu.Lock()
	i := w.slots[s.Instance]
	w.mu.Unlock()
	if i == nil || !i.up() {
		return w.somebody()
	}
	return i
}

// publishOne publishes one message, once; again and again where it has a key.
func (w *world) publishOne(s Step, m *message) {
	q := url.Values{}
	for name, value := range map[string]time.Duration{"ttl": s.TTL, "delay": s.Delay} {
		if value > 0 {
			q.Set(name, value.String())
		}
	}
	path, tries := "/api/v1/queues/"+s.Queue+"/messages?"+q.Encode(), 1
	var headers []string
	if s.Keyed {
		tries, headers = 10, []string{"Idempotency-Key", fmt.Sprintf("key-%d", m.n)}
	}
	for try := range tries {
		i := w.through(s)
		if i == nil && (!s.Keyed || !w.pause(time.Second)) {
			return
		}
		if i == nil {
			continue
		}
		from := w.now()
		status, answer := i.ask(http.MethodPost, path, m.body(), headers...)
		var sent struct {
			ID string `json:"message_id"`
		}
		switch {
		case status == http.StatusAccepted && json.Unmarshal(answer, &sent) == nil:
			w.accept(m, sent.ID)
			w.note("publisher", fmt.Sprintf("m%d accepted by %s as %s", m.n, i.name, sent.ID))
			if try == 0 {
				w.mu.Lock()
				w.publish = append(w.publish, published{m.n, i, from, w.now()})
				w.mu.Unlock()
			}
			return
		case status == http.StatusConflict && s.Keyed: // an earlier try has not ended
		case status >= 400 && status < 500:
			w.violate("publish", fmt.Sprintf("m%d refused: %d %s", m.n, status, answer))
			return
		default:
			w.note("publisher", fmt.Sprintf("m%d: no answer from %s (%d)", m.n, i.name, status))
		}
		s.Instance = (s.Instance + 1) % len(w.slots)
		if s.Keyed && !w.pause(5*time.Second) {
			return
		}
	}
}

// publishBatch publishes events together.
func (w *world) publishBatch(s Step) {
	all := make([]*message, s.Count)
	bodies := make([]json.RawMessage, s.Count)
	for n := range all {
		all[n] = w.newMessage(s)
		bodies[n] = all[n].body()
	}
	i := w.through(s)
	if i == nil {
		return
	}
	body, _ := json.Marshal(bodies) // they are JSON
	status, answer := i.ask(http.MethodPost, "/api/v1/queues/"+s.Queue+"/messages", body, "Content-Type", "application/cloudevents-batch+json")
	var became struct {
		Events []struct {
			Outcome string
			ID      string `json:"message_id"`
		}
	}
	w.note("publisher", fmt.Sprintf("m%d to m%d together by %s: %d", all[0].n, all[len(all)-1].n, i.name, status))
	switch {
	case status >= 400 && status < 500:
		w.violate("publish", fmt.Sprintf("m%d and those after it refused: %d %s", all[0].n, status, answer))
	case status > 0 && json.Unmarshal(answer, &became) == nil:
		for n, e := range became.Events {
			if e.Outcome == "sent" {
				w.accept(all[n], e.ID)
			}
		}
	}
}

// asAnother is a call of another program to the account's queues.
func (w *world) asAnother(method, path string, body []byte) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(context.Background(), method, "http://queue.standin/standin/"+path, bytes.NewReader(body))
	answer := httptest.NewRecorder()
	w.account.Handler("queue").ServeHTTP(answer, req)
	return answer
}

// putAll sends messages past us, straight onto the account's queue.
func (w *world) putAll(s Step) {
	w.asAnother(http.MethodPut, s.Queue, nil)
	for range s.Count {
		w.putOne(s)
		if s.Gap > 0 && !w.pause(s.Gap) {
			return
		}
	}
}

func (w *world) putOne(s Step) {
	m := w.newMessage(s)
	var text bytes.Buffer
	_ = xml.EscapeText(&text, m.text(s.Form)) // a buffer takes everything
	q := url.Values{}
	if s.TTL > 0 {
		q.Set("messagettl", fmt.Sprint(int(s.TTL/time.Second)))
	}
	answer := w.asAnother(http.MethodPost, s.Queue+"/messages?"+q.Encode(), fmt.Appendf(nil, "<QueueMessage><MessageText>%s</MessageText></QueueMessage>", text.Bytes()))
	var put struct {
		ID string `xml:"QueueMessage>MessageId"`
	}
	if answer.Code == http.StatusNotFound || answer.Code == http.StatusConflict { // an operator deleted it
		w.note("program", fmt.Sprintf("m%d: %s is not there", m.n, s.Queue))
		return
	}
	if answer.Code != http.StatusCreated || xml.Unmarshal(answer.Body.Bytes(), &put) != nil {
		w.violate("plan", fmt.Sprintf("putting m%d: %d", m.n, answer.Code))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.accepted, m.newer = true, s.Form == newer
	if m.newer { // the account's text does not say which one it is
		m.id, m.put = put.ID, true
		w.byID[put.ID] = m
	}
}

// takeAll receives what is visible, again and again, and deletes half of it. The rest comes back when the time of the
// receive is over.
func (w *world) takeAll(s Step) {
	for range s.Count {
		answer := w.asAnother(http.MethodGet, fmt.Sprintf("%s/messages?numofmessages=4&visibilitytimeout=%d", s.Queue, int(s.For/time.Second)), nil)
		var got struct {
			Messages []struct {
				ID      string `xml:"MessageId"`
				Receipt string `xml:"PopReceipt"`
			} `xml:"QueueMessage"`
		}
		if answer.Code == http.StatusOK && xml.Unmarshal(answer.Body.Bytes(), &got) != nil {
			w.violate("plan", "taking from "+s.Queue+": "+answer.Body.String())
		}
		for _, m := range got.Messages {
			if w.plan.draw("take", m.ID) < 0.5 {
				w.asAnother(http.MethodDelete, s.Queue+"/messages/"+m.ID+"?popreceipt="+url.QueryEscape(m.Receipt), nil)
				w.mu.Lock()
				w.taken = true
				w.mu.Unlock()
			}
		}
		if s.Gap > 0 && !w.pause(s.Gap) {
			return
		}
	}
}
