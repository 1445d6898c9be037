package hosttest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
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
	ctx, cancel := context.WithTimeout(l.ctx, h.app.timeout) // the wait for a worker counts
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
	metadata["sys"] = encode(map[string]any{"MethodName": f.name, "UtcNow": whole(time.Now()), "RandGuid": newGUID()})
	body := encode(map[string]any{"Data": data, "Metadata": metadata})
	err = h.post(ctx, p, f, body)
	if ctx.Err() != nil && l.ctx.Err() == nil {
		h.overrun(p)
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
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	setIDs(req.Header.Set)
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

func setIDs(set func(name, value string)) {
	set("X-Azure-Functions-InvocationId", newGUID())
	set("X-Azure-Functions-HostVersion", Version)
	set("User-Agent", "Azure-Functions-Host/"+Version)
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
	timer := encode(map[string]any{"Schedule": map[string]bool{"AdjustForDST": true}, "ScheduleStatus": nil, "IsPastDue": pastDue})
	return h.invoke(l, f, map[string]json.RawMessage{f.binding.Name: timer}, map[string]json.RawMessage{})
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

// queueData is the invocation of a queue trigger: the message in the binding's type, and
// for a text what it overwrites in the metadata.
func queueData(b binding, m *message) (data, metadata map[string]json.RawMessage) {
	metadata = map[string]json.RawMessage{
		"DequeueCount": twice(m.dequeueCount), "Id": twice(m.id), "PopReceipt": twice(m.firstReceipt),
		"ExpirationTime": encode(whole(m.expires)), "InsertionTime": encode(whole(m.inserted)), "NextVisibleTime": encode(whole(m.nextVisible)),
	}
	if strings.EqualFold(b.DataType, "binary") {
		return map[string]json.RawMessage{b.Name: encode(base64.StdEncoding.EncodeToString([]byte(m.text)))}, metadata
	}
	overwrite(metadata, m.text)
	return map[string]json.RawMessage{b.Name: twice(m.text)}, metadata
}

func overwrite(metadata map[string]json.RawMessage, text string) {
	text = strings.TrimSpace(text)
	var members map[string]any
	if !strings.HasPrefix(text, "{") || !strings.HasSuffix(text, "}") || json.Unmarshal([]byte(text), &members) != nil {
		return
	}
	for name, v := range members {
		if _, list := v.([]any); list || v == nil || strings.HasSuffix(strings.ToLower(name), "trigger") {
			continue
		}
		for old := range metadata {
			if strings.EqualFold(old, name) {
				name = old
			}
		}
		if _, object := v.(map[string]any); object {
			metadata[name] = encode(v)
		} else {
			metadata[name] = twice(v)
		}
	}
}
