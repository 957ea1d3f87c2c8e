package processes_test

import (
	"context"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestReplicas kills one replica of each service in turn, as kill -9 does, while
// sessions are made, asked, answered, called, put away and ended: each walk comes to
// its end, what ran once ran once, and a session that lives through all of it keeps
// its sandbox. Then the host dies, which costs it its sandbox, by name, and nothing
// else.
func TestReplicas(t *testing.T) {
	t.Parallel()
	in := install(t, 2)
	defer in.close()
	survivor := &walk{alice: in.client("alice"), bob: in.client("bob"), key: "survivor"}
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	must(t, survivor.create(ctx))
	must(t, survivor.send(ctx, "echo once >> marks"))
	seen := in.client("bob").view(ctx, survivor.id, harness.OnEvent("session.ended"))

	l := startLoad(t, in, 2)
	l.progress(1)
	for i, service := range []string{"workload", "session", "policy", "runner", "projector", "gateway"} {
		victim := replica(service, i%2)
		in.running[victim].Kill()
		l.progress(2)
		t.Logf("%s is dead, %d walks are done", victim, l.done.Load())
		// The sandbox is the same, whoever is asked about it.
		must(t, survivor.invoke(ctx))
		in.serve(victim)
		if service == "gateway" {
			in.awaitReady(i % 2)
		}
	}
	// No replica of the workload service at all: what runs goes on without it.
	for i := range 2 {
		in.running[replica("workload", i)].Kill()
	}
	for i := range 2 {
		in.serve(replica("workload", i))
	}
	must(t, survivor.marksAre(ctx, 1))
	walks := l.finish()
	if s := survivor.state(ctx, t); s.Generation != 1 {
		t.Errorf("the survivor is in generation %d", s.Generation)
	}

	in.running["host"].Kill()
	in.serve("host")
	_, err := survivor.alice.until(ctx, survivor.id, "its sandbox is lost", func(s *api.Session) bool { return s.Phase != api.SessionPhaseReady })
	must(t, err)
	must(t, survivor.send(ctx, "echo twice >> marks"))
	must(t, survivor.marksAre(ctx, 2)) // the volume is the session's
	if s := survivor.state(ctx, t); s.Generation != 2 {
		t.Errorf("after the host's death it is in generation %d", s.Generation)
	}
	must(t, survivor.terminate(ctx))
	seen.whole(t)
	if n := count(seen.frames, "workload.lost"); n != 1 {
		t.Errorf("%d losses, want the host's", n)
	}
	for _, w := range walks {
		history := w.alice.view(ctx, w.id, harness.OnEvent("session.ended"))
		history.whole(t)
		for _, bad := range []string{"run.failed", "workload.lost", "workload.failed"} {
			if n := count(history.frames, bad); n > 0 {
				t.Errorf("%s: %d %s: %s", w.id, n, bad, harness.Summary(history.frames))
			}
		}
		if n := count(history.frames, "call.started"); n != 2 {
			t.Errorf("%s: %d calls were started, want 2", w.id, n)
		}
	}
	t.Logf("%d walks", len(walks))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *walk) state(ctx context.Context, t *testing.T) *api.Session {
	t.Helper()
	s, err := w.alice.until(ctx, w.id, "it is there", func(*api.Session) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// count says how many events of a type were seen.
func count(frames []api.Frame, eventType string) int {
	n := 0
	for _, f := range frames {
		if harness.EventOf(f).Type == eventType {
			n++
		}
	}
	return n
}
