package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// bodyMark is in every body that these tests publish, and so must never be in a
// log or a metric.
const bodyMark = "payload-of-a-message"

// binary builds the program once per run of the tests; TestMain removes it.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "pushlease-e2e-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	path := filepath.Join(dir, "pushlease")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	// As functions package builds it, so that one build serves both.
	build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// builtIn is the folder of the binary; empty when it was not built.
var builtIn string

// store is one installation's storage, which several processes can share.
type store struct {
	name string
	env  []string
	// account is nil on SQLite.
	account *azuritetest.Azurite
	// proxy stands before the account in tests that need faults.
	proxy *azuritetest.Proxy
	// begin starts the program, and reach is where its API is reached from here, in tests
	// that have it in a network of their own.
	begin func(*exec.Cmd) error
	reach func(url string) string
}

// onStores runs a test on both stores, at the same time as all others.
func onStores(t *testing.T, test func(t *testing.T, s *store)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, sqliteStore(t))
	})
	t.Run("azurite", func(t *testing.T) {
		t.Parallel()
		test(t, azuriteStore(t))
	})
}

func sqliteStore(t *testing.T) *store {
	return &store{name: "sqlite", env: []string{"PUSHLEASE_STORAGE=sqlite:" + filepath.Join(t.TempDir(), "e2e.db")}}
}

// azuriteStore uses tables of its own; queues are the whole account's, so tests
// take their names from queueName.
func azuriteStore(t *testing.T) *store {
	a := emulator(t)
	hideFromLogs(a.Key)
	return &store{name: "azurite", account: a, env: azuriteEnv(a.ConnectionString())}
}

func azuriteEnv(connection string) []string {
	return []string{"PUSHLEASE_STORAGE=" + connection, "PUSHLEASE_TABLE_PREFIX=" + azuritetest.Name("e2e")}
}

func queueName(prefix string) string { return azuritetest.Name(prefix + "-") }

// process is the program, running.
type process struct {
	t    *testing.T
	url  string
	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{} // closed when it has ended
	// header goes with every request to the API.
	header http.Header
	err    error // of its end
}

// environment is this machine's without what would change the program's settings.
func environment(more ...string) []string {
	var env []string
	for _, line := range os.Environ() {
		name, _, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, "PUSHLEASE_") && !strings.HasPrefix(name, "OTEL_") &&
			!strings.HasPrefix(name, "FUNCTIONS_") && !strings.HasPrefix(name, "AzureWebJobs") {
			env = append(env, line)
		}
	}
	return append(env, more...)
}

// launch starts the program with these settings over the tests' usual ones, which
// are quick. The lease is one that a busy machine keeps: tests that kill a process
// ask for a shorter one. It does not wait for the program to be up.
func (s *store) launch(t *testing.T, settings ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, log: &logBuffer{changed: make(chan struct{}, 1)}, done: make(chan struct{})}
	p.cmd = exec.Command(path, "serve")
	p.cmd.Dir = t.TempDir()
	p.cmd.Env = environment(append(append([]string{
		"PUSHLEASE_LISTEN=127.0.0.1:0", "PUSHLEASE_DEV=true", "PUSHLEASE_LEASE=10s", "PUSHLEASE_POLL_MIN=20ms",
		"PUSHLEASE_POLL_MAX=500ms", "PUSHLEASE_REGISTRY_REFRESH=1s", "PUSHLEASE_DRAIN=10s",
	}, s.env...), settings...)...)
	p.cmd.Stderr, p.cmd.Stdout = p.log, p.log
	begin := (*exec.Cmd).Start
	if s.begin != nil {
		begin = s.begin
	}
	if err := begin(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended already, as a rule
		<-p.done
		p.checkLog()
	})
	return p
}

// start launches the program and waits for its API.
func (s *store) start(t *testing.T, settings ...string) *process {
	t.Helper()
	p := s.launch(t, settings...)
	p.waitUp()
	if s.reach != nil {
		p.url = s.reach(p.url)
	}
	return p
}

func (p *process) waitUp() {
	p.t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for {
		if line, ok := p.log.find("pushlease is up"); ok {
			p.url = line.URL
			return
		}
		select {
		case <-p.log.changed:
		case <-p.done:
			p.t.Fatalf("the process ended while starting: %v\n%s", p.err, p.log.String())
		case <-deadline.C:
			p.t.Fatalf("the process is not up:\n%s", p.log.String())
		}
	}
}

// kill ends the process as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

func (p *process) terminate() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Errorf("SIGTERM: %v", err)
	}
}

// ended waits for the process to end.
func (p *process) ended(bound time.Duration) {
	p.t.Helper()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.t.Fatalf("the process has not ended after %s:\n%s", bound, p.log.String())
	}
}

// secrets are what no log may hold; the account key is in every connection string.
var secrets = struct {
	sync.Mutex
	known []string
}{known: []string{bodyMark}}

func hideFromLogs(s string) {
	secrets.Lock()
	defer secrets.Unlock()
	secrets.known = append(secrets.known, s)
}

// checkLog fails the test for payloads and secrets in the log, for lines that are
// not JSON, and for panics.
func (p *process) checkLog() {
	secrets.Lock()
	known := append([]string(nil), secrets.known...)
	secrets.Unlock()
	text := p.log.String()
	encoded := base64.StdEncoding.EncodeToString([]byte(bodyMark))[:16]
	webhooktest.AssertNoSecrets(p.t, []string{text}, append(known, encoded)...)
	// An id can have the letters of panic in it, but no blank after them.
	for _, bad := range []string{"goroutine ", "panic ", "panic:", "DATA RACE", "AccountKey=", "whsec_"} {
		if strings.Contains(text, bad) {
			p.t.Errorf("the log has %q:\n%s", bad, text)
		}
	}
	if p.t.Failed() {
		lines := strings.Split(text, "\n")
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, `"http request"`) })
		text = strings.Join(lines, "\n")
		p.t.Logf("the log of %s without its requests:\n%s", p.url, text[max(0, len(text)-10_000):])
	}
}

// logLine is what these tests read of a line of the log.
type logLine struct {
	Msg      string `json:"msg"`
	URL      string `json:"url"`
	Message  string `json:"message"`
	Decision string `json:"decision"`
}

// logBuffer keeps what the process writes.
type logBuffer struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.text.Write(p)
	select {
	case b.changed <- struct{}{}:
	default:
	}
	return n, err
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// lines parses the log; what is not JSON is left out.
func (b *logBuffer) lines() []logLine {
	var lines []logLine
	for scan := bufio.NewScanner(strings.NewReader(b.String())); scan.Scan(); {
		var l logLine
		if json.Unmarshal(scan.Bytes(), &l) == nil {
			lines = append(lines, l)
		}
	}
	return lines
}

func (b *logBuffer) find(msg string) (logLine, bool) {
	for _, l := range b.lines() {
		if l.Msg == msg {
			return l, true
		}
	}
	return logLine{}, false
}

// waitUntil polls until the condition holds; the text it returns says what is
// missing. Each round asks the process or the receiver anew. Who looks at what a test has counted
// itself looks often; to ask a process, a browser or storage keeps these busy, so that the next
// round comes the later the longer that took, and the longer it has not helped.
func waitUntil(t *testing.T, bound time.Duration, condition func() (missing string)) {
	t.Helper()
	const often, seldom = 25 * time.Millisecond, 250 * time.Millisecond
	began := time.Now()
	deadline := time.NewTimer(bound)
	defer deadline.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		look := time.Now()
		missing := condition()
		if missing == "" {
			return
		}
		next := often
		if took := time.Since(look); took > time.Millisecond {
			next = max(often, 4*took, min(time.Since(began)/20, seldom))
		}
		pause.Reset(min(next, time.Second))
		select {
		case <-deadline.C:
			t.Fatalf("not within %s: %s", bound, missing)
		case <-pause.C:
		}
	}
}

var e2eClient = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 32, Proxy: nil}}

// e2eAnswer is an answer of the API.
type e2eAnswer struct {
	status int
	header http.Header
	body   []byte
}

// try makes one request; an error is one of the connection.
func (p *process) try(method, path, contentType, body string) (e2eAnswer, error) {
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		return e2eAnswer{}, err
	}
	if p.header != nil {
		req.Header = p.header.Clone()
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := e2eClient.Do(req)
	if err != nil {
		return e2eAnswer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return e2eAnswer{resp.StatusCode, resp.Header, text}, err
}

// read asks a question that changes nothing. On a machine that is busy with other work the
// emulator of storage may be too slow for the program's patience, which then answers 503:
// that is asked again, for longer than any such spell lasts.
func (p *process) read(path string) (e2eAnswer, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-tick.C {
		a, err := p.try(http.MethodGet, path, "", "")
		if err != nil || a.status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			return a, err
		}
	}
}

// call makes one request that must be answered with the status.
func (p *process) call(method, path, body string, status int, into any) {
	p.t.Helper()
	var a e2eAnswer
	var err error
	switch {
	case method == http.MethodGet && status == http.StatusOK:
		a, err = p.read(path)
	case body != "":
		a, err = p.try(method, path, "application/json", body)
	default:
		a, err = p.try(method, path, "", "")
	}
	if err != nil {
		p.t.Fatal(err)
	}
	if a.status != status {
		p.t.Fatalf("%s %s: %d, want %d: %s", method, path, a.status, status, a.body)
	}
	if into != nil {
		if err := json.Unmarshal(a.body, into); err != nil {
			p.t.Fatalf("%s %s: %v: %s", method, path, err, a.body)
		}
	}
}

// number reads a number from the environment of the tests.
func number(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number from 1 on", name, text)
	}
	return n
}

// hook is a registered webhook.
type hook struct {
	ID      string `json:"id"`
	Enabled bool   `json:"enabled"`
	Secret  string `json:"secret"`

	DisabledReason string `json:"disabled_reason"`
}

// register registers a webhook; more are further members of the request.
func (p *process) register(queue, target string, more map[string]any) hook {
	p.t.Helper()
	// Scripted failures are many, and their tests are not about what stops sending.
	request := map[string]any{"queue": queue, "url": target, "flow": map[string]any{"breaker": map[string]any{"enabled": false}}}
	for k, v := range more {
		request[k] = v
	}
	body, err := json.Marshal(request)
	if err != nil {
		p.t.Fatal(err)
	}
	var h hook
	p.call(http.MethodPost, "/api/v1/webhooks", string(body), http.StatusCreated, &h)
	hideFromLogs(h.Secret)
	return h
}

// newHookSecret makes a secret that the receiver can know before the webhook is
// registered.
func newHookSecret() string {
	s := webhook.NewSecret(time.Now()).Key
	hideFromLogs(s)
	return s
}

func (p *process) publish(queue, body string) (id string) {
	p.t.Helper()
	var m struct {
		MessageID string `json:"message_id"`
	}
	p.call(http.MethodPost, "/api/v1/queues/"+queue+"/messages", body, http.StatusAccepted, &m)
	return m.MessageID
}

// e2eAttempt is one attempt as the API shows it.
type e2eAttempt struct {
	MessageID  string    `json:"message_id"`
	Number     int       `json:"number"`
	StartedAt  time.Time `json:"started_at"`
	Duration   string    `json:"duration"`
	Status     int       `json:"status"`
	ErrorClass string    `json:"error_class"`
	Error      string    `json:"error"`
	Snippet    string    `json:"snippet"`
	RetryAfter string    `json:"retry_after"`
	Redirect   string    `json:"redirect_host"`
	Redials    int       `json:"redials"`
	Action     string    `json:"action"`
	Reason     string    `json:"reason"`
	Charged    bool      `json:"charged"`
	Delay      string    `json:"delay"`
	NextAt     time.Time `json:"next_at"`
	// Explanation and Instance say who made it and why what follows does.
	Explanation string `json:"explanation"`
	Instance    string `json:"instance"`
}

// attempts lists the attempts of a queue, oldest first.
func (p *process) attempts(queue string) []e2eAttempt {
	p.t.Helper()
	var all []e2eAttempt
	query := url.Values{"queue": {queue}, "limit": {"500"}}
	for {
		var page struct {
			Data       []e2eAttempt `json:"data"`
			NextCursor string       `json:"next_cursor"`
		}
		p.call(http.MethodGet, "/api/v1/attempts?"+query.Encode(), "", http.StatusOK, &page)
		for _, a := range page.Data {
			all = append([]e2eAttempt{a}, all...)
		}
		if page.NextCursor == "" {
			return all
		}
		query.Set("cursor", page.NextCursor)
	}
}

// e2eTimeline is a message as the API shows it.
type e2eTimeline struct {
	Size     int        `json:"size"`
	BodyHash string     `json:"body_hash"`
	Events   []e2eEvent `json:"events"`
	Next     []e2eNext  `json:"next"`
}

type e2eEvent struct {
	Event     string    `json:"event"`
	At        time.Time `json:"at"`
	WebhookID string    `json:"webhook_id"`
	Text      string    `json:"text"`
	// Attempt is set for an attempt.
	Attempt *e2eAttempt `json:"attempt"`
}

type e2eNext struct {
	WebhookID    string    `json:"webhook_id"`
	State        string    `json:"state"`
	Reason       string    `json:"reason"`
	Attempts     int       `json:"attempts"`
	Charged      int       `json:"charged"`
	Waits        int       `json:"waits"`
	NextAt       time.Time `json:"next_at"`
	DeadLetterID string    `json:"dead_letter_id"`
}

// timeline may not know the message yet.
func (p *process) timeline(queue, id string) (e2eTimeline, error) {
	a, err := p.read("/api/v1/messages/" + url.PathEscape(id) + "?queue=" + queue)
	if err != nil || a.status != http.StatusOK {
		return e2eTimeline{}, errors.Join(err, fmt.Errorf("status %d: %s", a.status, a.body))
	}
	var tl e2eTimeline
	return tl, json.Unmarshal(a.body, &tl)
}

// waitState waits until a message is so with a webhook.
func (p *process) waitState(bound time.Duration, queue, id, webhookID, state string) e2eNext {
	p.t.Helper()
	var found e2eNext
	waitUntil(p.t, bound, func() string {
		tl, err := p.timeline(queue, id)
		if err != nil {
			return err.Error()
		}
		for _, n := range tl.Next {
			if n.WebhookID == webhookID {
				found = n
			}
		}
		if found.State == state {
			return ""
		}
		return fmt.Sprintf("message %s on %s is %+v, want %s", id, queue, found, state)
	})
	return found
}

// waitEmpty waits until the queue holds no message, leased and delayed ones
// included.
func (p *process) waitEmpty(bound time.Duration, queue string) {
	p.t.Helper()
	waitUntil(p.t, bound, func() string {
		var q struct {
			Depth *struct {
				Total int64 `json:"total"`
			} `json:"depth"`
		}
		// With other tests beside this one, the emulator may not answer at once.
		a, err := p.try(http.MethodGet, "/api/v1/queues/"+queue, "", "")
		if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &q) != nil {
			return fmt.Sprintf("the queue %s: %v, status %d", queue, err, a.status)
		}
		if q.Depth != nil && q.Depth.Total == 0 {
			return ""
		}
		return fmt.Sprintf("the queue %s has messages: %+v", queue, q.Depth)
	})
}

// metric sums the series of a metric that have all these labels.
func (p *process) metric(name string, labels ...string) float64 {
	p.t.Helper()
	a, err := p.try(http.MethodGet, "/metrics", "", "")
	if err != nil || a.status != http.StatusOK {
		p.t.Fatalf("metrics: %v %d", err, a.status)
	}
	if bytes.Contains(a.body, []byte(bodyMark)) {
		p.t.Error("a metric holds a payload")
	}
	sum := 0.0
	for lines := bufio.NewScanner(bytes.NewReader(a.body)); lines.Scan(); {
		series, value, ok := strings.Cut(lines.Text(), "} ")
		ok = ok && strings.HasPrefix(series, name+"{")
		for _, l := range labels {
			ok = ok && strings.Contains(series, l)
		}
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			sum += v
		}
	}
	return sum
}

// ready asks /readyz; checks maps those that fail to what they say.
func (p *process) ready() (status int, failing map[string]string) {
	p.t.Helper()
	a, err := p.try(http.MethodGet, "/readyz", "", "")
	if err != nil {
		p.t.Fatal(err)
	}
	var r struct {
		Checks []struct {
			Name, Detail string
			OK           bool
		}
	}
	if err := json.Unmarshal(a.body, &r); err != nil {
		p.t.Fatalf("readyz: %v: %s", err, a.body)
	}
	failing = map[string]string{}
	for _, c := range r.Checks {
		if !c.OK {
			failing[c.Name] = c.Detail
		}
	}
	return a.status, failing
}

// hangUp ends a receiver whose answers may take for ever: what is connected is cut, and
// what tries again finds nobody.
func hangUp(server *httptest.Server) {
	_ = server.Listener.Close() // Close closes it again
	server.CloseClientConnections()
	server.Close()
}
