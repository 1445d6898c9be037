package azurequeue_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/queue/azurequeue"
)

const (
	fakeSAS = "sv=2024-11-04&ss=q&srt=sco&sp=raup&se=2099-01-01&sig=c2VjcmV0c2lnbmF0dXJl"
	rfc1123 = "Sat, 28 Nov 2026 01:00:00 GMT"
)

// wire is a request as the service sees it.
type wire struct {
	method, uri, contentLength, contentType string
	body                                    string
	receipt                                 string // decoded
}

// fake is a queue service that answers as the test says and notes what came.
type fake struct {
	*httptest.Server
	mu   sync.Mutex
	seen []wire
}

func newFake(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *fake {
	t.Helper()
	f := &fake{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		f.seen = append(f.seen, wire{
			method: r.Method, uri: r.RequestURI, contentLength: r.Header.Get("Content-Length") + fmt.Sprint(r.ContentLength),
			contentType: r.Header.Get("Content-Type"), body: string(body), receipt: r.URL.Query().Get("popreceipt"),
		})
		f.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) requests() []wire {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]wire(nil), f.seen...)
}

// openQueue opens queue "orders" of the fake with a SAS.
func (f *fake) openQueue(t *testing.T, opts azurequeue.Options) queue.Queue {
	t.Helper()
	q, err := open(t, "QueueEndpoint="+f.URL+"/acct;SharedAccessSignature="+fakeSAS, opts).Queue("orders")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func refuse(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("x-ms-error-code", code)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "\xef\xbb\xbf<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>%s</Code><Message>no</Message>%s</Error>", code, detail)
}

func oneMessage(receipt, text string) string {
	return fmt.Sprintf("\xef\xbb\xbf"+`<?xml version="1.0" encoding="utf-8"?><QueueMessagesList><QueueMessage><MessageId>id-1</MessageId>`+
		`<InsertionTime>%s</InsertionTime><ExpirationTime>%s</ExpirationTime><PopReceipt>%s</PopReceipt>`+
		`<TimeNextVisible>%s</TimeNextVisible><DequeueCount>3</DequeueCount><MessageText>%s</MessageText></QueueMessage></QueueMessagesList>`,
		rfc1123, rfc1123, receipt, rfc1123, text)
}

func held(receipt string) *queue.Message {
	return &queue.Message{ID: "id-1", Lease: queue.NewLease(receipt, time.Now(), time.Minute)}
}

// C01: receipts hold characters that mean something in a URL.
func TestEveryCallSendsTheNewestReceiptExactly(t *testing.T) {
	renewals := 0
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet:
			fmt.Fprint(w, oneMessage("A+B/1==", "hi"))
		case http.MethodPut:
			renewals++
			w.Header().Set("x-ms-popreceipt", fmt.Sprintf("A+B/%d==", renewals+1))
			w.Header().Set("x-ms-time-next-visible", rfc1123)
			w.WriteHeader(http.StatusNoContent)
		case http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	q := f.openQueue(t, azurequeue.Options{})
	ms, err := q.Receive(t.Context(), 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	m := ms[0]
	for range 3 {
		if err := q.Renew(t.Context(), m, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Complete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for i, r := range f.requests()[1:] {
		if want := fmt.Sprintf("A+B/%d==", i+1); r.receipt != want {
			t.Errorf("request %d: receipt %q, want %q", i+1, r.receipt, want)
		}
		if want := fmt.Sprintf("popreceipt=A%%2BB%%2F%d%%3D%%3D", i+1); !strings.Contains(r.uri, want) {
			t.Errorf("request %d: %s has no %s", i+1, r.uri, want)
		}
	}
	if m.DequeueCount != 3 || string(m.Text) != "hi" {
		t.Errorf("received (count %d, %q)", m.DequeueCount, m.Text)
	}
}

// Storage counts a lease from when it took the request. Its answer may be late, so only the
// time before the request is surely not later than that.
func TestALeaseIsCountedFromBeforeTheRequest(t *testing.T) {
	const slow = 50 * time.Millisecond
	took := make(chan time.Time, 1)
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		took <- time.Now()
		time.Sleep(slow) // the answer is slow, and that is the case
		if r.Method == http.MethodGet {
			fmt.Fprint(w, oneMessage("r", "hi"))
			return
		}
		w.Header().Set("x-ms-popreceipt", "next")
		w.WriteHeader(http.StatusNoContent)
	})
	q := f.openQueue(t, azurequeue.Options{})
	ms, err := q.Receive(t.Context(), 1, time.Minute)
	if err != nil || len(ms) != 1 {
		t.Fatalf("received %d messages, %v", len(ms), err)
	}
	if until, ends := ms[0].Lease.Until(), (<-took).Add(time.Minute); until.After(ends) {
		t.Errorf("a received lease lasts %s longer than storage keeps it", until.Sub(ends))
	}
	if err := q.Renew(t.Context(), ms[0], time.Hour); err != nil {
		t.Fatal(err)
	}
	if until, ends := ms[0].Lease.Until(), (<-took).Add(time.Hour); until.After(ends) {
		t.Errorf("a renewed lease lasts %s longer than storage keeps it", until.Sub(ends))
	}
}

// What came without its id or its receipt can't be settled, so it must not be begun: it comes back
// when its lease ends.
func TestAMessageThatCanNotBeSettledIsNotReceived(t *testing.T) {
	whole := oneMessage("r", "hi")
	for name, answer := range map[string]string{
		"no receipt": strings.Replace(whole, "<PopReceipt>r</PopReceipt>", "", 1), "empty receipt": oneMessage("", "hi"),
		"no id": strings.Replace(whole, "<MessageId>id-1</MessageId>", "", 1),
	} {
		f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
		if ms, err := f.openQueue(t, azurequeue.Options{}).Receive(t.Context(), 1, time.Minute); err != nil || len(ms) != 0 {
			t.Errorf("%s: received %d messages, %v", name, len(ms), err)
		}
	}
}

func TestUpdatesHaveNoBodyAndAnExplicitVisibility(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-ms-popreceipt", "next")
		w.WriteHeader(http.StatusNoContent)
	})
	q := f.openQueue(t, azurequeue.Options{})
	m := held("r")
	if err := errors.Join(q.Renew(t.Context(), m, 90*time.Second), q.Abandon(t.Context(), m, 0)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"visibilitytimeout=90", "visibilitytimeout=0"} {
		r := f.requests()[i]
		if r.method != "PUT" || r.body != "" || r.contentType != "" || r.contentLength != "00" && r.contentLength != "0" {
			t.Errorf("update sent body %q, type %q, length %s; want none", r.body, r.contentType, r.contentLength)
		}
		if !strings.Contains(r.uri, want) {
			t.Errorf("%s has no %s", r.uri, want)
		}
	}
}

// C07: what must not die of old age says so, and nothing is left to the service's default
// of seven days.
func TestSendSaysHowLongTheMessageLives(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	q := f.openQueue(t, azurequeue.Options{})
	for i, c := range []struct {
		ttl  time.Duration
		want string
	}{{queue.NoExpiry, "messagettl=-1"}, {time.Hour, "messagettl=3600"}} {
		if _, err := q.Send(t.Context(), []byte("x"), queue.SendOptions{TTL: c.ttl}); err == nil {
			t.Fatal("the fake refuses everything")
		}
		if uri := f.requests()[i].uri; !strings.Contains(uri, c.want) {
			t.Errorf("%s has no %s", uri, c.want)
		}
	}
}

func TestLostLeaseIsRecognisedInEveryShape(t *testing.T) {
	tests := []struct {
		status       int
		code, detail string
		lost         bool
	}{
		{404, "MessageNotFound", "", true},
		{400, "PopReceiptMismatch", "", true},
		{400, "InvalidQueryParameterValue", "<QueryParameterName>popreceipt</QueryParameterName>", true},
		{400, "InvalidQueryParameterValue", "<QueryParameterName>visibilitytimeout</QueryParameterName>", false},
		{400, "OutOfRangeQueryParameterValue", "", false},
		{404, "ResourceNotFound", "", false},
	}
	for _, tt := range tests {
		f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { refuse(w, tt.status, tt.code, tt.detail) })
		q := f.openQueue(t, azurequeue.Options{})
		for call, err := range map[string]error{
			"renew":    q.Renew(t.Context(), held("r"), time.Minute),
			"abandon":  q.Abandon(t.Context(), held("r"), 0),
			"complete": q.Complete(t.Context(), held("r")),
		} {
			if errors.Is(err, queue.ErrLeaseLost) != tt.lost || err == nil {
				t.Errorf("%s, %d %s%s: %v; lease lost want %t", call, tt.status, tt.code, tt.detail, err, tt.lost)
			}
		}
	}
}

func TestRefusalsAreTranslated(t *testing.T) {
	tests := []struct {
		status int
		code   string
		want   error // nil: any other error, which is ambiguous
	}{
		{503, "ServerBusy", queue.ErrBusy},
		{429, "TooManyRequests", queue.ErrBusy},
		{409, "QueueBeingDeleted", queue.ErrBusy},
		{409, "QueueDisabled", queue.ErrBusy},
		{401, "InvalidAuthenticationInfo", queue.ErrDenied},
		{403, "AuthenticationFailed", queue.ErrDenied},
		{404, "QueueNotFound", queue.ErrQueueNotFound},
		{413, "RequestBodyTooLarge", queue.ErrTooLarge},
		{413, "", queue.ErrTooLarge},
		{400, "MessageTooLarge", queue.ErrTooLarge},
		{500, "InternalError", nil},
		{500, "OperationTimedOut", nil},
		{503, "", nil}, // of something on the way, which may have passed it on
		{502, "<script>" + fakeSAS, nil},
		{302, "", nil},
	}
	for _, tt := range tests {
		f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			refuse(w, tt.status, tt.code, "")
		})
		q := f.openQueue(t, azurequeue.Options{})
		_, err := q.Receive(t.Context(), 1, time.Minute)
		if tt.want != nil && !errors.Is(err, tt.want) || queue.Ambiguous(err) != (tt.want == nil) {
			t.Errorf("%d %s: %v, want %v", tt.status, tt.code, err, tt.want)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprint(tt.status)) {
			t.Errorf("%q does not name status %d", err, tt.status)
		}
		if n := len(f.requests()); n != 1 {
			t.Errorf("%d %s: %d requests, want 1: nothing is repeated nor followed", tt.status, tt.code, n)
		}
		noSecrets(t, err)
	}
}

// noSecrets fails when an error holds what errors must not hold.
func noSecrets(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Error("no error")
		return
	}
	for _, secret := range []string{"sig=", "c2VjcmV0", "sv=2024", "popreceipt", "RECEIPT", "BODY", "<", "?"} {
		if strings.Contains(fmt.Sprintf("%v %+v", err, err), secret) {
			t.Errorf("%q holds %q", err, secret)
		}
	}
}

func TestErrorsHoldNoSignatureReceiptOrBody(t *testing.T) {
	behaviours := map[string]func(w http.ResponseWriter, r *http.Request){
		"refused": func(w http.ResponseWriter, r *http.Request) {
			refuse(w, 400, "InvalidInput", "<Detail>"+r.RequestURI+" BODY</Detail>")
		},
		"denied": func(w http.ResponseWriter, r *http.Request) {
			refuse(w, 403, "AuthenticationFailed", "<AuthenticationErrorDetail>"+r.RequestURI+"</AuthenticationErrorDetail>")
		},
		"cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"cut in the body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "<a>BODY")
		},
		"not XML":       func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<BODY></RECEIPT>") },
		"bad date":      func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", "BODY"); w.WriteHeader(204) },
		"not HTTP":      func(w http.ResponseWriter, _ *http.Request) { hijack(w, "BODY sig=x RECEIPT\r\n\r\n") },
		"header secret": func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, "sig=BODY", "") },
		"late": func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Second):
			}
		},
	}
	for name, answer := range behaviours {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, answer)
			var reported []error
			q := f.openQueue(t, azurequeue.Options{Timeout: 150 * time.Millisecond, OnTransaction: func(_, _ string, _ int, err error) {
				if err != nil {
					reported = append(reported, err)
				}
			}})
			_, err := q.Receive(t.Context(), 1, time.Minute)
			noSecrets(t, err)
			_, err = q.Send(t.Context(), []byte("BODY"), queue.SendOptions{})
			noSecrets(t, err)
			_, err = q.Depth(t.Context())
			noSecrets(t, err)
			err = q.Complete(t.Context(), held("RECEIPT"))
			if name != "bad date" { // its status says that the message is deleted
				noSecrets(t, err)
			} else if err != nil {
				t.Errorf("complete: %v", err)
			}
			noSecrets(t, q.Renew(t.Context(), held("RECEIPT"), time.Minute))
			for _, err := range reported {
				if strings.Contains(err.Error(), "sig=c2") || strings.Contains(err.Error(), "popreceipt") {
					t.Errorf("reported %q", err)
				}
			}
		})
	}
}

func hijack(w http.ResponseWriter, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(text))
}

// net/http would send a GET again when a reused connection breaks, and nobody
// would learn that the first one hid messages.
func TestReceiveIsNotRepeatedWhenAReusedConnectionBreaks(t *testing.T) {
	calls := 0
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls > 1 {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, oneMessage("r", "hi"))
	})
	counted := 0
	q := f.openQueue(t, azurequeue.Options{OnTransaction: func(string, string, int, error) { counted++ }})
	if _, err := q.Receive(t.Context(), 1, time.Minute); err != nil {
		t.Fatal(err)
	}
	_, err := q.Receive(t.Context(), 1, time.Minute)
	if err == nil || !queue.Ambiguous(err) {
		t.Errorf("lost answer: %v, want an ambiguous error", err)
	}
	if n := len(f.requests()); n != 2 || counted != 2 {
		t.Errorf("%d requests arrived and %d were counted, want 2 and 2", n, counted)
	}
	if r := f.requests()[0]; r.body != "" || r.contentLength != "0" {
		t.Errorf("a receive has a body: %q, length %s", r.body, r.contentLength)
	}
}

// C18, for queues.
func TestListFollowsContinuationsOverEmptyPages(t *testing.T) {
	pages := []string{
		"<Queues/><NextMarker>m1</NextMarker>",
		"<Queues></Queues><NextMarker>m2</NextMarker>",
		"<Queues><Queue><Name>bbb</Name></Queue></Queues><NextMarker>m3</NextMarker>",
		"<Queues><Queue><Name>aaa</Name></Queue></Queues><NextMarker/>",
	}
	f := newFake(t, nil)
	f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := 0
		if m := r.URL.Query().Get("marker"); m != "" {
			_, _ = fmt.Sscanf(m, "m%d", &page)
		}
		fmt.Fprintf(w, `<?xml version="1.0"?><EnumerationResults>%s</EnumerationResults>`, pages[page])
	})
	s := open(t, "QueueEndpoint="+f.URL+"/acct;SharedAccessSignature="+fakeSAS, azurequeue.Options{})
	names, err := s.List(t.Context())
	if err != nil || fmt.Sprint(names) != "[aaa bbb]" {
		t.Errorf("List = %v, %v", names, err)
	}
}

func TestDenialNamesTheClockOrTheRole(t *testing.T) {
	tests := []struct {
		skew       time.Duration
		code, want string
	}{
		{0, "AuthenticationFailed", ""},
		{30 * time.Minute, "AuthenticationFailed", "behind storage's"},
		{-30 * time.Minute, "AuthenticationFailed", "ahead of storage's"},
		{0, "AuthorizationPermissionMismatch", "Storage Queue Data Contributor"},
	}
	for _, tt := range tests {
		f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(tt.skew).UTC().Format(http.TimeFormat))
			refuse(w, 403, tt.code, "")
		})
		err := f.openQueue(t, azurequeue.Options{}).Renew(t.Context(), held("r"), time.Minute)
		if !errors.Is(err, queue.ErrDenied) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("skew %v: %v, want %q in it", tt.skew, err, tt.want)
		}
		if tt.want == "" && strings.Contains(err.Error(), "clock") {
			t.Errorf("no skew: %v", err)
		}
	}
}

// C20: the account stays in the path.
func TestRequestsGoUnderTheEndpointsPath(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { refuse(w, 404, "QueueNotFound", "") })
	for _, connection := range []string{
		"QueueEndpoint=" + f.URL + "/devstoreaccount1",
		"QueueEndpoint=" + f.URL + "/devstoreaccount1/;SharedAccessSignature=?" + fakeSAS,
	} {
		q, err := open(t, connection, azurequeue.Options{}).Queue("orders")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Receive(t.Context(), 1, time.Minute); !errors.Is(err, queue.ErrQueueNotFound) {
			t.Fatal(err)
		}
		all := f.requests()
		if uri := all[len(all)-1].uri; !strings.HasPrefix(uri, "/devstoreaccount1/orders/messages?") {
			t.Errorf("%s went to %s", connection, uri)
		}
	}
}

func TestMessagesThatCannotBeSettledDoNotHideTheOthers(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, strings.Replace(oneMessage("r", "good"), "<QueueMessage>", "<QueueMessage></QueueMessage><QueueMessage>", 1))
	})
	ms, err := f.openQueue(t, azurequeue.Options{}).Receive(t.Context(), 2, time.Minute)
	if err != nil || len(ms) != 1 || !bytes.Equal(ms[0].Text, []byte("good")) {
		t.Errorf("received %v, %v, want the one good message", ms, err)
	}
}

func TestNoConnectionIsBusyAndCountsNothing(t *testing.T) {
	f := newFake(t, nil)
	f.Close()
	counted := 0
	q := f.openQueue(t, azurequeue.Options{OnTransaction: func(string, string, int, error) { counted++ }})
	_, err := q.Receive(t.Context(), 1, time.Minute)
	if !errors.Is(err, queue.ErrBusy) || counted != 0 {
		t.Errorf("Receive = %v, %d counted; want ErrBusy and none", err, counted)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) || strings.Contains(err.Error(), "busy") {
		t.Errorf("%q, want that the connection was refused, and not that storage is busy", err)
	}
	noSecrets(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Complete(ctx, held("r")); !errors.Is(err, context.Canceled) {
		t.Errorf("Complete with a cancelled context = %v", err)
	}
}

// The peer takes the connection and then says nothing, so TLS never begins.
func TestAHandshakeThatHangsIsBusyAndCountsNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	counted := 0
	q, err := open(t, "QueueEndpoint=https://"+l.Addr().String()+";SharedAccessSignature="+fakeSAS, azurequeue.Options{
		Timeout: 100 * time.Millisecond, OnTransaction: func(string, string, int, error) { counted++ },
	}).Queue("orders")
	if err != nil {
		t.Fatal(err)
	}
	_, err = q.Send(t.Context(), []byte("a"), queue.SendOptions{})
	if !errors.Is(err, queue.ErrBusy) || counted != 0 {
		t.Errorf("Send = %v, %d counted; want ErrBusy and none", err, counted)
	}
	noSecrets(t, err)
}

func TestOpenRefusesWhatCannotWork(t *testing.T) {
	table := "TableEndpoint=https://t.example.com;AccountName=acct;AccountKey=" + base64.StdEncoding.EncodeToString([]byte("k"))
	if _, err := azurequeue.Open(parse(t, table), azurequeue.Options{}); err == nil || !strings.Contains(err.Error(), "QueueEndpoint") {
		t.Errorf("no queue service: %v", err)
	}
	_, err := azurequeue.Open(parse(t, "UseDevelopmentStorage=true"), azurequeue.Options{Connections: -1, Timeout: -1})
	if err == nil || !strings.Contains(err.Error(), "Connections") || !strings.Contains(err.Error(), "Timeout") {
		t.Errorf("bad options: %v", err)
	}
}
