package app_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// What an agent printed last is its session's to know, and nobody else's.
func TestLastWordsAreTheSessionsAlone(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	w := newWorld(t)
	w.logger = slog.New(slog.NewTextHandler(&logged, nil))
	w.restart()
	w.driver.fail("Ready", 1, &driver.EntrypointError{Reason: "exit code 3 (Error)", Words: "the key is 1234"})
	w.settle()
	if st := w.state().Workload; st.Status != session.WorkloadFailed {
		t.Fatalf("%s", st.Status)
	}
	last, _, err := w.log.Last(t.Context(), w.subject())
	if err != nil || !strings.Contains(string(last.Raw), `exit code 3 (Error): the key is 1234"`) {
		t.Errorf("the session says %s, %v", last.Raw, err)
	}
	if !strings.Contains(logged.String(), "exit code 3") || strings.Contains(logged.String(), "1234") {
		t.Errorf("logged %q", logged.String())
	}
}
