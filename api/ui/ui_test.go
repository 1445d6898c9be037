package ui

import (
	"bytes"
	"compress/gzip"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
)

// maxBytes is what all files may take on the line.
const maxBytes = 150 << 10

func files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(Files(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(Files(), name)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestThePageIsSmall(t *testing.T) {
	var packed bytes.Buffer
	plain, w := 0, gzip.NewWriter(&packed)
	for _, text := range files(t) {
		plain += len(text)
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, %d compressed", plain, packed.Len())
	if plain > maxBytes {
		t.Errorf("%d bytes, over %d", plain, maxBytes)
	}
}

// The policy would keep these from working; found here, it is before somebody looks at a page
// that does nothing.
func TestThePageHasNothingThatItsPolicyForbids(t *testing.T) {
	forbidden := regexp.MustCompile(`\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|setAttribute\('style'|cssText|sessionStorage|document\.cookie)|\b(src|href|import|from)\b[^\n]{0,3}['"]https?:`)
	inline := regexp.MustCompile(`(?i)<script(>| [^>]*>[^<])|<style|\sstyle=|\son[a-z]+=|javascript:`)
	for name, text := range files(t) {
		if found := forbidden.FindString(text); found != "" && path.Ext(name) != ".svg" {
			t.Errorf("%s has %s", name, found)
		}
		if strings.Contains(text, "localStorage") && name != "api.js" { // which keeps the page's half of a session there
			t.Errorf("%s has localStorage", name)
		}
		if found := inline.FindString(text); found != "" && path.Ext(name) == ".html" {
			t.Errorf("%s has %s", name, found)
		}
	}
}

// imports are the other files that a module names.
var imports = regexp.MustCompile(`(?m)^(?:import|export) .*'\./([^']+)'|(?:src|href)="([^":#]+)"`)

func TestThePageIsWhole(t *testing.T) {
	all := files(t)
	used := map[string]bool{"index.html": true}
	for name, text := range all {
		if types[path.Ext(name)] == "" || strings.Contains(name, "/") {
			t.Errorf("%s is not served", name)
		}
		for _, m := range imports.FindAllStringSubmatch(text, -1) {
			file := m[1] + m[2]
			if used[file] = true; all[file] == "" {
				t.Errorf("%s names %s, which is not there", name, file)
			}
		}
	}
	for name := range all {
		if !used[name] {
			t.Errorf("nothing uses %s", name)
		}
	}
}
