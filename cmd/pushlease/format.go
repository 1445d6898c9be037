package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/theory/jsonpath"
)

// output is how a command prints: for people, or for programs.
type output struct {
	format string
	path   *jsonpath.Path // with jsonpath
	begun  bool           // a document was printed before
}

const outputFormats = "text, wide (more columns of a list), json, yaml, ndjson (a line for each row) or jsonpath=PATH, such as jsonpath='$.data[*].id'"

func (o *output) addFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(o, "output", "o", outputFormats)
}

// String, Set and Type make output a flag that refuses other values.
func (o *output) String() string {
	if o.format == "" {
		return "text"
	}
	return o.format
}

// Set takes the name of a format, and a path behind jsonpath=.
func (o *output) Set(v string) error {
	name, path, _ := strings.Cut(v, "=")
	switch {
	case v == "text", v == "wide", v == "json", v == "yaml", v == "ndjson":
	case name == "jsonpath":
		parsed, err := jsonpath.Parse(path)
		if err != nil {
			return fmt.Errorf("%w (RFC 9535; write a path such as '$.data[*].id')", err)
		}
		o.path = parsed
	default:
		return errors.New("use " + outputFormats)
	}
	o.format = name
	return nil
}

// Type is shown in the help.
func (o *output) Type() string { return "format" }

// json reports whether JSON is printed, or what is made of it; else it is text for people.
func (o *output) json() bool { return o.format != "" && o.format != "text" && o.format != "wide" }

func (o *output) wide() bool { return o.format == "wide" }

func (o *output) value(cmd *cobra.Command, v any) error { return o.print(cmd.OutOrStdout(), v) }

// print prints v for programs: as JSON on one line, as YAML, or what a path selects of it.
func (o *output) print(out io.Writer, v any) error {
	if o.format == "json" {
		return writeJSON(out, v)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	if o.format == "yaml" {
		return o.writeYAML(out, raw)
	}
	var doc any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		return fmt.Errorf("read the output: %w", err)
	}
	rows := []any{doc}
	if o.path != nil {
		rows = o.path.Select(doc)
	} else if list, ok := doc.(map[string]any); ok {
		if data, ok := list["data"].([]any); ok {
			rows = data
		}
	}
	for _, row := range rows {
		if text, ok := row.(string); ok && o.path != nil {
			_, err = fmt.Fprintln(out, oneLine(text))
		} else {
			err = writeJSON(out, row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeYAML prints a document, after a line --- where it is not the first.
func (o *output) writeYAML(out io.Writer, raw []byte) error {
	text, err := asYAML(raw)
	if err != nil {
		return err
	}
	if o.begun {
		text = "---\n" + text
	}
	o.begun = true
	_, err = io.WriteString(out, text)
	return err
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// asYAML is a JSON document as YAML, in which a text with characters that could steer a terminal, or are not seen there, is
// quoted with escapes: whoever reads the document gets the text as it was.
func asYAML(raw []byte) (string, error) {
	quoted := []string{}
	raw = jsonString.ReplaceAllFunc(raw, func(literal []byte) []byte {
		var text string
		if json.Unmarshal(literal, &text) != nil || clean(text) == text {
			return literal
		}
		name := "text" + rand.Text()
		quoted = append(quoted, name, strconv.QuoteToGraphic(text))
		return []byte(`"` + name + `"`)
	})
	text, err := yaml.JSONToYAML(raw)
	if err != nil {
		return "", fmt.Errorf("write YAML: %w", err)
	}
	return strings.NewReplacer(quoted...).Replace(string(text)), nil
}
