package isolation_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
)

// patience is how long a neighbour may take to answer beside an attack: some ten
// times as long as alone, on a machine that is busy.
const patience = 3 * time.Second

// beside runs an attack and holds the neighbour to its answers all the while.
func (w *world) beside(o order) outcome {
	w.t.Helper()
	done := make(chan outcome, 1)
	go func() { done <- w.attempt(w.attacker, o) }()
	worst, asked := time.Duration(0), 0
	defer func() {
		w.t.Logf("the neighbour answered %d times, the slowest in %s", asked, worst.Round(time.Millisecond))
	}()
	for {
		begin := time.Now()
		w.neighbourAnswers()
		took := time.Since(begin)
		worst = max(worst, took)
		if asked++; took > patience {
			w.t.Errorf("the neighbour took %s", took)
		}
		select {
		case out := <-done:
			return out
		default:
		}
	}
}

// TestBombs has each bomb end at its sandbox's limit, and a neighbour that answers
// meanwhile. Limits aren't a matter of isolation, so each is known to bite by its
// smaller brother, which passes.
func TestBombs(t *testing.T) {
	w := start(t, "namespaces")
	for _, bomb := range []struct {
		name         string
		small, large order
	}{
		{"processes", order{Attack: "fork-bomb", Count: 20}, order{Attack: "fork-bomb", Count: 2000}},
		{"memory", order{Attack: "memory-bomb", Count: 64}, order{Attack: "memory-bomb", Count: 1024}},
		{"/tmp", order{Attack: "fill", Path: "/tmp", Count: 8}, order{Attack: "fill", Path: "/tmp", Count: 1024}},
		{"/dev/shm", order{Attack: "fill", Path: "/dev/shm", Count: 8}, order{Attack: "fill", Path: "/dev/shm", Count: 1024}},
	} {
		t.Run(bomb.name, func(t *testing.T) {
			w := w.in(t)
			if out := w.do(w.attacker, bomb.small); !out.Got {
				t.Fatalf("not even a small one: %s", out.Detail)
			}
			if out := w.beside(bomb.large); out.Got || out.unanswered {
				t.Errorf("it went off, or took its sandbox along: %s", out.Detail)
			} else {
				t.Logf("%.200s", out.Detail)
			}
		})
	}
}

// TestFlood floods sandboxd, which refuses with a typed 429 what is too much.
func TestFlood(t *testing.T) {
	w := start(t, "namespaces")
	out := w.beside(order{Attack: "flood", Count: 5000})
	if out.Got || !strings.Contains(out.Detail, "429:") || !strings.Contains(out.Detail, `"code":"quota-exceeded"`) {
		t.Errorf("a flood: %+v", out)
	}
	if status, _ := w.call(w.Context(), w.attacker, http.MethodGet, "/health", nil); status != http.StatusOK {
		t.Errorf("the attacker's session answers %d", status)
	}
}

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

// in is the same world for a subtest.
func (w *world) in(t *testing.T) *world {
	t.Helper()
	c := *w
	c.t, c.Holdfast = t, w.Holdfast.In(t)
	return &c
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
