package azuretable

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/tables/azuretable/internal/commit"
)

// parseBatch reads a transaction by the rules of MIME and HTTP.
func parseBatch(t *testing.T, contentType string, body []byte) []*http.Request {
	t.Helper()
	parts := func(contentType string, r io.Reader) (found []*multipart.Part, contents [][]byte) {
		kind, params, err := mime.ParseMediaType(contentType)
		if err != nil || kind != "multipart/mixed" {
			t.Fatalf("content type %q: %v", contentType, err)
		}
		for m := multipart.NewReader(r, params["boundary"]); ; {
			p, err := m.NextRawPart()
			if errors.Is(err, io.EOF) {
				return found, contents
			}
			if err != nil {
				t.Fatalf("part: %v", err)
			}
			b, err := io.ReadAll(p)
			if err != nil {
				t.Fatalf("part: %v", err)
			}
			found, contents = append(found, p), append(contents, b)
		}
	}
	outer, sets := parts(contentType, bytes.NewReader(body))
	if len(outer) != 1 {
		t.Fatalf("%d parts, want one change set", len(outer))
	}
	heads, contents := parts(outer[0].Header.Get("Content-Type"), bytes.NewReader(sets[0]))
	var requests []*http.Request
	for i, b := range contents {
		if heads[i].Header.Get("Content-Type") != "application/http" || heads[i].Header.Get("Content-Transfer-Encoding") != "binary" {
			t.Fatalf("part %d has headers %v", i, heads[i].Header)
		}
		head, object, found := bytes.Cut(b, []byte("\r\n\r\n"))
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(append(head, "\r\n\r\n"...))))
		if err != nil || !found {
			t.Fatalf("part %d: %v", i, err)
		}
		if int(r.ContentLength) != len(object) {
			t.Fatalf("part %d: Content-Length %d of %d bytes", i, r.ContentLength, len(object))
		}
		r.Body = io.NopCloser(bytes.NewReader(object))
		requests = append(requests, r)
	}
	return requests
}

// rowOfRequest is the row that a request replaces, by its address and by its body.
func rowOfRequest(t *testing.T, r *http.Request) (address string, e entity) {
	t.Helper()
	if r.Method != http.MethodPut || r.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("request %s with %v", r.Method, r.Header)
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(b, &whole); err != nil {
		t.Fatalf("row %s: %v", b, err)
	}
	if e, err = parseEntity(b); err != nil {
		t.Fatal(err)
	}
	return r.URL.Path, e
}

func quoted(key string) string { return strings.ReplaceAll(key, "'", "''") }

// FuzzBatch writes transactions of hostile keys and texts: each row is read back by the
// rules of MIME, HTTP and JSON, and nothing else is.
func FuzzBatch(f *testing.F) {
	f.Add("s0", "m~orders~d~wh~0000~4", "text")
	f.Add("it's", "a/b\\c#d?e%f g", "\r\n--changeset_\r\n\r\nDELETE http://x/y HTTP/1.1\r\n")
	f.Add("é🙂", "x\r\nHost: y", "'\"\\ \u2028 \x00")
	f.Fuzz(func(t *testing.T, pk, rk, text string) {
		format := newBatchFormat(azureconn.Config{TableURL: "https://a.table.core.windows.net"})
		var c columns
		c.exact("Text", text)
		c.number("N", 7)
		rows := []commit.Row{{PK: pk, RK: rk, Columns: c.json}, {PK: pk, RK: rk + "2"}}
		requests := parseBatch(t, format.contentType(), format.body("table", rows))
		if len(requests) != len(rows) {
			t.Fatalf("%d requests, want %d", len(requests), len(rows))
		}
		for i, r := range requests {
			address, e := rowOfRequest(t, r)
			want := fmt.Sprintf("/table(PartitionKey='%s',RowKey='%s')", quoted(rows[i].PK), quoted(rows[i].RK))
			if address != want {
				t.Errorf("address %q, want %q", address, want)
			}
			valid := func(s string) string { return string([]rune(s)) }
			if e.pk != valid(rows[i].PK) || e.rk != valid(rows[i].RK) {
				t.Errorf("keys %q, %q, want %q, %q", e.pk, e.rk, rows[i].PK, rows[i].RK)
			}
			if i == 0 && (e.text("Text") != text || e.number("N") != 7) {
				t.Errorf("row %q, %d, want %q, 7", e.text("Text"), e.number("N"), text)
			}
		}
	})
}

func TestATransactionIsNeverLargerThanItsRowsSay(t *testing.T) {
	cfg, err := azureconn.Parse("TableEndpoint=https://" + strings.Repeat("a", 63) + ".table.core.windows.net;SharedAccessSignature=sv=1&sig=" + strings.Repeat("s", 400))
	if err != nil {
		t.Fatal(err)
	}
	format := newBatchFormat(cfg)
	for _, n := range []int{1, 100} {
		var rows []commit.Row
		for i := range n {
			rows = append(rows, commit.Row{PK: strings.Repeat("p", 500), RK: fmt.Sprintf("%0500d", i), Columns: make([]byte, 1000)})
		}
		b := format.body("pushlease", rows)
		if len(b) > totalSize(rows)+1024 { // of the frame around all
			t.Errorf("%d rows: %d bytes, and sizes of %d", n, len(b), totalSize(rows))
		}
		if cap(b) > len(b)+len(b)/4+1024 {
			t.Errorf("%d rows: %d bytes in a buffer of %d", n, len(b), cap(b))
		}
	}
}
