// Package ui is the page for the person who is on call: files that are in the binary. The page
// stands on the REST API alone, and knows no more than any other client of it.
package ui

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
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

// Serve answers with one of the files, "" for the page itself. It reports whether there is such a file.
func Serve(w http.ResponseWriter, name string) bool {
	if name == "" {
		name = "index.html"
	}
	text, err := fs.ReadFile(Files(), name)
	if err != nil {
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
	_, _ = w.Write(text) // the caller is gone: nobody left to tell
	return true
}
