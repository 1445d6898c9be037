package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// forwardTimeout is how long a receiver may take that requests are forwarded to: as long as a webhook may at most.
const forwardTimeout = 10 * time.Minute

// forwarder hands requests on to a receiver that is being written, as they came.
type forwarder struct {
	target string
	http   *http.Client
}

func newForwarder(target string) (*forwarder, error) {
	u, err := url.Parse(target)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, usagef("--forward-to is not an http or https URL; write one such as http://localhost:3000/hook")
	}
	// The answer is the sender's to judge, redirects too.
	return &forwarder{target, &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// connectionHeaders are about the connection that a request came by, not about the request.
var connectionHeaders = []string{"Connection", "Content-Length", "Host", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// forward returns what the receiver answers; where it answers nothing, 502 says why.
func (f *forwarder) forward(ctx context.Context, got received) reply {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	failed := func(err error) reply {
		return reply{Status: http.StatusBadGateway, Body: clean(fmt.Sprintf("can't forward: %s\n", err))}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.target, bytes.NewReader(got.Body))
	if err != nil {
		return failed(err)
	}
	req.Header = got.header.Clone()
	for _, name := range connectionHeaders {
		req.Header.Del(name)
	}
	resp, err := f.http.Do(req)
	if err != nil {
		return failed(err)
	}
	defer func() { _ = resp.Body.Close() }()
	// The status decides, also where the body is broken.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxReceiverBody))
	contentType := resp.Header.Get("Content-Type")
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	return reply{
		Status: resp.StatusCode, Body: string(body), ContentType: contentType,
		RetryAfter: resp.Header.Get("Retry-After"), Decision: strings.TrimSpace(resp.Header.Get("pushlease-decision")),
	}
}
