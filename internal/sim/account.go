package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pushlease/pushlease/internal/azurestandin"
	"github.com/pushlease/pushlease/internal/sqlite"
)

// accountTransport is the way of one instance to the model of the account. Requests go
// through the real clients and adapters, and come here instead of to a socket.
type accountTransport struct{ inst *instance }

type callKey struct{}

// RoundTrip implements http.RoundTripper.
func (t accountTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	i, w := t.inst, t.inst.w
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
	}
	c := &call{inst: i, service: "queue"}
	if strings.HasPrefix(req.URL.Host, "table.") {
		c.service = "table"
	}
	c.op = azurestandin.Operation(c.service, req)
	c.partition = partitionOf(c.service, req, body)
	c.about = mentioned(req.URL.Path, body)
	for _, found := range attemptRow.FindAllSubmatch(body, -1) {
		number, _ := strconv.Atoi(string(found[4])) // digits; of a delivery it is the rank of its state
		if a := (written{message: string(found[1]), webhook: string(found[3]), number: number}); string(found[2]) == "a" {
			c.attempts = append(c.attempts, a)
		} else if number == deliveredRank {
			a.number, a.delivered = 0, true
			c.attempts = append(c.attempts, a)
		}
	}
	var answer *httptest.ResponseRecorder
	err := i.call(req.Context(), c, func() error {
		if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GotConn != nil {
			trace.GotConn(httptrace.GotConnInfo{})
		}
		return nil
	}, func() error {
		inner := req.Clone(context.WithValue(context.Background(), callKey{}, c))
		sent := i.sends(inner, body)
		inner.Body, inner.ContentLength = io.NopCloser(bytes.NewReader(sent)), int64(len(sent))
		answer = httptest.NewRecorder()
		w.account.Handler(c.service).ServeHTTP(answer, inner)
		i.reads(c, answer)
		c.ok = answer.Code < 300
		if c.op == "batch" && bytes.Contains(answer.Body.Bytes(), []byte("odata.error")) {
			c.ok = false
		}
		return nil
	})
	if errors.Is(err, errRefused) {
		answer = httptest.NewRecorder()
		answer.Header().Set("x-ms-error-code", "ServerBusy")
		answer.Header().Set("Date", w.accountTime().Add(-w.ahead(i.slot)).UTC().Format(http.TimeFormat))
		answer.WriteHeader(http.StatusServiceUnavailable)
	} else if err != nil {
		return nil, err
	}
	resp := answer.Result()
	resp.Request = req
	return resp, nil
}

var errRefused = fmt.Errorf("refused")

// call passes one storage call through the gate and the faults. sent is called when there
// is a connection, effect does what the call is for.
func (i *instance) call(ctx context.Context, c *call, sent, effect func() error) error {
	w := i.w
	c.ordinal = i.ordinal(c.service + "." + c.op)
	c.begin = w.now()
	defer func() { w.ended(c) }()
	if err := i.gate.pass("before " + c.service + "." + c.op); err != nil {
		return err
	}
	var id string
	c.fault, id = w.faults.about(c, w.now())
	w.called(c)
	if c.fault != well {
		w.note(i.name, fmt.Sprintf("%s.%s %s %s %s", c.service, c.op, c.fault, strings.Join(c.about, " "), id))
	}
	latency := w.plan.between(time.Millisecond, 8*time.Millisecond, "latency", c.id())
	if c.fault == slow {
		latency = w.plan.between(w.plan.Rates.SlowMin, w.plan.Rates.SlowMax, "slow", c.id())
	}
	if c.fault == unsent {
		return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if err := sent(); err != nil {
		return err
	}
	half := w.plan.draw("half", c.id()) < 0.5
	if c.fault == hanging && !half {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := sleep(ctx, latency/2); err != nil {
		return err // before it was done
	}
	switch c.fault {
	case refused:
		return errRefused
	case dropped:
		return errBroken
	}
	if err := i.gate.pass("on the way to " + c.service + "." + c.op); err != nil {
		return err
	}
	err := effect()
	w.tookEffect(c)
	switch c.fault {
	case hanging:
		<-ctx.Done()
		return ctx.Err()
	case lost:
		return errBroken
	}
	if !w.plan.File { // what a file did is known at once
		if late := sleep(ctx, latency/2); late != nil {
			w.lost(c)
			return late
		}
	}
	if passErr := i.gate.pass("after " + c.service + "." + c.op); passErr != nil {
		return passErr
	}
	c.told = c.ok
	return err
}

var errBroken = error(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET})

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var messageID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// deliveredRank is the rank of a delivered delivery in its key (docs/architecture.md).
const deliveredRank = 5

// attemptRow is the key of an attempt in a day's table, also of one that shares its row with the
// delivery (docs/architecture.md).
var attemptRow = regexp.MustCompile(`([0-9a-f-]{36})~[^~]+~([ad])~([^~"']+)~\d+~(\d+)~`)

// partitionKey is how requests to tables name their partition: in an address, a filter, or a row.
var partitionKey = regexp.MustCompile(`PartitionKey(?:='| eq '|":")([^'"]+)`)

// partitionOf is what a request is served by: storage throttles a queue, and each partition of a
// table, by itself. Partitions of several tables that have one key are taken for one.
func partitionOf(service string, req *http.Request, body []byte) string {
	if service == "queue" {
		name, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/standin/"), "/")
		return name
	}
	for _, text := range []string{req.URL.Path, req.URL.Query().Get("$filter"), string(body)} {
		if key := partitionKey.FindStringSubmatch(text); key != nil {
			return "table " + key[1]
		}
	}
	return ""
}

// mentioned are the messages that a request is about.
func mentioned(path string, body []byte) []string {
	var ids []string
	seen := map[string]bool{}
	for _, id := range append(messageID.FindAllString(path, -1), messageID.FindAllString(string(body), -1)...) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}

// file is the way of one instance to the SQLite file.
func (i *instance) file(ctx context.Context, to *sqlite.Call, run func() error) error {
	c := &call{inst: i, service: to.Service, op: to.Operation}
	c.knows(to)
	err := i.call(ctx, c, func() error { return nil }, func() error {
		err := run()
		if c.ok = err == nil; c.ok {
			c.knows(to)
			i.w.filed(c, to)
		}
		return err
	})
	if errors.Is(err, errRefused) {
		return errDisk
	}
	return err
}

// knows notes which messages a call to the file is about, and what it writes of them.
func (c *call) knows(to *sqlite.Call) {
	c.about, c.attempts = slices.Clone(to.Messages), nil
	for _, d := range to.Record.Deliveries {
		c.about = append(c.about, d.MessageID)
	}
	for _, a := range to.Record.Attempts {
		c.about = append(c.about, a.MessageID)
		c.attempts = append(c.attempts, written{message: a.MessageID, webhook: a.WebhookID, number: a.Number})
	}
	slices.Sort(c.about)
	c.about = slices.Compact(c.about)
}

// filed notes what a call to the file did with messages.
func (w *world) filed(c *call, to *sqlite.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range to.Messages {
		what := map[string]string{"receive": "receive", "send": "put", "renew": "update", "abandon": "update", "complete": "delete"}[to.Operation]
		if what == "put" {
			w.stored(id, "", to.Text)
			if to.Hidden > 0 { // it is received in the same step
				what = "receive"
			}
		}
		if what != "" {
			w.happened(id, messageEvent{at: w.now(), what: what, inst: c.inst, by: c, visible: w.now() + to.Hidden}, "")
		}
	}
}

var errDisk = fmt.Errorf("disk I/O error")
