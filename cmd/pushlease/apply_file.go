package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/spf13/cobra"
)

// declaredWebhook is one webhook as a file declares it: the body of its PUT, with what stood elsewhere filled in.
type declaredWebhook struct {
	id   string
	body map[string]any

	file  string
	entry int      // of the file's list, from 0
	node  ast.Node // its place in the file; nil where that is not known
}

// at is where a setting stands, or what of it is there: webhooks.yaml:7.
func (d *declaredWebhook) at(field string) string {
	if d.node == nil {
		return d.file
	}
	node, line := d.node, d.node.GetToken().Position.Line
	for _, name := range strings.Split(field, ".") {
		name, _, _ = strings.Cut(name, "[")
		members, ok := node.(ast.MapNode)
		if !ok {
			break
		}
		node = nil
		for m := members.MapRange(); m.Next(); {
			if m.Key().GetToken().Value == name {
				node, line = m.Value(), m.Key().GetToken().Position.Line
			}
		}
	}
	return fmt.Sprintf("%s:%d", d.file, line)
}

// named is what a line about a setting begins with.
func (d *declaredWebhook) named(field string) string {
	text := d.id
	if text == "" {
		text = fmt.Sprintf("webhooks[%d]", d.entry)
	}
	if field != "" {
		text += ": " + field
	}
	return oneLine(text) + ": "
}

// fault is something wrong with a setting of an entry.
type fault struct{ field, problem string }

// quotedText is what a YAML parser's message quotes from the file.
var quotedText = regexp.MustCompile(`".*"`)

// readDeclared reads the webhooks of all files. It tells everything that is wrong, and never what a file holds.
func readDeclared(cmd *cobra.Command, paths []string) ([]declaredWebhook, error) {
	var all []declaredWebhook
	var wrong []string
	seen := map[string]string{}
	for _, path := range paths {
		list, err := readDeclaredFile(cmd, path)
		if err != nil {
			return nil, err
		}
		for i := range list {
			hook := &list[i]
			faults := hook.complete()
			switch {
			case hook.id == "":
			case seen[hook.id] != "":
				faults = append(faults, fault{"id", "is declared by " + seen[hook.id] + " too; give each webhook an id of its own"})
			default:
				seen[hook.id] = hook.at("id")
			}
			for _, f := range faults {
				wrong = append(wrong, hook.at(f.field)+": "+hook.named(f.field)+f.problem)
			}
		}
		all = append(all, list...)
	}
	if len(wrong) > 0 {
		return nil, usagef("nothing was written:\n  %s", strings.Join(wrong, "\n  "))
	}
	return all, nil
}

// readDeclaredFile returns the entries of one file's list.
func readDeclaredFile(cmd *cobra.Command, path string) ([]declaredWebhook, error) {
	raw, err := readInput(cmd, path, "-f")
	if err != nil {
		return nil, err
	}
	var doc map[string]any
	parsed, err := parser.ParseBytes(raw, 0)
	if err == nil {
		err = yaml.Unmarshal(raw, &doc)
	}
	if err != nil {
		text, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
		return nil, usagef("%s is no YAML that can be read: %s", path, quotedText.ReplaceAllString(text, `"…"`))
	}
	if len(parsed.Docs) > 1 {
		return nil, usagef("%s holds more than one document; take the lines --- away, or make a file of each", path)
	}
	for _, name := range slices.Sorted(maps.Keys(doc)) {
		if name != "webhooks" {
			return nil, usagef("%s: a file has the one member webhooks, a list; remove the others (the file's %d members begin with %q)", path, len(doc), oneLine(firstRunes(name, 20)))
		}
	}
	list, ok := doc["webhooks"].([]any)
	if !ok {
		return nil, usagef("%s declares no webhooks; write webhooks: and below it a list, as pushlease export does", path)
	}
	hooks := make([]declaredWebhook, len(list))
	nodes := entries(parsed.Docs[0].Body)
	for i, item := range list {
		hooks[i].file, hooks[i].entry = path, i
		hooks[i].body, _ = item.(map[string]any)
		if len(nodes) == len(list) {
			hooks[i].node = nodes[i]
		}
	}
	return hooks, nil
}

// entries are the places of a file's webhooks. There are none where an alias stands for them.
func entries(body ast.Node) []ast.Node {
	members, ok := body.(ast.MapNode)
	if !ok {
		return nil
	}
	for m := members.MapRange(); m.Next(); {
		if list, ok := m.Value().(*ast.SequenceNode); ok && m.Key().GetToken().Value == "webhooks" {
			return list.Values
		}
	}
	return nil
}

// firstRunes cuts what may be a secret in the wrong place.
func firstRunes(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// complete makes the body of its PUT of what the file says.
func (d *declaredWebhook) complete() (faults []fault) {
	if d.body == nil {
		return []fault{{"", "is no map; write - id: NAME and the other settings below it"}}
	}
	var ok bool
	if d.id, ok = d.body["id"].(string); !ok || d.id == "" {
		faults = append(faults, fault{"id", "is missing; give the webhook a name of letters, digits, hyphens and underscores, such as billing"})
	}
	delete(d.body, "id")
	for _, name := range []string{"url", "secret", "signing_key"} {
		if err := fillIn(d.file, d.body, name); err != nil {
			faults = append(faults, fault{name, err.Error()})
		}
	}
	for _, name := range []string{"signatures", "auth", "tls"} {
		if part, ok := d.body[name].(map[string]any); ok {
			faults = append(faults, fillInAll(d.file, part, name)...)
		}
	}
	if headers, ok := d.body["headers"].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			if err := fillIn(d.file, headers, name); err != nil {
				faults = append(faults, fault{"headers." + firstRunes(name, 60), err.Error()})
			}
		}
	}
	return faults
}

// fillInAll fills in each reference in an object, and in the objects within it.
func fillInAll(path string, object map[string]any, field string) (faults []fault) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		member, isObject := object[name].(map[string]any)
		if !isObject {
			continue
		}
		within := field + "." + firstRunes(name, 60)
		_, isVariable := member["env"].(string)
		_, isFile := member["file"].(string)
		if len(member) != 1 || !isVariable && !isFile {
			faults = append(faults, fillInAll(path, member, within)...)
		} else if err := fillIn(path, object, name); err != nil {
			faults = append(faults, fault{within, err.Error()})
		}
	}
	return faults
}

// fillIn puts what a reference names, {env: NAME} or {file: PATH}, in its place. A file is looked for from the
// folder of the file that names it.
func fillIn(path string, object map[string]any, name string) error {
	reference, ok := object[name].(map[string]any)
	if !ok {
		return nil
	}
	variable, isVariable := reference["env"].(string)
	file, isFile := reference["file"].(string)
	switch {
	case len(reference) != 1 || !isVariable && !isFile:
		return errors.New("is neither a text nor a reference; write {env: NAME} or {file: PATH}")
	case isVariable:
		value, set := os.LookupEnv(variable)
		if !set || value == "" {
			return fmt.Errorf("the environment variable %s is not set", oneLine(firstRunes(variable, 60)))
		}
		object[name] = value
		return nil
	case file == "-":
		return errors.New("names standard input; name a file")
	}
	if !filepath.IsAbs(file) && path != "-" {
		file = filepath.Join(filepath.Dir(path), file)
	}
	raw, err := readInput(nil, file, name)
	if err == nil && len(strings.TrimSpace(string(raw))) == 0 {
		err = errors.New("the file is empty")
	}
	if err != nil {
		return err
	}
	object[name] = strings.TrimSpace(string(raw))
	return nil
}
