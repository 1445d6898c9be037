package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// defaultSamples is the folder of samples unless another is named.
const defaultSamples = "samples"

// sample is a request that was recorded, or that comes with the program. It has no signature: one is made when it is sent.
type sample struct {
	// Headers are those that say what the body is; see sampleHeader.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is a JSON body, Text another one in UTF-8, and Base64 any other.
	Body   json.RawMessage `json:"body,omitempty"`
	Text   string          `json:"text,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
}

// sampleHeader reports whether a header is kept with a sample: what it says of the body, never a token or a signature.
func sampleHeader(name string) bool {
	name = strings.ToLower(name)
	return name == "content-type" || name == "pushlease-queue" || strings.HasPrefix(name, "ce-")
}

// builtInSamples are sent by their name.
var builtInSamples = map[string]sample{
	"json":       {Headers: map[string]string{"Content-Type": "application/json"}, Body: json.RawMessage(`{"order":1,"amount":"12.50"}`)},
	"text":       {Headers: map[string]string{"Content-Type": "text/plain; charset=utf-8"}, Text: "hello €🙂"},
	"binary":     {Headers: map[string]string{"Content-Type": "application/octet-stream"}, Base64: []byte{0xff, 0xfe, 0, '\r', '\n'}},
	"cloudevent": {Headers: map[string]string{"Content-Type": "application/cloudevents+json"}, Body: json.RawMessage(`{"specversion":"1.0","id":"sample-1","source":"/pushlease/trigger","type":"com.example.order.paid","datacontenttype":"application/json","data":{"order":1}}`)},
}

// newSample is the sample of a request.
func newSample(header http.Header, body []byte) sample {
	s := sample{Headers: map[string]string{}}
	for name := range header {
		if sampleHeader(name) {
			s.Headers[name] = header.Get(name)
		}
	}
	switch {
	case utf8.Valid(body) && json.Valid(body) && compactJSON(body):
		s.Body = body
	case utf8.Valid(body):
		s.Text = string(body)
	default:
		s.Base64 = body
	}
	return s
}

// compactJSON reports whether JSON is the same, byte for byte, after a file held it as a value.
func compactJSON(body []byte) bool {
	again, err := json.Marshal(json.RawMessage(body))
	return err == nil && string(again) == string(body)
}

// bytes is the body.
func (s sample) bytes() []byte {
	switch {
	case s.Body != nil:
		return s.Body
	case s.Text != "":
		return []byte(s.Text)
	}
	return s.Base64
}

// save writes a sample into a folder, under a name that the message's id gives, and returns the path. The same message once
// more is the same file. Only its owner reads it: it has a body.
func (s sample) save(folder, id string) (string, error) {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, id)
	if name == "" {
		name = "message"
	}
	if len(name) > 100 {
		name = name[:100]
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("make the folder of samples: %w", err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode the sample: %w", err)
	}
	path := filepath.Join(folder, name+".json")
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return "", fmt.Errorf("save the sample: %w", err)
	}
	return path, nil
}

// findSample is the sample in a file, in the folder under a name, or the one that comes with the program, in this order.
func findSample(folder, name string) (sample, error) {
	for _, path := range []string{name, filepath.Join(folder, name), filepath.Join(folder, name+".json")} {
		raw, err := os.ReadFile(path) //nolint:gosec // the caller names it
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil && path == name && builtInSamples[name].Headers != nil: // a folder of that name
			continue
		case err != nil:
			return sample{}, usagef("can't read the sample: %s", err)
		}
		var s sample
		if err := json.Unmarshal(raw, &s); err != nil || s.Headers == nil { // a body of one's own
			s = newSample(http.Header{}, raw)
			s.Headers["Content-Type"] = contentTypeOf(raw)
		}
		return s, nil
	}
	if s, ok := builtInSamples[name]; ok {
		return s, nil
	}
	return sample{}, usagef("there is no file and no sample %q; there are %s", name, strings.Join(sampleNames(folder), ", "))
}

// contentTypeOf is the content type of a body that says none, as the server has it.
func contentTypeOf(body []byte) string {
	switch {
	case json.Valid(body):
		return "application/json"
	case utf8.Valid(body):
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

// sampleNames are the names of the samples in a folder, and of those that come with the program.
func sampleNames(folder string) []string {
	var names []string
	for name := range builtInSamples {
		names = append(names, name)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil { // the folder's name is no pattern
		files = nil
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	slices.Sort(names)
	return names
}
