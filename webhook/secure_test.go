package webhook_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

// tlsServer serves a name that resolves to this machine.
func tlsServer(t *testing.T, handler http.HandlerFunc, http2 bool) (*webhook.Sender, *webhook.Webhook) {
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	_, roots := certificate(t)
	s := newSender(t, nil, trusting(roots), with(resolving("example.com", addresses("127.0.0.1"))))
	w := hook()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	w.URL = "https://example.com:" + port + "/hook"
	return s, w
}

// C31: a guarded dial keeps the name for SNI, the certificate and Host.
func TestTLSReceiverWithACertificateForItsName(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			var got *http.Request
			var body []byte
			s, w := tlsServer(t, func(_ http.ResponseWriter, r *http.Request) {
				got = r
				body, _ = io.ReadAll(r.Body)
			}, proto == "HTTP/2.0")
			for _, text := range []string{`{"a":1}`, ""} {
				wantAnswer(t, s.Send(t.Context(), w, message(text)), 200)
				if got.Proto != proto || got.TLS.ServerName != "example.com" || !strings.HasPrefix(got.Host, "example.com:") ||
					string(body) != text || got.ContentLength != int64(len(text)) || len(got.TransferEncoding) > 0 || got.Header.Get("Content-Length") == "" && proto == "HTTP/2.0" && text != "" {
					t.Errorf("%s, name %s, host %s, length %d, %q", got.Proto, got.TLS.ServerName, got.Host, got.ContentLength, body)
				}
			}
		})
	}
}

// Many requests share a connection and none is charged for it.
func TestHTTP2ConnectionIsShared(t *testing.T) {
	var mu sync.Mutex
	clients := map[string]bool{}
	s, w := tlsServer(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		clients[r.RemoteAddr] = true
		mu.Unlock()
		_, _ = io.Copy(w, r.Body)
	}, true)
	wantAnswer(t, s.Send(t.Context(), w, message("first")), 200)
	var work sync.WaitGroup
	for i := range 50 {
		work.Go(func() {
			body := strings.Repeat(strconv.Itoa(i), 1000)
			got := s.Send(t.Context(), w, message(body))
			wantAnswer(t, got, 200)
			if string(got.Body) != body || got.Redials != 0 {
				t.Errorf("%d redials, answer of %d bytes", got.Redials, len(got.Body))
			}
		})
	}
	work.Wait()
	if len(clients) != 1 {
		t.Errorf("%d connections, want 1", len(clients))
	}
}

func TestInvalidTLSIsTLS(t *testing.T) {
	cert, roots := certificate(t)
	serve := func(t *testing.T, config *tls.Config) (*webhooktest.Wire, *webhook.Webhook) {
		listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
		if err != nil {
			t.Fatal(err)
		}
		wire := webhooktest.ServeWire(t, listener, webhooktest.Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
		w := hook()
		w.URL = strings.Replace(wire.URL(), "http:", "https:", 1)
		return wire, w
	}
	t.Run("unknown authority", func(t *testing.T) {
		wire, w := serve(t, &tls.Config{Certificates: []tls.Certificate{cert}})
		got := newSender(t, nil).Send(t.Context(), w, message("{}"))
		wantFailure(t, got, "tls")
		if wire.Conns() != 2 || got.Redials != 1 || len(wire.Raw()) != 0 || !strings.Contains(got.Error, "authority") {
			t.Errorf("%d connections, %d redials, %q", wire.Conns(), got.Redials, got.Error)
		}
	})
	t.Run("other name", func(t *testing.T) {
		wire, w := serve(t, &tls.Config{Certificates: []tls.Certificate{cert}})
		_, port, _ := net.SplitHostPort(wire.Address())
		w.URL = "https://receiver.example:" + port + "/"
		got := newSender(t, nil, trusting(roots), with(resolving("receiver.example", addresses("127.0.0.1")))).Send(t.Context(), w, message("{}"))
		wantFailure(t, got, "tls")
		if !strings.Contains(got.Error, "another name") {
			t.Error(got.Error)
		}
	})
	t.Run("old version", func(t *testing.T) {
		_, w := serve(t, &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
		wantFailure(t, newSender(t, nil, trusting(roots)).Send(t.Context(), w, message("{}")), "tls")
	})
	t.Run("wants a client certificate", func(t *testing.T) {
		wire := webhooktest.NewTCPWire(t, func(c *webhooktest.Conn) {
			config := &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert}
			_ = tls.Server(c, config).Handshake()
			webhooktest.Silence(c) // closing at once could overtake the alert
		})
		w := hook()
		w.URL = strings.Replace(wire.URL(), "http:", "https:", 1)
		got := newSender(t, nil, trusting(roots)).Send(t.Context(), w, message("{}"))
		// When net/http reads the alert while it writes, it forgets the alert.
		if got.ErrorClass != "tls" && got.ErrorClass != "reset" {
			t.Errorf("class %q", got.ErrorClass)
		}
	})
	t.Run("plain text", func(t *testing.T) {
		wire := webhooktest.NewTCPWire(t, func(c *webhooktest.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 secret-text\r\n\r\n") })
		w := hook()
		w.URL = strings.Replace(wire.URL(), "http:", "https:", 1)
		got := newSender(t, nil).Send(t.Context(), w, message("{}"))
		wantFailure(t, got, "tls")
		if wire.Conns() != 2 || strings.Contains(got.Error, "secret-text") {
			t.Errorf("%d connections, %q", wire.Conns(), got.Error)
		}
	})
	t.Run("closed in the handshake", func(t *testing.T) {
		wire := webhooktest.NewTCPWire(t, func(c *webhooktest.Conn) { _, _ = c.Read(make([]byte, 10)) })
		w := hook()
		w.URL = strings.Replace(wire.URL(), "http:", "https:", 1)
		wantFailure(t, newSender(t, nil).Send(t.Context(), w, message("{}")), "tls")
		if wire.Conns() != 2 {
			t.Errorf("%d connections", wire.Conns())
		}
	})
}

// frames is a scripted HTTP/2 receiver: reply is called with the connection's
// and the stream's number after a whole request has been read.
type frames struct {
	mu     sync.Mutex
	bodies []string
	conns  int
	reply  func(f *http2.Framer, conn int, stream uint32) error
	// part, where there is one, is called with how much of bodies has come over a connection, each time.
	part func(f *http2.Framer, c *webhooktest.Conn, taken int) error
}

func (r *frames) count() (conns int, bodies []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conns, append([]string(nil), r.bodies...)
}

func (r *frames) serve(c *webhooktest.Conn) {
	r.mu.Lock()
	r.conns++
	r.mu.Unlock()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	bodies, taken := map[uint32]*bytes.Buffer{}, 0
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		id := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			_ = f.WritePing(true, frame.Data)
		case *http2.HeadersFrame:
			bodies[id] = new(bytes.Buffer)
		case *http2.DataFrame:
			bodies[id].Write(frame.Data())
			taken += len(frame.Data())
			if r.part != nil && r.part(f, c, taken) != nil {
				return
			}
		}
		if flags := frame.Header().Flags; bodies[id] != nil && flags.Has(http2.FlagDataEndStream) {
			r.mu.Lock()
			r.bodies = append(r.bodies, bodies[id].String())
			r.mu.Unlock()
			delete(bodies, id)
			if r.reply(f, c.N, id) != nil {
				return
			}
		}
	}
}

func answerHeaders(f *http2.Framer, stream uint32, status string, last bool) error {
	var block bytes.Buffer
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: status})
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: last})
}

// C23 b, and what HTTP/2 says was not processed: once more on a new connection.
// What may have been processed is not repeated.
func TestHTTP2RefusalsAndResets(t *testing.T) {
	goAway := func(f *http2.Framer, last uint32) error {
		return errors.Join(f.WriteGoAway(last, http2.ErrCodeNo, []byte("secret-text REFUSED_STREAM; received from peer")), io.EOF)
	}
	type reply = func(f *http2.Framer, conn int, stream uint32) error
	cases := map[string]struct {
		reply    reply
		requests int
		class    string
	}{
		"GOAWAY before it, then an answer": {func(f *http2.Framer, conn int, stream uint32) error {
			if conn == 1 {
				return goAway(f, 0)
			}
			return answerHeaders(f, stream, "200", true)
		}, 2, ""},
		"refused, then an answer": {func(f *http2.Framer, conn int, stream uint32) error {
			if conn == 1 {
				return f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
			}
			return answerHeaders(f, stream, "200", true)
		}, 2, ""},
		"GOAWAY before it, always": {func(f *http2.Framer, _ int, _ uint32) error { return goAway(f, 0) }, 2, "reset"},
		"refused, always": {func(f *http2.Framer, _ int, stream uint32) error {
			return f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
		}, 2, "reset"},
		"GOAWAY with a fault before it, then an answer": {func(f *http2.Framer, conn int, stream uint32) error {
			if conn == 1 {
				return errors.Join(f.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("secret-text")), io.EOF)
			}
			return answerHeaders(f, stream, "200", true)
		}, 2, ""},
		"GOAWAY with a fault before it, always": {func(f *http2.Framer, _ int, _ uint32) error {
			return errors.Join(f.WriteGoAway(0, http2.ErrCodeInadequateSecurity, []byte("secret-text")), io.EOF)
		}, 2, "reset"},
		"GOAWAY with a fault after it": {func(f *http2.Framer, _ int, stream uint32) error {
			return errors.Join(f.WriteGoAway(stream, http2.ErrCodeInternal, nil), io.EOF)
		}, 1, "reset"},
		"GOAWAY after it": {func(f *http2.Framer, _ int, stream uint32) error { return goAway(f, stream) }, 1, "reset"},
		"protocol error": {func(f *http2.Framer, _ int, stream uint32) error {
			return f.WriteRSTStream(stream, http2.ErrCodeProtocol)
		}, 1, "reset"},
		"internal error": {func(f *http2.Framer, _ int, stream uint32) error {
			return f.WriteRSTStream(stream, http2.ErrCodeInternal)
		}, 1, "reset"},
		"end": {func(*http2.Framer, int, uint32) error { return io.EOF }, 1, "reset"},
	}
	cert, roots := certificate(t)
	for name, c := range cases {
		for _, body := range []string{`{"a":1}`, ""} {
			t.Run(name+"/"+body, func(t *testing.T) {
				listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
				if err != nil {
					t.Fatal(err)
				}
				receiver := &frames{reply: c.reply}
				wire := webhooktest.ServeWire(t, listener, receiver.serve)
				w := hook()
				w.URL = strings.Replace(wire.URL(), "http:", "https:", 1)
				got := newSender(t, nil, trusting(roots)).Send(t.Context(), w, message(body))
				if c.class == "" {
					wantAnswer(t, got, 200)
				} else {
					wantFailure(t, got, c.class)
				}
				conns, bodies := receiver.count()
				if len(bodies) != c.requests || conns < c.requests || got.Redials != len(bodies)-1 || strings.Contains(got.Error, "secret-text") {
					t.Errorf("%d requests over %d connections, %d redials, %q", len(bodies), conns, got.Redials, got.Error)
				}
				if name == "GOAWAY with a fault before it, always" && !strings.HasSuffix(got.Error, "GOAWAY with INADEQUATE_SECURITY") {
					t.Errorf("%q does not name the fault", got.Error)
				}
				for _, b := range bodies {
					if b != body {
						t.Errorf("a request had the body %q", b)
					}
				}
				if got.Duration > 3*time.Second {
					t.Errorf("took %v", got.Duration)
				}
			})
		}
	}
}
