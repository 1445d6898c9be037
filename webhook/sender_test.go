package webhook_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/webhooktest"
)

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// hook is a webhook that webhooktest receivers take.
func hook() *webhook.Webhook {
	return &webhook.Webhook{
		ID: "wh_1", Queue: "orders", URL: "http://127.0.0.1/hook/path-secret?token=query-secret",
		Secrets: []webhook.Secret{{Key: testSecret}}, Timeout: 5 * time.Second,
	}
}

func message(body string) webhook.Request {
	return webhook.Request{
		MessageID: "5e0b1f6a-3c1e-4f6b-9d53-0a8c2b1f7d11", Queue: "orders", Attempt: 3,
		Body: []byte(body), ContentType: "application/json",
	}
}

// newSender makes a sender that dials with dial; it is closed with the test.
func newSender(t testing.TB, dial webhook.DialFunc, change ...func(*webhook.Options)) *webhook.Sender {
	t.Helper()
	opts := webhook.Options{Version: "1.2.3", Guard: webhook.GuardOptions{AllowPrivate: true}, DialContext: dial}
	for _, f := range change {
		f(&opts)
	}
	if opts.TracerProvider == nil { // as where no collector is
		opts.Unrecorded, opts.TracerProvider = true, noop.NewTracerProvider()
	}
	s, err := webhook.NewSender(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func wantAnswer(t testing.TB, r webhook.Result, status int) {
	t.Helper()
	if r.Status != status || r.ErrorClass != "" || r.Error != "" {
		t.Errorf("status %d, class %q, error %q; want status %d and nothing else", r.Status, r.ErrorClass, r.Error, status)
	}
}

func wantFailure(t testing.TB, r webhook.Result, class string) {
	t.Helper()
	if r.Status != 0 || r.ErrorClass != class || r.Error == "" || len(r.Error) > 120 {
		t.Errorf("status %d, class %q, error %q; want no status, class %q and a short text", r.Status, r.ErrorClass, r.Error, class)
	}
	webhooktest.AssertNoSecrets(t, []string{fmt.Sprintf("%+v", r)}, testSecret, "path-secret", "query-secret", "127.0.0.1", "receiver.example")
}

func TestRequestIsExactlyWhatIsDocumented(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(nil)
		defer receiver.Close()
		s := newSender(t, receiver.Dial)
		defer s.Close()
		w := hook()
		w.Headers = map[string]string{"Authorization": "Bearer abc", "X-Tenant": "7"}
		wantAnswer(t, s.Send(t.Context(), w, message(`{"a":1}`)), 200)

		got := receiver.Received()
		if len(got) != 1 {
			t.Fatalf("%d requests, want 1", len(got))
		}
		want := map[string]string{
			"Webhook-Id": "5e0b1f6a-3c1e-4f6b-9d53-0a8c2b1f7d11", "Webhook-Timestamp": strconv.FormatInt(time.Now().Unix(), 10),
			"Content-Type": "application/json", "User-Agent": "pushlease/1.2.3", "Pushlease-Queue": "orders",
			"Pushlease-Attempt": "3", "Accept-Encoding": "identity", "Authorization": "Bearer abc", "X-Tenant": "7",
			"Content-Length": "7", "Webhook-Signature": got[0].Header.Get("Webhook-Signature"),
		}
		for name, values := range got[0].Header {
			if len(values) != 1 || values[0] != want[name] {
				t.Errorf("header %s is %q, want %q", name, values, want[name])
			}
			delete(want, name)
		}
		if len(want) > 0 {
			t.Errorf("missing headers: %v", want)
		}
		if got[0].Method != "POST" || got[0].Path != "/hook/path-secret?token=query-secret" || got[0].Host != "127.0.0.1" {
			t.Errorf("%s %s at host %s", got[0].Method, got[0].Path, got[0].Host)
		}
	})
}

// C27: bytes in = bytes sent = bytes signed, with a plain Content-Length.
func TestBytesSentAreBytesSigned(t *testing.T) {
	bodies := map[string]string{
		"numbers and escapes": `{"b":1,"a":"<é & \u001B>","n":12345678901234567890,"f":1.0}`,
		"duplicate keys":      `{"a":1,"a":2}`,
		"trailing newline":    "{}\n",
		"invalid JSON":        `{"a":`,
		"empty":               "",
		"binary":              "\xff\xfe\x00\x01",
		"BOM":                 "\xef\xbb\xbf{}",
		"lone CR and LF":      "a\rb\nc",
		"64 KiB":              strings.Repeat("x", 64<<10),
	}
	library, err := standardwebhooks.NewWebhook(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			wire := webhooktest.NewTCPWire(t, webhooktest.Answer("HTTP/1.1 204 No Content\r\n\r\n"))
			s := newSender(t, nil)
			w := hook()
			w.URL = wire.URL()
			wantAnswer(t, s.Send(t.Context(), w, message(body)), 204)

			head, sent, _ := strings.Cut(string(wire.Raw()[0]), "\r\n\r\n")
			if sent != body {
				t.Errorf("sent %q, want %q", sent, body)
			}
			lower := strings.ToLower(head)
			if strings.Count(lower, "\r\ncontent-length: "+strconv.Itoa(len(body))+"\r\n") != 1 ||
				strings.Contains(lower, "transfer-encoding") || strings.Contains(lower, "content-encoding") {
				t.Errorf("framing: %s", head)
			}
			header := http.Header{}
			for line := range strings.SplitSeq(head, "\r\n") {
				if name, value, ok := strings.Cut(line, ": "); ok {
					header.Add(name, value)
				}
			}
			if err := library.Verify([]byte(sent), header); err != nil {
				t.Errorf("the published library: %v", err)
			}
		})
	}
}

// C29: hours apart, each attempt has the same id and a signature of its own time.
func TestEachAttemptIsSignedAnew(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(webhooktest.Status(500))
		defer receiver.Close()
		s := newSender(t, receiver.Dial)
		defer s.Close()
		for attempt := range 6 {
			r := message("{}")
			r.MessageID, r.Attempt = "a.b", attempt+1
			wantAnswer(t, s.Send(t.Context(), hook(), r), 500)
			time.Sleep(3 * time.Hour)
		}
		got := receiver.Received()
		if len(got) != 6 {
			t.Fatalf("%d requests, want 6", len(got))
		}
		for i, r := range got {
			if err := webhook.Verify([]string{testSecret}, r.Header, r.Body, r.At, 5*time.Second); err != nil || r.Header.Get("webhook-id") != "a~2Eb" {
				t.Errorf("attempt %d: id %q, %v", i+1, r.Header.Get("webhook-id"), err)
			}
		}
	})
}

// C28: during a rotation a receiver with either secret verifies, after it only
// one with the new.
func TestRotationSignsWithBothSecrets(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(nil)
		defer receiver.Close()
		s := newSender(t, receiver.Dial)
		defer s.Close()
		fresh := webhook.NewSecret(time.Now())
		w := hook()
		w.Secrets = []webhook.Secret{fresh, {Key: testSecret, ExpiresAt: time.Now().Add(24 * time.Hour)}}
		wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)
		time.Sleep(24 * time.Hour)
		wantAnswer(t, s.Send(t.Context(), w, message("{}")), 200)

		during, after := receiver.Received()[0], receiver.Received()[1]
		first, _, two := strings.Cut(during.Header.Get("webhook-signature"), " ")
		oldest, err := webhook.Sign(testSecret, during.Header.Get("webhook-id"), during.At, during.Body)
		if err != nil || !two || first != oldest { // C97: some libraries read the first one only
			t.Errorf("two signatures %v, oldest first %v, error %v", two, first == oldest, err)
		}
		for _, secret := range []string{fresh.Key, testSecret} {
			if err := webhook.Verify([]string{secret}, during.Header, during.Body, during.At, time.Minute); err != nil {
				t.Errorf("during the rotation: %v", err)
			}
		}
		if err := webhook.Verify([]string{fresh.Key}, after.Header, after.Body, after.At, time.Minute); err != nil {
			t.Errorf("the new secret after the rotation: %v", err)
		}
		if err := webhook.Verify([]string{testSecret}, after.Header, after.Body, after.At, time.Minute); !errors.Is(err, webhook.ErrBadSignature) {
			t.Errorf("the old secret after the rotation: %v", err)
		}
	})
}

// C24: every status is given as it came; 1xx and what is no status are not.
func TestEveryStatusIsTheOutcome(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var status string
		wire := webhooktest.NewWire(t, func(c *webhooktest.Conn) {
			if _, _, err := c.ReadRequest(); err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 "+status+" X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			}
		})
		s := newSender(t, wire.Dial)
		for code := 200; code <= 999; code++ {
			status = strconv.Itoa(code)
			wantAnswer(t, s.Send(t.Context(), hook(), message("{}")), code)
		}
		for _, status = range []string{"000", "101", "-20", "20", "2000", "abc", ""} {
			wantFailure(t, s.Send(t.Context(), hook(), message("{}")), "protocol")
		}
		if want := 800 + 7; wire.Conns() != want {
			t.Errorf("%d connections, want %d: nothing is repeated", wire.Conns(), want)
		}
	})
}

// C22: no redirect is followed; its host is told.
func TestRedirectIsTheAnswer(t *testing.T) {
	locations := map[string]string{
		"https://login.example:8443/x?token=t": "login.example",
		"http://169.254.169.254/latest":        "169.254.169.254",
		"//Other.Example./":                    "other.example",
		"/login":                               "127.0.0.1",
		"http://u:p@[2001:db8::1]/":            "2001:db8::1",
		"":                                     "",
		"http://%zz":                           "",
		"https://<script>/":                    "",
		"http://a b/":                          "",
		"javascript:alert(1)":                  "",
	}
	bubble.Test(t, func(t *testing.T) {
		var status int
		var location string
		receiver := webhooktest.NewReceiver(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Location"] = []string{location}
			w.WriteHeader(status)
		}))
		defer receiver.Close()
		s := newSender(t, receiver.Dial)
		defer s.Close()
		sent := 0
		for _, status = range []int{300, 301, 302, 303, 304, 307, 308} {
			for loc, host := range locations {
				location = loc
				sent++
				got := s.Send(t.Context(), hook(), message("{}"))
				wantAnswer(t, got, status)
				if got.RedirectHost != host {
					t.Errorf("%d to %q: host %q, want %q", status, loc, got.RedirectHost, host)
				}
			}
		}
		if got := len(receiver.Received()); got != sent {
			t.Errorf("%d requests for %d attempts", got, sent)
		}
		for _, address := range receiver.Dialed() {
			if address != "127.0.0.1:80" {
				t.Errorf("dialled %s", address)
			}
		}
	})
}

func TestAnswerHeadersAreKeptAndCut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "120")
			w.Header().Set("RateLimit", strings.Repeat("r", 300))
			w.Header().Set("pushlease-decision", "dead-letter")
			w.WriteHeader(503)
			_, _ = io.WriteString(w, "duplicate invoice")
		}))
		defer receiver.Close()
		s := newSender(t, receiver.Dial)
		defer s.Close()
		got := s.Send(t.Context(), hook(), message("{}"))
		wantAnswer(t, got, 503)
		if got.RetryAfter != "120" || got.RateLimit != strings.Repeat("r", 256) || got.Steering != "dead-letter" || string(got.Body) != "duplicate invoice" {
			t.Errorf("got %+v", got)
		}
	})
}

// C25: one deadline over everything; no progress extends it.
func TestDeadlineIsNotExtended(t *testing.T) {
	scripts := map[string]webhooktest.Script{
		"silence":         webhooktest.Silence,
		"hang":            webhooktest.Hang,
		"drip":            webhooktest.Drip(time.Second),
		"103 each second": webhooktest.Interim(time.Second),
		"103 each ms":     webhooktest.Interim(time.Millisecond),
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				wire := webhooktest.NewWire(t, script)
				s := newSender(t, wire.Dial)
				got := s.Send(t.Context(), hook(), message("{}"))
				wantFailure(t, got, "timeout")
				if got.Duration != 5*time.Second || wire.Conns() != 1 || got.Redials != 0 {
					t.Errorf("after %v, %d connections, %d redials", got.Duration, wire.Conns(), got.Redials)
				}
			})
		})
	}
	t.Run("stalled handshake", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			wire := webhooktest.NewWire(t, webhooktest.Silence)
			s := newSender(t, wire.Dial)
			w := hook()
			w.URL = "https://127.0.0.1/"
			got := s.Send(t.Context(), w, message("{}"))
			wantFailure(t, got, "timeout")
			if got.Duration != 5*time.Second {
				t.Errorf("after %v", got.Duration)
			}
		})
	})
	t.Run("stalled dial", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			s := newSender(t, stalledDial)
			got := s.Send(t.Context(), hook(), message("{}"))
			wantFailure(t, got, "timeout")
			if got.Duration != 5*time.Second {
				t.Errorf("after %v", got.Duration)
			}
		})
	})
}

// The status decides, also when the body does not come or breaks. C62: a 2xx ends the attempt;
// for the body of any other, a text that rules look for, is waited a little longer.
func TestStatusDecidesWhateverTheBodyDoes(t *testing.T) {
	const listened = 5*time.Millisecond + time.Microsecond // to a new host, before the request
	bubble.Test(t, func(t *testing.T) {
		for status, want := range map[int]struct {
			after time.Duration
			body  string
		}{200: {time.Second, "aa"}, 299: {time.Second, "aa"}, 503: {5 * time.Second, "aaaaaaaaaaaa"}} {
			wire := webhooktest.NewWire(t, webhooktest.DripBody(status, 400*time.Millisecond))
			s := newSender(t, wire.Dial)
			w := hook()
			w.Timeout = 30 * time.Second
			got := s.Send(t.Context(), w, message("{}"))
			wantAnswer(t, got, status)
			if got.Duration != listened+want.after || string(got.Body) != want.body {
				t.Errorf("%d: after %v with %q", status, got.Duration, got.Body)
			}
		}
	})
	for name, answer := range map[string]string{
		"short":       "HTTP/1.1 409 X\r\nContent-Length: 100\r\n\r\nshort",
		"bad chunk":   "HTTP/1.1 409 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\nzz\r\n",
		"bad trailer": "HTTP/1.1 409 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n0\r\n\x00\x00\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				wire := webhooktest.NewWire(t, func(c *webhooktest.Conn) {
					if _, _, err := c.ReadRequest(); err == nil {
						_, _ = io.WriteString(c, answer)
					}
				})
				s := newSender(t, wire.Dial)
				got := s.Send(t.Context(), hook(), message("{}"))
				wantAnswer(t, got, 409)
				if string(got.Body) != "short" || wire.Conns() != 1 {
					t.Errorf("body %q over %d connections", got.Body, wire.Conns())
				}
			})
		})
	}
}

func TestCancelledIsToldFromTimeout(t *testing.T) {
	errLeaseLost := errors.New("the lease is lost")
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cause": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(errLeaseLost) })
			return ctx, func() {}
		},
		"caller's own deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				wire := webhooktest.NewWire(t, webhooktest.Hang)
				s := newSender(t, wire.Dial)
				ctx, cancel := end(t.Context())
				defer cancel()
				got := s.Send(ctx, hook(), message("{}"))
				wantFailure(t, got, "canceled")
				if got.Duration != time.Second || wire.Conns() != 1 {
					t.Errorf("after %v, %d connections", got.Duration, wire.Conns())
				}
			})
		})
	}
}

// A row that is older than the rules fails by itself (C30), without a socket.
func TestBadRegistrationIsARequestFailure(t *testing.T) {
	s := newSender(t, func(context.Context, string, string) (conn net.Conn, err error) {
		t.Error("dialled")
		return nil, io.EOF
	})
	for name, spoil := range map[string]func(*webhook.Webhook){
		"url":            func(w *webhook.Webhook) { w.URL = "http://receiver.example:port/" },
		"scheme":         func(w *webhook.Webhook) { w.URL = "ftp://receiver.example/" },
		"userinfo":       func(w *webhook.Webhook) { w.URL = "http://u:path-secret@receiver.example/" },
		"header":         func(w *webhook.Webhook) { w.Headers = map[string]string{"X": "a\r\nY: 1"} },
		"override":       func(w *webhook.Webhook) { w.Headers = map[string]string{"WEBHOOK-signature": "v1,x"} },
		"repeatable":     func(w *webhook.Webhook) { w.Headers = map[string]string{"idempotency-key": "1"} },
		"secret":         func(w *webhook.Webhook) { w.Secrets = []webhook.Secret{{Key: "whsec_path-secret"}} },
		"no secret":      func(w *webhook.Webhook) { w.Secrets = nil },
		"expired secret": func(w *webhook.Webhook) { w.Secrets[0].ExpiresAt = time.Now() },
		"timeout":        func(w *webhook.Webhook) { w.Timeout = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			w := hook()
			spoil(w)
			wantFailure(t, s.Send(t.Context(), w, message("{}")), "request")
		})
	}
}

// C30: what comes with a message can not make a header.
func TestMessageMetadataCanNotInjectHeaders(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(nil)
		defer receiver.Close()
		s := newSender(t, receiver.Dial)
		defer s.Close()
		for contentType, want := range map[string]string{
			"text/plain\r\nX-Evil: 1": "text/plain",
			"\r\nX-Evil: 1":           "application/octet-stream",
			"text/\x00":               "text/",
			"":                        "application/octet-stream",
		} {
			r := message("{}")
			r.ContentType, r.Queue, r.MessageID = contentType, "q\r\nX-Evil: 1", "a.b\r\nX-Evil: 1"
			wantAnswer(t, s.Send(t.Context(), hook(), r), 200)
			all := receiver.Received()
			got := all[len(all)-1].Header
			if got.Get("Content-Type") != want || got.Get("Pushlease-Queue") != "q" || got.Get("X-Evil") != "" ||
				got.Get("Webhook-Id") != "a~2Eb~0D~0AX-Evil~3A~201" {
				t.Errorf("%q: %v", contentType, got)
			}
		}
	})
}

// I8: what fails at one webhook does not touch the connections of another.
func TestConnectionsAreReusedAcrossFailuresOfOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		good := webhooktest.NewReceiver(nil)
		defer good.Close()
		bad := webhooktest.NewWire(t, webhooktest.Reset)
		s := newSender(t, func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasSuffix(address, ":81") {
				return bad.Dial(ctx, network, address)
			}
			return good.Dial(ctx, network, address)
		})
		defer s.Close()
		failing := hook()
		failing.URL = "http://127.0.0.1:81/"
		for range 10 {
			wantAnswer(t, s.Send(t.Context(), hook(), message("{}")), 200)
			wantFailure(t, s.Send(t.Context(), failing, message("{}")), "reset")
		}
		if n := len(good.Dialed()); n != 1 {
			t.Errorf("%d connections to the good receiver, want 1", n)
		}
	})
}

func TestConcurrentSendsKeepTheirBodies(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		receiver := webhooktest.NewReceiver(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		}))
		defer receiver.Close()
		s := newSender(t, receiver.Dial)
		defer s.Close()
		var work sync.WaitGroup
		for i := range 200 {
			work.Go(func() {
				body := strings.Repeat(strconv.Itoa(i), 100)
				got := s.Send(t.Context(), hook(), message(body))
				wantAnswer(t, got, 200)
				if string(got.Body) != body {
					t.Errorf("message %d got the answer of another", i)
				}
			})
		}
		work.Wait()
		distinct := map[[sha256.Size]byte]bool{}
		for _, r := range receiver.Received() {
			distinct[r.SHA256] = true
		}
		if len(distinct) != 200 {
			t.Errorf("%d distinct bodies arrived, want 200", len(distinct))
		}
	})
}

func TestARetryAfterThatIsNoneIsNotKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var answer string
		receiver := webhooktest.NewReceiver(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Retry-After"] = strings.Split(answer, "|")
			w.Header().Set("Date", "Wed, 21 Oct 2026 07:27:00 GMT")
			if answer == "soon" {
				w.Header().Set("Date", "Bearer T0KEN")
			}
			w.WriteHeader(503)
		}))
		defer receiver.Close()
		s := newSender(t, receiver.Dial)
		defer s.Close()
		for value, want := range map[string]string{
			"Bearer T0KEN": "", "-1": "", "1.5": "", "soon": "", "0": "0", "120": "120",
			"Wed, 21 Oct 2026 07:28:00 GMT": "Wed, 21 Oct 2026 07:28:00 GMT",
			"10|60":                         "10, 60", "T0KEN|60": "60", "10, 60": "10, 60", "10, T0KEN": "10", "T0KEN, 10": "10", // several lines
			"Wed, 21 Oct 2026 07:28:00 GMT, 120":         "Wed, 21 Oct 2026 07:28:00 GMT, 120", // joined by a proxy
			"T0KEN, Wednesday, 21-Oct-26 07:28:00 GMT|7": "Wednesday, 21-Oct-26 07:28:00 GMT, 7",
			strings.Repeat("0", 255) + "|60":             strings.Repeat("0", 255), strings.Repeat("0", 257) + "|60": "",
		} {
			answer = value
			got := s.Send(t.Context(), hook(), message("{}"))
			if got.RetryAfter != want || (got.Date == "Wed, 21 Oct 2026 07:27:00 GMT") != (answer != "soon") || strings.Contains(got.Date, "T0KEN") {
				t.Errorf("%q is kept as %q, with the date %q", value, got.RetryAfter, got.Date)
			}
		}
	})
}
