package hosttest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// serveOuter is the app as callers from outside meet it.
func (h *Host) serveOuter(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "Kestrel")
	if r.URL.Path == "/" {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>the host's own page</html>")
		return
	}
	f, ok := h.route(r)
	if !ok {
		w.WriteHeader(http.StatusNotFound)
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
	if h.app.timeout > 0 { // it is an invocation like any other
		ctx, cancel := context.WithTimeout(r.Context(), h.app.timeout)
		defer cancel()
		r = r.WithContext(ctx)
		defer func() {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) && p != nil {
				h.overrun(l, p)
			}
		}()
	}
	switch {
	case err != nil:
		w.WriteHeader(http.StatusInternalServerError)
	case h.app.proxying && !h.o.Forward:
		h.proxy(w, r, f, p)
	case h.app.forwarding:
		h.forward(w, r, p)
	default:
		http.Error(w, "the fake host only passes HTTP requests on", http.StatusNotImplemented)
	}
}

// cutFold is strings.CutPrefix without regard to case, as the host's routes are.
func cutFold(s, prefix string) (rest string, ok bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// route finds the function for a path: a route of its own, and {*rest} at its end.
func (h *Host) route(r *http.Request) (function, bool) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if strings.Contains(path, "//") {
		return function{}, false
	}
	if h.app.prefix != "" {
		rest, ok := cutFold(path, h.app.prefix+"/")
		if !ok {
			return function{}, false
		}
		path = rest
	}
	first, _, _ := strings.Cut(strings.ToLower(path), "/")
	if first == "admin" || first == "runtime" {
		return function{}, false
	}
	for _, f := range h.app.functions {
		fixed, rest, catchAll := strings.Cut(f.binding.Route, "{*")
		_, begins := cutFold(path+"/", fixed) // v1/{*rest} takes v1 too
		fits := strings.EqualFold(path, f.binding.Route) || catchAll && strings.HasSuffix(rest, "}") && begins
		allowed := len(f.binding.Methods) == 0 || slices.Contains(f.binding.Methods, strings.ToLower(r.Method))
		if strings.EqualFold(f.binding.Type, "httpTrigger") && fits && allowed {
			return f, true
		}
	}
	return function{}, false
}

// joined makes one line of each header.
func joined(in http.Header) http.Header {
	out := http.Header{}
	for name, values := range in {
		out[name] = []string{strings.Join(values, ", ")}
	}
	return out
}

// proxy is what newer hosts do: everything streams, the Host is the handler's.
func (h *Host) proxy(w http.ResponseWriter, r *http.Request, f function, p *handler) {
	below := ""
	if h.o.BelowFunction {
		below = "/" + f.name
	}
	rp := &httputil.ReverseProxy{
		FlushInterval: -1, Transport: again{base: h.proxied, tries: 10, sends: dotNetSends},
		Rewrite: func(pr *httputil.ProxyRequest) {
			path := strings.NewReplacer("%2F", "%252F", "%2f", "%252f").Replace(pr.In.URL.EscapedPath())
			plain, err := url.PathUnescape(path)
			if err != nil {
				plain = pr.In.URL.Path
			}
			pr.Out.URL = &url.URL{Scheme: "http", Host: p.addr, Path: below + plain, RawPath: below + path, RawQuery: pr.In.URL.RawQuery}
			pr.Out.Host, pr.Out.Header = p.addr, joined(pr.Out.Header)
			pr.SetXForwarded()
			id := newGUID()
			for _, name := range []string{invocationID, "X-Ms-Invocation-Id"} {
				pr.Out.Header.Set(name, id)
			}
			pr.Out.Header.Set(hostVersion, Version)
			pr.Out.Header.Set("User-Agent", pr.In.Header.Get("User-Agent")) // none, where it is empty
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Del("Server")
			resp.Body = impatient{resp.Body, h.proxied.ResponseHeaderTimeout}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusInternalServerError)
		},
	}
	rp.ServeHTTP(w, r)
}

// impatient is the body of a proxied answer, which may be silent for as long as the answer may be out.
type impatient struct {
	io.ReadCloser
	limit time.Duration
}

func (b impatient) Read(into []byte) (int, error) {
	late := time.AfterFunc(b.limit, func() { _ = b.Close() }) // which ends a Read under way
	defer late.Stop()
	return b.ReadCloser.Read(into)
}

// dotNetSends is how often .NET's client sends a request without a body on connections that are
// lost before an answer.
const dotNetSends = 4

// again sends what has no body again when its connection is lost: sends times at once, and all of
// that up to tries times.
type again struct {
	base         http.RoundTripper
	tries, sends int
}

func (t again) RoundTrip(r *http.Request) (*http.Response, error) {
	for n := 1; ; n++ {
		resp, err := t.base.RoundTrip(r)
		var late net.Error
		withBody := r.Body != nil && r.Body != http.NoBody
		if err == nil || n == t.tries*t.sends || withBody || errors.As(err, &late) && late.Timeout() || r.Context().Err() != nil {
			return resp, err
		}
		if n%t.sends != 0 {
			continue
		}
		select {
		case <-time.After(min(time.Duration(n/t.sends)*50*time.Millisecond, 250*time.Millisecond)):
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
}

// contentHeaders are those of a body; forwarding keeps two of them.
var contentHeaders = []string{
	"Allow", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Location",
	"Content-Md5", "Content-Range", "Content-Type", "Expires", "Last-Modified",
}

// forward is what older hosts do: the request is built anew with everything that the
// caller sent, Host and all, but for most of what is said about its body.
func (h *Host) forward(w http.ResponseWriter, r *http.Request, p *handler) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.ContentLength < 0 { // chunked
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	target := url.URL{Scheme: "http", Host: p.addr, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: joinedQuery(r.URL.RawQuery)}
	if resolved, ok := resolved(r.URL.Path); ok {
		target.Path, target.RawPath = resolved, ""
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, target.String(), nil)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	out.Header, out.Host = joined(r.Header), r.Host
	for _, name := range contentHeaders {
		if name != "Content-Type" || len(body) == 0 {
			out.Header.Del(name)
		}
	}
	if len(body) > 0 {
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	add := func(name, value, between string) {
		if old := out.Header.Get(name); old != "" {
			value = old + between + value
		}
		out.Header.Set(name, value)
	}
	add(invocationID, newGUID(), ", ")
	add(hostVersion, Version, ", ")
	add("User-Agent", userAgent, " ")
	resp, err := again{base: h.client.Transport, tries: 1, sends: dotNetSends}.RoundTrip(out)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	defer resp.Body.Close()
	answer(w, resp)
}

// resolved is what .NET's Uri makes of a path that was decoded before: backslashes are slashes, %2E is a dot, and
// what looks like /../ goes up. ok is false where nothing of the kind is in it.
func resolved(decoded string) (up string, ok bool) {
	plain := strings.NewReplacer(`\`, "/", "%2e", ".", "%2E", ".").Replace(decoded)
	if !strings.Contains(plain+"/", "/../") && !strings.Contains(plain+"/", "/./") {
		return "", false
	}
	return path.Clean(plain), true
}

// answer passes on an answer as a whole.
func answer(w http.ResponseWriter, resp *http.Response) {
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.Header().Set("Server", "Kestrel")
	if resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(text)
}

// joinedQuery makes one value of all that a query has for a name.
func joinedQuery(raw string) string {
	var names []string
	values := map[string][]string{}
	for part := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(value)
		if err != nil || part == "" {
			continue
		}
		if _, known := values[name]; !known {
			names = append(names, name)
		}
		values[name] = append(values[name], strings.ReplaceAll(url.QueryEscape(plain), "+", "%20"))
	}
	for i, name := range names {
		names[i] = name + "=" + strings.Join(values[name], ",")
	}
	return strings.Join(names, "&")
}
