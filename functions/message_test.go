package functions

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

const (
	testID      = "0f5c9dd7-1b2e-4c5f-8a9b-0c1d2e3f4a5b"
	testReceipt = "AgAAAAMAAAAAAAAAlZQ1hD9a3AE="
)

// wire is an invocation as the host's own unit tests show it.
func wire(t *testing.T, data string, metadata map[string]string) invocation {
	t.Helper()
	all := map[string]json.RawMessage{}
	for k, v := range map[string]string{
		"DequeueCount": `"2"`, "Id": `"\"` + testID + `\""`, "PopReceipt": `"\"` + testReceipt + `\""`,
		"InsertionTime": `"2026-01-01T10:00:00+00:00"`, "ExpirationTime": `"9999-12-31T23:59:59+00:00"`, "NextVisibleTime": `"2026-01-01T10:10:00+00:00"`,
		"sys": `{"MethodName":"dispatch-orders","UtcNow":"2026-01-01T10:00:00Z","RandGuid":"x"}`,
	} {
		all[k] = json.RawMessage(v)
	}
	for k, v := range metadata {
		all[k] = json.RawMessage(v)
	}
	body, err := json.Marshal(map[string]any{"Data": map[string]json.RawMessage{"message": json.RawMessage(data)}, "Metadata": all})
	if err != nil {
		t.Fatal(err)
	}
	inv, err := readInvocation(httptest.NewRequest(http.MethodPost, "/x", strings.NewReader(string(body))))
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

func asBinary(body string) string {
	return `"` + base64.StdEncoding.EncodeToString([]byte(body)) + `"`
}

func asText(t *testing.T, body string) string {
	t.Helper()
	inner, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := json.Marshal(string(inner))
	if err != nil {
		t.Fatal(err)
	}
	return string(outer)
}

var dispatchOrders = Function{Name: "dispatch-orders", Trigger: queueTrigger, Binding: "message", Queue: "orders"}

// What the host may have mixed with a message's own words is not believed: any text with a brace.
func TestMessagesAreReadInBothForms(t *testing.T) {
	for _, body := range []string{
		"", "plain", `"quoted"`, `"`, `\"`, "☃ \x00\xff", "MTIz", "[1,2]", `{"id":"other"}`, `{"order":1}`, "\ufeff{}", `/*x*/{'id':'y'}`,
		`{"pushlease":1,"body":"aGk="}`, `{"id":"` + testID + `","popReceipt":"` + testReceipt + `"}`,
	} {
		m, err := readMessage(wire(t, asBinary(body), nil), dispatchOrders)
		if err != nil || string(m.Text) != body {
			t.Errorf("%q in binary: %v, %+v", body, err, m)
			continue
		}
		if m.ID != testID || m.DequeueCount != 2 || m.Lease.Receipt() != testReceipt || !m.ExpiresAt.IsZero() ||
			!m.InsertedAt.Equal(time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)) {
			t.Errorf("%q in binary: %+v", body, m)
		}
		if strings.ContainsRune(body, '\x00') {
			continue // no text
		}
		m, err = readMessage(wire(t, asText(t, body), nil), dispatchOrders)
		switch believed := !strings.Contains(body, "{"); {
		case believed && (err != nil || string(m.Text) != body || m.ID != testID):
			t.Errorf("%q as text: %v, %+v", body, err, m)
		case !believed && !errors.Is(err, errOwnWords):
			t.Errorf("%q as text is believed: %v, %+v", body, err, m)
		}
	}
}

func TestMetadataThatIsNoneIsRefused(t *testing.T) {
	for name, metadata := range map[string]map[string]string{
		"id":        {"Id": `"\"../x\""`},
		"no id":     {"Id": `null`},
		"receipt":   {"PopReceipt": `"\"\""`},
		"count":     {"DequeueCount": `"\"many\""`},
		"zero":      {"DequeueCount": `"0"`},
		"an object": {"Id": `{"a":1}`},
		"no time":   {"InsertionTime": `null`},
		"no end":    {"ExpirationTime": `"soon"`},
	} {
		if _, err := readMessage(wire(t, asBinary("x"), metadata), dispatchOrders); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	for _, data := range []string{`7`, `null`, `{"a":1}`, `"no base64!"`, `["x"]`} {
		if _, err := readMessage(wire(t, data, nil), dispatchOrders); err == nil {
			t.Errorf("the value %s is taken for a message", data)
		}
	}
}

// FuzzInvocation: whatever comes, nothing panics, and what is believed is a message id.
func FuzzInvocation(f *testing.F) {
	f.Add(`{"Data":{"message":"eA=="},"Metadata":{"Id":"\"` + testID + `\"","PopReceipt":"\"r\"","DequeueCount":"1","NextVisibleTime":"2026-01-01T10:10:00+00:00"}}`)
	f.Add(`{"Data":{"message":"\"{\\\"id\\\":1}\""},"Metadata":{}}`)
	f.Add(`{"Data":null}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, body string) {
		inv, err := readInvocation(httptest.NewRequest(http.MethodPost, "/x", strings.NewReader(body)))
		if err != nil {
			return
		}
		m, err := readMessage(inv, dispatchOrders)
		if err == nil && (!guid.MatchString(m.ID) || m.DequeueCount < 1 || m.Lease.Receipt() == "") {
			t.Errorf("%q is believed: %+v", body, m)
		}
	})
}

// TestTheAnswerIsAlwaysWhole: the host hangs on null, and takes no other content type.
func TestTheAnswerIsAlwaysWhole(t *testing.T) {
	for _, status := range []int{200, 400, 403, 404, 500, 503} {
		w := httptest.NewRecorder()
		answer(w, status)
		if w.Code != status || w.Header().Get("Content-Type") != "application/json" ||
			w.Body.String() != `{"Outputs":{},"Logs":[],"ReturnValue":null}` {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	}
}

func TestTheProbeIsAnsweredAtOnceAndNothingElseBeforeTheStart(t *testing.T) {
	h := New("127.0.0.1:7071", Layout{Functions: map[string]Function{"dispatch-orders": dispatchOrders}})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7071/", nil))
	if w.Code != http.StatusOK {
		t.Errorf("the probe: %d", w.Code)
	}
}

func TestOnlyTheHostInvokes(t *testing.T) {
	h := New("127.0.0.1:7071", Layout{})
	one := http.Header{http.CanonicalHeaderKey(invocationID): {testID}}
	with := func(name, value string) http.Header {
		header := one.Clone()
		header.Set(name, value)
		return header
	}
	for name, r := range map[string]struct {
		method, host string
		header       http.Header
		refused      bool
	}{
		"host":            {"POST", "127.0.0.1:7071", one, false},
		"GET":             {"GET", "127.0.0.1:7071", one, true},
		"other host":      {"POST", "app.azurewebsites.net", one, true},
		"localhost":       {"POST", "localhost:7071", one, true},
		"no id":           {"POST", "127.0.0.1:7071", http.Header{}, true},
		"two ids":         {"POST", "127.0.0.1:7071", http.Header{http.CanonicalHeaderKey(invocationID): {testID, testID}}, true},
		"joined ids":      {"POST", "127.0.0.1:7071", with(invocationID, "mine, "+testID), true},
		"two in one line": {"POST", "127.0.0.1:7071", with(invocationID, testID+", "+testID), true},
		"no GUID":         {"POST", "127.0.0.1:7071", with(invocationID, "1"), true},
		"proxied":         {"POST", "127.0.0.1:7071", with("X-Forwarded-For", "1.2.3.4"), true},
		"forwarded":       {"POST", "127.0.0.1:7071", with("Forwarded", "for=1.2.3.4"), true},
		"Azure front end": {"POST", "127.0.0.1:7071", with("X-Arr-Log-Id", "x"), true},
		"host's proxy":    {"POST", "127.0.0.1:7071", with("x-ms-invocation-id", "x"), true},
	} {
		req := httptest.NewRequest(r.method, "/dispatch-orders", nil)
		req.Host, req.Header, req.ContentLength = r.host, r.header, -1
		if why := h.forged(req); (why != "") != r.refused {
			t.Errorf("%s: %q", name, why)
		}
		if req.ContentLength = 1; h.forged(req) == "" {
			t.Errorf("%s: a request that is not in chunks is none of the host's", name)
		}
	}
}

// deadlines is an answer whose deadlines for reading are written down.
type deadlines struct {
	*httptest.ResponseRecorder
	read []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.read = append(d.read, at)
	return nil
}

// net/http reads on when there is no body, or no more of one, and ends the request when that read ends. A
// deadline for the body is none for what the request asks for.
func TestARequestWithoutABodyEndsAtNoDeadlineOfABody(t *testing.T) {
	h := New("127.0.0.1:7071", Layout{Timeout: 5 * time.Minute})
	h.Start(Parts{API: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	for body, want := range map[string]int{"": 0, "{}": 1} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/webhooks", strings.NewReader(body)))
		if len(w.read) != want {
			t.Errorf("the body %q has the deadlines %v", body, w.read)
		}
	}
}

// TestTheWaitForTheStartLeavesTimeToAnswer: the host kills the process at the function timeout.
func TestTheWaitForTheStartLeavesTimeToAnswer(t *testing.T) {
	for _, timeout := range []time.Duration{4 * time.Second, 5 * time.Minute} {
		bubble.Test(t, func(t *testing.T) {
			h := New("127.0.0.1:7071", Layout{Timeout: timeout})
			start := time.Now()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://127.0.0.1:7071/dispatch-orders", nil))
			if took := time.Since(start); w.Code != http.StatusServiceUnavailable || took > min(timeout/2, startPatience) {
				t.Errorf("%s: %d after %s", timeout, w.Code, took)
			}
		})
	}
}

// TestTheAPIIsFoundUnderEachPathThatHostsCall: C100.
func TestTheAPIIsFoundUnderEachPathThatHostsCall(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/webhooks": "/api/v1/webhooks", "/api/api/v1/webhooks": "/api/v1/webhooks", "/api/api/v1/a%2Fb": "/api/v1/a%2Fb",
		"/api/v1/healthz": "/healthz", "/api/api/v1/readyz": "/readyz", "/API/V1/webhooks": "/api/v1/webhooks", "/api/api/api/v1/x": "/api/api/api/v1/x",
		"/Api/V1/ReadyZ": "/api/v1/ReadyZ", "/API/v1/healthz": "/healthz", "/api/API/V1/a%2FB": "/api/v1/a%2FB", "/API/V1": "/api/v1", "/API/V10/x": "/API/V10/x",
	} {
		h := New("127.0.0.1:7071", Layout{})
		h.Start(Parts{API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.EscapedPath())) })})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7071"+path, nil))
		if got := w.Body.String(); got != want {
			t.Errorf("%s is %s here, want %s", path, got, want)
		}
	}
}
