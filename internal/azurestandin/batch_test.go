package azurestandin

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// transaction is one of n rows as tables/azuretable writes it.
func transaction(n int) (contentType string, body []byte) {
	var b bytes.Buffer
	b.WriteString("--batch_1\r\nContent-Type: multipart/mixed; boundary=changeset_1\r\n\r\n")
	for i := range n {
		rk := fmt.Sprintf("0f1e2d3c-0000-4000-8000-%012d~orders~d~wh_0123456789~0000~3", i)
		row := fmt.Sprintf(`{"PartitionKey":"s0","RowKey":%q,"Text":%q}`, rk, strings.Repeat("x", 700))
		fmt.Fprintf(&b, "--changeset_1\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"+
			"PUT http://127.0.0.1:10002/acct/Log20261128(PartitionKey='s0',RowKey='%s') HTTP/1.1\r\n"+
			"Accept: application/json;odata=minimalmetadata\r\nContent-Type: application/json\r\nDataServiceVersion: 3.0\r\n"+
			"Content-Length: %d\r\n\r\n%s\r\n", rk, len(row), row)
	}
	b.WriteString("--changeset_1--\r\n\r\n--batch_1--\r\n")
	return "multipart/mixed; boundary=batch_1", b.Bytes()
}

func TestTransactionsAreSplitInPlace(t *testing.T) {
	contentType, body := transaction(2)
	name, changes, err := readBatch(contentType, body)
	if err != nil || name != "Log20261128" || len(changes) != 2 {
		t.Fatalf("%q with %d changes, %v", name, len(changes), err)
	}
	for i, c := range changes {
		if want := fmt.Sprintf("%012d~orders~d~wh_0123456789~0000~3", i); c.method != http.MethodPut || c.pk != "s0" || !strings.HasSuffix(c.rk, want) || c.ifMatch != "" || c.check() != nil {
			t.Errorf("change %d: %+v", i, c)
		}
	}
	strange := func(old, with string) []byte { return bytes.Replace(body, []byte(old), []byte(with), 1) }
	_, changes, err = readBatch(contentType, strange("Accept:", "IF-MATCH: *\r\nAccept:"))
	if err != nil || changes[0].ifMatch != "*" || changes[1].ifMatch != "" {
		t.Errorf("with a condition: %+v, %v", changes, err)
	}
	_, changes, err = readBatch(contentType, strange("'s0'", "'it''s%20%C3%A9'"))
	if err != nil || changes[0].pk != "it's é" {
		t.Errorf("with a strange key: %+v, %v", changes, err)
	}
	for name, bad := range map[string][]byte{
		"no end":           body[:len(body)-20],
		"no end of a set":  strange("--changeset_1--", "--changeset_2--"),
		"a read":           strange("PUT ", "GET "),
		"two tables":       strange("/Log20261128(", "/Log20261129("),
		"no row":           strange("(PartitionKey='s0'", "(PartitionKey=s0"),
		"nothing":          nil,
		"another boundary": bytes.ReplaceAll(body, []byte("batch_1"), []byte("batch_2")),
	} {
		if _, _, err := readBatch(contentType, bad); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func BenchmarkTransaction(b *testing.B) {
	s := &tableService{tables: map[string]*table{}}
	if err := s.create("Log20261128"); err != nil {
		b.Fatal(err)
	}
	contentType, body := transaction(100)
	c := tableCall{header: http.Header{"Content-Type": {contentType}}}
	b.ReportAllocs()
	for b.Loop() {
		a, err := s.batch(c, body, time.Time{})
		if err != nil || bytes.Count(a.body, []byte("HTTP/1.1 204")) != 100 {
			b.Fatal(err, string(a.body))
		}
	}
}
