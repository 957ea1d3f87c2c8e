package auth

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

func TestOrigins(t *testing.T) {
	t.Parallel()
	o := named(t, "https://holdfast.example.com", "http://10.0.0.5:31070")
	for _, test := range []struct {
		name, origin, host string
		ok                 bool
	}{
		{"named", "https://holdfast.example.com", "holdfast.example.com", true},
		{"named, and the proxy sends a Host of its own", "https://holdfast.example.com", "gateway:7070", true},
		{"named address", "http://10.0.0.5:31070", "10.0.0.5:31070", true},
		{"another scheme", "http://holdfast.example.com", "holdfast.example.com", false},
		{"another port", "https://holdfast.example.com:8443", "holdfast.example.com:8443", false},
		{"a longer name", "https://holdfast.example.com.evil.example", "holdfast.example.com", false},
		{"address that isn't named", "http://10.0.0.6:31070", "10.0.0.6:31070", false},

		{"forwarded port", "http://127.0.0.1:8080", "127.0.0.1:8080", true},
		{"forwarded port by name", "http://localhost:9000", "localhost:9000", true},
		{"port that http implies", "http://localhost", "localhost", true},
		{"IPv6", "http://[::1]:8080", "[::1]:8080", true},
		{"all of 127/8", "http://127.8.9.1:8080", "127.8.9.1:8080", true},

		{"another program of this machine", "http://127.0.0.1:3000", "127.0.0.1:7070", false},
		{"another name of this machine", "http://localhost:7070", "127.0.0.1:7070", false},
		{"rebound name", "http://evil.example:7070", "evil.example:7070", false},
		{"name that begins like loopback", "http://127.0.0.1.evil.example:7070", "127.0.0.1.evil.example:7070", false},
		{"name that begins like localhost", "http://localhost.evil.example", "localhost.evil.example", false},
		{"name under localhost", "http://evil.localhost:7070", "evil.localhost:7070", false},
		{"user before loopback", "http://evil@127.0.0.1:7070", "evil@127.0.0.1:7070", false},
		{"page elsewhere, Host of loopback", "https://evil.example", "127.0.0.1:7070", false},
		{"https on loopback", "https://localhost:8443", "localhost:8443", false},
		{"all addresses", "http://0.0.0.0:7070", "0.0.0.0:7070", false},
		{"none", "", "127.0.0.1:7070", false},
		{"null", "null", "127.0.0.1:7070", false},
		{"neither", "", "", false},
		{"no host", "http://", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/login", nil)
			r.Host = test.host
			if test.origin != "" {
				r.Header.Set("Origin", test.origin)
			}
			if err := o.Check(r); (err == nil) != test.ok || !test.ok && codeOf(err) != api.CodeOriginRefused {
				t.Errorf("Origin %q at Host %q: %v", test.origin, test.host, err)
			}
		})
	}
}

// Who is refused by mistake learns what to set, and is shown nothing but an origin.
func TestRefusalSaysWhatToSet(t *testing.T) {
	t.Parallel()
	for origin, says := range map[string]string{
		"https://agents.example.com":            "HOLDFAST_ORIGINS",
		"https://agents.example.com\" or worse": "the header Origin has to name",
		"":                                      "the header Origin has to name",
	} {
		err := Origins{}.Check(from(t, origin))
		p, ok := errors.AsType[*problem.Error](err)
		if !ok || !strings.Contains(p.Detail, says) || strings.Contains(p.Detail, "worse") {
			t.Errorf("from %q: %v", origin, err)
		}
	}
}

func TestNewOrigins(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"https://holdfast.example.com":        "https://holdfast.example.com",
		"HTTPS://Holdfast.Example.com/":       "https://holdfast.example.com",
		"https://holdfast.example.com:443":    "https://holdfast.example.com",
		"https://holdfast.example.com:80":     "https://holdfast.example.com:80",
		"http://10.0.0.5:80":                  "http://10.0.0.5",
		"http://[2001:DB8::1]:7070":           "http://[2001:db8::1]:7070",
		"https://xn--mnchen-3ya.example":      "https://xn--mnchen-3ya.example",
		"":                                    "",
		"*":                                   "",
		"null":                                "",
		"holdfast.example.com":                "",
		"https://":                            "",
		"https://*.example.com":               "",
		"https://münchen.example":             "",
		"https://holdfast.example.com/ui":     "",
		"https://holdfast.example.com?a":      "",
		"https://holdfast.example.com:":       "",
		"https://me@holdfast.example.com":     "",
		"https://a.example,https://b.example": "",
		"wss://holdfast.example.com":          "",
	} {
		o, err := NewOrigins([]string{given})
		if (err == nil) != (want != "") || err == nil && o.named[0] != want {
			t.Errorf("%q becomes %q, %v; want %q", given, o.named, err, want)
		}
	}
}
