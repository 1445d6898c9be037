package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// answerCase is how a receiver answers all POSTs of one message, and what is to
// come of it. The webhook makes two charged attempts, a second apart and without
// jitter.
type answerCase struct {
	name string
	// wire answers below HTTP; nil answers with status and header.
	wire       webhooktest.Script
	status     int
	retryAfter func() string
	// then are the statuses after the first; the last repeats. Empty: as the first.
	then []int
	// tls breaks the handshake, down refuses the connection.
	tls, down bool

	// first is the first attempt's record; posts counts the POSTs that come in
	// all.
	first firstAttempt
	posts int
	// state and reason are the delivery's end.
	state, reason string
	disabled      string
}

// firstAttempt is what is expected of the record. Delays are exact but for what is
// said here: no jitter, and whole seconds are rounded up.
type firstAttempt struct {
	status         int
	class          string
	action, reason string
	charged        bool
	delay          time.Duration
	slack          time.Duration // delay may be this much longer
	redials        int
	redirect       string
}

func seconds(n int) func() string { return func() string { return strconv.Itoa(n) } }

func inSeconds(n int) func() string {
	return func() string {
		return time.Now().Add(time.Duration(n) * time.Second).UTC().Format(http.TimeFormat)
	}
}

func answerCases() []answerCase {
	retry := func(status int, class string) firstAttempt {
		return firstAttempt{status: status, class: class, action: "abandon", reason: "RetryableError", charged: true, delay: time.Second}
	}
	var cases []answerCase
	for _, status := range []int{200, 204} {
		cases = append(cases, answerCase{name: strconv.Itoa(status), status: status, posts: 1, state: "delivered", reason: "Delivered",
			first: firstAttempt{status: status, action: "complete", reason: "Delivered", charged: true}})
	}
	for _, status := range []int{400, 401, 404, 409} {
		cases = append(cases, answerCase{name: strconv.Itoa(status), status: status, posts: 1, state: "dead_lettered", reason: "NonRetryableError",
			first: firstAttempt{status: status, action: "dead-letter", reason: "NonRetryableError", charged: true}})
	}
	for _, status := range []int{408, 429, 500, 503} {
		cases = append(cases, answerCase{name: strconv.Itoa(status), status: status, posts: 2, state: "dead_lettered",
			reason: "MaxDeliveryCountExceeded", first: retry(status, "")})
	}
	cases = append(cases, answerCase{name: "410", status: 410, posts: 1, state: "dead_lettered", reason: "WebhookGone", disabled: "gone",
		first: firstAttempt{status: 410, action: "dead-letter", reason: "WebhookGone", charged: true}})
	// A wait that was asked for is not charged: two charged attempts follow.
	busy := func(status int) firstAttempt {
		return firstAttempt{status: status, action: "abandon", reason: "ReceiverBusy", delay: 2 * time.Second}
	}
	date := busy(429)
	date.delay, date.slack = time.Second, 2*time.Second
	cases = append(cases,
		answerCase{name: "429 with Retry-After in seconds", status: 429, retryAfter: seconds(2), then: []int{500, 200}, posts: 3,
			state: "delivered", reason: "Delivered", first: busy(429)},
		answerCase{name: "429 with Retry-After as a date", status: 429, retryAfter: inSeconds(3), then: []int{200}, posts: 2,
			state: "delivered", reason: "Delivered", first: date},
		answerCase{name: "503 with Retry-After", status: 503, retryAfter: seconds(2), then: []int{200}, posts: 2,
			state: "delivered", reason: "Delivered", first: busy(503)},
		answerCase{name: "500 then 200", status: 500, then: []int{200}, posts: 2, state: "delivered", reason: "Delivered", first: retry(500, "")},
	)
	wire := func(name string, script webhooktest.Script, class string) answerCase {
		return answerCase{name: name, wire: script, posts: 2, state: "dead_lettered", reason: "MaxDeliveryCountExceeded", first: retry(0, class)}
	}
	cases = append(cases,
		wire("hang", webhooktest.Hang, "timeout"),
		wire("reset", webhooktest.Reset, "reset"),
		wire("dripping head", webhooktest.Drip(20*time.Millisecond), "timeout"),
		wire("no HTTP", webhooktest.Answer("220 mail.example.com ESMTP\r\n"), "protocol"),
	)
	redirect := wire("302", webhooktest.Answer("HTTP/1.1 302 Found\r\nLocation: https://elsewhere.example/x\r\nContent-Length: 0\r\n\r\n"), "")
	redirect.first.status, redirect.first.redirect = 302, "elsewhere.example"
	ten := wire("500 with 10 MB", webhooktest.LargeBody(500, 10<<20), "")
	ten.first.status = 500
	ok := answerCase{wire: webhooktest.LargeBody(200, 10<<20), name: "200 with 10 MB", posts: 1, state: "delivered", reason: "Delivered",
		first: firstAttempt{status: 200, action: "complete", reason: "Delivered", charged: true}}
	drip := ok
	drip.name, drip.wire = "200 with a dripping body", webhooktest.DripBody(200, 20*time.Millisecond)
	cases = append(cases, redirect, ten, ok, drip)
	for _, failed := range []answerCase{
		{name: "invalid TLS", tls: true, first: retry(0, "tls")},
		{name: "refused connection", down: true, first: retry(0, "connect")},
	} {
		failed.first.redials = 1
		failed.state, failed.reason = "dead_lettered", "MaxDeliveryCountExceeded"
		cases = append(cases, failed)
	}
	return cases
}

// serve starts the case's receiver; posts counts the requests that it has read.
func (c answerCase) serve(t *testing.T) (target string, posts func() int) {
	t.Helper()
	switch {
	case c.down:
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		target = "http://" + l.Addr().String() + "/hook"
		_ = l.Close()
		return target, func() int { return 0 }
	case c.tls:
		server := httptest.NewUnstartedServer(nil)
		server.StartTLS()
		certificate := server.TLS.Certificates
		server.Close()
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificate, MinVersion: tls.VersionTLS12})
		if err != nil {
			t.Fatal(err)
		}
		w := webhooktest.ServeWire(t, l, webhooktest.Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
		return "https://" + w.Address() + "/hook", func() int { return len(w.Raw()) }
	case c.wire != nil:
		w := webhooktest.NewTCPWire(t, c.wire)
		return w.URL(), func() int { return len(w.Raw()) }
	}
	in := newInbox(t, receiverOptions{Script: c.script()})
	return in.url, func() int { return len(in.all()) }
}

func (c answerCase) script() []reply {
	first := reply{Status: c.status}
	if c.retryAfter != nil {
		first.RetryAfter = c.retryAfter()
	}
	script := []reply{first}
	for _, status := range c.then {
		script = append(script, reply{Status: status})
	}
	return script
}

func TestEveryAnswerHasItsDecision(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p := s.start(t)
		var copies copyTally
		t.Run("answers", func(t *testing.T) {
			for _, c := range answerCases() {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.check(t, p.within(t), &copies)
				})
			}
		})
		if n := p.metric("pushlease_messages_deadlettered_total"); n == 0 {
			t.Error("no dead letter is counted")
		}
		copies.check(p)
	})
}

// within is the process for a subtest, so that failures end that one.
func (p *process) within(t *testing.T) *process {
	own := *p
	own.t = t
	return &own
}

func (c answerCase) check(t *testing.T, p *process, copies *copyTally) {
	target, posts := c.serve(t)
	queue := queueName("answer")
	h := p.register(queue, target, map[string]any{
		"timeout": "1s",
		"policy":  map[string]any{"max_attempts": 2, "backoff": map[string]any{"initial": "1s", "jitter": 0}},
	})
	id := p.publish(queue, `{"text":"`+bodyMark+`"}`)
	copies.published.Add(1)
	end := p.waitState(60*time.Second, queue, id, h.ID, c.state)
	p.waitEmpty(20*time.Second, queue)

	if n := posts(); n != c.posts {
		t.Errorf("%d POSTs, want %d", n, c.posts)
	}
	if end.Reason != c.reason || !end.NextAt.IsZero() || (end.DeadLetterID != "") != (c.state == "dead_lettered") {
		t.Errorf("it ended as %+v, want %s %s", end, c.state, c.reason)
	}
	var attempts []e2eAttempt
	waitUntil(t, 20*time.Second, func() string { // on Azure the list of a queue's attempts is written behind
		if attempts = p.attempts(queue); len(attempts) == 0 || len(attempts) != end.Attempts {
			return fmt.Sprintf("%d attempts are recorded, want %d", len(attempts), end.Attempts)
		}
		return ""
	})
	c.checkFirst(t, attempts[0])
	c.checkPace(t, attempts)
	var now hook
	p.call(http.MethodGet, "/api/v1/webhooks/"+h.ID, "", http.StatusOK, &now)
	if now.DisabledReason != c.disabled || now.Enabled != (c.disabled == "") {
		t.Errorf("the webhook is %+v", now)
	}
	if c.state == "dead_lettered" {
		p.checkDeadLetter(queue, end, id, copies)
	}
}

func (c answerCase) checkFirst(t *testing.T, a e2eAttempt) {
	want := c.first
	if a.Number != 1 || a.Status != want.status || a.ErrorClass != want.class || a.Action != want.action || a.Reason != want.reason ||
		a.Charged != want.charged || a.Redials != want.redials || a.Redirect != want.redirect {
		t.Errorf("the first attempt is %+v, want %+v", a, want)
	}
	delay, err := time.ParseDuration(a.Delay)
	if err != nil && a.Delay != "" || delay < want.delay || delay > want.delay+want.slack {
		t.Errorf("delay %q, want %s to %s", a.Delay, want.delay, want.delay+want.slack)
	}
	took, err := time.ParseDuration(a.Duration)
	if err != nil || took > 2*time.Second {
		t.Errorf("the attempt took %q, with a timeout of 1s", a.Duration)
	}
	switch due := a.StartedAt.Add(took + delay); {
	case delay == 0 && !a.NextAt.IsZero():
		t.Errorf("next_at is %s, and nothing is due", a.NextAt)
	case delay > 0 && (a.NextAt.Before(due.Add(-50*time.Millisecond)) || a.NextAt.After(due.Add(time.Second))):
		t.Errorf("next_at is %s, %s after the end and the delay of %s", a.NextAt, a.NextAt.Sub(due), delay)
	}
	if c.retryAfter != nil && a.RetryAfter == "" {
		t.Error("Retry-After is not in the record")
	}
	if want.class != "" && (a.Error == "" || strings.Contains(a.Error, "127.0.0.1")) {
		t.Errorf("error %q", a.Error)
	}
}

// checkPace: no attempt begins before the time that the one before it named, nor
// much later.
func (c answerCase) checkPace(t *testing.T, attempts []e2eAttempt) {
	for i := 1; i < len(attempts); i++ {
		late := attempts[i].StartedAt.Sub(attempts[i-1].NextAt)
		if late < -50*time.Millisecond || late > 15*time.Second {
			t.Errorf("attempt %d began %s after its time", i+1, late)
		}
		if attempts[i].Number != i+1 {
			t.Errorf("attempt %d has the number %d", i+1, attempts[i].Number)
		}
	}
}

func (p *process) checkDeadLetter(queue string, end e2eNext, id string, copies *copyTally) {
	p.t.Helper()
	var d struct {
		Queue, Status, Reason string
		MessageID             string `json:"message_id"`
		Attempts              int
	}
	p.call(http.MethodGet, "/api/v1/dead-letters/"+end.DeadLetterID, "", http.StatusOK, &d)
	if d.Queue != queue || d.MessageID != id || d.Reason != end.Reason || d.Status != "waiting" || d.Attempts != end.Attempts {
		p.t.Errorf("the dead letter is %+v, of %+v", d, end)
	}
	a, err := p.try(http.MethodGet, "/api/v1/dead-letters/"+end.DeadLetterID+"/body", "", "")
	if want := `{"text":"` + bodyMark + `"}`; err != nil || string(a.body) != want {
		p.t.Errorf("the dead letter's body is %q (%v), want %q", a.body, err, want)
	}
	var q struct {
		Depth struct{ Total int } `json:"depth"`
	}
	p.call(http.MethodGet, fmt.Sprintf("/api/v1/queues/%s-poison", queue), "", http.StatusOK, &q)
	if q.Depth.Total < 1 {
		p.t.Error("no copy is in the poison queue")
	}
	copies.deadLetters.Add(1)
	copies.inQueues.Add(int64(q.Depth.Total))
}

// copyTally counts dead letters and the copies of them in poison queues.
type copyTally struct{ published, deadLetters, inQueues atomic.Int64 }

// check wants one copy for each dead letter. A copy that storage does not answer is sent
// again (docs/adr/0011), which an emulator on a busy machine brings about: so there may be
// one more for each send beyond those that publishing, the copies, and queues that were not
// there yet account for.
func (c *copyTally) check(p *process) {
	p.t.Helper()
	count := func(operation string) int64 {
		return int64(p.metric("pushlease_storage_transactions_total", `service="queue"`, `operation="`+operation+`"`))
	}
	repeated := count("send") - count("create") - c.published.Load() - c.deadLetters.Load()
	if more := c.inQueues.Load() - c.deadLetters.Load(); repeated < 0 || more > repeated {
		p.t.Errorf("%d copies of %d dead letters, and %d sends were repeated", c.inQueues.Load(), c.deadLetters.Load(), repeated)
	}
}
