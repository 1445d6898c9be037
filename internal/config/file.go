package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// maxFileBytes bounds a configuration file.
const maxFileBytes = 1 << 20

// quotation is what a parser's message quotes from the file.
var quotation = regexp.MustCompile(`".*"`)

// readFile returns what the YAML file says. A problem never quotes the file's
// text, which may hold secrets.
func readFile(path, where string, bad *problems) map[string]value {
	raw, err := readBounded(path)
	if err != nil {
		bad.add(configFlag, where, "can't read the file: "+err.Error()+"; name a readable YAML file")
		return nil
	}
	known := make([]string, len(table))
	for i, s := range table {
		known[i] = s.Name
	}
	var doc map[string]any
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		// Without its second argument the message would show the lines around.
		text, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
		text = quotation.ReplaceAllStringFunc(text, func(quoted string) string {
			if slices.Contains(known, strings.Trim(quoted, `"`)) {
				return quoted
			}
			return `"…"`
		})
		bad.add(configFlag, path, "this is not a YAML map of settings: "+text)
		return nil
	}
	values := map[string]value{}
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		v := doc[name]
		i := slices.Index(known, name)
		switch {
		case i < 0 && (len(name) > maxNameBytes || !only(name, nameChars)): // a connection string, at worst
			bad.add(configFlag, path, "a name in the file can be no setting; write names of letters and _, a colon, a blank and the value")
			continue
		case i < 0:
			bad.add(name, path, "there is no such setting; "+suggest(strings.ReplaceAll(name, "-", "_"), known, "remove it"))
			continue
		}
		text, err := table[i].kind.text(v)
		if err != nil {
			bad.add(name, path, err.Error())
		} else if text != "" {
			values[name] = value{text, fromFile, path}
		}
	}
	return values
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(raw) > maxFileBytes {
		err = fmt.Errorf("%s is over %d bytes", path, maxFileBytes)
	}
	return raw, err
}

// text turns a YAML value into the form that flags and variables have, so that
// each setting has one parser.
func (k kind) text(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string, bool, int, int64, uint64, float64:
		return fmt.Sprint(v), nil
	case []any:
		if k != list {
			return "", errors.New("this setting takes one value, not a list")
		}
		items := make([]string, len(v))
		for i, item := range v {
			s, ok := item.(string)
			if !ok {
				return "", fmt.Errorf("item %d of the list is not a text; put it in quotes", i+1)
			}
			items[i] = s
		}
		return strings.Join(items, ","), nil
	case map[string]any:
		if k == queueMap {
			return queuesText(v)
		}
	}
	return "", errors.New("this setting does not take a map; write its value behind the colon")
}
