package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

var updateForm = flag.Bool("update-form", false, "write the page's form anew, from openapi.yaml")

// formField is one field of the page's form about a webhook.
type formField struct {
	At      string   `json:"at"`
	Kind    string   `json:"kind"`
	Choices []string `json:"choices,omitempty"`
	Need    bool     `json:"need,omitempty"`
	// New fields are given when the webhook is registered, and can't be changed.
	New bool `json:"new,omitempty"`
	// Secret ones are in no answer.
	Secret bool   `json:"secret,omitempty"`
	Hint   string `json:"hint,omitempty"`
}

// order is the one in which the form asks for what the document has in any order.
var order = []string{"queue", "url", "name", "enabled", "format", "http_version", "timeout", "headers", "filter", "policy", "flow", "secret", "signing_key", "signatures", "auth", "tls"}

func formFields(t *testing.T, doc *openapi3.T) []formField {
	t.Helper()
	made, changed := doc.Components.Schemas["WebhookCreate"].Value, doc.Components.Schemas["WebhookPatch"].Value
	for name := range made.Properties {
		if !slices.Contains(order, name) {
			t.Errorf("the form has no place for %s: name it in order", name)
		}
	}
	var fields []formField
	for _, name := range order {
		_, changes := changed.Properties[name]
		fields = appendField(fields, name, made.Properties[name].Value, slices.Contains(made.Required, name), !changes)
	}
	shown := doc.Components.Schemas["Webhook"].Value
	for i, f := range fields {
		if f.Hint == "" {
			fields[i].Hint = hint(describedAs(shown, f.At))
		}
	}
	return fields
}

// describedAs is what the document says of the member of an answer.
func describedAs(s *openapi3.Schema, at string) string {
	name, rest, deeper := strings.Cut(at, ".")
	switch part := s.Properties[name]; {
	case part == nil:
		return ""
	case deeper:
		return describedAs(part.Value, rest)
	case strings.HasSuffix(part.Ref, "/Duration"):
		return "Such as 30s, 5m or 24h."
	default:
		return part.Value.Description
	}
}

// ofJSON finds what is said of null, which a form does not have, and of the spelling of JSON.
var ofJSON = regexp.MustCompile(`[;.]?[^.;]*\bnull\b[^.]*(\.\d[^.]*)?\.|` + "`")

func hint(description string) string {
	text := ofJSON.ReplaceAllStringFunc(strings.Join(strings.Fields(description), " "), func(part string) string {
		if part == "`" {
			return ""
		}
		return "."
	})
	return strings.TrimPrefix(strings.ReplaceAll(text, "..", "."), ".")
}

// parts are the names of an object's members, those that are needed first.
func parts(s *openapi3.Schema) []string {
	var names []string
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if needA, needB := slices.Contains(s.Required, a), slices.Contains(s.Required, b); needA != needB {
			if needA {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}

func appendField(fields []formField, at string, s *openapi3.Schema, need, isNew bool) []formField {
	if len(s.Properties) > 0 {
		for _, name := range parts(s) {
			fields = appendField(fields, at+"."+name, s.Properties[name].Value, false, isNew)
		}
		return fields
	}
	f := formField{At: at, Kind: "text", Need: need, New: isNew, Hint: hint(s.Description), Secret: at == "secret" || strings.Contains(s.Description, "ever shown again")}
	switch {
	case len(s.Enum) > 0:
		f.Kind = "choice"
		for _, v := range s.Enum {
			if text, isText := v.(string); isText {
				f.Choices = append(f.Choices, text)
			}
		}
	case s.Type.Is("boolean"):
		f.Kind, f.Choices = "flag", []string{"true", "false"}
	case s.Type.Is("integer"), s.Type.Is("number"):
		f.Kind = "number"
	case s.Type.Is("object"):
		f.Kind = "pairs"
	case s.Type.Is("array") && s.Items.Value.Type.Is("string"):
		f.Kind = "list"
	case s.Type.Is("array"):
		f.Kind = "json"
	case strings.Contains(s.Description, "PEM"):
		f.Kind = "block"
	}
	return append(fields, f)
}

// The page's form asks for what the document says that a webhook can have, and for nothing else.
func TestThePagesFormIsMadeOfTheDocument(t *testing.T) {
	var want bytes.Buffer
	want.WriteString("// Made of openapi.yaml by `task form`: what a webhook can have. Do not edit it.\nexport const fields = [\n")
	for _, f := range formFields(t, document(t)) {
		var line bytes.Buffer
		e := json.NewEncoder(&line)
		e.SetEscapeHTML(false)
		if err := e.Encode(f); err != nil {
			t.Fatal(err)
		}
		want.WriteString("  " + strings.TrimSpace(line.String()) + ",\n")
	}
	want.WriteString("];\n")
	path := filepath.Join("ui", "static", "fields.js")
	if *updateForm {
		if err := os.WriteFile(path, want.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not what openapi.yaml says: run task form", path)
	}
}
