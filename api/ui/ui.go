// Package ui is the page for the person who is on call: files that are in the binary. The page
// stands on the REST API alone, and knows no more than any other client of it.
package ui

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"sync"
)

//go:embed static
var embedded embed.FS

// contentSecurityPolicy lets the page load its own files and ask its own server, and nothing else:
// what comes from outside is never code, also if a mistake made markup of it.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Files are the page's files.
func Files() fs.FS {
	files, err := fs.Sub(embedded, "static")
	if err != nil {
		panic(err) // the name is a constant
	}
	return files
}

// types are those of the files' extensions: the machine's own table may have others.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// file is one of the page's files, as it is and as gzip makes it.
type file struct{ plain, packed []byte }

// packed are all files. They are in the binary, so that packing them once is enough.
var packed = sync.OnceValue(func() map[string]file {
	all := map[string]file{}
	err := fs.WalkDir(Files(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		plain, err := fs.ReadFile(Files(), name)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		w, _ := gzip.NewWriterLevel(&text, gzip.BestCompression) // a constant level
		_, _ = w.Write(plain)                                    // a buffer takes all
		_ = w.Close()
		all[name] = file{plain, text.Bytes()}
		return nil
	})
	if err != nil {
		panic(err) // the files are in the binary
	}
	return all
})

// takesGzip finds a caller who takes gzip; q=0 would refuse it.
var takesGzip = regexp.MustCompile(`(?i)(^|,)\s*gzip\s*(;\s*q=(1|0?\.\d*[1-9]\d*))?\s*(,|$)`)

// Serve answers with one of the files, "" for the page itself. It reports whether there is such a file.
func Serve(w http.ResponseWriter, r *http.Request, name string) bool {
	if name == "" {
		name = "index.html"
	}
	text, found := packed()[name]
	if !found {
		return false
	}
	kind, known := types[path.Ext(name)]
	if !known {
		return false
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY") // browsers that know no frame-ancestors
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("Vary", "Accept-Encoding")
	body := text.plain
	if takesGzip.MatchString(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		body = text.packed
	}
	_, _ = w.Write(body) // the caller is gone: nobody left to tell
	return true
}
