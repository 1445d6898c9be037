package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pushlease/pushlease/webhook"
)

const (
	// maxReceiverBody bounds what a receiver reads; a queue message has 64 KiB.
	maxReceiverBody = 1 << 20
	// maxTrackedIDs bounds the memory of a receiver that runs for long. Further
	// ids are answered and counted, but their repetitions are not recognised.
	maxTrackedIDs = 100_000
	// signatureTolerance is what Standard Webhooks recommends.
	signatureTolerance = 5 * time.Minute
)

// receiverOptions say what a receiver checks and answers. The first that applies
// decides: FailFirst, Rules, Script, Answer.
type receiverOptions struct {
	// Secrets verify signatures; without any, signatures are not checked.
	Secrets []string
	// FailFirst requests of each webhook-id are answered with Failure.
	FailFirst int
	Failure   reply
	// Rules answer by the body's text.
	Rules []matchRule
	// Script answers the requests of each webhook-id in turn; the last repeats.
	Script []reply
	// Answer is for everything else.
	Answer reply
	// Forward asks another receiver for the answer, in the place of all of these; nil asks none.
	Forward func(context.Context, received) reply
	// OnReceived is told of every request before it is answered, one at a
	// time; nil tells nobody.
	OnReceived func(received)
}

// received is one request to a receiver.
type received struct {
	At          time.Time `json:"time"`
	ID          string    `json:"id"`
	Queue       string    `json:"queue,omitempty"`
	Attempt     string    `json:"attempt,omitempty"`
	ContentType string    `json:"content_type,omitempty"`
	Traceparent string    `json:"traceparent,omitempty"`
	Timestamp   string    `json:"timestamp,omitempty"`
	// Signature is valid, invalid, stale, missing or unchecked.
	Signature string `json:"signature"`
	// Count is how many requests this id has had, this one included.
	Count int `json:"count"`
	// Duplicate is set when this id was answered with a success before.
	Duplicate bool `json:"duplicate"`
	// Status is what it is answered with, RetryAfter and Delay how.
	Status     int    `json:"status"`
	RetryAfter string `json:"retry_after,omitempty"`
	Delay      string `json:"delay,omitempty"`
	// ForwardedIn is how long the receiver took that it was forwarded to; empty without one.
	ForwardedIn string `json:"forwarded_in,omitempty"`

	Body   []byte      `json:"-"`
	header http.Header // as it came
}

// receiverTotals sums up what a receiver got.
type receiverTotals struct {
	Requests int `json:"requests"`
	// IDs counts distinct webhook-ids.
	IDs int `json:"ids"`
	// Retries counts requests for an id that had had no success yet, Duplicates
	// those for one that had.
	Retries       int         `json:"retries"`
	Duplicates    int         `json:"duplicates"`
	BadSignatures int         `json:"bad_signatures"`
	Answers       map[int]int `json:"answers"`
}

// receiver is a webhook to try things with: an http.Handler that reports what
// came and answers what it was told to. Safe for concurrent use.
type receiver struct {
	opts receiverOptions

	mu     sync.Mutex
	ids    map[idKey]*idState
	totals receiverTotals

	reporting sync.Mutex // keeps reports apart without holding up the counting
}

// idKey stands for a webhook-id, which a sender can make as long as a header.
type idKey [sha256.Size]byte

func keyOf(id string) idKey { return sha256.Sum256([]byte(id)) }

type idState struct {
	count     int
	delivered bool
}

func newReceiver(opts receiverOptions) *receiver {
	return &receiver{opts: opts, ids: map[idKey]*idState{}, totals: receiverTotals{Answers: map[int]int{}}}
}

// Totals returns what was received so far.
func (rc *receiver) Totals() receiverTotals {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	t := rc.totals
	t.Answers = map[int]int{}
	for status, n := range rc.totals.Answers {
		t.Answers[status] = n
	}
	return t
}

// ServeHTTP takes one POST.
func (rc *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "This is a pushlease listen receiver: webhooks are POSTed here.", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReceiverBody))
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	got := received{
		At: time.Now(), ID: r.Header.Get(webhook.HeaderID), Queue: r.Header.Get("pushlease-queue"), Attempt: r.Header.Get("pushlease-attempt"),
		ContentType: r.Header.Get("Content-Type"), Traceparent: r.Header.Get("traceparent"), Timestamp: r.Header.Get(webhook.HeaderTimestamp),
		Signature: rc.verify(r.Header, body, time.Now()), Body: body, header: r.Header,
	}
	answer := rc.count(&got)
	if rc.opts.Forward != nil && !got.forged() {
		began := time.Now()
		answer = rc.opts.Forward(r.Context(), got)
		got.ForwardedIn = time.Since(began).Round(time.Millisecond / 10).String()
	}
	rc.answered(&got, answer)
	if rc.opts.OnReceived != nil {
		rc.reporting.Lock()
		rc.opts.OnReceived(got)
		rc.reporting.Unlock()
	}
	if answer.Delay > 0 {
		t := time.NewTimer(answer.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done(): // the sender gave up
			return
		}
	}
	if answer.Status/100 == 2 {
		rc.delivered(got.ID)
	}
	answer.write(w)
}

// delivered notes a success that is really sent: a sender that gave up before may
// rightly try again.
func (rc *receiver) delivered(id string) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if state := rc.ids[keyOf(id)]; state != nil {
		state.delivered = true
	}
}

func (rc *receiver) verify(h http.Header, body []byte, now time.Time) string {
	if len(rc.opts.Secrets) == 0 {
		return "unchecked"
	}
	err := webhook.Verify(rc.opts.Secrets, h, body, now, signatureTolerance)
	switch {
	case err == nil:
		return "valid"
	case errors.Is(err, webhook.ErrUnsigned):
		return "missing"
	case errors.Is(err, webhook.ErrStaleSignature):
		return "stale"
	}
	return "invalid"
}

// forged reports whether a request has a signature that is not the sender's.
func (r received) forged() bool { return r.Signature != "valid" && r.Signature != "unchecked" }

// count adds a request to the totals, and decides its answer.
func (rc *receiver) count(got *received) reply {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	state := rc.ids[keyOf(got.ID)]
	switch {
	case state == nil:
		state = &idState{}
		if got.ID != "" && len(rc.ids) < maxTrackedIDs {
			rc.ids[keyOf(got.ID)] = state
		}
		rc.totals.IDs++
	case state.delivered:
		rc.totals.Duplicates++
	default:
		rc.totals.Retries++
	}
	state.count++
	answer := rc.choose(state.count, string(got.Body))
	if got.forged() { // refused, as a receiver of one's own has to
		answer = reply{Status: http.StatusUnauthorized, Body: "the signature is " + got.Signature + "\n"}
	}
	got.Count, got.Duplicate = state.count, state.delivered
	rc.totals.Requests++
	if got.forged() {
		rc.totals.BadSignatures++
	}
	return answer
}

// answered notes with what a request is answered.
func (rc *receiver) answered(got *received, answer reply) {
	got.Status, got.RetryAfter = answer.Status, answer.RetryAfter
	if answer.Delay > 0 {
		got.Delay = answer.Delay.String()
	}
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.totals.Answers[answer.Status]++
}

// choose picks the answer to the n-th request of an id.
func (rc *receiver) choose(n int, body string) reply {
	if n <= rc.opts.FailFirst {
		return rc.opts.Failure
	}
	for _, rule := range rc.opts.Rules {
		if strings.Contains(body, rule.Substring) {
			return rule.Reply
		}
	}
	if n -= rc.opts.FailFirst; len(rc.opts.Script) > 0 {
		return rc.opts.Script[min(n, len(rc.opts.Script))-1]
	}
	return rc.opts.Answer
}

func (r reply) write(w http.ResponseWriter) {
	if r.RetryAfter != "" {
		w.Header().Set("Retry-After", r.RetryAfter)
	}
	if r.Decision != "" {
		w.Header().Set("pushlease-decision", r.Decision)
	}
	body := r.Body
	if body == "" && r.ContentType == "" {
		body = http.StatusText(r.Status) + "\n"
	}
	w.Header().Set("Content-Type", cmp.Or(r.ContentType, "text/plain; charset=utf-8"))
	if r.Status == http.StatusNoContent || r.Status == http.StatusNotModified {
		body = ""
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(r.Status)
	_, _ = io.WriteString(w, body) // the sender is gone: nobody left to tell
}
