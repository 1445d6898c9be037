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
	"github.com/spf13/cobra"
)

// declaredWebhook is one webhook as a file declares it: the body of its PUT, with what stood elsewhere filled in.
type declaredWebhook struct {
	id   string
	body map[string]any
}

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
		for i, item := range list {
			where := fmt.Sprintf("%s: webhooks[%d]", path, i)
			hook, problems := declare(path, item)
			switch {
			case hook.id == "":
			case seen[hook.id] != "":
				problems = append(problems, "id: "+hook.id+" is declared by "+seen[hook.id]+" too; give each webhook an id of its own")
			default:
				seen[hook.id] = where
				where += " (" + hook.id + ")"
			}
			for _, problem := range problems {
				wrong = append(wrong, where+": "+problem)
			}
			all = append(all, hook)
		}
	}
	if len(wrong) > 0 {
		return nil, usagef("nothing was written:\n  %s", strings.Join(wrong, "\n  "))
	}
	return all, nil
}

// readDeclaredFile returns the entries of one file's list.
func readDeclaredFile(cmd *cobra.Command, path string) ([]any, error) {
	raw, err := readInput(cmd, path, "-f")
	if err != nil {
		return nil, err
	}
	var doc map[string]any
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		text, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
		return nil, usagef("%s is no YAML that can be read: %s", path, quotedText.ReplaceAllString(text, `"…"`))
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
	return list, nil
}

// firstRunes cuts what may be a secret in the wrong place.
func firstRunes(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// declare makes the body of a PUT of one entry.
func declare(path string, item any) (declaredWebhook, []string) {
	body, ok := item.(map[string]any)
	if !ok {
		return declaredWebhook{}, []string{"is no map; write - id: NAME and the other settings below it"}
	}
	var problems []string
	id, ok := body["id"].(string)
	if !ok || id == "" {
		problems = append(problems, "id: is missing; give the webhook a name of letters, digits, hyphens and underscores, such as billing")
	}
	delete(body, "id")
	for _, name := range []string{"url", "secret"} {
		if err := fillIn(path, body, name); err != nil {
			problems = append(problems, name+": "+err.Error())
		}
	}
	if headers, ok := body["headers"].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			if err := fillIn(path, headers, name); err != nil {
				problems = append(problems, "headers."+oneLine(firstRunes(name, 60))+": "+err.Error())
			}
		}
	}
	return declaredWebhook{id, body}, problems
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
