package web

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
	MaxJSONBytes = 1 << 20
	// MaxShortBytes is for requests that need no body: a handful of fields at most.
	MaxShortBytes = 16 << 10
	maxJSONDepth  = 16
	// maxJSONValues bounds what is made of a body, which takes many times its bytes.
	maxJSONValues = 10_000
)

// Fields are the members of a JSON object, read one by one so that whatever is
// wrong can be said about the field that it is in.
type Fields map[string]json.RawMessage

// ReadFields reads a request's JSON object. With optional, an empty body and null, which
// some clients write for none, are an empty object, and there are few fields.
func ReadFields(w http.ResponseWriter, r *http.Request, optional bool) (Fields, error) {
	limit := MaxJSONBytes
	if optional {
		limit = MaxShortBytes
	}
	raw, err := TakeBody(w, r, int64(limit))
	if err != nil {
		return nil, BodyFault(err, fmt.Sprintf("send at most %d bytes of JSON", limit))
	}
	if len(raw) == 0 && optional {
		return Fields{}, nil
	}
	if err := Together(CheckCoding(r, "send the JSON uncompressed"), checkJSONType(r)); err != nil {
		return nil, err
	}
	if problem := checkJSON(raw); problem != "" {
		return nil, Invalid(FieldError{"body", problem, "send one JSON object in UTF-8"})
	}
	var in Fields
	if err := json.Unmarshal(raw, &in); err == nil && in == nil && optional {
		return Fields{}, nil
	} else if err != nil || in == nil {
		return nil, Invalid(FieldError{"body", "is not a JSON object", `send an object, such as {"queue":"orders","url":"https://example.com/hook"}`})
	}
	return in, nil
}

// Bounds of what is still read of a body that is too large.
const (
	maxDrained = 32 << 20
	drainTime  = 5 * time.Second
)

// TakeBody reads at most limit bytes. Of a body that is larger the rest is read too, within
// bounds: a caller that is still sending would see a reset, and not the answer.
func TakeBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTime)) // not every server has deadlines
		_, _ = io.CopyN(io.Discard, r.Body, maxDrained)                              // the caller may hang up
	}
	return body, err
}

// BodyFault says why a body could not be read.
func BodyFault(err error, cure string) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return NewProblem(TooLarge,
			fmt.Sprintf("The body has more than %d bytes.", tooLarge.Limit),
			FieldError{"body", fmt.Sprintf("is over the limit of %d bytes", tooLarge.Limit), cure})
	}
	return Invalid(FieldError{"body", "did not arrive whole", "send the request again, with a Content-Length that is right"})
}

// CheckCoding refuses a body that is marked as compressed, wherever one is sent: nothing
// here, and no queue message, has a Content-Encoding.
func CheckCoding(r *http.Request, cure string) error {
	for _, coding := range r.Header.Values("Content-Encoding") {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return NewProblem(UnsupportedMediaType,
				"The body is compressed, and bodies are read as they are sent.", FieldError{"Content-Encoding", "is not supported", cure})
		}
	}
	return nil
}

// compressed are the first bytes of what is often compressed: gzip, zstd, and zlib of any level.
var compressed = []string{"\x1f\x8b", "\x28\xb5\x2f\xfd", "\x78\x01", "\x78\x5e", "\x78\x9c", "\x78\xda"}

// CheckUncompressed refuses what declares JSON or text and is compressed: some proxies, and hosts
// that forward, drop the header Content-Encoding, and receivers would get bytes that they can't
// read. Brotli has no such beginning; what is no text at all is taken for it.
func CheckUncompressed(contentType string, body []byte, cure string) error {
	media, params, _ := mime.ParseMediaType(contentType) // empty where it is none
	isJSON := media == "application/json" || strings.HasSuffix(media, "+json")
	if !isJSON && !strings.HasPrefix(media, "text/") && media != "application/xml" && !strings.HasSuffix(media, "+xml") {
		return nil
	}
	if utf8.Valid(body) {
		return nil
	}
	begins := func(with string) bool { return bytes.HasPrefix(body, []byte(with)) }
	if slices.ContainsFunc(compressed, begins) || isJSON && !bytes.ContainsAny(body[:1], "{[\" \t\r\n\xef") || noText(params["charset"], body) {
		return NewProblem(UnsupportedMediaType,
			"The body is not what its Content-Type says. It looks compressed, and the header Content-Encoding is missing: something on the way may have dropped it.",
			FieldError{"body", "looks compressed, and is declared as " + media, cure})
	}
	return nil
}

// noText reports whether what is no UTF-8 begins like no text in a charset of one byte either: with control
// characters. Whoever declares another charset than UTF-8 is believed: some have such characters in every text.
func noText(charset string, body []byte) bool {
	switch strings.ToLower(charset) {
	case "", "utf-8", "utf8", "us-ascii":
	default:
		return false
	}
	wide := bytes.HasPrefix(body, []byte("\xff\xfe")) || bytes.HasPrefix(body, []byte("\xfe\xff"))
	control := func(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\f\r", r) }
	return !wide && bytes.ContainsFunc(body[:min(len(body), 64)], control)
}

func checkJSONType(r *http.Request) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && (media == "application/json" || media == "application/merge-patch+json" && r.Method == http.MethodPatch) {
		return nil
	}
	return NewProblem(UnsupportedMediaType,
		"The body is not marked as JSON. This address takes JSON.",
		FieldError{"Content-Type", "is not application/json", "send the header Content-Type: application/json (curl: -H 'Content-Type: application/json')"})
}

// checkJSON says what is wrong with a document before any of it is used: bad
// syntax, text after it, bytes that are no UTF-8 (the decoder would replace them
// silently), too deep, or a name that is there twice (the decoder would take the
// last one, and takes names in any case).
func checkJSON(raw []byte) string {
	if what := SyntaxProblem(raw); what != "" {
		return what
	}
	left := maxJSONValues
	return checkValue(json.NewDecoder(bytes.NewReader(raw)), nil, &left)
}

// SyntaxProblem says why a document is not JSON in UTF-8; empty when it is.
func SyntaxProblem(raw []byte) string {
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
		return fmt.Sprintf("is not valid JSON: %s, at byte %d on line %d", wholeCharacter(syntax, raw), syntax.Offset, line)
	}
	return "is not valid JSON"
}

// wholeCharacter is what a decoder says that takes the first byte of a character for a character.
func wholeCharacter(syntax *json.SyntaxError, raw []byte) string {
	at := int(syntax.Offset) - 1
	if at < 0 || at >= len(raw) || raw[at] < utf8.RuneSelf {
		return syntax.Error()
	}
	r, _ := utf8.DecodeRune(raw[at:])
	return strings.Replace(syntax.Error(), strconv.QuoteRune(rune(raw[at])), strconv.QuoteRune(r), 1)
}

// checkValue reads one value; path leads to it, and left is how many more there may be.
func checkValue(dec *json.Decoder, path []string, left *int) string {
	if len(path) > maxJSONDepth {
		return fmt.Sprintf("is nested more than %d levels deep", maxJSONDepth)
	}
	if *left--; *left < 0 {
		return fmt.Sprintf("has more than %d values", maxJSONValues)
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
				return fmt.Sprintf("has %s twice (upper and lower case are one name here)", ShownName(strings.Join(append(path, name), ".")))
			}
			seen[folded] = true
		}
		if problem := checkValue(dec, append(slices.Clip(path), name), left); problem != "" {
			return problem
		}
	}
	_, _ = dec.Token() // the closing delimiter: the syntax is known to be good
	return ""
}

// Decode reads one field into v. want says what is expected, with an example.
func Decode(field string, raw json.RawMessage, v any, want string) *FieldError {
	err := json.Unmarshal(raw, v)
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		if wrong.Field != "" {
			field += "." + wrong.Field
		}
		return &FieldError{field, fmt.Sprintf("is a JSON %s, which is the wrong type", wrong.Value), want}
	}
	return &FieldError{field, "is not right: " + err.Error(), want}
}

// IsNull reports whether a value is there and is null.
func IsNull(raw json.RawMessage) bool { return string(raw) == "null" }

// UnknownField refuses what a request must not have.
func UnknownField(name string, known []string) FieldError {
	cure := "send no fields here"
	if len(known) > 0 {
		cure = "use only: " + strings.Join(known, ", ")
	}
	return FieldError{ShownName(name), "is not a field that can be set here", cure}
}

// unreadTime is how long the rest of a body may take to come that nobody reads.
const unreadTime = 2 * time.Second

// Unread is for a body of which nothing is needed. The server reads what is left of it before
// the answer goes out, and would wait for a caller that does not send it.
func Unread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadTime)) // not every server has deadlines
	}
}

// NoBody refuses a body where none is taken.
func NoBody(w http.ResponseWriter, r *http.Request) error {
	Unread(w, r)
	in, err := ReadFields(w, r, true)
	if err != nil {
		return err
	}
	return OnlyFields(in)
}

// OnlyFields refuses fields that are not known.
func OnlyFields(in Fields, known ...string) error {
	var problems []FieldError
	for _, name := range in.Names() {
		if !slices.Contains(known, name) {
			problems = append(problems, UnknownField(name, known))
		}
	}
	if len(problems) > 0 {
		return Invalid(problems...)
	}
	return nil
}

// Names returns the names in a constant order.
func (f Fields) Names() []string {
	names := make([]string, 0, len(f))
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// UTC keeps the zero time zero.
func UTC(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// Seconds writes a duration as Retry-After has it.
func Seconds(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }
