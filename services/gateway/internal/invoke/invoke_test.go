package invoke

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestInside(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]insidePath{
		"/v1/sessions/s-1/invoke/":            {decoded: "/"},
		"/v1/sessions/s-1/invoke/a/b":         {decoded: "/a/b"},
		"/v1/sessions/s-1/invoke/a%2Fb":       {decoded: "/a/b", raw: "/a%2Fb"},
		"/v1/sessions/s-1/invoke//x":          {decoded: "//x"},
		"/v1/sessions/s-1/invoke/...":         {decoded: "/..."},
		"/v1/sessions/s-1/invoke/a%20b/c":     {decoded: "/a b/c"},
		"/v1/sessions/s-1/invoke/http://evil": {decoded: "/http://evil"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if got, err := inside(r); err != nil || got != want {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	for _, path := range []string{"/..", "/a/../b", "/%2e%2e/b", "/a%2F..%2Fb", "/.", "/a/."} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/sessions/s-1/invoke"+path, nil)
		if got, err := inside(r); err == nil {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

func TestHeadersInAnyCase(t *testing.T) {
	t.Parallel()
	h := http.Header{"set-cookie": {"a=b"}, "Set-Cookie": {"c=d"}, "access-control-allow-origin": {"*"}, "X-Kept": {"1"}, "holdfast-seq": {"1"}}
	harden(h)
	for name := range h {
		switch http.CanonicalHeaderKey(name) {
		case "X-Kept", "Content-Security-Policy", "X-Content-Type-Options", "Cache-Control":
		default:
			t.Errorf("%s got out", name)
		}
	}
}

// What comes before an answer is not let out: its headers would not be hardened.
func TestInformationalAnswersAreDropped(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	f := finalOnly{w}
	f.WriteHeader(http.StatusEarlyHints)
	f.WriteHeader(http.StatusTeapot)
	if w.Code != http.StatusTeapot {
		t.Errorf("status %d", w.Code)
	}
}

func FuzzInside(f *testing.F) {
	f.Add("/a/b")
	f.Add("/%2e%2e/x")
	f.Fuzz(func(t *testing.T, path string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/v1/sessions/s-1/invoke/"+path, nil)
		if err != nil {
			return
		}
		p, err := inside(r)
		if err == nil && p.decoded[0] != '/' {
			t.Errorf("%q became %+v", path, p)
		}
	})
}
