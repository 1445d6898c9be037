package functions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
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
	// functions are those that the host may call; without any it may call all.
	functions []string
}

// errNoObject: the rest of its text might quote secrets.
var errNoObject = errors.New("it is no JSON object")

func readHostSettings(root fs.FS, env Environment) (hostSettings, error) {
	file, err := readHostFile(root)
	s := hostSettings{file: file, env: env}
	s.functions = s.list("functions")
	return s, err
}

func readHostFile(root fs.FS) (map[string]any, error) {
	text, err := fs.ReadFile(root, "host.json")
	if err != nil {
		return nil, fmt.Errorf("read host.json: %w", err)
	}
	var file map[string]any
	if json.Unmarshal(PlainJSON(text), &file) != nil || file == nil {
		return nil, fmt.Errorf("host.json: %w", errNoObject)
	}
	file, _ = lowered(file).(map[string]any)
	return file, nil
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

// get is a setting by its path, or what a variable replaces it by: for a.b AzureFunctionsJobHost__a__b. The
// elements of a list have numbers, a.0. nil means that it is not there.
func (s hostSettings) get(path string) any {
	for _, between := range []string{"__", ":"} {
		if text, ok := s.env("AzureFunctionsJobHost" + between + strings.ReplaceAll(path, ".", between)); ok {
			return text
		}
	}
	var v any = s.file
	for name := range strings.SplitSeq(strings.ToLower(path), ".") {
		switch parts := v.(type) {
		case map[string]any:
			v = parts[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(parts) {
				return nil
			}
			v = parts[i]
		default:
			return nil
		}
	}
	return v
}

// longestList is how far the elements of a list are looked for: a variable is found only by its name, and their
// numbers may have gaps.
const longestList = 1000

// list is a setting that is a list, element by element as the host puts them together. A variable with the name of the
// list itself is none of them.
func (s hostSettings) list(path string) (all []string) {
	for i := range longestList {
		if text, ok := textOf(s.get(path + "." + strconv.Itoa(i))); ok {
			all = append(all, text)
		}
	}
	return all
}

// textOf is a value as the host's configuration has it, which knows only texts: -1 and "-1" are the same to it.
func textOf(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}

// numberOf is a value that is a whole number to the host.
func numberOf(v any) (n int, ok bool) {
	text, _ := textOf(v)
	n, err := strconv.Atoi(strings.TrimSpace(text))
	return n, err == nil
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
