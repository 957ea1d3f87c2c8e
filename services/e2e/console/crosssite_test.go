package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/coder/websocket"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// elsewhere serves a page of another origin. Its host is the console's own, so that
// browsers send it the console's cookie even where that is SameSite=Strict: ports make
// no other site. What refuses it has to be the exact Origin.
func elsewhere(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<!doctype html><title>elsewhere</title><body>elsewhere</body>")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// attempt runs a script in the page and gives what came of it.
func (b *tab) attempt(script string) string {
	b.t.Helper()
	return eval[string](b, "(async () => { try { "+script+" } catch (e) { return 'refused: ' + e.name; } })()")
}

// A page of another origin, open in the browser of somebody who is signed in, can
// neither act nor read nor frame nor listen nor sign that person in as somebody else.
func TestAnotherOriginsPageCanDoNothing(t *testing.T) {
	h, b := start(t)
	s := h.Create("admin", "touch secret.txt")
	question := h.AwaitQuestion(s.ID)
	b.visit("#/sessions/" + s.ID)
	b.sees(".question", "touch secret.txt")
	b.elsewhereIs(true)
	here := elsewhere(t)
	for _, host := range []string{here, strings.Replace(here, "127.0.0.1", "localhost", 1)} {
		b.do("leave for "+host, chromedp.Navigate(host))
		target := quote(h.URL)
		for what, script := range map[string]string{
			"read who it is":      `const r = await fetch(T + '/v1/me', {credentials: 'include'}); return 'read ' + await r.text();`,
			"read the sessions":   `const r = await fetch(T + '/v1/sessions', {credentials: 'include'}); return 'read ' + await r.text();`,
			"create with JSON":    `const r = await fetch(T + '/v1/sessions', {method: 'POST', credentials: 'include', headers: {'Content-Type': 'application/json'}, body: '{"runtime":"shell"}'}); return 'did ' + r.status;`,
			"listen by SSE":       `return await new Promise((done) => { const e = new EventSource(T + '/v1/stream', {withCredentials: true}); e.onopen = () => done('open'); e.onerror = () => { e.close(); done('refused'); }; });`,
			"listen by WebSocket": `return await new Promise((done) => { const w = new WebSocket(T.replace('http', 'ws') + '/v1/ws'); w.onopen = () => done('open'); w.onerror = () => done('refused'); });`,
		} {
			if got := b.attempt(strings.ReplaceAll(script, "T", target)); !strings.HasPrefix(got, "refused") {
				t.Errorf("%s can %s: %s", host, what, got)
			}
		}
		// What a browser sends without asking: the answer can't be read, so the log has to say.
		for _, send := range []string{
			`await fetch(T + '/v1/sessions', {method: 'POST', mode: 'no-cors', credentials: 'include', body: '{"runtime":"shell"}'})`,
			`await fetch(T + '/v1/approvals/` + question.ID + `/decisions', {method: 'POST', mode: 'no-cors', credentials: 'include', body: '{"decision":"approve","argsHash":"` + question.ArgsHash + `"}'})`,
			`await fetch(T + '/v1/sessions/` + s.ID + `/terminate', {method: 'POST', mode: 'no-cors', credentials: 'include'})`,
			`navigator.sendBeacon(T + '/v1/sessions/` + s.ID + `/terminate', new Blob(['{}'], {type: 'text/plain'}))`,
			`await fetch(T + '/v1/login', {method: 'POST', mode: 'no-cors', credentials: 'include', body: '{"token":"` + h.Token("bob") + `"}'})`,
		} {
			b.attempt(strings.ReplaceAll(send, "T", target) + "; return 'sent'")
		}
		for _, path := range []string{"/v1/sessions/" + s.ID + "/terminate", "/v1/login", "/v1/sessions"} {
			b.submit(h.URL + path)
		}
		// A frame of the console would let clicks be stolen.
		framed := b.attempt(`const f = document.createElement('iframe'); f.src = ` + target + ` + '/'; document.body.append(f);
  await new Promise((done) => { f.onload = done; });
  return f.contentWindow.length + ' ' + (await Promise.race([new Promise((d) => { onmessage = () => d('talks'); }), new Promise((d) => setTimeout(() => d('silent'), 300))]))`)
		t.Logf("a frame: %s", framed)
	}
	if why := b.refusedFrames(); !strings.Contains(why, "frame-ancestors") {
		t.Errorf("the browser was not told to refuse frames: %q", why)
	}
	b.elsewhereIs(false)
	b.do("come back", chromedp.Navigate(h.URL+"/#/sessions/"+s.ID))
	b.sees(".question", "touch secret.txt") // still open, still there
	if who := eval[string](b, "document.querySelector('.menu summary').textContent"); who != "admin" {
		t.Errorf("the browser was signed in as %s", who)
	}
	r, err := h.Client("admin").ListSessionsWithResponse(h.Context(), &api.ListSessionsParams{})
	if err != nil || len(r.JSON200.Items) != 1 {
		t.Errorf("there are other sessions than one: %v %v", r.JSON200, err)
	}
	if now := h.Session(s.ID); now.Phase == api.SessionPhaseEnded || now.Phase == api.SessionPhaseEnding || now.Waiting != 1 {
		t.Errorf("the session was changed: %+v", now)
	}
}

// submit sends a form to an address and waits until the browser has come there.
func (b *tab) submit(to string) {
	b.t.Helper()
	page := eval[string](b, "location.href")
	b.run(`const f = document.createElement('form'); f.method = 'POST'; f.enctype = 'text/plain'; f.action = ` + quote(to) + `;
  const i = document.createElement('input'); i.name = '{"runtime":"shell","token":"x'; i.value = '"}'; f.append(i); document.body.append(f); setTimeout(() => f.submit())`)
	harness.Eventually(b.t, "the form was sent", func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, harness.Patience)
		defer cancel()
		there, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("location.href === "+quote(to)+" && document.readyState === 'complete'"))
		return err == nil && there // in between there is no page to ask
	})
	// From another site the cookie isn’t even sent.
	if said := eval[string](b, "document.body.innerText"); !strings.Contains(said, "origin-refused") && !strings.Contains(said, "unauthenticated") {
		b.t.Errorf("a form to %s is answered by %s", to, said)
	}
	b.do("go back", chromedp.Navigate(page))
}

// The same by raw requests, which browsers would never send so: only the console's
// own exact Origin writes with a cookie, opens sockets, or signs in.
func TestOnlyTheExactOrigin(t *testing.T) {
	h := harness.Start(t, harness.SharedPostgres(t))
	s := h.Create("alice", "")
	cookie := signIn(t, h, h.URL, "admin", http.StatusOK)
	target, err := url.Parse(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	port := target.Port()
	for what, origin := range map[string]string{
		"none": "", "null": "null", "another port": "http://127.0.0.1:1", "another address": "http://127.0.0.2:" + port, "another name": "http://localhost.evil.example:" + port,
		"another scheme": "https://127.0.0.1:" + port, "a longer one": h.URL + ".evil.example", "with a path": h.URL + "/",
		"with a user": "http://evil@127.0.0.1:" + port, "two": h.URL + " http://evil.example", "in capitals": strings.ToUpper(h.URL),
	} {
		t.Run(what, func(t *testing.T) {
			for _, path := range []string{"/v1/sessions", "/v1/sessions/" + s.ID + "/terminate", "/v1/sessions/" + s.ID + "/messages"} {
				if status := post(t, h.URL+path, `{"runtime":"shell","content":"id"}`, origin, cookie); status != http.StatusForbidden {
					t.Errorf("POST %s is answered by %d", path, status)
				}
			}
			signIn(t, h, origin, "bob", http.StatusForbidden)
			header := http.Header{"Cookie": {cookie.String()}}
			if origin != "" {
				header.Set("Origin", origin)
			}
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			defer cancel()
			conn, resp, err := websocket.Dial(ctx, strings.Replace(h.URL, "http", "ws", 1)+"/v1/ws", &websocket.DialOptions{HTTPHeader: header})
			if err == nil {
				_ = conn.CloseNow()
				t.Fatal("a socket is open")
			}
			if resp == nil || resp.StatusCode != http.StatusForbidden {
				t.Errorf("a socket is answered by %v, %v", resp, err)
			}
		})
	}
	if status := post(t, h.URL+"/v1/sessions/"+s.ID+"/suspend", ``, h.URL, cookie); status != http.StatusAccepted {
		t.Errorf("the console's own request is answered by %d", status)
	}
}

// signIn exchanges a token for a cookie, from an origin.
func signIn(t *testing.T, h *harness.Holdfast, origin, name string, want int) *http.Cookie {
	t.Helper()
	resp := send(t, h.URL+"/v1/login", fmt.Sprintf(`{"token":%q}`, h.Token(name)), origin, nil)
	if resp.StatusCode != want {
		t.Fatalf("login from %q is answered by %d, want %d", origin, resp.StatusCode, want)
	}
	cookies := resp.Cookies()
	if want != http.StatusOK {
		if len(cookies) > 0 {
			t.Errorf("a refused login from %q sets cookies", origin)
		}
		return nil
	}
	if c := cookies[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie can be read or sent from elsewhere: %s", c.Raw)
	}
	return cookies[0]
}

func post(t *testing.T, to, body, origin string, cookie *http.Cookie) int {
	t.Helper()
	return send(t, to, body, origin, cookie).StatusCode
}

func send(t *testing.T, to, body, origin string, cookie *http.Cookie) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	if cookie != nil {
		req.AddCookie(cookie)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp
}
