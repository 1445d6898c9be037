package azurestandin

import (
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// batch is an entity group transaction: a multipart document with one change set in it,
// whose parts are requests. All of them are of one partition, and all or none are done.
func (s *tableService) batch(c tableCall, body []byte, now time.Time) (tableAnswer, error) {
	if len(body) > maxBatchBytes {
		return tableAnswer{}, errBatchTooLarge
	}
	name, changes, err := readBatch(c.header.Get("Content-Type"), body)
	if err != nil {
		return tableAnswer{}, err
	}
	var etags []string
	at, err := checkBatch(changes)
	if err == nil {
		etags, at, err = s.write(name, changes, now)
	}
	var b bytes.Buffer
	const outer, inner = "batchresponse_1", "changesetresponse_1"
	fmt.Fprintf(&b, "--%s\r\nContent-Type: multipart/mixed; boundary=%s\r\n\r\n", outer, inner)
	part := func(text string) {
		b.WriteString("--" + inner + "\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n" + text + "\r\n")
	}
	if err != nil {
		e := refusalOf(err)
		part(fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: application/json;odata=minimalmetadata\r\n\r\n%s",
			e.status, http.StatusText(e.status), errorJSON(e, fmt.Sprintf("%d:", at))))
	}
	for _, etag := range etags {
		text := "HTTP/1.1 204 No Content\r\nDataServiceVersion: 3.0;\r\n"
		if etag != "" {
			text += "ETag: " + etag + "\r\n"
		}
		part(text + "\r\n")
	}
	fmt.Fprintf(&b, "--%s--\r\n--%s--\r\n", inner, outer)
	return tableAnswer{
		status: http.StatusAccepted, header: http.Header{"Content-Type": {"multipart/mixed; boundary=" + outer}}, body: b.Bytes(),
	}, nil
}

// checkBatch holds the changes to the rules of a transaction; at is the one that breaks
// one.
func checkBatch(changes []*change) (at int, err error) {
	seen := make(map[string]bool, len(changes))
	for i, c := range changes {
		switch {
		case i >= maxBatchRows:
			return i, errInvalid
		case c.pk != changes[0].pk:
			return i, errMixed
		case seen[c.rk]:
			return i, errDuplicateRow
		}
		seen[c.rk] = true
	}
	return 0, nil
}

// parts splits a multipart document in place: it is what the stand-in has most of, and a
// reader for each part would take more CPU than everything else it does.
func parts(contentType string, body []byte) ([][]byte, error) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "multipart/mixed" || params["boundary"] == "" {
		return nil, errInvalid
	}
	delimiter := []byte("\r\n--" + params["boundary"])
	rest, found := bytes.CutPrefix(body, delimiter[len("\r\n"):])
	if !found {
		_, rest, found = bytes.Cut(body, delimiter)
	}
	var list [][]byte
	for found {
		if bytes.HasPrefix(rest, []byte("--")) {
			return list, nil
		}
		if rest, found = bytes.CutPrefix(rest, []byte("\r\n")); !found {
			break
		}
		var part []byte
		part, rest, found = bytes.Cut(rest, delimiter)
		list = append(list, part)
	}
	return nil, errInvalid // it has no end
}

// head splits off the lines before an empty one.
func head(part []byte) (lines, rest []byte) {
	lines, rest, _ = bytes.Cut(part, []byte("\r\n\r\n"))
	return lines, rest
}

// headerOf returns the value of a header among lines.
func headerOf(lines []byte, name string) string {
	for len(lines) > 0 {
		var line []byte
		line, lines, _ = bytes.Cut(lines, []byte("\r\n"))
		if n := len(name); len(line) > n && line[n] == ':' && strings.EqualFold(string(line[:n]), name) {
			return strings.TrimSpace(string(line[n+1:]))
		}
	}
	return ""
}

// readBatch returns the table and the changes of a transaction.
func readBatch(contentType string, body []byte) (tableName string, changes []*change, err error) {
	sets, err := parts(contentType, body)
	if err != nil {
		return "", nil, err
	}
	for _, set := range sets {
		lines, rest := head(set)
		requests, err := parts(headerOf(lines, "Content-Type"), rest)
		if err != nil {
			return "", nil, err
		}
		for _, request := range requests {
			c, ch, err := readPart(request)
			switch {
			case err != nil:
				return "", nil, err
			case tableName != "" && c.name != tableName:
				return "", nil, errMixed
			}
			tableName = c.name
			changes = append(changes, ch)
		}
	}
	if len(changes) == 0 {
		return "", nil, errInvalid
	}
	return tableName, changes, nil
}

// readPart reads one request within a transaction, which ends with its part.
func readPart(part []byte) (tableCall, *change, error) {
	_, request := head(part)
	lines, body := head(request)
	first, headers, _ := bytes.Cut(lines, []byte("\r\n"))
	method, rest, _ := strings.Cut(string(first), " ")
	target, _, _ := strings.Cut(rest, " HTTP/")
	if method == http.MethodGet {
		return tableCall{}, nil, errNotSupported
	}
	if _, after, absolute := strings.Cut(target, "://"); absolute {
		_, target, _ = strings.Cut(after, "/")
	}
	target, _, _ = strings.Cut(target, "?")
	path, err := url.PathUnescape(target)
	if err != nil {
		return tableCall{}, nil, errInvalid
	}
	c, err := parseResource(path)
	if err != nil {
		return tableCall{}, nil, err
	}
	c.method, c.header = method, http.Header{}
	if match := headerOf(headers, "If-Match"); match != "" {
		c.header.Set("If-Match", match)
	}
	ch, err := c.change(body)
	return c, ch, err
}
