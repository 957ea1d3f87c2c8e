package cli_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// The log is lost, and the host still has the sandboxes of its sessions: they are shown,
// and stay until somebody says so.
func TestSweep(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.begin()
	says(t, p.run(0, "sweep"), "Nothing runs that the log has no use for.")
	lost := parse[api.Session](p, "session", "create", "shell", "--wait", "30")
	other := parse[api.Session](p, "session", "create", "shell", "--wait", "30")
	p.dev.Interrupt()
	for _, name := range []string{"nats", "postgres"} {
		if err := os.RemoveAll(filepath.Join(p.dir, name)); err != nil {
			t.Fatal(err)
		}
	}

	p.begin()
	ours := parse[api.Session](p, "session", "create", "shell", "--wait", "30")
	says(t, p.run(0, "sweep"), "KIND", "sandbox", lost.ID+" g1", other.ID+" g1", "other-epoch", "--data-dir "+p.dir+" sweep --confirm")
	shown := parse[api.StrayList](p, "sweep").Items
	if len(shown) != 2 {
		t.Fatalf("shown: %+v", shown)
	}
	says(t, p.run(1, "sweep", "--confirm", "no-such-uid"), "no-such-uid is the UID of nothing")
	says(t, p.run(0, "sweep", "--confirm", shown[0].UID), "removed  sandbox "+shown[0].Name)
	if left := parse[api.StrayList](p, "sweep").Items; len(left) != 1 || left[0] != shown[1] {
		t.Errorf("after one was removed: %+v, before %+v", left, shown)
	}
	done := parse[api.StrayOutcomes](p, "sweep", "--confirm").Items
	if len(done) != 1 || done[0].UID != shown[1].UID || done[0].Outcome != "removed" {
		t.Errorf("removed: %+v", done)
	}
	says(t, p.run(0, "sweep", "--confirm"), "Nothing runs that the log has no use for.")
	if list, err := os.ReadDir(filepath.Join(p.dir, "local", "sessions", harness.Tenant)); err != nil || len(list) == 0 {
		t.Errorf("%v, %v", list, err)
	}
	for _, id := range []string{lost.ID, other.ID} {
		if _, err := os.Stat(filepath.Join(p.dir, "local", "sessions", harness.Tenant, id, "workspace")); !os.IsNotExist(err) {
			t.Errorf("the workspace of %s: %v", id, err)
		}
	}
	if now := parse[api.Session](p, "session", "show", ours.ID); now.Phase != api.SessionPhaseReady {
		t.Errorf("the session of this log is %s", now.Phase)
	}
	p.dev.Interrupt()
}
