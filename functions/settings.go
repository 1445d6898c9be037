package functions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// Environment is where the app's settings come from; ok is false for one that is not there, which is
// not the same to the host as an empty one.
type Environment func(name string) (value string, ok bool)

func (e Environment) get(name string) string {
	value, _ := e(name)
	return value
}

// hostSettings are what the host runs with: host.json, and the variables that replace parts of it.
type hostSettings struct {
	file map[string]any // names in lower case, since the host's configuration knows none
	env  Environment
}

// errNoObject: the rest of its text might quote secrets.
var errNoObject = errors.New("it is no JSON object")

func readHostSettings(root fs.FS, env Environment) (hostSettings, error) {
	s := hostSettings{env: env}
	text, err := fs.ReadFile(root, "host.json")
	if err != nil {
		return s, fmt.Errorf("read host.json: %w", err)
	}
	var file map[string]any
	if json.Unmarshal(PlainJSON(text), &file) != nil || file == nil {
		return s, fmt.Errorf("host.json: %w", errNoObject)
	}
	s.file, _ = lowered(file).(map[string]any)
	return s, nil
}

// lowered is a value of host.json with its names in lower case, and "" for null, as the host's
// configuration has it.
func lowered(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			out[strings.ToLower(name)] = lowered(member)
		}
		return out
	case nil:
		return ""
	}
	return v
}

// get is a setting by its path, or what a variable replaces it by: for a.b AzureFunctionsJobHost__a__b.
// nil means that it is not there.
func (s hostSettings) get(path string) any {
	for _, between := range []string{"__", ":"} {
		if text, ok := s.env("AzureFunctionsJobHost" + between + strings.ReplaceAll(path, ".", between)); ok {
			return fromVariable(text)
		}
	}
	var v any = s.file
	for name := range strings.SplitSeq(strings.ToLower(path), ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// fromVariable reads a value as host.json would have it.
func fromVariable(text string) any {
	var v any
	if json.Unmarshal([]byte(strings.ToLower(text)), &v) == nil && v != nil {
		return v
	}
	return text
}

// settingOf is a setting of one type; otherwise where there is none of it.
func settingOf[T any](s hostSettings, path string, otherwise T) T {
	if v, ok := s.get(path).(T); ok {
		return v
	}
	return otherwise
}

// The parts of a text that is nearly JSON. A string is matched first, so that nothing in it is another.
var (
	commentPart = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*(?s:.*?)\*/`)
	commaPart   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|,\s*[}\]]`)
)

// PlainJSON takes out what the host's parser passes over and Go's does not: a byte order mark, comments,
// and commas before an end.
func PlainJSON(text []byte) []byte {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	text = commentPart.ReplaceAllFunc(text, func(part []byte) []byte {
		if part[0] == '/' {
			return []byte{' '}
		}
		return part
	})
	return commaPart.ReplaceAllFunc(text, func(part []byte) []byte { return bytes.TrimPrefix(part, []byte{','}) })
}
