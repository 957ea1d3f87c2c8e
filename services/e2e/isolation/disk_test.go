package isolation_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
)

// onDisk has the program's data on a disk of its own, which a test may fill.
func onDisk(t *testing.T, size string) harness.Option {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root can mount a disk of its own")
	}
	dir, err := os.MkdirTemp("", "hf-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	image, at := filepath.Join(dir, "image"), filepath.Join(dir, "d")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	// The views' server runs as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"truncate", "-s", size, image}, {"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, at},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED, no disk of its own (%s): %v %s", args[0], err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return func(c *dev.Config) { c.DataDir = at }
}

// TestFullDisk has an agent write as fast as it can onto the disk that the log and
// the views are on: it is ended, by name, while there is room left for them, and
// all others go on.
func TestFullDisk(t *testing.T) {
	for cause, size := range map[string]string{"disk-limit": "64Mi", "disk-reserve": "100Gi"} {
		t.Run(cause, func(t *testing.T) {
			w := start(t, "namespaces", onDisk(t, "64G"))
			w.Runtime("filler", func(s *api.RuntimeSpec) {
				s.Sandbox = api.Sandbox{Command: []string{"/agent/hostile"}, HostFolder: w.folder}
				s.Workspace.Size = size
			})
			w.occupyBut(t, 1700)
			filler := w.CreateOf("admin", api.CreateSession{Runtime: "filler"})
			go w.attempt(filler, order{Attack: "fill", Path: ".", Count: 4096})
			w.AwaitFact(filler.ID, "the filler is ended", func(facts []harness.Fact) bool {
				for _, f := range facts {
					if p, ok := f.Payload.(session.Lost); ok {
						if p.Cause != cause || !p.WorkspaceKept {
							t.Errorf("lost: %+v, want %s and the workspace kept", p, cause)
						}
						return true
					}
				}
				return false
			})
			var st unix.Statfs_t
			if err := unix.Statfs(w.DataDir, &st); err != nil {
				t.Fatal(err)
			}
			left := st.Bavail * uint64(st.Bsize) >> 20
			t.Logf("%d MiB are left", left)
			if left == 0 {
				t.Error("the disk is full")
			}
			// The brake before the log lets go once there is room again, and the log and
			// the views take what comes next.
			if err := os.Remove(filepath.Join(w.DataDir, "occupied")); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "the neighbour answers", func() bool {
				status, _ := w.call(w.Context(), w.neighbour, http.MethodGet, "/mark", nil)
				return status == http.StatusOK
			})
			run := w.Send("admin", w.neighbour.ID, "huge")
			w.AwaitRun(w.neighbour.ID, run, api.RunStateFailed)
		})
	}
}

// occupyBut takes all of the disk but so many MiB, without writing them.
func (w *world) occupyBut(t *testing.T, mib uint64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(w.DataDir, &st); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(w.DataDir, "occupied"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail*uint64(st.Bsize)-mib<<20)); err != nil {
		t.Fatal(err)
	}
}
