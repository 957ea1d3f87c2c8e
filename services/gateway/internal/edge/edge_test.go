package edge

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apispec"
	"github.com/holdfast-io/holdfast/services/internal/correlate"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

func problems(into *bytes.Buffer) Problems {
	return Problems{Logger: slog.New(slog.NewTextHandler(into, nil))}
}

func TestAPanicIsAProblem(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := Identify(Headers(problems(&log).Recover(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("at the disco") }))))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "disco") || !strings.Contains(w.Body.String(), `"internal"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "disco") || w.Header().Get(HeaderRequestID) == "" {
		t.Errorf("log %s, headers %v", log.String(), w.Header())
	}
}

// Half an answer must not look like a whole one.
func TestAPanicAfterTheBeginningAborts(t *testing.T) {
	t.Parallel()
	h := problems(&bytes.Buffer{}).Recover(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		panic("late")
	}))
	defer func() {
		if got := recover(); got != http.ErrAbortHandler { //nolint:errorlint // the very value
			t.Errorf("got %v", got)
		}
	}()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
}

func TestARequestsIDIsOurs(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for sent, want := range map[string]string{parent: parent, "00-xyz\nforged": "", "": ""} {
		var ids correlate.IDs
		h := Identify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ids = correlate.Of(r.Context()) }))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set(HeaderRequestID, "forged")
		r.Header.Set("Traceparent", sent)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if ids.Request == "forged" || ids.Request == "" || w.Header().Get(HeaderRequestID) != ids.Request {
			t.Errorf("%q: %+v, answered %q", sent, ids, w.Header().Get(HeaderRequestID))
		}
		if want != "" && ids.Trace != want || !correlate.ValidTrace(ids.Trace) {
			t.Errorf("%q: trace %q", sent, ids.Trace)
		}
	}
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1, 3)
		for i := range 3 {
			if err := l.Allow("a"); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
		var p *problem.Error
		if err := l.Allow("a"); !errors.As(err, &p) || p.Code != api.CodeQuotaExceeded || p.RetryAfter < time.Second {
			t.Errorf("flood: %v", err)
		}
		if err := l.Allow("b"); err != nil {
			t.Errorf("another key: %v", err)
		}
		<-time.After(p.RetryAfter)
		if err := l.Allow("a"); err != nil {
			t.Errorf("after waiting: %v", err)
		}
	})
}

func TestGuardRefusesARouteThatIsNoOperation(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	if _, err := NewMetrics(reg, "public"); err != nil {
		t.Fatal(err)
	}
	if _, err := NewMetrics(reg, "public"); err == nil {
		t.Error("registered twice")
	}
	defer func() {
		if recover() == nil {
			t.Error("a misspelt operation serves requests")
		}
	}()
	problems(&bytes.Buffer{}).GuardAs("noSuchOperation", func(_ *apispec.Operation, r *http.Request) (context.Context, error) {
		return r.Context(), nil
	}, http.NotFoundHandler())
}
