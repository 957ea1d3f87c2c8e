package gateway_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
)

// cookieOf takes the login out of an answer, as "Cookie: name=value".
func cookieOf(a answer) (string, *http.Cookie) {
	a.t.Helper()
	cookies := (&http.Response{Header: a.header}).Cookies()
	if len(cookies) != 1 {
		a.t.Fatalf("cookies: %v", a.header.Values("Set-Cookie"))
	}
	return "Cookie: " + cookies[0].Name + "=" + cookies[0].Value, cookies[0]
}

func TestLoginByCode(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.shell()
	origin := "Origin: " + w.url
	code := w.gateway.NewCode("alice")
	w.call("", "POST", "/v1/login", api.Login{Code: code}).problem(api.CodeOriginRefused)
	w.call("", "POST", "/v1/login", api.Login{Code: code}, "Origin: http://evil.example").problem(api.CodeOriginRefused)
	in := w.call("", "POST", "/v1/login", api.Login{Code: code}, origin).want(200)
	if me := decode[api.Me](in); me.ID != "user:alice" || me.Tenant != "default" || !slices.Equal(me.Roles, []api.Role{"developer"}) {
		t.Errorf("logged in as %+v", me)
	}
	cookie, set := cookieOf(in)
	if set.Name != "holdfast_session" || !set.HttpOnly || set.SameSite != http.SameSiteStrictMode || set.Path != "/" || set.Secure {
		t.Errorf("cookie: %+v", set)
	}
	w.call("", "POST", "/v1/login", api.Login{Code: code}, origin).problem(api.CodeUnauthenticated) // a code is good once
	w.call("", "POST", "/v1/login", api.Login{Token: strings.Repeat("x", 20)}, origin).problem(api.CodeUnauthenticated)

	w.call("", "GET", "/v1/me", nil, cookie).want(200)
	create := map[string]any{"runtime": "coder"}
	w.call("", "POST", "/v1/sessions", create, cookie).problem(api.CodeOriginRefused)
	for _, other := range []string{"http://evil.example", "null", "http://127.0.0.1:1", strings.ToUpper(w.url), w.url + "/"} {
		w.call("", "POST", "/v1/sessions", create, cookie, "Origin: "+other).problem(api.CodeOriginRefused)
	}
	made := decode[api.Session](w.call("", "POST", "/v1/sessions", create, cookie, origin).want(201))
	// Into a sandbox goes only who sends a bearer token.
	w.call("", "GET", "/v1/sessions/"+made.ID+"/invoke/", nil, cookie, origin).problem(api.CodeUnauthenticated)
	// A token that is none is not made good by a cookie.
	w.call("", "GET", "/v1/me", nil, cookie, "Authorization: Bearer "+strings.Repeat("x", 20)).problem(api.CodeUnauthenticated)

	w.call("", "DELETE", "/v1/login", nil, cookie).problem(api.CodeOriginRefused)
	out := w.call("", "DELETE", "/v1/login", nil, cookie, origin).want(204)
	if _, gone := cookieOf(out); gone.MaxAge >= 0 || gone.Value != "" {
		t.Errorf("logout left %+v", gone)
	}
	w.call("", "GET", "/v1/me", nil, cookie).problem(api.CodeUnauthenticated)
	w.call("", "DELETE", "/v1/login", nil, origin).want(204)
}

func TestLoginByTokenAndFloods(t *testing.T) {
	t.Parallel()
	w := start(t)
	origin := "Origin: " + w.url
	w.call("", "POST", "/v1/login", api.Login{Token: tokenOf("bob")}, origin).want(200)
	for range 100 {
		got := w.call("", "POST", "/v1/login", api.Login{Token: strings.Repeat("x", 20)}, origin)
		if got.status == http.StatusTooManyRequests {
			got.problem(api.CodeQuotaExceeded)
			if got.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			return
		}
		got.problem(api.CodeUnauthenticated)
	}
	t.Error("a hundred guesses were let through")
}

// No token is ever taken from where URLs are logged.
func TestTokensComeByHeaderAlone(t *testing.T) {
	t.Parallel()
	w := start(t)
	for _, query := range []string{"token", "access_token", "authorization"} {
		w.call("", "GET", "/v1/me?"+query+"="+tokenOf("admin"), nil).problem(api.CodeUnauthenticated)
	}
	if got := w.call("", "GET", "/v1/me", nil).header.Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer") {
		t.Errorf("WWW-Authenticate: %q", got)
	}
}

// Who is taken out of the tokens file is out, by token and by cookie.
func TestTokensFileIsReadAgain(t *testing.T) {
	t.Parallel()
	w := start(t)
	cookie, _ := cookieOf(w.call("", "POST", "/v1/login", api.Login{Token: tokenOf("alice")}, "Origin: "+w.url).want(200))
	w.call("", "GET", "/v1/me", nil, cookie).want(200)
	entries, err := tokenfile.Read(w.tokens)
	if err != nil {
		t.Fatal(err)
	}
	entries = slices.DeleteFunc(entries, func(e tokenfile.Entry) bool { return e.Name == "alice" })
	if err := tokenfile.Write(w.tokens, entries); err != nil {
		t.Fatal(err)
	}
	brokertest.Eventually(t, 10*time.Second, "the token is of nobody any more", func() bool {
		return w.call("alice", "GET", "/v1/me", nil).status == http.StatusUnauthorized
	})
	w.call("", "GET", "/v1/me", nil, cookie).problem(api.CodeUnauthenticated)
	w.call("bob", "GET", "/v1/me", nil).want(200)
}

func TestTenants(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.shell()
	s := w.create()
	w.ready(s.ID)
	path := "/v1/sessions/" + s.ID
	// To another tenant's people there is no such session, whatever they ask of it.
	for method, paths := range map[string][]string{
		"GET":  {path, path + "/messages", path + "/runs", path + "/timeline", path + "/invoke/x", "/v1/runtimes/coder"},
		"POST": {path + "/suspend", path + "/resume", path + "/terminate"},
	} {
		for _, p := range paths {
			if got := w.call("mallory", method, p, nil); got.status != http.StatusNotFound {
				t.Errorf("%s %s: %d %s", method, p, got.status, got.body)
			}
		}
	}
	w.call("mallory", "POST", path+"/messages", api.SendMessage{Content: "ls"}).problem(api.CodeNotFound)
	w.call("mallory", "GET", path, nil, "Holdfast-Tenant: default").problem(api.CodeForbidden)
	w.call("mallory", "GET", path, nil, "Holdfast-Tenant: ev.>").problem(api.CodeForbidden)
	w.call("trent", "GET", path, nil).want(200)
	w.call("trent", "GET", path, nil, "Holdfast-Tenant: default").want(200)
	w.call("trent", "GET", path, nil, "Holdfast-Tenant: other").problem(api.CodeNotFound)
	if me := decode[api.Me](w.call("trent", "GET", "/v1/me", nil, "Holdfast-Tenant: other").want(200)); me.Tenant != "other" || len(me.Tenants) != 2 {
		t.Errorf("me: %+v", me)
	}
}
