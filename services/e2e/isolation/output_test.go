//go:build !race

// Tens of megabytes through every service in one process are minutes under the race
// detector; what is shared between goroutines on this way is under it in other suites.

package isolation_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
)

// TestOutput has agents that say too much: their runs fail with the reason, their
// sessions live on, and what is kept of them is bounded.
func TestOutput(t *testing.T) {
	w := start(t, "namespaces")
	for message, reason := range map[string]string{"huge": "event-too-large", "endless": "output-too-large"} {
		t.Run(message, func(t *testing.T) {
			w := w.in(t)
			s := w.CreateOf("admin", api.CreateSession{Runtime: "hostile"})
			run := w.Send("admin", s.ID, message)
			// By the session first, which costs little: the views take some seconds for so much.
			w.Await(s.ID, "run "+run+" is over", func(s *api.Session) bool { return s.Run != run && w.whyFailed(s.ID) != "" })
			if why := w.whyFailed(s.ID); !strings.Contains(why, reason) {
				t.Errorf("the run failed for %q, want %q", why, reason)
			}
			if kept := w.spooled(); kept > 65<<20 {
				t.Errorf("%d MiB are spooled of one run", kept>>20)
			}
			w.neighbourAnswers()
			if status, _ := w.call(w.Context(), s, http.MethodGet, "/health", nil); status != http.StatusOK {
				t.Errorf("the session answers %d", status)
			}
		})
	}
}

// whyFailed is what the log says of a session's failed run.
func (w *world) whyFailed(id string) string {
	w.t.Helper()
	for _, f := range w.Facts(id) {
		if p, ok := f.Payload.(session.RunFailed); ok {
			return p.Cause + ": " + p.Detail
		}
	}
	return ""
}

// spooled is how many bytes of output are kept of the longest run.
func (w *world) spooled() int64 {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.DataDir, "local", "sandboxes", "*", "spool", "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	var longest int64
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			longest = max(longest, info.Size())
		}
	}
	return longest
}
