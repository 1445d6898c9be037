package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// outcome is what a client makes of an answer.
type outcome struct {
	failed bool
	status int
	header http.Header
	length int64
	coding []string
	body   string
	broken bool // the body ended with an error
}

// ask sends a request through a client to a receiver that answers with raw and closes.
func ask(t *testing.T, client func(dial func(ctx context.Context, network, address string) (net.Conn, error)) (http.RoundTripper, func()), raw []byte) outcome {
	t.Helper()
	var serving sync.WaitGroup
	round, stop := client(func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		serving.Go(func() {
			defer theirs.Close()
			if r, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = theirs.Write(raw)
			}
		})
		return ours, nil
	})
	defer func() { stop(); serving.Wait() }()
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(int, textproto.MIMEHeader) error { return nil }, // or net/http takes only five
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://receiver.example/hook", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := round.RoundTrip(r)
	if err != nil {
		return outcome{failed: true}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return outcome{
		status: response.StatusCode, header: response.Header, length: response.ContentLength, coding: response.TransferEncoding,
		body: string(body), broken: err != nil,
	}
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

func ours(dial dialer) (http.RoundTripper, func()) {
	t := New(Config{
		Dial:    func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, "tcp", address) },
		KeepOld: func(error) time.Duration { return 0 }, TLS: &tls.Config{MinVersion: tls.VersionTLS12},
	})
	return t, t.Close
}

func theirs(dial dialer) (http.RoundTripper, func()) {
	t := &http.Transport{DialContext: dial, DisableCompression: true, MaxResponseHeaderBytes: maxHead}
	return t, t.CloseIdleConnections
}

// argued is why an answer may be taken otherwise than net/http takes it; "" when it may not.
func argued(raw []byte, got, want outcome) string {
	switch {
	case bytes.Count(raw, []byte("\n")) >= maxLines && (got.failed || len(got.header) == 0):
		return "net/http does not bound the lines of a head"
	case want.failed && got.status >= 200 && got.status < 300 && len(got.header) == 0 && got.body == "":
		return "a 2xx counts at its status line, whatever follows it"
	case got.failed && (want.status == http.StatusSwitchingProtocols || want.status < 100):
		return "101 and what is below 100 is no final answer"
	case want.failed && bytes.Count(raw, []byte("\n")) > freeInterim:
		return "net/http bounds the interim answers' bytes together"
	}
	return ""
}

func compare(t *testing.T, raw []byte) {
	t.Helper()
	got, want := ask(t, ours, raw), ask(t, theirs, raw)
	if !reflect.DeepEqual(got, want) && argued(raw, got, want) == "" {
		t.Errorf("%q:\n  here     %+v\n  net/http %+v", raw, got, want)
	}
}

// corpus are answers in every form that servers, and those who attack, have.
var corpus = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nuntil the end",
	"HTTP/1.1 200\r\n\r\n", "HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "HTTP/1.1 099 X\r\n\r\n",
	"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 500 X\r\nContent-Length: 5\r\n\r\nok", "HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 503 X\r\nRetry-After: 7\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\nTrailer: a\r\n\r\n", "HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
	"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n", "HTTP/1.1 500 X\r\nTransfer-Encoding: gzip\r\n\r\nok",
	"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 500 X\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
	"HTTP/1.1 500 X\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "HTTP/1.1 500 X\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nab",
	"HTTP/1.1 500 X\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 500 X\r\nContent-Length: +2\r\n\r\nab", "HTTP/1.1 500 X\r\nContent-Length: 0x2\r\n\r\nab",
	"HTTP/1.1 500 X\r\nContent-Length: 99999999999999999999\r\n\r\n", "HTTP/1.1 500 X\r\nContent-Length: \r\n\r\nab", "HTTP/1.1 500 X\r\nContent-Length : 2\r\n\r\nab",
	"HTTP/1.1 500 X\r\nContent-Length: 1, 1\r\n\r\na", "HTTP/1.1 500 X\r\n Folded: a\r\n\r\n", "HTTP/1.1 500 X\r\nA: b\r\n c\r\n\r\n", "HTTP/1.1 500 X\r\nA\r\n\r\n",
	"HTTP/1.1 500 X\r\n: b\r\n\r\n", "HTTP/1.1 500 X\r\nA: \x00\r\n\r\n", "HTTP/1.1 500 X\r\nA\x00: b\r\n\r\n", "HTTP/1.1 500 X\r\nA: b\rC: d\r\n\r\n",
	"HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 204 X\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 X\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 103 X\r\nLink: a\r\n\r\nHTTP/1.1 500 X\r\n\r\n", "HTTP/1.1 100 X\r\n\r\n",
	"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "HTTP/1.1 100 X\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n\r\n",
	"", "\r\n", "\r\nHTTP/1.1 200 OK\r\n\r\n", "HTTP", "HTTP/1.1", "HTTP/1.1 2", "HTTP/1.1 200", "HTTP/1.1 2000 X\r\n\r\n", "HTTP/1.1 20 X\r\n\r\n", "HTTP/1.1 -20 X\r\n\r\n",
	"HTTP/1.1 +20 X\r\n\r\n", "HTTP/11 200 X\r\n\r\n", "HTTP/1.10 200 X\r\n\r\n", "http/1.1 200 X\r\n\r\n", "ICY 200 OK\r\n\r\n", "200 OK\r\n\r\n", "<html>400</html>",
	"HTTP/1.1\t200 OK\r\n\r\n", "HTTP/1.1 200\tOK\r\n\r\n", "HTTP/1.1 200 " + strings.Repeat("x", 5000) + "\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 500 X\r\nPragma: no-cache\r\nConnection: keep-alive, close\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 500 X\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 302 X\r\nLocation: http://%zz\r\nContent-Length: 0\r\n\r\n",
}

// What an answer means is what net/http makes of it, but for the differences that are argued.
func TestAnswersAreReadAsNetHTTPReadsThem(t *testing.T) {
	differ := 0
	for _, raw := range corpus {
		compare(t, []byte(raw))
		if got, want := ask(t, ours, []byte(raw)), ask(t, theirs, []byte(raw)); !reflect.DeepEqual(got, want) {
			differ++
		}
	}
	if differ > 6 {
		t.Errorf("%d of %d answers differ, each for a reason: more than there were", differ, len(corpus))
	}
	compare(t, []byte("HTTP/1.1 500 X\r\nA: "+strings.Repeat("a", maxHead)+"\r\n\r\n"))
	compare(t, []byte("HTTP/1.1 500 X\r\nA: "+strings.Repeat("a", maxHead/2)+"\r\nContent-Length: 0\r\n\r\n"))
	body := strings.Repeat("\n", 3*maxLines)
	compare(t, []byte("HTTP/1.1 500 X\r\n"+strings.Repeat("A: b\r\n", maxLines/2)+"Content-Length: 3000\r\n\r\n"+body))
}

func FuzzAnswers(f *testing.F) {
	for _, raw := range corpus {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if bytes.Count(raw, []byte("HTTP/1")) <= freeInterim { // beyond it, they are slowed down
			compare(t, raw)
		}
	})
}

// No header, method, host or length can make a second request of one.
func TestNothingInARequestSmuggles(t *testing.T) {
	good := func() *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://receiver.example/hook", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for name, spoil := range map[string]func(*http.Request){
		"line in a value":    func(r *http.Request) { r.Header["X"] = []string{"a\r\nY: b"} },
		"line in a name":     func(r *http.Request) { r.Header["X\r\nY"] = []string{"a"} },
		"blank in a name":    func(r *http.Request) { r.Header["Content-Length "] = []string{"0"} },
		"empty name":         func(r *http.Request) { r.Header[""] = []string{"a"} },
		"zero in a value":    func(r *http.Request) { r.Header["X"] = []string{"\x00"} },
		"line in the method": func(r *http.Request) { r.Method = "POST / HTTP/1.1\r\nX: y\r\n\r\nPOST" },
		"no host":            func(r *http.Request) { r.URL.Host = "" },
		"other scheme":       func(r *http.Request) { r.URL.Scheme = "ftp" },
	} {
		dialled := false
		round, stop := ours(func(context.Context, string, string) (net.Conn, error) { dialled = true; return nil, io.EOF })
		r := good()
		spoil(r)
		_, err := round.RoundTrip(r)
		var e *Error
		if !errors.As(err, &e) || e.Stage != Request || dialled {
			t.Errorf("%s: %v, dialled %v", name, err, dialled)
		}
		stop()
	}
	sent := func(change func(*http.Request)) string {
		var raw bytes.Buffer
		var serving sync.WaitGroup
		round, stop := ours(func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			serving.Go(func() {
				defer theirs.Close()
				if r, err := http.ReadRequest(bufio.NewReader(io.TeeReader(theirs, &raw))); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(theirs, "HTTP/1.1 204 X\r\n\r\n")
				}
			})
			return ours, nil
		})
		defer stop()
		r := good()
		change(r)
		response, err := round.RoundTrip(r)
		if err != nil {
			return "error"
		}
		_ = response.Body.Close()
		serving.Wait()
		return raw.String()
	}
	text := sent(func(r *http.Request) {
		r.Header["Content-Length"], r.Header["Transfer-Encoding"], r.Header["Host"] = []string{"999"}, []string{"chunked"}, []string{"other.example"}
	})
	if strings.Count(text, "Content-Length: 2\r\n") != 1 || strings.Contains(text, "999") || strings.Contains(text, "chunked") || strings.Contains(text, "other.example") {
		t.Errorf("the framing follows headers: %q", text)
	}
	for _, length := range []int64{1, 3} { // a body of another length than was said
		if text := sent(func(r *http.Request) { r.ContentLength = length }); text != "error" && !strings.HasSuffix(text, "{") {
			t.Errorf("length %d: %q", length, text)
		}
	}
}
