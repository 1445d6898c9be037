package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// build makes the server's binary as a release is made.
func build(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "pushlease")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", path, "github.com/pushlease/pushlease/cmd/pushlease") //nolint:gosec // fixed but for the folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the server (or give --server-binary): %w\n%s", err, out)
	}
	return path, nil
}

// server is `pushlease serve`, running.
type server struct {
	cmd    *exec.Cmd
	url    string
	client *http.Client
	// started is when the process was begun, and answered how long its first answer took.
	started  time.Time
	answered time.Duration
	log      string
	ended    chan struct{} // closed when the process has
	err      error         // of its end
}

const startBound = 30 * time.Second

// startServer runs a binary on a storage, with settings such as "concurrency=64", and
// returns when it has answered.
func startServer(ctx context.Context, binary, dir string, s storage, settings []string) (*server, error) {
	log, err := os.CreateTemp(dir, "server-*.log")
	if err != nil {
		return nil, fmt.Errorf("make the server's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the process has its own handle
	v := &server{
		cmd: exec.CommandContext(ctx, binary, "serve"), log: log.Name(), ended: make(chan struct{}),
		client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 512, Proxy: nil}},
	}
	v.cmd.Dir = dir
	v.cmd.Env = append(append(cleanEnvironment(), "PUSHLEASE_LISTEN=127.0.0.1:0", "PUSHLEASE_DEV=true"), s.env()...)
	for _, line := range settings {
		name, value, _ := strings.Cut(line, "=")
		v.cmd.Env = append(v.cmd.Env, "PUSHLEASE_"+strings.ToUpper(name)+"="+value)
	}
	v.cmd.Stderr = log
	v.started = time.Now()
	if err := v.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	go func() {
		v.err = v.cmd.Wait()
		close(v.ended)
	}()
	if err := v.waitUp(ctx); err != nil {
		return nil, errors.Join(err, v.kill())
	}
	return v, nil
}

// waitUp reads the log for the address, and asks it until it answers.
func (v *server) waitUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if v.url == "" {
			v.url = v.addressInLog()
		}
		if v.url != "" {
			if err := v.call(ctx, http.MethodGet, "/healthz", nil, nil); err == nil {
				v.answered = time.Since(v.started)
				return nil
			}
		}
		select {
		case <-v.ended:
			return fmt.Errorf("the server ended while starting: %w\n%s", v.err, v.logTail())
		case <-ctx.Done():
			return fmt.Errorf("the server is not up after %v\n%s", startBound, v.logTail())
		case <-tick.C:
		}
	}
}

func (v *server) addressInLog() string {
	text, err := os.ReadFile(v.log)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		var l struct{ Msg, URL string }
		if json.Unmarshal(line, &l) == nil && l.Msg == "pushlease is up" {
			return l.URL
		}
	}
	return ""
}

func (v *server) logTail() string {
	text, err := os.ReadFile(v.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

func (v *server) pid() int { return v.cmd.Process.Pid }

// kill ends the process as kill -9 does.
func (v *server) kill() error {
	if err := v.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the server: %w", err)
	}
	<-v.ended
	v.client.CloseIdleConnections()
	return os.Remove(v.log)
}

// call makes one request of the API; into may be nil.
func (v *server) call(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, v.url+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := v.client.Do(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end
	text, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", method, path, err)
	case res.StatusCode >= http.StatusBadRequest:
		return fmt.Errorf("%s %s: status %d: %.300s", method, path, res.StatusCode, text)
	case into == nil:
		return nil
	}
	return json.Unmarshal(text, into)
}

// publish sends one message through the API.
func (v *server) publish(ctx context.Context, queueName string, body []byte) error {
	return v.call(ctx, http.MethodPost, "/api/v1/queues/"+queueName+"/messages", body, nil)
}

// metrics are the server's own counts.
type metrics struct {
	// transactions are the storage transactions, by "service operation".
	transactions map[string]float64
	goroutines   float64
}

func (v *server) metrics(ctx context.Context) (metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+"/metrics", nil)
	if err != nil {
		return metrics{}, fmt.Errorf("read metrics: %w", err)
	}
	res, err := v.client.Do(req)
	if err != nil {
		return metrics{}, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end
	return parseMetrics(res.Body)
}

// parseMetrics reads the two metrics from the Prometheus text format.
func parseMetrics(text io.Reader) (metrics, error) {
	m := metrics{transactions: map[string]float64{}}
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 {
			continue
		}
		series := lines.Text()[:at]
		value, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
		switch name, labels, _ := strings.Cut(series, "{"); {
		case err != nil:
		case name == "go_goroutines":
			m.goroutines = value
		case name == "pushlease_storage_transactions_total":
			m.transactions[label(labels, "service")+" "+label(labels, "operation")] += value
		}
	}
	if err := lines.Err(); err != nil {
		return metrics{}, fmt.Errorf("read metrics: %w", err)
	}
	return m, nil
}

// label is the value of one label in the text between braces. The values read here hold
// no quotes.
func label(labels, name string) string {
	_, rest, found := strings.Cut(labels, name+`="`)
	value, _, ended := strings.Cut(rest, `"`)
	if !found || !ended {
		return ""
	}
	return value
}
