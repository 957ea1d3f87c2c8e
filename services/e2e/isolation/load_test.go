package isolation_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
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

// in is the same world for a subtest.
func (w *world) in(t *testing.T) *world {
	t.Helper()
	c := *w
	c.t, c.Holdfast = t, w.Holdfast.In(t)
	return &c
}
