package azurestandin

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
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
		fmt.Fprintf(&b, "--%s\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n%s\r\n", inner, text)
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

// parts calls each for every part of a multipart document.
func parts(contentType string, body io.Reader, each func(*multipart.Part) error) error {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "multipart/mixed" {
		return errInvalid
	}
	r := multipart.NewReader(body, params["boundary"])
	for {
		p, err := r.NextRawPart()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return errInvalid
		}
		if err := each(p); err != nil {
			return err
		}
	}
}

// readBatch returns the table and the changes of a transaction.
func readBatch(contentType string, body []byte) (tableName string, changes []*change, err error) {
	err = parts(contentType, bytes.NewReader(body), func(set *multipart.Part) error {
		return parts(set.Header.Get("Content-Type"), set, func(p *multipart.Part) error {
			c, ch, err := readPart(p)
			switch {
			case err != nil:
				return err
			case tableName != "" && c.name != tableName:
				return errMixed
			}
			tableName = c.name
			changes = append(changes, ch)
			return nil
		})
	})
	if err == nil && len(changes) == 0 {
		err = errInvalid
	}
	return tableName, changes, err
}

// readPart reads one request within a transaction. It has no Content-Length: it ends with
// its part.
func readPart(p *multipart.Part) (tableCall, *change, error) {
	r := textproto.NewReader(bufio.NewReader(p))
	line, err := r.ReadLine()
	if err != nil {
		return tableCall{}, nil, errInvalid
	}
	method, rest, _ := strings.Cut(line, " ")
	target, _, _ := strings.Cut(rest, " HTTP/")
	u, err := url.Parse(target)
	if err != nil {
		return tableCall{}, nil, errInvalid
	}
	header, err := r.ReadMIMEHeader()
	if err != nil {
		return tableCall{}, nil, errInvalid
	}
	body, err := io.ReadAll(r.R)
	if err != nil {
		return tableCall{}, nil, errInvalid
	}
	c, err := parseTableCall(method, u, http.Header(header))
	if err != nil {
		return tableCall{}, nil, err
	}
	if method == http.MethodGet {
		return tableCall{}, nil, errNotSupported
	}
	ch, err := c.change(body)
	return c, ch, err
}
