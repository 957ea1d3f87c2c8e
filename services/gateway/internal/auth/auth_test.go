package auth

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apispec"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
)

const (
	origin = "https://holdfast.example"
	secret = "hf_alices-own-token"
)

func tokens(t *testing.T, entries ...tokenfile.Entry) *Tokens {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := tokenfile.Write(path, entries); err != nil {
		t.Fatal(err)
	}
	tokens, err := LoadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func named(t *testing.T, origins ...string) Origins {
	t.Helper()
	o, err := NewOrigins(origins)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// from is a login's request by a page of that origin.
func from(t *testing.T, origin string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/login", nil)
	r.Header.Set("Origin", origin)
	return r
}

func alices(t *testing.T, now func() time.Time) *Auth {
	t.Helper()
	return New(Config{Origins: named(t, origin), Now: now, Tokens: tokens(t, tokenfile.Entry{
		Name: "alice", Token: secret, Roles: []api.Role{"developer"}, Tenants: []string{"default", "other"},
	})})
}

func operation(t *testing.T, id string) *apispec.Operation {
	t.Helper()
	op, ok := apispec.ByID(id)
	if !ok {
		t.Fatalf("no operation %s", id)
	}
	return op
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	a := alices(t, nil)
	_, login, err := a.Login(from(t, origin), "", secret)
	if err != nil {
		t.Fatal(err)
	}
	if !login.Secure {
		t.Error("a cookie for https goes over http too")
	}
	cookie := "Cookie: " + login.Name + "=" + login.Value
	const bearer = "Authorization: Bearer " + secret
	for _, test := range []struct {
		name, op, method string
		headers          []string
		want             api.Code // "" admits
	}{
		{"bearer", "getMe", "GET", []string{bearer}, ""},
		{"bearer in any case", "getMe", "GET", []string{"Authorization: bearer " + secret}, ""},
		{"bearer writes without an origin", "createSession", "POST", []string{bearer}, ""},
		{"nobody", "getMe", "GET", nil, api.CodeUnauthenticated},
		{"no scheme", "getMe", "GET", []string{"Authorization: " + secret}, api.CodeUnauthenticated},
		{"empty token", "getMe", "GET", []string{"Authorization: Bearer "}, api.CodeUnauthenticated},
		{"prefix of a token", "getMe", "GET", []string{"Authorization: Bearer " + secret[:len(secret)-1]}, api.CodeUnauthenticated},
		{"role", "listAudit", "GET", []string{bearer}, api.CodeForbidden},
		{"tenant of its own", "getMe", "GET", []string{bearer, "Holdfast-Tenant: other"}, ""},
		{"another's tenant", "getMe", "GET", []string{bearer, "Holdfast-Tenant: acme"}, api.CodeForbidden},
		{"cookie reads", "getMe", "GET", []string{cookie}, ""},
		{"cookie writes", "createSession", "POST", []string{cookie, "Origin: " + origin}, ""},
		{"cookie writes from nowhere", "createSession", "POST", []string{cookie}, api.CodeOriginRefused},
		{"cookie writes from elsewhere", "createSession", "POST", []string{cookie, "Origin: https://holdfast.example.evil.com"}, api.CodeOriginRefused},
		{"cookie writes from another port", "createSession", "POST", []string{cookie, "Origin: " + origin + ":8443"}, api.CodeOriginRefused},
		{"cookie's socket", "connectWebSocket", "GET", []string{cookie, "Origin: " + origin}, ""},
		{"cookie's socket from nowhere", "connectWebSocket", "GET", []string{cookie}, api.CodeOriginRefused},
		{"program's socket", "connectWebSocket", "GET", []string{bearer}, ""},
		{"page's socket with a token", "connectWebSocket", "GET", []string{bearer, "Origin: http://evil.example"}, api.CodeOriginRefused},
		{"cookie into a sandbox", "invokeSession", "POST", []string{cookie, "Origin: " + origin}, api.CodeUnauthenticated},
		{"stale cookie", "getMe", "GET", []string{"Cookie: " + CookieName + "=old"}, api.CodeUnauthenticated},
		{"health needs nobody", "healthz", "GET", []string{"Origin: http://evil.example"}, ""},
		{"login from elsewhere", "login", "POST", nil, api.CodeOriginRefused},
		{"login", "login", "POST", []string{"Origin: " + origin}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), test.method, "/", nil)
			for _, h := range test.headers {
				name, value, _ := strings.Cut(h, ": ")
				r.Header.Set(name, value)
			}
			_, err := a.Admit(operation(t, test.op), r)
			if code := codeOf(err); code != test.want {
				t.Errorf("%q, want %q (%v)", code, test.want, err)
			}
		})
	}
}

func codeOf(err error) api.Code {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p.Code
	}
	return ""
}

func TestLoginsEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	a := alices(t, func() time.Time { return now })
	late := a.NewCode("alice")
	stranger := a.NewCode("somebody else")
	_, cookie, err := a.Login(from(t, origin), a.NewCode("alice"), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Login(from(t, origin), stranger, ""); codeOf(err) != api.CodeUnauthenticated {
		t.Errorf("a code of nobody: %v", err)
	}
	now = now.Add(CodeLifetime)
	if _, _, err := a.Login(from(t, origin), late, ""); codeOf(err) != api.CodeUnauthenticated {
		t.Errorf("a code that is over: %v", err)
	}
	if _, ok := a.logins.Lookup(cookie.Value); !ok {
		t.Error("the login is over too soon")
	}
	now = now.Add(LoginLifetime)
	if _, ok := a.logins.Lookup(cookie.Value); ok {
		t.Error("the login outlives its time")
	}
}

func TestLoginsAreBounded(t *testing.T) {
	t.Parallel()
	l := NewLogins(time.Now)
	first := l.NewCode("first")
	for range maxCodes + 10 {
		l.NewCode("somebody")
	}
	if len(l.codes) > maxCodes {
		t.Errorf("%d codes are kept", len(l.codes))
	}
	if _, ok := l.Redeem(first); ok {
		t.Error("the oldest code was kept")
	}
}

// A cookie that was given over https stays there; the same gateway may be reached by
// http, too, by way of loopback.
func TestCookie(t *testing.T) {
	t.Parallel()
	a := alices(t, nil)
	for origin, secure := range map[string]bool{origin: true, "http://127.0.0.1:8080": false} {
		r := from(t, origin)
		_, c, err := a.Login(r, "", secret)
		if err != nil {
			t.Fatal(err)
		}
		if !c.HttpOnly || c.Secure != secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || len(c.Value) < 32 || c.Domain != "" {
			t.Errorf("from %s: %+v", origin, c)
		}
		r.AddCookie(c)
		if gone := a.Logout(r); gone.Secure != secure || gone.MaxAge >= 0 || gone.Value != "" {
			t.Errorf("from %s: taken back by %+v", origin, gone)
		}
	}
}

func FuzzBearer(f *testing.F) {
	f.Add("Bearer abc")
	f.Add("bearer  x y")
	f.Fuzz(func(t *testing.T, header string) {
		if token, ok := Bearer(header); ok && (token == "" || strings.TrimSpace(token) != token) {
			t.Errorf("%q gave %q", header, token)
		}
	})
}
