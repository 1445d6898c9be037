package azuretable

import (
	"crypto/rand"
	"net/url"
	"strconv"
	"strings"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/tables/azuretable/internal/commit"
)

const (
	// tablesVersion is the version of the REST API, the same that the SDK asks for.
	tablesVersion = "2019-02-02"
	rowFormat     = "application/json;odata=minimalmetadata"
)

// batchFormat writes entity group transactions: a multipart document with one change
// set in it, whose parts are requests. Source: Microsoft Learn, "Performing entity group
// transactions".
type batchFormat struct {
	// address is the service's, account included and without a slash at the end;
	// query is empty or a question mark and the shared access signature.
	address, query string
	// outer and inner end the parts. Rows are on one line each, so no row can hold a
	// line that is one of them, and they need not be new for each request.
	outer, inner string
}

func newBatchFormat(cfg azureconn.Config) batchFormat {
	f := batchFormat{address: cfg.TableURL, outer: "batch_" + rand.Text(), inner: "changeset_" + rand.Text()}
	if sas := cfg.SAS(); sas != "" {
		f.query = "?" + sas
	}
	return f
}

func (f batchFormat) url() string { return f.address + "/$batch" + f.query }

func (f batchFormat) contentType() string { return "multipart/mixed; boundary=" + f.outer }

// body is a transaction that inserts each row or replaces it whole. The rows are of one
// partition, and their keys differ.
func (f batchFormat) body(table string, rows []commit.Row) []byte {
	head := "--" + f.inner + "\r\n" +
		"Content-Type: application/http\r\n" +
		"Content-Transfer-Encoding: binary\r\n\r\n" +
		"PUT " + f.address + "/" + table + "(PartitionKey='"
	headers := "')" + f.query + " HTTP/1.1\r\n" +
		"Accept: " + rowFormat + "\r\n" +
		"Content-Type: application/json\r\n" +
		"DataServiceVersion: 3.0\r\n" +
		"Content-Length: "
	size := 512 // more than what is around the parts
	for _, r := range rows {
		size += len(head) + len(headers) + 2*(len(r.PK)+len(r.RK)) + len(r.Columns) + 64
	}
	b := make([]byte, 0, size)
	b = append(b, "--"+f.outer+"\r\nContent-Type: multipart/mixed; boundary="+f.inner+"\r\n\r\n"...)
	var keys []byte
	for _, r := range rows {
		b = append(b, head...)
		b = append(b, addressKey(r.PK)...)
		b = append(b, "',RowKey='"...)
		b = append(b, addressKey(r.RK)...)
		b = append(b, headers...)
		keys = appendKeys(keys[:0], r)
		b = strconv.AppendInt(b, int64(len(keys)+len(r.Columns)+len("}")), 10)
		b = append(b, "\r\n\r\n"...)
		b = append(b, keys...)
		b = append(b, r.Columns...)
		b = append(b, "}\r\n"...)
	}
	return append(b, "--"+f.inner+"--\r\n\r\n--"+f.outer+"--\r\n"...)
}

// addressKey is a key within quotes within an address.
func addressKey(key string) string {
	if safeKey(key) {
		return key
	}
	return url.PathEscape(strings.ReplaceAll(key, "'", "''"))
}
