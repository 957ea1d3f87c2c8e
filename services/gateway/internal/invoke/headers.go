package invoke

import (
	"net/http"
	"slices"
	"strings"
)

// inward are headers that don't reach a sandbox: credentials for us, and what
// would tell it, or let a client tell it falsely, where a call comes from.
var inward = struct{ names, prefixes []string }{
	names:    []string{"Authorization", "Cookie", "Forwarded", "X-Real-Ip", "Proxy-Authorization"},
	prefixes: []string{"X-Forwarded-", "Holdfast-"},
}

// outward are headers that don't leave a sandbox: they would act on our origin,
// or pass for ours.
var outward = struct{ names, prefixes []string }{
	names: []string{
		"Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed", "Strict-Transport-Security", "Alt-Svc",
		"Content-Security-Policy", "Content-Security-Policy-Report-Only", "Report-To", "Reporting-Endpoints", "Nel",
	},
	prefixes: []string{"Access-Control-", "Holdfast-"},
}

// strip takes headers out, however they are written.
func strip(h http.Header, names, prefixes []string) {
	for written := range h {
		name := http.CanonicalHeaderKey(written)
		if slices.Contains(names, name) || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			delete(h, written)
		}
	}
}

// harden makes an answer of a sandbox one that a browser gives no rights.
func harden(h http.Header) {
	strip(h, outward.names, outward.prefixes)
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
}

// preset are headers that every answer of ours has and that an answer of a
// sandbox says itself, or that harden sets.
var preset = []string{"Cache-Control", "Content-Security-Policy", "X-Content-Type-Options"}

// finalOnly passes the answer and drops informational ones before it: their
// headers would get out without harden.
type finalOnly struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w finalOnly) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap lets http.ResponseController flush and hijack.
func (w finalOnly) Unwrap() http.ResponseWriter { return w.ResponseWriter }
