package azuritetest

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is what happens to a call. Make one with the functions below.
type Fault struct {
	// before may answer in place of storage.
	before func(*exchange) *answer
	// after may change any answer, one that before gave included.
	after func(*exchange, *answer)
}

// exchange is one call on its way through the proxy.
type exchange struct {
	Request
	ctx   context.Context
	query string // what is passed on
}

// FailBefore answers with this status and storage error code; the call never
// reaches storage.
func FailBefore(status int, code string) Fault {
	return Fault{before: func(x *exchange) *answer { return failure(x.Service, status, code) }}
}

// Throttle answers 503 ServerBusy; the call never reaches storage.
func Throttle() Fault { return FailBefore(http.StatusServiceUnavailable, "ServerBusy") }

// CutBefore ends the connection; the call never reaches storage, which its
// caller can't know.
func CutBefore() Fault {
	return Fault{before: func(*exchange) *answer { return cut() }}
}

// FailAfter lets the call take effect and ends the connection in place of the
// answer.
func FailAfter() Fault {
	return Fault{after: func(_ *exchange, a *answer) { a.cut = true }}
}

// Delay keeps the call from storage for d, and for good when its caller hangs
// up in that time.
func Delay(d time.Duration) Fault {
	return Fault{before: func(x *exchange) *answer {
		if !pause(x.ctx, d) {
			return cut()
		}
		return nil
	}}
}

// Late lets the call take effect and keeps the whole answer back for d.
func Late(d time.Duration) Fault {
	return Fault{after: func(x *exchange, _ *answer) { pause(x.ctx, d) }}
}

// LateBody sends the answer's header at once and its body after d.
func LateBody(d time.Duration) Fault {
	return Fault{after: func(_ *exchange, a *answer) { a.bodyDelay = d }}
}

// Reorder turns around the order of the messages in a receive's answer: the
// real service promises none.
func Reorder() Fault {
	return Fault{after: func(_ *exchange, a *answer) {
		found := queueMessage.FindAll(a.body, -1)
		if len(found) < 2 {
			return
		}
		slices.Reverse(found)
		start := queueMessage.FindIndex(a.body)[0]
		end := bytes.LastIndex(a.body, []byte(queueMessageEnd)) + len(queueMessageEnd)
		a.body = slices.Concat(a.body[:start], bytes.Join(found, nil), a.body[end:])
	}}
}

const queueMessageEnd = "</QueueMessage>"

var queueMessage = regexp.MustCompile(`(?s)<QueueMessage>.*?` + queueMessageEnd)

// BOM puts a byte order mark before an XML answer, as the real service does.
func BOM() Fault {
	return Fault{after: func(_ *exchange, a *answer) {
		if bytes.HasPrefix(a.body, []byte("<?xml")) {
			a.body = append([]byte("\xef\xbb\xbf"), a.body...)
		}
	}}
}

// Skew answers with storage's clock off by d.
func Skew(d time.Duration) Fault {
	return Fault{after: func(_ *exchange, a *answer) {
		a.header.Set("Date", time.Now().Add(d).UTC().Format(http.TimeFormat))
	}}
}

// EmptyPages answers a table query with n empty pages, each with a
// continuation, before the page that it asked for. Every second one has a
// partition key only, as the real service may answer.
func EmptyPages(n int) Fault {
	return Fault{before: func(x *exchange) *answer {
		q, err := url.ParseQuery(x.query)
		if err != nil {
			return nil
		}
		left, partition, row := n, q.Get(nextPartition), q.Get(nextRow)
		if rest, ok := strings.CutPrefix(partition, emptyToken); ok {
			left, partition, row = parseEmptyToken(rest)
		}
		if left > 0 {
			return emptyPage(left-1, partition, row)
		}
		// Table signatures don't cover these parameters.
		setOrDelete(q, nextPartition, partition)
		setOrDelete(q, nextRow, row)
		x.query = q.Encode()
		return nil
	}}
}

const (
	nextPartition = "NextPartitionKey"
	nextRow       = "NextRowKey"
	emptyToken    = "azuritetest."
)

func emptyPage(left int, partition, row string) *answer {
	enc := base64.RawURLEncoding
	token := fmt.Sprintf("%s%d.%s.%s", emptyToken, left,
		enc.EncodeToString([]byte(partition)), enc.EncodeToString([]byte(row)))
	header := http.Header{"Content-Type": {"application/json;odata=nometadata"}}
	header.Set("x-ms-continuation-"+nextPartition, token)
	if left%2 == 0 {
		header.Set("x-ms-continuation-"+nextRow, "unused")
	}
	return &answer{status: http.StatusOK, header: header, body: []byte(`{"value":[]}`)}
}

func parseEmptyToken(token string) (left int, partition, row string) {
	parts := strings.SplitN(token, ".", 3)
	if len(parts) != 3 {
		return 0, "", ""
	}
	left, _ = strconv.Atoi(parts[0]) // emptyPage wrote all three
	p, _ := base64.RawURLEncoding.DecodeString(parts[1])
	r, _ := base64.RawURLEncoding.DecodeString(parts[2])
	return left, string(p), string(r)
}

func setOrDelete(q url.Values, name, value string) {
	if value == "" {
		q.Del(name)
		return
	}
	q.Set(name, value)
}

const errorCodeHeader = "X-Ms-Error-Code"

// failure is an error in the shape that each service gives it.
func failure(service string, status int, code string) *answer {
	header := http.Header{errorCodeHeader: {code}}
	var body string
	if service == "queue" {
		header.Set("Content-Type", "application/xml")
		body = fmt.Sprintf(`<?xml version="1.0" encoding="utf-8"?><Error><Code>%s</Code><Message>injected</Message></Error>`, code)
	} else {
		header.Set("Content-Type", "application/json")
		body = fmt.Sprintf(`{"odata.error":{"code":%q,"message":{"lang":"en-US","value":"injected"}}}`, code)
	}
	return &answer{status: status, header: header, body: []byte(body)}
}
