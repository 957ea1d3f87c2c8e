package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/gateway"
)

// site is what browsers call the gateway behind a proxy: a name in the certificate of
// package httptest, at a port that nobody listens to.
const site = "https://example.com:8443"

// browser is what a browser does: it finds the site by a name of its own, keeps cookies
// by their rules, and says which page it is at.
type browser struct {
	t      *testing.T
	client *http.Client
	page   string
}

// behindTLS puts a reverse proxy that ends TLS before a gateway, and gives a browser that
// is at the site. keepHost says whether the gateway sees the Host that the browser sent.
func behindTLS(t *testing.T, w *world, keepHost bool) *browser {
	t.Helper()
	target, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewUnstartedServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.SetXForwarded()
		if keepHost {
			r.Out.Host = r.In.Host
		}
	}})
	proxy.StartTLS()
	t.Cleanup(proxy.Close)
	client := proxy.Client()
	transport, ok := client.Transport.(*http.Transport)
	if !ok {
		t.Fatalf("%T is no transport", client.Transport)
	}
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, proxy.Listener.Addr().String())
	}
	t.Cleanup(transport.CloseIdleConnections)
	if client.Jar, err = cookiejar.New(nil); err != nil {
		t.Fatal(err)
	}
	return &browser{t: t, client: client, page: site}
}

// send makes a request of the page it is at to the site.
func (b *browser) send(method, path string, body any) answer {
	b.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, site+path, bytes.NewReader(raw))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", b.page)
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	out := answer{t: b.t, status: resp.StatusCode, header: resp.Header}
	if out.body, err = io.ReadAll(resp.Body); err != nil {
		b.t.Fatal(err)
	}
	return out
}

// socket opens the console's WebSocket.
func (b *browser) socket() (*websocket.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	return websocket.Dial(ctx, site+"/v1/ws", &websocket.DialOptions{HTTPClient: b.client, HTTPHeader: http.Header{"Origin": {b.page}}})
}

// The console works behind a proxy that ends TLS, under a name that the gateway only
// knows because it was told, and whatever Host the proxy sends.
func TestBehindTLS(t *testing.T) {
	t.Parallel()
	w := start(t, func(_ *world, cfg *gateway.Config) { cfg.Origins = []string{site} })
	w.shell()
	for name, keepHost := range map[string]bool{"with the browser's Host": true, "with the gateway's Host": false} {
		t.Run(name, func(t *testing.T) {
			b := behindTLS(t, w, keepHost)
			_, cookie := cookieOf(b.send("POST", "/v1/login", api.Login{Token: tokenOf("alice")}).want(200))
			if !cookie.Secure || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Domain != "" {
				t.Errorf("cookie: %+v", cookie)
			}
			made := decode[api.Session](b.send("POST", "/v1/sessions", map[string]any{"runtime": "coder"}).want(201))
			conn, _, err := b.socket()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.CloseNow() })
			subscribe, err := api.EncodeWS(&api.WSSubscribe{Ref: "s", Session: made.ID})
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.Write(t.Context(), websocket.MessageText, subscribe); err != nil {
				t.Fatal(err)
			}
			if _, said, err := conn.Read(t.Context()); err != nil || !strings.Contains(string(said), `"subscribed"`) {
				t.Errorf("the socket says %s, %v", said, err)
			}

			// A page elsewhere gets nothing done, though its browser had the cookie.
			for _, page := range []string{"https://evil.example", "http://example.com:8443", "https://example.com", w.url + "0", "null"} {
				b.page = page
				b.send("POST", "/v1/login", api.Login{Token: tokenOf("bob")}).problem(api.CodeOriginRefused)
				b.send("POST", "/v1/sessions", map[string]any{"runtime": "coder"}).problem(api.CodeOriginRefused)
				if conn, resp, err := b.socket(); err == nil {
					_ = conn.CloseNow()
					t.Errorf("%s has a socket", page)
				} else if resp == nil || resp.StatusCode != http.StatusForbidden {
					t.Errorf("%s: a socket is answered by %v, %v", page, resp, err)
				}
			}
			b.page = site
			if _, gone := cookieOf(b.send("DELETE", "/v1/login", nil).want(204)); !gone.Secure {
				t.Errorf("taken back by %+v", gone)
			}
			b.send("POST", "/v1/sessions", map[string]any{"runtime": "coder"}).problem(api.CodeUnauthenticated)
		})
	}
}

// A gateway that wasn't told says in the refusal what to set.
func TestBehindTLSUntold(t *testing.T) {
	t.Parallel()
	w := start(t)
	p := behindTLS(t, w, true).send("POST", "/v1/login", api.Login{Token: tokenOf("alice")}).problem(api.CodeOriginRefused)
	for _, says := range []string{site, "--origin", "HOLDFAST_ORIGINS", "gateway.origins"} {
		if !strings.Contains(p.Detail, says) {
			t.Errorf("it doesn't speak of %s: %s", says, p.Detail)
		}
	}
}

// By another port of loopback (kubectl port-forward, a container's published port) the
// console works untold; by a name that leads there it doesn't.
func TestForwardedPort(t *testing.T) {
	t.Parallel()
	w := start(t, func(_ *world, cfg *gateway.Config) { cfg.Origins = []string{site} })
	w.shell()
	forwarded := func(host, origin string) answer {
		return request(t, "POST", w.url+"/v1/login", api.Login{Token: tokenOf("alice")}, "Origin: "+origin, "Host: "+host)
	}
	for _, host := range []string{"127.0.0.1:18070", "localhost:18070", "[::1]:18070"} {
		cookie, set := cookieOf(forwarded(host, "http://"+host).want(200))
		if set.Secure {
			t.Errorf("at %s: a cookie that the browser won't send: %+v", host, set)
		}
		w.call("", "POST", "/v1/sessions", map[string]any{"runtime": "coder"}, cookie, "Host: "+host, "Origin: http://"+host).want(201)
		w.call("", "POST", "/v1/sessions", map[string]any{"runtime": "coder"}, cookie, "Host: "+host, "Origin: http://127.0.0.1:3000").problem(api.CodeOriginRefused)
	}
	forwarded("rebound.evil.example:18070", "http://rebound.evil.example:18070").problem(api.CodeOriginRefused)
}
