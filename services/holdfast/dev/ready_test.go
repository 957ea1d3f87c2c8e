package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
)

// starting is a program whose readyz says what the test says, by how often it was asked.
func starting(t *testing.T, says func(asked int) []api.Part) *Program {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r := api.Readiness{Ready: true, Parts: says(int(asked.Add(1)))}
		for _, p := range r.Parts {
			r.Ready = r.Ready && p.Ready
		}
		if err := json.NewEncoder(w).Encode(r); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		server.Close()
	})
	return &Program{URL: server.URL, done: make(chan struct{})}
}

// A start lasts as long as views need that move, and no longer than patience where
// nothing does or where something else doesn't work.
func TestWaitReady(t *testing.T) {
	const patience = time.Second // some 50 questions
	behind := func(n int) []api.Part {
		return []api.Part{{Name: "log", Ready: true}, {Name: "projector", Ready: n <= 0, Detail: fmt.Sprintf("%d messages behind the log", n)}}
	}
	for name, tc := range map[string]struct {
		says func(asked int) []api.Part
		why  string
	}{
		"at once":         {func(int) []api.Part { return nil }, ""},
		"views that move": {func(asked int) []api.Part { return behind(120 - asked) }, ""},
		"views that hang": {func(int) []api.Part { return behind(40) }, "40 messages behind"},
		"another part is ill": {func(asked int) []api.Part {
			return append(behind(4000-asked), api.Part{Name: "runner", Detail: "the service does not answer"})
		}, "runner: the service does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			err := starting(t, tc.says).waitReady(t.Context(), patience)
			if (err == nil) != (tc.why == "") || err != nil && !strings.Contains(err.Error(), tc.why) {
				t.Errorf("%v, want %q", err, tc.why)
			}
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
	p := starting(t, func(int) []api.Part { return behind(1) })
	p.err = errors.New("the disk is full")
	close(p.done)
	if err := p.waitReady(t.Context(), time.Minute); !errors.Is(err, p.err) || !errors.Is(err, errEnded) {
		t.Errorf("a part ended: %v", err)
	}
}
