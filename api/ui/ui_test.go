package ui

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

// maxBytes is what all files may take on the line, packed.
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
	sent, plain := 0, 0
	for name, text := range files(t) {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/ui/", http.NoBody)
		r.Header.Set("Accept-Encoding", "br, gzip")
		if !Serve(w, r, name) {
			t.Fatalf("%s is not served", name)
		}
		sent += w.Body.Len()
		plain += len(text)
		unpacked, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := io.ReadAll(unpacked); err != nil || string(got) != text {
			t.Errorf("%s: what is unpacked is another text: %v", name, err)
		}
	}
	if t.Logf("%d bytes, %d on the line", plain, sent); sent > maxBytes {
		t.Errorf("%d bytes on the line, over %d", sent, maxBytes)
	}
}

func TestThePageIsPackedForWhoTakesThat(t *testing.T) {
	for accepts, want := range map[string]string{"": "", "gzip": "gzip", "deflate, GZIP;q=0.5, br": "gzip", "gzip;q=1": "gzip", "gzip;q=0": "", "gzip;q=0.0": "", "x-gzip": "", "br": ""} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/ui/", http.NoBody)
		r.Header.Set("Accept-Encoding", accepts)
		Serve(w, r, "")
		if got := w.Header().Get("Content-Encoding"); got != want || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("who accepts %q gets %q", accepts, got)
		}
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
