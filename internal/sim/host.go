package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing/fstest"
	"time"

	"github.com/pushlease/pushlease/internal/app"
	"github.com/pushlease/pushlease/internal/config"
)

// What a model of the Azure Functions host goes by: host.json as pushlease packages it, and what
// the host does by itself (functions/hosttest has all of it, over sockets).
const (
	hostLease     = 10 * time.Minute
	hostTimeout   = 5 * time.Minute
	hostGivesBack = 30 * time.Second
	hostBatch     = 8
	hostThreshold = 16
	hostPollMax   = 10 * time.Second
	hostPort      = "8080"
	hostedKey     = "the operator's key"
)

// hostedEnvironment is what an instance under the host has besides.
func hostedEnvironment() []string {
	sum := sha256.Sum256([]byte(hostedKey))
	return []string{"FUNCTIONS_CUSTOMHANDLER_PORT=" + hostPort, "PUSHLEASE_API_KEYS=sim:publish+read+operate+admin:" + hex.EncodeToString(sum[:])}
}

// hostedLife is a process under the host, which receives from the plan's first queue. The other
// queues are the pump's.
func (i *instance) hostedLife(ctx context.Context, o app.Options, env []string) error {
	files, err := app.FunctionsPackage([]string{i.w.plan.Webhooks[0].Queue})
	if err != nil {
		i.w.violate("plan", err.Error())
		return nil
	}
	root := fstest.MapFS{}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: text}
	}
	h := &host{inst: i, freed: make(chan struct{}, 1)}
	var receiving sync.WaitGroup
	receiving.Go(func() { h.receive(ctx, i.w.plan.Webhooks[0].Queue) })
	defer receiving.Wait()
	return app.RunFunctions(ctx, app.FunctionsOptions{
		Options: o, Port: hostPort, Root: root, Getenv: func(string) (string, bool) { return "", false },
		Config: func() (config.Config, error) {
			c, err := config.Load(nil, env)
			c.Instance = i.name // an app's settings name none
			return c, err
		},
	})
}

// host is what receives messages and hands them to an instance. It lives and dies with it.
type host struct {
	inst  *instance
	calls sync.WaitGroup
	freed chan struct{}

	mu      sync.Mutex
	running int
}

// leased is a message as the account gave it to the host.
type leased struct {
	ID       string `xml:"MessageId"`
	Inserted string `xml:"InsertionTime"`
	Expires  string `xml:"ExpirationTime"`
	Visible  string `xml:"TimeNextVisible"`
	Receipt  string `xml:"PopReceipt"`
	Dequeues int    `xml:"DequeueCount"`
	Text     string `xml:"MessageText"`
}

// receive takes a batch whenever no more than the threshold are in work, until ctx ends.
func (h *host) receive(ctx context.Context, name string) {
	defer h.calls.Wait()
	pause := 100 * time.Millisecond
	for ctx.Err() == nil && h.inst.gate.alive() {
		h.mu.Lock()
		full := h.running > hostThreshold
		h.mu.Unlock()
		if full {
			select {
			case <-h.freed:
			case <-ctx.Done():
			}
			continue
		}
		got := h.batch(name)
		for _, m := range got {
			h.mu.Lock()
			h.running++
			h.mu.Unlock()
			h.calls.Go(func() { h.process(name, m) })
		}
		if len(got) > 0 {
			pause = 100 * time.Millisecond
			continue
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, hostPollMax)
		case <-ctx.Done():
		}
	}
}

func (h *host) batch(name string) []leased {
	q := url.Values{"numofmessages": {fmt.Sprint(hostBatch)}, "visibilitytimeout": {fmt.Sprint(int(hostLease.Seconds()))}}
	status, text := h.ask(http.MethodGet, name+"/messages?"+q.Encode(), nil)
	var list struct {
		Messages []leased `xml:"QueueMessage"`
	}
	if status != http.StatusOK || xml.Unmarshal(text, &list) != nil {
		return nil // missing, busy: later
	}
	return list.Messages
}

// ask makes one storage call, as the process in whose place the host stands.
func (h *host) ask(method, path string, body []byte) (status int, answer []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://queue.standin/standin/"+path, bytes.NewReader(body))
	if err != nil {
		h.inst.w.violate("plan", err.Error())
		return 0, nil
	}
	resp, err := accountTransport{h.inst}.RoundTrip(req)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil
	}
	return resp.StatusCode, answer
}

// process invokes the function with a message, and settles that with the receipt that the host
// knows: in vain, once the instance has taken the message over.
func (h *host) process(name string, m leased) {
	defer func() {
		h.mu.Lock()
		h.running--
		h.mu.Unlock()
		select {
		case h.freed <- struct{}{}:
		default:
		}
	}()
	taken := h.invoke("dispatch-"+name, map[string]any{"message": base64.StdEncoding.EncodeToString([]byte(m.Text))}, map[string]any{
		"Id": twice(m.ID), "PopReceipt": twice(m.Receipt), "DequeueCount": twice(m.Dequeues),
		"InsertionTime": whole(m.Inserted), "ExpirationTime": whole(m.Expires), "NextVisibleTime": whole(m.Visible),
	})
	at, receipt := name+"/messages/"+m.ID+"?", url.Values{"popreceipt": {m.Receipt}}
	if taken {
		h.ask(http.MethodDelete, at+receipt.Encode(), nil)
		return
	}
	receipt.Set("visibilitytimeout", fmt.Sprint(int(hostGivesBack.Seconds())))
	h.ask(http.MethodPut, at+receipt.Encode(), nil)
}

// invoke calls a function, and reports whether it did what it was called for.
func (h *host) invoke(function string, data, metadata map[string]any) bool {
	metadata["sys"] = map[string]any{"MethodName": function, "UtcNow": time.Now().UTC().Format(time.RFC3339Nano)}
	body, err := json.Marshal(map[string]any{"Data": data, "Metadata": metadata})
	if err != nil {
		h.inst.w.violate("plan", err.Error())
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), hostTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:"+hostPort+"/"+function, bytes.NewReader(body))
	if err != nil {
		h.inst.w.violate("plan", err.Error())
		return false
	}
	req.ContentLength = -1 // the host sends in chunks
	id := h.inst.w.plan.hash("invocation", h.inst.name, h.inst.ordinal("invocation"))
	req.Header.Set("X-Azure-Functions-InvocationId", fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(id), id>>16))
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: h.inst.client.Transport}).Do(req)
	if err != nil {
		if ctx.Err() != nil && h.inst.gate.alive() && !h.inst.brokeBetween(0, h.inst.w.now()) {
			h.inst.w.violate("invocation", function+" did not end within the function timeout, after which the host kills its process")
		}
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode/100 == 2
}

// twice is how the host passes strings and numbers on: JSON in a JSON string.
func twice(v any) string {
	text, _ := json.Marshal(v) // strings and numbers only
	return string(text)
}

// whole is a time of the account as the host writes it.
func whole(text string) string {
	at, err := http.ParseTime(text)
	if err != nil {
		return text
	}
	return at.UTC().Format("2006-01-02T15:04:05+00:00")
}

// tick runs the timer functions, each on one instance, until the run is over.
func (w *world) tick() {
	var running sync.WaitGroup
	defer running.Wait()
	for minute := 1; w.pause(time.Minute); minute++ {
		functions := []string{"pump"}
		if minute%10 == 0 {
			functions = append(functions, "housekeeping")
		}
		for _, name := range functions {
			if i := w.somebody(); i != nil {
				running.Go(func() {
					(&host{inst: i}).invoke(name, map[string]any{"timer": map[string]any{"IsPastDue": false}}, map[string]any{})
				})
			}
		}
	}
}

// published is the path under which what an instance serves is reached.
func (w *world) published(path string) string {
	if w.plan.Hosted && !strings.HasPrefix(path, "/api/") {
		return "/api/v1" + path
	}
	return path
}
