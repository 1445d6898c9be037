package azurestandin

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// tableCall is one request to the table service: the resource is "$batch", "Tables",
// "Tables('t')", "t", "t()" or "t(PartitionKey='p',RowKey='r')".
type tableCall struct {
	method, name, pk, rk string
	keyed                bool // it names one row, or one table
	query                url.Values
	header               http.Header
}

var (
	tableAddress = regexp.MustCompile(`^Tables\('([A-Za-z0-9]+)'\)$`)
	validTable   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{2,62}$`)
)

func parseTableCall(method string, u *url.URL, header http.Header) (tableCall, error) {
	c, err := parseResource(strings.TrimPrefix(u.Path, "/"))
	c.method, c.query, c.header = method, u.Query(), header
	return c, err
}

// parseResource takes a decoded path such as "account/t()".
func parseResource(path string) (tableCall, error) {
	_, resource, _ := strings.Cut(path, "/")
	if name, pk, rk, ok := rowAddress(resource); ok {
		return tableCall{name: name, pk: pk, rk: rk, keyed: true}, nil
	}
	if m := tableAddress.FindStringSubmatch(resource); m != nil {
		return tableCall{name: "Tables", pk: m[1], keyed: true}, nil
	}
	name := strings.TrimSuffix(resource, "()")
	if name != "$batch" && !validTable.MatchString(name) {
		return tableCall{name: name}, errNoRoute
	}
	return tableCall{name: name}, nil
}

const alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// rowAddress takes "t(PartitionKey='p',RowKey='r')" apart, in which quotes are doubled.
func rowAddress(resource string) (name, pk, rk string, ok bool) {
	name, rest, ok := strings.Cut(resource, "(PartitionKey='")
	if !ok || strings.Trim(name, alphanumeric) != "" || name == "" {
		return "", "", "", false
	}
	pk, rest = cutQuoted(rest)
	rest, ok = strings.CutPrefix(rest, ",")
	if !ok {
		return "", "", "", false
	}
	rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " "), "RowKey='")
	if !ok {
		return "", "", "", false
	}
	rk, rest = cutQuoted(rest)
	return name, pk, rk, rest == ")"
}

// cutQuoted returns what comes before a single quote, and what is after it.
func cutQuoted(s string) (text, rest string) {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '\'':
		case i+1 < len(s) && s[i+1] == '\'':
			i++
		default:
			return strings.ReplaceAll(s[:i], "''", "'"), s[i+1:]
		}
	}
	return "", ""
}

// operation names a call as azuritetest does.
func (c tableCall) operation() string {
	onTables := c.name == "Tables"
	switch {
	case c.name == "$batch":
		return "batch"
	case onTables && c.method == http.MethodPost:
		return "create-table"
	case onTables && c.method == http.MethodDelete:
		return "delete-table"
	case onTables:
		return "list-tables"
	case c.method == http.MethodPost:
		return "insert"
	case c.method == http.MethodPut:
		return "replace"
	case c.method == http.MethodDelete:
		return "delete-entity"
	case c.method == http.MethodGet && c.keyed:
		return "get"
	case c.method == http.MethodGet:
		return "query"
	}
	return "merge"
}

// tableAnswer is an answer of the table service.
type tableAnswer struct {
	status int
	header http.Header
	body   []byte
}

func (s *Server) serveTable(w http.ResponseWriter, r *http.Request) {
	c, unread := parseTableCall(r.Method, r.URL, r.Header)
	body, err := s.begin(r, "table", c.operation())
	if errors.Is(err, errGone) {
		return
	}
	if err == nil {
		err = unread
	}
	var a tableAnswer
	if err == nil {
		a, err = s.tables.answer(c, body, s.model.Now())
	}
	if err != nil {
		e := refusalOf(err)
		a = tableAnswer{status: e.status, header: http.Header{"X-Ms-Error-Code": {e.code}}, body: errorJSON(e, "")}
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	if len(a.body) > 0 && w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json;odata=minimalmetadata;charset=utf-8")
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a caller that is gone needs no answer
}

func errorJSON(e *refusal, at string) []byte {
	return fmt.Appendf(nil, `{"odata.error":{"code":%q,"message":{"lang":"en-US","value":"%srefused by the stand-in"}}}`, e.code, at)
}

func (s *tableService) answer(c tableCall, body []byte, now time.Time) (tableAnswer, error) {
	switch c.operation() {
	case "batch":
		return s.batch(c, body, now)
	case "create-table":
		var t struct{ TableName string }
		if err := json.Unmarshal(body, &t); err != nil || !validTable.MatchString(t.TableName) {
			return tableAnswer{}, errInvalid
		}
		if err := s.create(t.TableName); err != nil {
			return tableAnswer{}, err
		}
		if wantsNothing(c.header) {
			return tableAnswer{status: http.StatusNoContent}, nil
		}
		return tableAnswer{status: http.StatusCreated, body: fmt.Appendf(nil, `{"TableName":%q}`, t.TableName)}, nil
	case "delete-table":
		return tableAnswer{status: http.StatusNoContent}, s.remove(c.pk)
	case "list-tables":
		return s.listTables(c)
	case "get":
		e, err := s.get(c.name, c.pk, c.rk)
		if err != nil {
			return tableAnswer{}, err
		}
		return tableAnswer{status: http.StatusOK, header: http.Header{"Etag": {e.etag}}, body: e.show(nil, true)}, nil
	case "query":
		return s.list(c)
	}
	ch, err := c.change(body)
	if err != nil {
		return tableAnswer{}, err
	}
	etags, _, err := s.write(c.name, []*change{ch}, now)
	switch {
	case err != nil:
		return tableAnswer{}, err
	case etags[0] == "":
		return tableAnswer{status: http.StatusNoContent}, nil
	case ch.insert && !wantsNothing(c.header):
		return tableAnswer{status: http.StatusCreated, header: http.Header{"Etag": {etags[0]}}, body: ch.json}, nil
	}
	return tableAnswer{status: http.StatusNoContent, header: http.Header{"Etag": {etags[0]}}}, nil
}

func wantsNothing(h http.Header) bool { return h.Get("Prefer") == "return-no-content" }

// change is what a call that writes one row asks for.
func (c tableCall) change(body []byte) (*change, error) {
	ch := &change{method: c.method, pk: c.pk, rk: c.rk, ifMatch: c.header.Get("If-Match"), json: body}
	switch {
	case c.method == http.MethodPost:
		var keys struct{ PartitionKey, RowKey *string }
		if err := json.Unmarshal(body, &keys); err != nil || keys.PartitionKey == nil || keys.RowKey == nil {
			return nil, errInvalid
		}
		ch.insert, ch.pk, ch.rk, ch.ifMatch = true, *keys.PartitionKey, *keys.RowKey, ""
	case !c.keyed:
		return nil, errNoRoute
	case c.method == http.MethodDelete && ch.ifMatch == "":
		return nil, &refusal{http.StatusBadRequest, "MissingRequiredHeader"}
	}
	return ch, nil
}

// show writes a row for a reader; selected names the properties, nil for all.
func (e *entity) show(selected []string, etag bool) []byte {
	row := e.json
	if selected != nil {
		var all map[string]json.RawMessage
		_ = json.Unmarshal(row, &all) // it was checked when it was written
		few := map[string]json.RawMessage{}
		for _, name := range selected {
			for _, n := range []string{name, name + odataType} {
				if v, ok := all[n]; ok {
					few[n] = v
				}
			}
		}
		row, _ = json.Marshal(few) // raw values that were read just now
	}
	var b bytes.Buffer
	b.WriteByte('{')
	if etag {
		fmt.Fprintf(&b, `"odata.etag":%q,`, e.etag)
	}
	fmt.Fprintf(&b, `"Timestamp":%q`, e.written.UTC().Format(time.RFC3339Nano))
	if rest := row[1:]; len(bytes.TrimSpace(rest)) > 1 {
		b.WriteByte(',')
	}
	b.Write(row[1:])
	return b.Bytes()
}

// Continuation tokens are opaque to the caller.
const tokenPrefix = "1!"

func token(s string) string {
	return tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(s))
}

func parseToken(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	rest, ok := strings.CutPrefix(s, tokenPrefix)
	key, err := base64.RawURLEncoding.DecodeString(rest)
	if !ok || err != nil {
		return "", errInvalid
	}
	return string(key), nil
}

func (s *tableService) list(c tableCall) (tableAnswer, error) {
	f, err := parseFilter(c.query.Get("$filter"))
	if err != nil {
		return tableAnswer{}, err
	}
	limit, err := bounded(c.query, "$top", maxRows, 1, maxRows)
	if err != nil {
		return tableAnswer{}, errInvalid
	}
	var from place
	if from.pk, err = parseToken(c.query.Get("NextPartitionKey")); err != nil {
		return tableAnswer{}, err
	}
	if from.rk, err = parseToken(c.query.Get("NextRowKey")); err != nil {
		return tableAnswer{}, err
	}
	if s.model.disorderly(0.2) {
		limit = s.model.below(min(limit, 8)) // pages may be short, and empty
	}
	rows, next, err := s.query(c.name, f, from, limit)
	if err != nil {
		return tableAnswer{}, err
	}
	var selected []string
	if names := c.query.Get("$select"); names != "" {
		selected = strings.Split(names, ",")
	}
	full := strings.Contains(c.query.Get("$format")+c.header.Get("Accept"), "fullmetadata")
	var b bytes.Buffer
	b.WriteString(`{"value":[`)
	for i, e := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(e.show(selected, full))
	}
	b.WriteString(`]}`)
	a := tableAnswer{status: http.StatusOK, header: http.Header{}, body: b.Bytes()}
	if next != nil {
		a.header.Set("x-ms-continuation-NextPartitionKey", token(next.pk))
		a.header.Set("x-ms-continuation-NextRowKey", token(next.rk))
	}
	return a, nil
}

func (s *tableService) listTables(c tableCall) (tableAnswer, error) {
	f, err := parseFilter(c.query.Get("$filter"))
	if err != nil {
		return tableAnswer{}, err
	}
	from, err := parseToken(c.query.Get("NextTableName"))
	if err != nil {
		return tableAnswer{}, err
	}
	var b bytes.Buffer
	b.WriteString(`{"value":[`)
	a := tableAnswer{status: http.StatusOK, header: http.Header{}}
	n := 0
	for _, name := range s.names() {
		if name < from || !f.allows("TableName", name) {
			continue
		}
		if n == maxRows {
			a.header.Set("x-ms-continuation-NextTableName", token(name))
			break
		}
		if n++; n > 1 {
			b.WriteByte(',')
		}
		b.WriteString(`{"TableName":` + strconv.Quote(name) + `}`)
	}
	b.WriteString(`]}`)
	a.body = b.Bytes()
	return a, nil
}
