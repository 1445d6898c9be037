package azuritetest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// storage is a stand-in behind the proxy that says what it was asked.
func storage(t *testing.T, answer http.HandlerFunc) *Proxy {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return (&Azurite{QueueURL: s.URL + "/" + account, TableURL: s.URL + "/" + account}).Proxy(t)
}

func call(t *testing.T, method, url, body string) (status int, header http.Header, text string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(req)
	if err != nil {
		return 0, nil, ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(b)
}

func TestProxyNamesOperations(t *testing.T) {
	p := storage(t, func(http.ResponseWriter, *http.Request) {})
	tests := []struct{ service, method, path, want string }{
		{"queue", "GET", "?comp=list", "list"},
		{"queue", "PUT", "/q", "create"},
		{"queue", "DELETE", "/q", "delete-queue"},
		{"queue", "GET", "/q?comp=metadata", "depth"},
		{"queue", "PUT", "/q?comp=metadata", "set-metadata"},
		{"queue", "GET", "/q/messages?numofmessages=3", "receive"},
		{"queue", "GET", "/q/messages?peekonly=true", "peek"},
		{"queue", "POST", "/q/messages", "send"},
		{"queue", "DELETE", "/q/messages", "clear"},
		{"queue", "PUT", "/q/messages/id?popreceipt=a%2Bb", "update"},
		{"queue", "DELETE", "/q/messages/id?popreceipt=a%2Bb", "delete"},
		{"table", "POST", "/Tables", "create-table"},
		{"table", "GET", "/Tables?x=1", "list-tables"},
		{"table", "DELETE", "/Tables('t')", "delete-table"},
		{"table", "POST", "/$batch", "batch"},
		{"table", "POST", "/t", "insert"},
		{"table", "GET", "/t()?$filter=x", "query"},
		{"table", "GET", "/t(PartitionKey='p(',RowKey='%2F')", "get"},
		{"table", "PATCH", "/t(PartitionKey='p',RowKey='r')", "merge"},
		{"table", "PUT", "/t(PartitionKey='p',RowKey='r')", "replace"},
		{"table", "DELETE", "/t(PartitionKey='p',RowKey='r')", "delete-entity"},
	}
	for _, tt := range tests {
		base := p.QueueURL
		if tt.service == "table" {
			base = p.TableURL
		}
		call(t, tt.method, base+tt.path, "")
		requests := p.Requests()
		if got := requests[len(requests)-1]; got.Operation != tt.want || got.Service != tt.service {
			t.Errorf("%s %s is %s %s, want %s", tt.method, tt.path, got.Service, got.Operation, tt.want)
		}
	}
}

func TestProxyPassesRequestsOnUnchanged(t *testing.T) {
	var got string
	p := storage(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = fmt.Sprintf("%s %s %d %s", r.Method, r.RequestURI, r.ContentLength, body)
	})
	call(t, "PUT", p.QueueURL+"/q/messages/a%2Fb?popreceipt=A%2BB%2F1%3D%3D&x=;", "hi")
	if want := "PUT /" + account + "/q/messages/a%2Fb?popreceipt=A%2BB%2F1%3D%3D&x=; 2 hi"; got != want {
		t.Errorf("storage got  %s\nwant         %s", got, want)
	}
}

func TestFaultsHitTheCallsTheyAreFor(t *testing.T) {
	reached := 0
	p := storage(t, func(http.ResponseWriter, *http.Request) { reached++ })
	p.Fault(Match{Service: "queue", Operation: "delete", From: 2, To: 3}, FailBefore(409, "QueueBeingDeleted"))
	p.Fault(Match{Operation: "send"}, FailAfter())
	p.Fault(Match{Operation: "create"}, CutBefore())
	var got []int
	for range 4 {
		status, _, _ := call(t, "DELETE", p.QueueURL+"/q/messages/id", "")
		got = append(got, status)
	}
	if want := "[200 409 409 200]"; fmt.Sprint(got) != want || reached != 2 {
		t.Errorf("deletes answered %v, want %s; %d reached storage, want 2", got, want, reached)
	}
	if status, _, _ := call(t, "POST", p.QueueURL+"/q/messages", ""); status != 0 || reached != 3 {
		t.Errorf("send answered %d (want none), reached storage %t (want true)", status, reached == 3)
	}
	if status, _, _ := call(t, "PUT", p.QueueURL+"/q", ""); status != 0 || reached != 3 {
		t.Errorf("create answered %d (want none), reached storage %t (want false)", status, reached == 4)
	}
	if n := p.Count("queue", "delete"); n != 4 {
		t.Errorf("Count = %d deletes, want 4", n)
	}
	p.Heal()
	if status, _, _ := call(t, "PUT", p.QueueURL+"/q", ""); status != 200 {
		t.Errorf("healed create answered %d", status)
	}
}

func TestARandomFaultHitsItsShareTheSameEachTime(t *testing.T) {
	p := storage(t, func(http.ResponseWriter, *http.Request) {})
	picks := func(seed uint64, rate float64) (hit string, n int) {
		p.Heal()
		p.Fault(Match{Operation: "create", From: 11, To: 410, Rate: rate, Seed: seed}, FailBefore(409, "QueueBeingDeleted"))
		for call := 1; call <= 420; call++ {
			if faults, _ := p.arrive(Request{Service: "queue", Operation: "create"}); len(faults) > 0 {
				hit, n = hit+fmt.Sprintf(" %d", call), n+1
			}
			if faults, _ := p.arrive(Request{Service: "queue", Operation: "send"}); len(faults) > 0 {
				t.Error("a fault for another operation")
			}
		}
		return hit, n
	}
	first, n := picks(7, 0.1)
	if n < 20 || n > 70 { // 40 expected, with a deviation of 6
		t.Errorf("%d of 400 calls were hit at a rate of 0.1", n)
	}
	for _, call := range []string{" 10 ", " 411 "} {
		if strings.Contains(first+" ", call) {
			t.Errorf("call %q was hit, outside of 11 to 410", call)
		}
	}
	if again, _ := picks(7, 0.1); again != first {
		t.Errorf("the same seed picked%s and then%s", first, again)
	}
	if other, _ := picks(8, 0.1); other == first {
		t.Error("another seed picked the same calls")
	}
	if _, n := picks(7, 0); n != 400 {
		t.Errorf("%d of 400 calls were hit without a rate", n)
	}
	if _, n := picks(7, 1); n != 400 {
		t.Errorf("%d of 400 calls were hit at a rate of 1", n)
	}
}

func TestProxyTranslatesAStaleReceiptUnlessToldNotTo(t *testing.T) {
	p := storage(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(errorCodeHeader, "PopReceiptMismatch")
		w.WriteHeader(400)
	})
	if status, header, _ := call(t, "DELETE", p.QueueURL+"/q/messages/id", ""); status != 404 || header.Get(errorCodeHeader) != "MessageNotFound" {
		t.Errorf("answer %d %s, want 404 MessageNotFound", status, header.Get(errorCodeHeader))
	}
	p.StaleReceipt400()
	if status, _, _ := call(t, "DELETE", p.QueueURL+"/q/messages/id", ""); status != 400 {
		t.Errorf("answer %d, want 400", status)
	}
}

func TestDownRefusesConnectionsAndUpEndsThat(t *testing.T) {
	p := storage(t, func(http.ResponseWriter, *http.Request) {})
	p.Down()
	if status, _, _ := call(t, "GET", p.QueueURL, ""); status != 0 {
		t.Errorf("answer %d while down", status)
	}
	p.Up()
	if status, _, _ := call(t, "GET", p.QueueURL, ""); status != 200 {
		t.Errorf("answer %d after Up", status)
	}
}

func TestAnswersAreReorderedMarkedAndShifted(t *testing.T) {
	p := storage(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<?xml version="1.0"?><L><QueueMessage>1</QueueMessage><QueueMessage>2</QueueMessage></L>`)
	})
	p.Fault(Match{Operation: "receive"}, Reorder())
	p.Fault(Match{Operation: "receive"}, BOM())
	p.Fault(Match{Operation: "receive"}, Skew(-time.Hour))
	_, header, text := call(t, "GET", p.QueueURL+"/q/messages", "")
	if want := "\xef\xbb\xbf" + `<?xml version="1.0"?><L><QueueMessage>2</QueueMessage><QueueMessage>1</QueueMessage></L>`; text != want {
		t.Errorf("text %q", text)
	}
	date, err := http.ParseTime(header.Get("Date"))
	if off := time.Since(date); err != nil || off < 59*time.Minute || off > 61*time.Minute {
		t.Errorf("Date is %v behind, %v", off, err)
	}
}

func TestEmptyPagesComeBeforeThePageAskedFor(t *testing.T) {
	var got string
	p := storage(t, func(w http.ResponseWriter, r *http.Request) { got = r.URL.RawQuery; fmt.Fprint(w, "rows") })
	p.Fault(Match{Operation: "query"}, EmptyPages(3))
	q := url.Values{"$filter": {"a eq 1"}, nextPartition: {"p/1"}, nextRow: {"r"}}
	onlyPartition := 0
	for page := range 3 {
		_, header, text := call(t, "GET", p.TableURL+"/t()?"+q.Encode(), "")
		if text != `{"value":[]}` {
			t.Fatalf("page %d: %s", page, text)
		}
		q.Set(nextPartition, header.Get("x-ms-continuation-"+nextPartition))
		q.Del(nextRow)
		if row := header.Get("x-ms-continuation-" + nextRow); row != "" {
			q.Set(nextRow, row)
		} else {
			onlyPartition++
		}
	}
	_, _, text := call(t, "GET", p.TableURL+"/t()?"+q.Encode(), "")
	if want := "%24filter=a+eq+1&NextPartitionKey=p%2F1&NextRowKey=r"; text != "rows" || got != want {
		t.Errorf("last page %q asked storage for %s, want %s", text, got, want)
	}
	if onlyPartition == 0 {
		t.Error("no continuation with a partition key only")
	}
}

func TestTheBodyComesAfterItsHeader(t *testing.T) {
	p := storage(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "body") })
	p.Fault(Match{}, LateBody(30*time.Millisecond))
	start := time.Now()
	if _, _, text := call(t, "GET", p.QueueURL, ""); text != "body" || time.Since(start) < 30*time.Millisecond {
		t.Errorf("%q after %v", text, time.Since(start))
	}
}
