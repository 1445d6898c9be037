package hosttest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// queueData is the invocation of a queue trigger: the message in the binding's type, and
// for a text what it overwrites in the metadata.
func queueData(f function, m *message) (data, metadata map[string]json.RawMessage) {
	b := f.binding
	metadata = map[string]json.RawMessage{
		"DequeueCount": twice(m.dequeueCount), "Id": twice(m.id), "PopReceipt": twice(m.firstReceipt),
		"ExpirationTime": encode(whole(m.expires)), "InsertionTime": encode(whole(m.inserted)), "NextVisibleTime": encode(whole(m.nextVisible)),
		"sys": system(f),
	}
	if strings.EqualFold(b.DataType, "binary") {
		return map[string]json.RawMessage{b.Name: encode(base64.StdEncoding.EncodeToString([]byte(m.text)))}, metadata
	}
	overwrite(metadata, m.text)
	return map[string]json.RawMessage{b.Name: twice(m.text)}, metadata
}

// system is what the host says about each invocation.
func system(f function) json.RawMessage {
	return encode(map[string]any{"MethodName": f.name, "UtcNow": time.Now().UTC().Format("2006-01-02T15:04:05.9999999Z"), "RandGuid": newGUID()})
}

// overwrite merges the members of a text that looks like a JSON object into the metadata. Old
// names keep their case, and the last one wins.
func overwrite(metadata map[string]json.RawMessage, text string) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") || !strings.HasSuffix(text, "}") {
		return
	}
	r := lenient{rest: text}
	all, err := r.object()
	if err != nil || strings.TrimSpace(r.rest) != "" {
		return
	}
	for _, m := range all {
		value, kept := dotNet(m.value)
		if !kept || strings.HasSuffix(strings.ToLower(m.name), "trigger") {
			continue
		}
		name := m.name
		for old := range metadata {
			if strings.EqualFold(old, name) {
				name = old
			}
		}
		metadata[name] = value
	}
}

// dotNet is a value as the host passes it on: scalars as the string that .NET makes of them,
// objects as they are, all others not at all.
func dotNet(v any) (value json.RawMessage, kept bool) {
	switch v := v.(type) {
	case string:
		if at, err := time.Parse(time.RFC3339, v); err == nil {
			v = at.UTC().Format("01/02/2006 15:04:05")
		}
		return twice(v), true
	case bool:
		return twice(strings.ToUpper(strconv.FormatBool(v)[:1]) + strconv.FormatBool(v)[1:]), true
	case numeral:
		return twice(v.dotNet()), true
	case []member:
		return object(v), true
	}
	return nil, false
}

type numeral string

func (n numeral) dotNet() string {
	if !strings.ContainsAny(string(n), ".eE") {
		if n == "-0" {
			return "0"
		}
		return string(n)
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil || math.IsNaN(f) {
		return string(n)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}

// member is one of an object, which has them in order.
type member struct {
	name  string
	value any // string, bool, numeral, nil, []member, []any or undefined
}

type undefined struct{}

// object writes members as JSON again.
func object(all []member) json.RawMessage {
	m := map[string]json.RawMessage{}
	for _, e := range all {
		m[e.name] = plain(e.value)
	}
	return encode(m)
}

func plain(v any) json.RawMessage {
	switch v := v.(type) {
	case numeral:
		return json.RawMessage(v)
	case []member:
		return object(v)
	case []any:
		list := []json.RawMessage{}
		for _, e := range v {
			list = append(list, plain(e))
		}
		return encode(list)
	case undefined:
		return encode(nil)
	}
	return encode(v)
}

// lenient reads JSON as the host's library does: names without quotes, single quotes, and a comma
// at the end are taken.
type lenient struct{ rest string }

var errSyntax = errors.New("not even lenient JSON")

func (r *lenient) space() { r.rest = strings.TrimLeft(r.rest, " \t\r\n") }

func (r *lenient) take(token string) bool {
	r.space()
	rest, ok := strings.CutPrefix(r.rest, token)
	r.rest = rest
	return ok
}

func (r *lenient) object() (all []member, err error) {
	if !r.take("{") {
		return nil, errSyntax
	}
	for {
		if r.take("}") {
			return all, nil
		}
		name, err := r.name()
		if err != nil || !r.take(":") {
			return nil, errSyntax
		}
		v, err := r.value()
		if err != nil {
			return nil, err
		}
		all = append(all, member{name, v})
		if !r.take(",") && !strings.HasPrefix(r.rest, "}") {
			return nil, errSyntax
		}
	}
}

func (r *lenient) list() (all []any, err error) {
	for {
		if r.take("]") {
			return all, nil
		}
		v, err := r.value()
		if err != nil {
			return nil, err
		}
		all = append(all, v)
		if !r.take(",") && !strings.HasPrefix(r.rest, "]") {
			return nil, errSyntax
		}
	}
}

func (r *lenient) name() (string, error) {
	r.space()
	if strings.HasPrefix(r.rest, `"`) || strings.HasPrefix(r.rest, "'") {
		return r.text()
	}
	n := len(r.rest) - len(strings.TrimLeft(r.rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$"))
	if n == 0 {
		return "", errSyntax
	}
	name := r.rest[:n]
	r.rest = r.rest[n:]
	return name, nil
}

// text reads a string in quotes of either kind.
func (r *lenient) text() (string, error) {
	quote := r.rest[0]
	for i := 1; i < len(r.rest); i++ {
		switch r.rest[i] {
		case '\\':
			i++
		case quote:
			inner := r.rest[1:i]
			r.rest = r.rest[i+1:]
			if quote == '\'' {
				inner = strings.ReplaceAll(strings.ReplaceAll(inner, `\'`, "'"), `"`, `\"`)
			}
			var s string
			if json.Unmarshal([]byte(`"`+inner+`"`), &s) != nil || !utf8.ValidString(s) {
				return "", errSyntax
			}
			return s, nil
		}
	}
	return "", errSyntax
}

func (r *lenient) value() (any, error) {
	r.space()
	for token, v := range map[string]any{"true": true, "false": false, "null": nil, "undefined": undefined{}, "NaN": numeral("NaN")} {
		if r.take(token) {
			return v, nil
		}
	}
	switch {
	case strings.HasPrefix(r.rest, "{"):
		return r.object()
	case r.take("["):
		return r.list()
	case strings.HasPrefix(r.rest, `"`), strings.HasPrefix(r.rest, "'"):
		return r.text()
	}
	n := len(r.rest) - len(strings.TrimLeft(r.rest, "+-.0123456789eE"))
	text := r.rest[:n]
	if _, err := strconv.ParseFloat(text, 64); err != nil {
		return nil, errSyntax
	}
	r.rest = r.rest[n:]
	return numeral(text), nil
}
