package hosttest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"
)

// serveOuter is the app as callers from outside meet it.
func (h *Host) serveOuter(w http.ResponseWriter, r *http.Request) {
	f, ok := h.route(r)
	if !ok {
		http.NotFound(w, r)
		return
	}
	key := r.Header.Get("X-Functions-Key")
	if key == "" {
		key = r.URL.Query().Get("code")
	}
	if !strings.EqualFold(f.binding.AuthLevel, "anonymous") && key != FunctionKey {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	h.mu.Lock()
	l := h.life
	h.mu.Unlock()
	p, err := h.ready(l.ctx)
	switch {
	case err != nil:
		w.WriteHeader(http.StatusServiceUnavailable)
	case h.app.proxying && !h.o.Forward:
		h.proxy(w, r, p)
	case h.app.forwarding:
		h.forward(w, r, p)
	default:
		http.Error(w, "the fake host only passes HTTP requests on", http.StatusNotImplemented)
	}
}

// route finds the function for a path: a route of its own, and {*rest} at its end.
func (h *Host) route(r *http.Request) (function, bool) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if h.app.prefix != "" {
		rest, ok := strings.CutPrefix(path, h.app.prefix+"/")
		if !ok {
			return function{}, false
		}
		path = rest
	}
	if path == "admin" || path == "runtime" || strings.HasPrefix(path, "admin/") || strings.HasPrefix(path, "runtime/") {
		return function{}, false
	}
	for _, f := range h.app.functions {
		fixed, rest, catchAll := strings.Cut(f.binding.Route, "{*")
		fits := path == f.binding.Route || catchAll && strings.HasSuffix(rest, "}") && strings.HasPrefix(path, fixed)
		allowed := len(f.binding.Methods) == 0 || slices.Contains(f.binding.Methods, strings.ToLower(r.Method))
		if strings.EqualFold(f.binding.Type, "httpTrigger") && fits && allowed {
			return f, true
		}
	}
	return function{}, false
}

// proxy is what newer hosts do: everything streams, the Host is the handler's.
func (h *Host) proxy(w http.ResponseWriter, r *http.Request, p *handler) {
	rp := &httputil.ReverseProxy{
		FlushInterval: -1, Transport: retrying{h.proxied},
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(&url.URL{Scheme: "http", Host: p.addr})
			pr.Out.URL.Path, pr.Out.URL.RawPath, pr.Out.URL.RawQuery = pr.In.URL.Path, pr.In.URL.RawPath, pr.In.URL.RawQuery
			pr.SetXForwarded()
			setIDs(pr.Out.Header.Set)
			pr.Out.Header.Set("X-Ms-Invocation-Id", pr.Out.Header.Get("X-Azure-Functions-InvocationId"))
			pr.Out.Header.Set("User-Agent", pr.In.Header.Get("User-Agent"))
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				w.WriteHeader(http.StatusGatewayTimeout)
				return
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	rp.ServeHTTP(w, r)
}

// retrying tries again when the handler can't be reached.
type retrying struct{ base http.RoundTripper }

func (t retrying) RoundTrip(r *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, err := t.base.RoundTrip(r)
		var op *net.OpError
		if err == nil || try == 10 || !errors.As(err, &op) || op.Op != "dial" {
			return resp, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// forward is what older hosts do: the request is built anew with everything that the
// caller sent, Host and all; several values of one query key become one.
func (h *Host) forward(w http.ResponseWriter, r *http.Request, p *handler) {
	query := url.Values{}
	for k, v := range r.URL.Query() {
		query.Set(k, strings.Join(v, ","))
	}
	target := url.URL{Scheme: "http", Host: p.addr, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: query.Encode()}
	var body io.Reader
	if r.ContentLength > 0 {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		body = bytes.NewReader(text)
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, target.String(), body)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	out.Header, out.Host = r.Header.Clone(), r.Host
	setIDs(out.Header.Add)
	resp, err := h.client.Do(out)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(text)
}
