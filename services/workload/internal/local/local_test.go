package local

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
)

// files lists what is below dir, for comparison.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		out = append(out, rel)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// alive lists the processes that an agent of marked started, its own and the
// stages before it, and the sandboxds that run without isolation.
func alive(t *testing.T, dataDir string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		// Processes that end meanwhile, or aren't ours, can't be read.
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		exe, _ := os.Readlink("/proc/" + e.Name() + "/exe")
		if strings.Contains(string(env), "HOLDFAST_TEST_MARK="+dataDir+"\x00") || strings.HasPrefix(exe, dataDir) {
			out = append(out, e.Name()+" "+exe)
		}
	}
	return out
}

// marked is claimOf whose agent's processes alive finds.
func marked(session, dataDir string) driver.Claim {
	c := claimOf(session, 5)
	c.Runtime.Env = []string{"HOLDFAST_TEST_MARK=" + dataDir}
	return c
}

func TestReleaseLeavesNothing(t *testing.T) {
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			dir := t.TempDir()
			d := open(t, testConfig(dir, isolation))
			before := files(t, dir)
			c := marked("s-1", dir)
			drivertest.Start(t, d, c)
			// Somebody who left the agent's process group, and its session.
			drivertest.Shell(t, d, c.Ref, "setsid sleep 1000 >/dev/null 2>&1 & sleep 1000 >/dev/null 2>&1 &")
			if len(alive(t, dir)) < 4 {
				t.Fatalf("alive = %v, want sandboxd, the agent and two sleepers", alive(t, dir))
			}
			r, _ := d.peek(d.sandboxes[c.Ref])
			if err := d.Release(t.Context(), c.Ref, 6, false); err != nil {
				t.Fatal(err)
			}
			if left := alive(t, dir); len(left) > 0 {
				t.Errorf("still alive: %v", left)
			}
			for _, g := range r.Cgroups {
				if dirExists(g) {
					t.Errorf("control group left: %s", g)
				}
			}
			// The newest intent alone stays, so that no older one takes effect.
			want := append(slices.Clone(before), "local/sessions/default", "local/sessions/default/s-1", "local/sessions/default/s-1/intent")
			slices.Sort(want)
			got := files(t, dir)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("files left:\n%v\nwant\n%v", got, want)
			}
		})
	}
}

// TestCrash kills a driver with a bound and a warm sandbox, and opens the next.
func TestCrash(t *testing.T) {
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			dir := t.TempDir()
			// Makes sure that isolation can be had, or skips.
			if err := open(t, testConfig(dir, isolation)).Close(); err != nil {
				t.Fatal(err)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			child := exec.CommandContext(t.Context(), self)
			child.Env = append(os.Environ(), envCrash+"="+dir, envBuilt+"="+built, "HOLDFAST_TEST_ISOLATION="+isolation)
			child.Stderr = os.Stderr
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if line != "started\n" {
				t.Fatalf("child says %q, %v", line, err)
			}
			if len(alive(t, dir)) < 2 {
				t.Fatalf("alive = %v, want two sandboxes", alive(t, dir))
			}
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := child.Wait(); err == nil {
				t.Fatal("the child ended well")
			}
			drivertest.Eventually(t, "everything has died with the driver", func() bool { return len(alive(t, dir)) == 0 })

			d := open(t, testConfig(dir, isolation))
			event := <-d.Events()
			found, err := d.List(t.Context())
			if err != nil || len(found) != 1 || found[0].State != driver.StateLost || found[0].Cause == "" {
				t.Fatalf("list = %+v, %v, want one lost sandbox", found, err)
			}
			if event.Ref != found[0].Ref || event.PodUID != found[0].PodUID || event.Session != "s-1" {
				t.Errorf("event = %+v, want the loss of %+v", event, found[0])
			}
			entries, err := os.ReadDir(d.paths.sandboxes())
			if err != nil || len(entries) != 1 {
				t.Errorf("sandboxes on disk = %v, %v, want only the session's", entries, err)
			}
			if sockets, err := os.ReadDir(d.runDir); err != nil || len(sockets) != 0 {
				t.Errorf("sockets = %v, %v, want none", sockets, err)
			}
			if d.cgroups != nil {
				for _, base := range d.cgroups.base {
					left, err := filepath.Glob(filepath.Join(base, "*-*"))
					if err != nil || len(left) != 0 {
						t.Errorf("control groups left: %v, %v", left, err)
					}
				}
			}
			// The same claim, repeated after the crash, has a sandbox again.
			if sb := drivertest.Start(t, d, claimOf("s-1", 5)); sb.PodUID == event.PodUID {
				t.Error("the lost incarnation was returned as running")
			}
		})
	}
}

// TestLeftovers plants a process that outlived its driver, and another that has
// only its number.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(dir, sandboxapi.IsolationNone)
	d := open(t, cfg)
	drivertest.Start(t, d, claimOf("s-1", 5))
	drivertest.Start(t, d, claimOf("s-2", 5))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	start := func() *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & wait")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	leftover, stranger := start(), start()
	plant := func(session string, pid int, shift uint64) {
		for ref, sb := range d.sandboxes {
			if ref.Session != session {
				continue
			}
			id, err := identify(pid, d.boot)
			if err != nil {
				t.Fatal(err)
			}
			id.Start -= shift
			r := sb.record
			r.State, r.Process = driver.StateRunning, id
			if err := d.paths.save(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	plant("s-1", leftover.Process.Pid, 0)
	plant("s-2", stranger.Process.Pid, 1)
	ended := make(chan error, 1)
	go func() { ended <- leftover.Wait() }()

	d = open(t, cfg)
	if err := <-ended; err == nil {
		t.Error("the leftover ended by itself")
	}
	if err := stranger.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a stranger with a reused pid was killed: %v", err)
	}
	if err := unix.Kill(-stranger.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = stranger.Wait() // killed just now
	found, err := d.List(t.Context())
	if err != nil || len(found) != 2 || found[0].State != driver.StateLost || found[1].State != driver.StateLost {
		t.Errorf("list = %+v, %v, want two lost", found, err)
	}
}

func TestLoss(t *testing.T) {
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			dir := t.TempDir()
			d := open(t, testConfig(dir, isolation))
			c := marked("s-1", dir)
			sb := drivertest.Start(t, d, c)
			drivertest.Shell(t, d, c.Ref, "echo kept > file; setsid sleep 1000 >/dev/null 2>&1 &")
			_, p := d.peek(d.sandboxes[c.Ref])
			if err := unix.Kill(p.id.PID, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			event := <-d.Events()
			if event.Ref != c.Ref || event.PodUID != sb.PodUID || event.SandboxUID != sb.SandboxUID || event.Cause == "" {
				t.Errorf("event = %+v, want the loss of %+v", event, sb)
			}
			if _, err := d.Locate(t.Context(), c.Ref); !errors.Is(err, driver.ErrNotRunning) {
				t.Errorf("locate: %v, want %v", err, driver.ErrNotRunning)
			}
			if isolation == sandboxapi.IsolationNamespaces || d.cgroups != nil {
				if left := alive(t, dir); len(left) > 0 {
					t.Errorf("still alive: %v", left)
				}
			}
			next := c
			next.Generation, next.Intent = 2, 9
			drivertest.Start(t, d, next)
			if out, _ := drivertest.Shell(t, d, next.Ref, "cat file"); out != "kept" {
				t.Errorf("the next generation's volume says %q", out)
			}
		})
	}
}

// TestVolumeGone removes the volume of a suspended session: a resume says so and makes
// no empty one, the next generation has a new one.
func TestVolumeGone(t *testing.T) {
	dir := t.TempDir()
	d := open(t, testConfig(dir, sandboxapi.IsolationNone))
	c := claimOf("s-1", 5)
	drivertest.Start(t, d, c)
	if err := d.Suspend(t.Context(), c.Ref, 6); err != nil {
		t.Fatal(err)
	}
	volume := d.paths.volume(c.Key())
	if err := os.RemoveAll(volume); err != nil {
		t.Fatal(err)
	}
	c.Intent = 7
	if _, err := d.Resume(t.Context(), c); !errors.Is(err, driver.ErrWorkspaceGone) {
		t.Errorf("resume: %v, want %v", err, driver.ErrWorkspaceGone)
	}
	if there, err := exists(volume); err != nil || there {
		t.Errorf("an empty volume was made: %t, %v", there, err)
	}
	c.Generation, c.Intent = 2, 8
	drivertest.Start(t, d, c)
}

// TestReownEndsWithTheTop watches whose owners change in which order: while anything is
// left to do the top must be the old one's, which is what has it done again.
func TestReownEndsWithTheTop(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root gives files away")
	}
	dir := filepath.Join(t.TempDir(), "workspace")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(watch) })
	if _, err := unix.InotifyAddWatch(watch, dir, unix.IN_ATTRIB); err != nil {
		t.Fatal(err)
	}
	const uid = 4242
	if err := reown(dir, uid); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := unix.Read(watch, buf)
	if err != nil {
		t.Fatal(err)
	}
	var changed []string // "" is the top
	for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		changed = append(changed, string(bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00")))
		b = b[end:]
	}
	if !slices.Equal(changed, []string{"sub", ""}) {
		t.Errorf("changed in this order: %q", changed)
	}
	for _, path := range []string{dir, filepath.Join(dir, "sub")} {
		if owner, err := ownerOf(path); err != nil || owner != uid {
			t.Errorf("%s is %d's, %v", path, owner, err)
		}
	}
}

// TestFromInside looks around as an agent; the jail's own test looks closer.
func TestFromInside(t *testing.T) {
	dir := t.TempDir()
	d := open(t, testConfig(dir, sandboxapi.IsolationNamespaces))
	c := claimOf("s-1", 5)
	drivertest.Start(t, d, c)
	refused := map[string]string{
		"the data directory":   "ls " + dir,
		"the host's /root":     "ls /root",
		"the host's /var":      "ls /var",
		"sandboxd's spool":     "ls /run/holdfast/spool",
		"the way to Holdfast":  "ls /run/holdfast/upstream",
		"a mount":              "mount -t tmpfs none /tmp",
		"a namespace":          "unshare -r true",
		"another's process":    "kill -0 $(($$ + 100000))",
		"writing the system":   "touch /usr/x",
		"writing shared paths": "touch " + built + "/x",
		"a raw device":         "cat /dev/mem",
	}
	for what, script := range refused {
		if out, code := drivertest.Shell(t, d, c.Ref, script); code == 0 {
			t.Errorf("%s: %q works: %s", what, script, out)
		}
	}
	for script, want := range map[string]string{
		"pwd":      "/workspace",
		"id -u":    "1000",
		"hostname": "sandbox",
		"grep ^CapBnd /proc/self/status | cut -f2":           "0000000000000000",
		"cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '": "lo",
		"touch ok && echo fine":                              "fine",
	} {
		if out, _ := drivertest.Shell(t, d, c.Ref, script); out != want {
			t.Errorf("%q says %q, want %q", script, out, want)
		}
	}
	if os.Getuid() != 0 {
		return
	}
	other := claimOf("s-2", 5)
	drivertest.Start(t, d, other)
	r1, _ := d.peek(d.sandboxes[c.Ref])
	r2, _ := d.peek(d.sandboxes[other.Ref])
	if r1.UID == r2.UID || r1.UID < d.cfg.UIDBase || r2.UID < d.cfg.UIDBase {
		t.Errorf("uids = %d and %d, want two of their own", r1.UID, r2.UID)
	}
	if owner, err := ownerOf(filepath.Join(d.paths.workspace(r1), "ok")); err != nil || owner != r1.UID {
		t.Errorf("a file of the agent belongs to %d, %v, want %d", owner, err, r1.UID)
	}
}

// TestWayOut asks Holdfast from inside; the token is sandboxd's to add.
func TestWayOut(t *testing.T) {
	for _, isolation := range isolations {
		t.Run(isolation, func(t *testing.T) {
			cfg := testConfig(t.TempDir(), isolation)
			d := open(t, cfg)
			listener, err := net.Listen("unix", cfg.AgentSocket)
			if err != nil {
				t.Fatal(err)
			}
			// Sandboxes have other uids.
			if err := os.Chmod(cfg.AgentSocket, 0o666); err != nil {
				t.Fatal(err)
			}
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, r.URL.Path, " ", r.Header.Get("Authorization"))
			}))
			if err := server.Listener.Close(); err != nil {
				t.Fatal(err)
			}
			server.Listener = listener
			server.Start()
			defer server.Close()
			c := claimOf("s-1", 5)
			sb := drivertest.Start(t, d, c)
			ep, err := d.Locate(t.Context(), c.Ref)
			if err != nil {
				t.Fatal(err)
			}
			client, err := sandboxapi.NewClient(ep.URL, c.Session, c.Generation)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://sandbox/holdfast", nil)
			resp, err := client.InvokeTransport().RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if want := "/v1/agent/session Bearer token-of-" + sb.PodUID; err != nil || string(body) != want {
				t.Errorf("Holdfast says %q, %v, want %q", body, err, want)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	d := open(t, testConfig(t.TempDir(), sandboxapi.IsolationNamespaces))
	t.Logf("limits by %s", d.Limits())
	c := claimOf("s-1", 5)
	c.Runtime.Limits = driver.Limits{MemoryBytes: 192 << 20, CPUMillis: 500, Pids: 40}
	drivertest.Start(t, d, c)
	if out, code := drivertest.Shell(t, d, c.Ref, "head -c 400m /dev/zero | tail -c 390m | wc -c"); out == strconv.Itoa(390<<20) {
		t.Errorf("390 MB held under a limit of 192 MB: exit %d", code)
	}
	drivertest.Eventually(t, "the agent answers", func() bool {
		_, err := d.Ready(t.Context(), c.Ref, sandboxapi.Health{})
		return err == nil
	})
	if out, code := drivertest.Shell(t, d, c.Ref, "for i in $(seq 60); do sleep 100 >/dev/null 2>&1 & done"); code == 0 {
		t.Errorf("60 processes under a limit of 40: %s", out)
	}
}

// TestLongDataDir has sockets whose paths wouldn't fit into an address.
func TestLongDataDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 30))
	d := open(t, testConfig(dir, sandboxapi.IsolationNone))
	drivertest.Start(t, d, claimOf("s-1", 5))
	if ep, err := d.Locate(t.Context(), claimOf("s-1", 5).Ref); err != nil || len(ep.URL) > 108 {
		t.Errorf("endpoint %q, %v", ep.URL, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if dirExists(d.runDir) {
		t.Errorf("%s is left", d.runDir)
	}
}

func TestSecondDriverIsRefused(t *testing.T) {
	cfg := testConfig(t.TempDir(), sandboxapi.IsolationNone)
	d := open(t, cfg)
	if _, err := New(t.Context(), cfg); !errors.Is(err, driver.ErrInUse) {
		t.Errorf("second driver: %v, want %v", err, driver.ErrInUse)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if _, err := d.Claim(t.Context(), claimOf("s-1", 5)); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("claim after close: %v, want %v", err, driver.ErrClosed)
	}
}

func TestConfigIsValidated(t *testing.T) {
	tests := map[string]func(*Config){
		"relative data":     func(c *Config) { c.DataDir = "data" },
		"no sandboxd":       func(c *Config) { c.SandboxdPath = "/nowhere" },
		"no agent socket":   func(c *Config) { c.AgentSocket = "" },
		"no granter":        func(c *Config) { c.Granter = nil },
		"unknown isolation": func(c *Config) { c.Isolation = "hope" },
		"uids of people":    func(c *Config) { c.UIDBase = 500 },
		"shared /etc":       func(c *Config) { c.SharePaths = []string{"/etc"} },
	}
	for name, change := range tests {
		cfg := testConfig(t.TempDir(), sandboxapi.IsolationNone)
		change(&cfg)
		if _, err := New(t.Context(), cfg); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v, want %v", name, err, driver.ErrInvalid)
		}
	}
}

func TestProbe(t *testing.T) {
	report := Probe(t.Context(), filepath.Join(built, "sandboxd"))
	if namespacesPossible() != (report.Isolation == sandboxapi.IsolationNamespaces) {
		t.Errorf("report = %+v", report)
	}
	broken := Probe(t.Context(), "/bin/false")
	if broken.Isolation != sandboxapi.IsolationNone || broken.Missing == "" || broken.WayOut == "" {
		t.Errorf("report of a broken sandboxd = %+v, want what is missing and the way out", broken)
	}
}

// TestAsOrdinaryUser runs the other tests again under an unprivileged uid.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: this already is an ordinary user")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	// The test binary and its data have to be within the user's reach.
	tmp, err := os.MkdirTemp("/tmp", "hf-") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	if err := os.Chown(tmp, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	bin, err := installBinary(self, filepath.Join(tmp, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(bin), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin, "-test.run=^Test([^A]|A[^s])", "-test.v")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "TMPDIR=" + tmp, "HOME=" + tmp, envBuilt + "=" + built}
	cmd.Dir = tmp
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as uid %d: %v\n%s", nobody, err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "--- SKIP") || strings.Contains(line, "SKIPPED") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// BenchmarkClaim measures a claim until the sandbox is bound and its entrypoint
// answers, cold and from the pool.
func BenchmarkClaim(b *testing.B) {
	for _, isolation := range isolations {
		for _, path := range []driver.Path{driver.PathCold, driver.PathWarm} {
			b.Run(fmt.Sprintf("%s/%s", isolation, path), func(b *testing.B) { benchmarkClaim(b, isolation, path) })
		}
	}
}

func benchmarkClaim(b *testing.B, isolation string, path driver.Path) {
	b.Helper()
	d := open(b, testConfig(b.TempDir(), isolation))
	i := 0
	for b.Loop() {
		b.StopTimer()
		i++
		c := claimOf("s-"+strconv.Itoa(i), 5)
		if path == driver.PathWarm {
			if err := d.EnsurePool(b.Context(), c.Runtime, 1); err != nil {
				b.Fatal(err)
			}
			drivertest.Eventually(b, "the pool is full", func() bool { return d.WarmReady(c.Runtime.Name, c.Runtime.Revision) == 1 })
		}
		b.StartTimer()
		sb := drivertest.Start(b, d, c)
		b.StopTimer()
		if sb.Path != path {
			b.Fatalf("claimed %s, want %s", sb.Path, path)
		}
		if err := d.Release(b.Context(), c.Ref, 6, false); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
