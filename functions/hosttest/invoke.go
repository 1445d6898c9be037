package hosttest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

var (
	// errTimedOut: the function timeout has passed, and the handler was killed.
	errTimedOut = errors.New("function timeout")
	errFailed   = errors.New("invocation failed")
)

// invoke calls a function and waits for its end.
func (h *Host) invoke(l life, f function, data, metadata map[string]json.RawMessage) error {
	ctx, cancel := context.WithCancel(l.ctx)
	if h.app.timeout > 0 {
		ctx, cancel = context.WithTimeout(l.ctx, h.app.timeout) // the wait for a worker counts
	}
	defer cancel()
	p, err := h.ready(ctx)
	if err != nil {
		if ctx.Err() != nil && l.ctx.Err() == nil {
			return errTimedOut
		}
		return err
	}
	h.count(f.name, 1)
	defer h.count(f.name, -1)
	body := encode(map[string]any{"Data": data, "Metadata": metadata})
	err = h.post(ctx, p, f, body)
	if ctx.Err() != nil && l.ctx.Err() == nil {
		h.overrun(l, p)
		return errTimedOut
	}
	return err
}

func (h *Host) count(name string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.callsOf(name)
	c.all += max(n, 0)
	c.running += n
	c.most = max(c.most, c.running)
}

func (h *Host) post(ctx context.Context, p *handler, f function, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addr+"/"+f.name, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.ContentLength = -1 // it is sent in chunks
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set(invocationID, newGUID())
	req.Header.Set(hostVersion, Version)
	req.Header.Set("User-Agent", userAgent)
	resp, err := h.client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", errFailed, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errFailed, err)
	case resp.StatusCode/100 != 2:
		return fmt.Errorf("%w: status %d", errFailed, resp.StatusCode)
	}
	if media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return fmt.Errorf("%w: no formatter for content type %q", errFailed, resp.Header.Get("Content-Type"))
	}
	if trimmed := strings.TrimSpace(string(text)); trimmed == "" || trimmed == "null" {
		<-ctx.Done() // nothing ever ends this invocation
		return ctx.Err()
	}
	var result struct {
		Outputs     map[string]json.RawMessage
		Logs        []string
		ReturnValue any
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return fmt.Errorf("%w: the answer is no result", errFailed)
	}
	return nil
}

// Timer runs a timer function now, and waits for its end.
func (h *Host) Timer(name string, pastDue bool) error {
	f, ok := h.app.named(name)
	if !ok || !strings.EqualFold(f.binding.Type, "timerTrigger") {
		return fmt.Errorf("there is no timer function %s", name)
	}
	h.mu.Lock()
	l := h.life
	h.mu.Unlock()
	data, metadata := h.timer(f, pastDue, "")
	return h.invoke(l, f, data, metadata)
}

// timer is what the host says about a run of a timer that comes every minute, or more often; input is
// that of a run on demand.
func (h *Host) timer(f function, pastDue bool, input string) (data, metadata map[string]json.RawMessage) {
	const precise = "2006-01-02T15:04:05.9999999+00:00"
	now := time.Now().UTC()
	h.mu.Lock()
	last, ran := h.ticked[f.name]
	h.ticked[f.name] = now
	h.mu.Unlock()
	before := "0001-01-01T00:00:00+00:00"
	if ran {
		before = last.Format(precise)
	}
	var status map[string]string // null for what comes more often
	if !strings.HasPrefix(f.binding.Schedule, "*") {
		status = map[string]string{"Last": before, "Next": whole(now.Truncate(time.Minute).Add(time.Minute)), "LastUpdated": before}
	}
	data = map[string]json.RawMessage{f.binding.Name: encode(map[string]any{
		"Schedule": map[string]bool{"AdjustForDST": true}, "ScheduleStatus": status, "IsPastDue": pastDue,
	})}
	metadata = map[string]json.RawMessage{"sys": system(f)}
	if input != "" {
		metadata[f.binding.Name] = twice(input)
	}
	return data, metadata
}

// encode writes JSON as Newtonsoft does: without escapes for HTML.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // only what is made here is encoded
	}
	return bytes.TrimSpace(b.Bytes())
}

// twice is how the host passes on strings and numbers: JSON in a JSON string.
func twice(v any) json.RawMessage { return encode(string(encode(v))) }

func whole(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05+00:00") }

func newGUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
