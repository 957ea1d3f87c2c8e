// Package site serves the console: static files, each under its own name, all
// revalidated, so that a new version never runs with parts of the old one.
package site

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"time"
)

// types are those that a console is made of. They are written down because the
// host's own table may say anything, and a module with a wrong type doesn't run.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".json": "application/json", ".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon",
	".webmanifest": "application/manifest+json", ".woff2": "font/woff2", ".txt": "text/plain; charset=utf-8", ".map": "application/json",
}

// index is what "/" shows.
const index = "index.html"

// file is one file in memory.
type file struct {
	contentType, etag string
	data              []byte
}

// Site is the files, by path.
type Site struct {
	files    map[string]file
	notFound http.Handler
}

// New reads all files of a file system. notFound answers for every other path.
func New(from fs.FS, notFound http.Handler) (*Site, error) {
	s := &Site{files: map[string]file{}, notFound: notFound}
	err := fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		kind, known := types[path.Ext(name)]
		if !known {
			kind = "application/octet-stream"
		}
		sum := sha256.Sum256(data)
		s.files["/"+name] = file{
			contentType: kind, data: data, etag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`,
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	if f, ok := s.files["/"+index]; ok {
		s.files["/"] = f
	}
	return s, nil
}

// ServeHTTP answers GET and HEAD for a file; everything else is not found.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := s.files[r.URL.Path]
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.notFound.ServeHTTP(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("ETag", f.etag)
	h.Set("Cache-Control", "no-cache") // keep it, and ask each time whether it is still the one
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.data))
}
