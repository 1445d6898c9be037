package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a JSON request.
const (
	maxJSONBytes = 1 << 20
	maxJSONDepth = 16
)

// fields are the members of a JSON object, read one by one so that whatever is
// wrong can be said about the field that it is in.
type fields map[string]json.RawMessage

// readFields reads a request's JSON object. With optional, an empty body and null, which
// some clients write for none, are an empty object.
func readFields(w http.ResponseWriter, r *http.Request, optional bool) (fields, error) {
	raw, err := takeBody(w, r, maxJSONBytes)
	if err != nil {
		return nil, bodyFault(err, fmt.Sprintf("send at most %d bytes of JSON", maxJSONBytes))
	}
	if len(raw) == 0 && optional {
		return fields{}, nil
	}
	if err := together(checkCoding(r, "send the JSON uncompressed"), checkJSONType(r)); err != nil {
		return nil, err
	}
	if problem := checkJSON(raw); problem != "" {
		return nil, invalid(fieldError{"body", problem, "send one JSON object in UTF-8"})
	}
	var in fields
	if err := json.Unmarshal(raw, &in); err == nil && in == nil && optional {
		return fields{}, nil
	} else if err != nil || in == nil {
		return nil, invalid(fieldError{"body", "is not a JSON object", `send an object, such as {"queue":"orders","url":"https://example.com/hook"}`})
	}
	return in, nil
}

// Bounds of what is still read of a body that is too large.
const (
	maxDrained = 32 << 20
	drainTime  = 5 * time.Second
)

// takeBody reads at most limit bytes. Of a body that is larger the rest is read too, within
// bounds: a caller that is still sending would see a reset, and not the answer.
func takeBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTime)) // not every server has deadlines
		_, _ = io.CopyN(io.Discard, r.Body, maxDrained)                              // the caller may hang up
	}
	return body, err
}

// bodyFault says why a body could not be read.
func bodyFault(err error, cure string) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return newProblem(http.StatusRequestEntityTooLarge, "too-large", "The body is too large",
			fmt.Sprintf("The body has more than %d bytes.", tooLarge.Limit),
			fieldError{"body", fmt.Sprintf("is over the limit of %d bytes", tooLarge.Limit), cure})
	}
	return invalid(fieldError{"body", "did not arrive whole", "send the request again, with a Content-Length that is right"})
}

// checkCoding refuses a body that is marked as compressed, wherever one is sent: nothing
// here, and no queue message, has a Content-Encoding.
func checkCoding(r *http.Request, cure string) error {
	for _, coding := range r.Header.Values("Content-Encoding") {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return newProblem(http.StatusUnsupportedMediaType, "unsupported-media-type", "The body is compressed",
				"Bodies are read as they are sent.", fieldError{"Content-Encoding", "is not supported", cure})
		}
	}
	return nil
}

// compressed are the first bytes of what is often compressed: gzip, zstd, and zlib of any level.
var compressed = []string{"\x1f\x8b", "\x28\xb5\x2f\xfd", "\x78\x01", "\x78\x5e", "\x78\x9c", "\x78\xda"}

// checkUncompressed refuses what declares JSON or text and is compressed: some proxies, and hosts
// that forward, drop the header Content-Encoding, and receivers would get bytes that they can't
// read. Brotli has no such beginning; what is declared as JSON and is no text at all is taken for it.
func checkUncompressed(contentType string, body []byte, cure string) error {
	media, _, _ := mime.ParseMediaType(contentType) // empty where it is none
	isJSON := media == "application/json" || strings.HasSuffix(media, "+json")
	if !isJSON && !strings.HasPrefix(media, "text/") && media != "application/xml" && !strings.HasSuffix(media, "+xml") {
		return nil
	}
	begins := func(with string) bool { return bytes.HasPrefix(body, []byte(with)) && !utf8.Valid(body) }
	if slices.ContainsFunc(compressed, begins) || isJSON && !utf8.Valid(body) && !bytes.ContainsAny(body[:1], "{[\" \t\r\n\xef") {
		return newProblem(http.StatusUnsupportedMediaType, "unsupported-media-type", "The body is compressed",
			"The body is not what its Content-Type says. It looks compressed, and the header Content-Encoding is missing: something on the way may have dropped it.",
			fieldError{"body", "looks compressed, and is declared as " + media, cure})
	}
	return nil
}

func checkJSONType(r *http.Request) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && (media == "application/json" || media == "application/merge-patch+json" && r.Method == http.MethodPatch) {
		return nil
	}
	return newProblem(http.StatusUnsupportedMediaType, "unsupported-media-type", "The body is not marked as JSON",
		"This address takes JSON.",
		fieldError{"Content-Type", "is not application/json", "send the header Content-Type: application/json (curl: -H 'Content-Type: application/json')"})
}

// checkJSON says what is wrong with a document before any of it is used: bad
// syntax, text after it, bytes that are no UTF-8 (the decoder would replace them
// silently), too deep, or a name that is there twice (the decoder would take the
// last one, and takes names in any case).
func checkJSON(raw []byte) string {
	if what := syntaxProblem(raw); what != "" {
		return what
	}
	return checkValue(json.NewDecoder(bytes.NewReader(raw)), nil)
}

// syntaxProblem says why a document is not JSON in UTF-8; empty when it is.
func syntaxProblem(raw []byte) string {
	if !utf8.Valid(raw) {
		return "is not UTF-8"
	}
	var whole json.RawMessage
	err := json.Unmarshal(raw, &whole)
	if err == nil {
		return ""
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		line := 1 + bytes.Count(raw[:min(int(syntax.Offset), len(raw))], []byte("\n"))
		return fmt.Sprintf("is not valid JSON: %s, at byte %d on line %d", syntax, syntax.Offset, line)
	}
	return "is not valid JSON"
}

// checkValue reads one value; path leads to it.
func checkValue(dec *json.Decoder, path []string) string {
	if len(path) > maxJSONDepth {
		return fmt.Sprintf("is nested more than %d levels deep", maxJSONDepth)
	}
	token, err := dec.Token()
	if err != nil {
		return "is not valid JSON"
	}
	open, ok := token.(json.Delim)
	if !ok {
		return ""
	}
	seen := map[string]bool{}
	for dec.More() {
		name := "[]"
		if open == '{' {
			token, err := dec.Token()
			if err != nil {
				return "is not valid JSON"
			}
			name, _ = token.(string)
			folded := strings.ToLower(name)
			if seen[folded] {
				return fmt.Sprintf("has %s twice (upper and lower case are one name here)", shownName(strings.Join(append(path, name), ".")))
			}
			seen[folded] = true
		}
		if problem := checkValue(dec, append(slices.Clip(path), name)); problem != "" {
			return problem
		}
	}
	_, _ = dec.Token() // the closing delimiter: the syntax is known to be good
	return ""
}

// decode reads one field into v. want says what is expected, with an example.
func decode(field string, raw json.RawMessage, v any, want string) *fieldError {
	err := json.Unmarshal(raw, v)
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		if wrong.Field != "" {
			field += "." + wrong.Field
		}
		return &fieldError{field, fmt.Sprintf("is a JSON %s, which is the wrong type", wrong.Value), want}
	}
	return &fieldError{field, "is not right: " + err.Error(), want}
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// unknownField refuses what a request must not have.
func unknownField(name string, known []string) fieldError {
	cure := "send no fields here"
	if len(known) > 0 {
		cure = "use only: " + strings.Join(known, ", ")
	}
	return fieldError{shownName(name), "is not a field that can be set here", cure}
}

// noBody refuses a body where none is taken.
func noBody(w http.ResponseWriter, r *http.Request) error {
	in, err := readFields(w, r, true)
	if err != nil {
		return err
	}
	return onlyFields(in)
}

// onlyFields refuses fields that are not known.
func onlyFields(in fields, known ...string) error {
	var problems []fieldError
	for _, name := range in.names() {
		if !slices.Contains(known, name) {
			problems = append(problems, unknownField(name, known))
		}
	}
	if len(problems) > 0 {
		return invalid(problems...)
	}
	return nil
}

// names returns the names in a constant order.
func (f fields) names() []string {
	names := make([]string, 0, len(f))
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// utc keeps the zero time zero.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// seconds writes a duration as Retry-After has it.
func seconds(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }
