package azurestandin

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// queueCall is one request to the queue service: the resource is "", "q", "q/messages" or
// "q/messages/id".
type queueCall struct {
	method, queue, id string
	messages          bool
	query             url.Values
}

func parseQueueCall(r *http.Request) queueCall {
	_, resource, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	name, rest, _ := strings.Cut(resource, "/")
	messages, id, _ := strings.Cut(rest, "/")
	return queueCall{method: r.Method, queue: name, id: id, messages: messages == "messages", query: r.URL.Query()}
}

// operation names a call as azuritetest does.
func (c queueCall) operation() string {
	switch {
	case c.queue == "":
		return "list"
	case !c.messages && c.method == http.MethodPut && c.query.Get("comp") == "":
		return "create"
	case !c.messages && c.method == http.MethodDelete:
		return "delete-queue"
	case !c.messages:
		return "depth"
	case c.id != "" && c.method == http.MethodPut:
		return "update"
	case c.id != "":
		return "delete"
	case c.method == http.MethodPost:
		return "send"
	case c.method == http.MethodDelete:
		return "clear"
	case c.query.Get("peekonly") == "true":
		return "peek"
	}
	return "receive"
}

func (s *Server) serveQueue(w http.ResponseWriter, r *http.Request) {
	c := parseQueueCall(r)
	operation := c.operation()
	body, err := s.begin(r, "queue", operation)
	if errors.Is(err, errGone) {
		return
	}
	var a queueAnswer
	if err == nil {
		a, err = s.queues.answer(r.Context(), c, operation, body, s.model.Now())
	}
	if err != nil {
		e := refusalOf(err)
		a = queueAnswer{status: e.status, header: map[string]string{"x-ms-error-code": e.code}}
		a.body = fmt.Appendf(nil, `<?xml version="1.0" encoding="utf-8"?><Error><Code>%s</Code><Message>refused by the stand-in</Message></Error>`, e.code)
	}
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	if len(a.body) > 0 {
		w.Header().Set("Content-Type", "application/xml")
	}
	w.Header().Set("x-ms-version", "2018-03-28")
	w.Header().Set("Date", s.model.Now().UTC().Format(http.TimeFormat))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a caller that is gone needs no answer
}

// queueAnswer is an answer of the queue service.
type queueAnswer struct {
	status int
	header map[string]string
	body   []byte
}

func (s *queueService) answer(ctx context.Context, c queueCall, operation string, body []byte, now time.Time) (queueAnswer, error) {
	switch operation {
	case "list":
		return queueAnswer{status: http.StatusOK, body: listXML(s.names(), c.query)}, nil
	case "create":
		if made, err := s.create(c.queue); err != nil || !made {
			return queueAnswer{status: http.StatusNoContent}, err
		}
		return queueAnswer{status: http.StatusCreated}, nil
	case "delete-queue":
		return queueAnswer{status: http.StatusNoContent}, s.remove(ctx, c.queue)
	}
	q, err := s.find(c.queue)
	if err != nil {
		return queueAnswer{}, err
	}
	limits := s.model.limits
	switch operation {
	case "send", "update", "delete":
		err = limits.messages(c.queue, operation, 1)
	case "receive":
		err = limits.messages(c.queue, operation, 0)
	}
	if err != nil {
		return queueAnswer{}, err
	}
	switch operation {
	case "depth":
		return queueAnswer{status: http.StatusOK, header: map[string]string{"x-ms-approximate-messages-count": strconv.Itoa(q.count())}}, nil
	case "clear":
		q.clear()
		return queueAnswer{status: http.StatusNoContent}, nil
	case "send":
		return q.serveSend(ctx, c.query, body, now)
	case "update":
		return q.serveUpdate(ctx, c, body, now)
	case "delete":
		return queueAnswer{status: http.StatusNoContent}, q.remove(ctx, c.id, c.query.Get("popreceipt"), now)
	}
	n, err := bounded(c.query, "numofmessages", 1, 1, maxReceive)
	if err != nil {
		return queueAnswer{}, err
	}
	if operation == "peek" {
		return queueAnswer{status: http.StatusOK, body: messagesXML(q.peek(n, now), peeked)}, nil
	}
	visibility, err := bounded(c.query, "visibilitytimeout", 30, 1, int(maxVisibility/time.Second))
	if err != nil {
		return queueAnswer{}, err
	}
	brought := q.receive(ctx, n, time.Duration(visibility)*time.Second, now)
	_ = limits.messages(c.queue, operation, len(brought)) // they are out: those that come next wait for them
	return queueAnswer{status: http.StatusOK, body: messagesXML(brought, received)}, nil
}

// bounded reads a whole number of the query.
func bounded(query url.Values, name string, absent, least, most int) (int, error) {
	text := query.Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, errOutOfRange
	}
	return n, nil
}

func (q *storedQueue) serveSend(ctx context.Context, query url.Values, body []byte, now time.Time) (queueAnswer, error) {
	text, err := messageText(body)
	if err != nil {
		return queueAnswer{}, err
	}
	visibility, err := bounded(query, "visibilitytimeout", 0, 0, int(maxVisibility/time.Second))
	if err != nil {
		return queueAnswer{}, err
	}
	ttl, err := bounded(query, "messagettl", int(defaultTTL/time.Second), -1, 1<<31-1)
	if err != nil || ttl == 0 || ttl > 0 && visibility >= ttl {
		return queueAnswer{}, errOutOfRange
	}
	m := q.put(ctx, text, time.Duration(visibility)*time.Second, time.Duration(ttl)*time.Second, now)
	return queueAnswer{status: http.StatusCreated, body: messagesXML([]message{m}, sent)}, nil
}

// serveUpdate keeps the text when the request has no body.
func (q *storedQueue) serveUpdate(ctx context.Context, c queueCall, body []byte, now time.Time) (queueAnswer, error) {
	visibility, err := bounded(c.query, "visibilitytimeout", -1, 0, int(maxVisibility/time.Second))
	if err != nil || visibility < 0 {
		return queueAnswer{}, errOutOfRange
	}
	var text *string
	if len(body) > 0 {
		given, err := messageText(body)
		if err != nil {
			return queueAnswer{}, err
		}
		text = &given
	}
	m, err := q.update(ctx, c.id, c.query.Get("popreceipt"), text, time.Duration(visibility)*time.Second, now)
	if err != nil {
		return queueAnswer{}, err
	}
	return queueAnswer{status: http.StatusNoContent, header: map[string]string{
		"x-ms-popreceipt": m.receipt, "x-ms-time-next-visible": m.visible.UTC().Format(http.TimeFormat),
	}}, nil
}

// messageText reads the text of a message from a request.
func messageText(body []byte) (string, error) {
	var m struct {
		MessageText string
	}
	if err := xml.Unmarshal(body, &m); err != nil {
		return "", &refusal{http.StatusBadRequest, "InvalidXmlDocument"}
	}
	if len(m.MessageText) > maxText {
		return "", errTextTooLong
	}
	return m.MessageText, nil
}

// shape says which elements of a message an answer has.
type shape struct{ lease, dequeues, text bool }

var (
	sent     = shape{lease: true}
	peeked   = shape{dequeues: true, text: true}
	received = shape{lease: true, dequeues: true, text: true}
)

// never is how the service writes that a message does not expire.
const never = "Fri, 31 Dec 9999 23:59:59 GMT"

func messagesXML(ms []message, s shape) []byte {
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0" encoding="utf-8"?><QueueMessagesList>`)
	for _, m := range ms {
		expires := never
		if !m.expires.IsZero() {
			expires = m.expires.UTC().Format(http.TimeFormat)
		}
		b.WriteString("<QueueMessage>")
		element(&b, "MessageId", m.id)
		element(&b, "InsertionTime", m.inserted.UTC().Format(http.TimeFormat))
		element(&b, "ExpirationTime", expires)
		if s.lease {
			element(&b, "PopReceipt", m.receipt)
			element(&b, "TimeNextVisible", m.visible.UTC().Format(http.TimeFormat))
		}
		if s.dequeues {
			element(&b, "DequeueCount", strconv.Itoa(m.dequeues))
		}
		if s.text {
			element(&b, "MessageText", m.text)
		}
		b.WriteString("</QueueMessage>")
	}
	b.WriteString("</QueueMessagesList>")
	return b.Bytes()
}

func element(b *bytes.Buffer, name, text string) {
	b.WriteString("<" + name + ">")
	_ = xml.EscapeText(b, []byte(text)) // a buffer takes everything
	b.WriteString("</" + name + ">")
}

// pageOfQueues is how many names a list has at most. The service's is 5,000; less shows
// that callers follow the marker.
const pageOfQueues = 50

func listXML(names []string, query url.Values) []byte {
	prefix, marker := query.Get("prefix"), query.Get("marker")
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="standin"><Queues>`)
	n, next := 0, ""
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) || name < marker {
			continue
		}
		if n++; n > pageOfQueues {
			next = name
			break
		}
		b.WriteString("<Queue>")
		element(&b, "Name", name)
		b.WriteString("</Queue>")
	}
	b.WriteString("</Queues>")
	element(&b, "NextMarker", next)
	b.WriteString("</EnumerationResults>")
	return b.Bytes()
}
