package ops_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/services/internal/ops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestListen(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "holdfast_test_total", Help: "A test's."}))
	var ready atomic.Bool
	ctx, stop := context.WithCancel(t.Context())
	cfg := ops.Config{Metrics: reg, Logger: slog.New(slog.DiscardHandler), Ready: func(context.Context) error {
		if !ready.Load() {
			return errors.New("NATS is not connected")
		}
		return nil
	}}
	s, err := ops.Listen(ctx, "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + s.Addr
	if code, body := get(t, url+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "NATS is not connected") {
		t.Errorf("not ready: %d %s", code, body)
	}
	ready.Store(true)
	for path, want := range map[string]string{"/readyz": "ready", "/healthz": "ok", "/metrics": "holdfast_test_total 0"} {
		if code, body := get(t, url+path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := get(t, url+"/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("profiles beside metrics: %d", code)
	}
	if _, err := ops.Listen(ctx, s.Addr, cfg); err == nil {
		t.Error("the address was taken twice")
	}
	stop()
	s.Wait()
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	s, err := ops.Profiles(ctx, "127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, "http://"+s.Addr+"/debug/pprof/goroutine?debug=1"); code != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("goroutines: %d %.80s", code, body)
	}
	stop()
	s.Wait()
}
