package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
)

const mib = 1 << 20

// ownDisk mounts an empty ext4 of the given size, so that a test can fill it.
func ownDisk(t testing.TB, size int64, format, mount string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root can mount a disk of its own")
	}
	dir := t.TempDir()
	image, at := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		append(append([]string{"mkfs.ext4", "-q", "-m", "0"}, strings.Fields(format)...), image),
		{"mount", "-o", strings.Trim("loop,"+mount, ","), image, at},
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
	return at
}

// started starts a script in a sandbox that nobody waits for.
func started(t *testing.T, d *Driver, ref driver.Ref, script string) {
	t.Helper()
	own := "setsid "
	if d.plain() && d.cgroups == nil {
		own = "" // nothing there catches a process that leaves its session
	}
	drivertest.Shell(t, d, ref, own+"sh -c '"+script+"' >/dev/null 2>&1 &")
}

// lost waits for the loss of a sandbox.
func lost(t *testing.T, d *Driver) driver.Event {
	t.Helper()
	select {
	case e := <-d.Events():
		return e
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was lost")
		return driver.Event{}
	}
}

// fill writes files of 4 MiB without an end.
const fill = "i=0; while head -c 4m /dev/zero > fill-$i; do i=$((i+1)); done"

// TestDiskLimit has sandboxes outgrow their limit in every way that the watch knows
// of; a neighbour stays.
func TestDiskLimit(t *testing.T) {
	for _, isolation := range isolations {
		for what, script := range map[string]string{
			"many files":          fill,
			"empty files":         "i=0; while : > f-$i; do i=$((i+1)); done",
			"files without names": "exec 3>x 4>y; rm x y; head -c 40m /dev/zero >&3; head -c 40m /dev/zero >&4; sleep 1000",
		} {
			t.Run(isolation+"/"+what, func(t *testing.T) {
				cfg := testConfig(t.TempDir(), isolation)
				cfg.WorkspaceFiles = 10_000
				d := open(t, cfg)
				c, neighbour := claimOf("s-1", 5), claimOf("s-2", 5)
				c.Runtime.Limits.DiskBytes = 64 * mib
				drivertest.Start(t, d, neighbour)
				sb := drivertest.Start(t, d, c)
				started(t, d, c.Ref, script)
				if e := lost(t, d); e.PodUID != sb.PodUID || e.Cause != driver.CauseDiskLimit {
					t.Errorf("lost %+v, want %s of pod %s", e, driver.CauseDiskLimit, sb.PodUID)
				}
				if out, _ := drivertest.Shell(t, d, neighbour.Ref, "echo fine"); out != "fine" {
					t.Errorf("the neighbour says %q", out)
				}
			})
		}
	}
}

// TestDiskLimitCanBeTidied has a session come back to a volume that is beyond its
// limit: it may stay, it may tidy up, it may not grow.
func TestDiskLimitCanBeTidied(t *testing.T) {
	d := open(t, testConfig(t.TempDir(), isolations[0]))
	c := claimOf("s-1", 5)
	c.Runtime.Limits.DiskBytes = 64 * mib
	drivertest.Start(t, d, c)
	started(t, d, c.Ref, fill)
	lost(t, d)
	c.Generation, c.Intent = 2, 6
	drivertest.Start(t, d, c)
	_, p := d.peek(d.sandboxes[c.Ref])
	if p.disk.limit.bytes <= 64*mib {
		t.Errorf("the next incarnation may take %d, want what it found", p.disk.limit.bytes)
	}
	drivertest.Shell(t, d, c.Ref, "rm fill-*")
	if err := d.Suspend(t.Context(), c.Ref, 7); err != nil {
		t.Fatal(err)
	}
	c.Intent = 8
	drivertest.Restart(t, d, c)
	if _, p := d.peek(d.sandboxes[c.Ref]); p.disk.limit.bytes != 64*mib {
		t.Errorf("after tidying up it may take %d, want its limit again", p.disk.limit.bytes)
	}
	if dirExists(d.paths.outgrown(c.Key())) {
		t.Error("the note is left")
	}
	started(t, d, c.Ref, fill)
	if e := lost(t, d); e.Cause != driver.CauseDiskLimit {
		t.Errorf("lost %+v, want %s again", e, driver.CauseDiskLimit)
	}
}

// TestFileSize ends one file at the limit exactly, without the sandbox's end.
func TestFileSize(t *testing.T) {
	d := open(t, testConfig(t.TempDir(), isolations[0]))
	c := claimOf("s-1", 5)
	c.Runtime.Limits.DiskBytes = 32 * mib
	drivertest.Start(t, d, c)
	out, _ := drivertest.Shell(t, d, c.Ref, "head -c 40m /dev/zero > x; stat -c %s x")
	if !strings.HasSuffix(out, strconv.Itoa(32*mib)) {
		t.Errorf("40 MiB under a limit of 32: %q", out)
	}
}

// TestReserve fills a disk by a sandbox whose own limit is beyond the disk: it is
// ended, by name, while there is room left; one that does nothing stays.
func TestReserve(t *testing.T) {
	for what, script := range map[string]string{
		"written":         fill,
		"only allocated":  "i=0; while fallocate -l 4m fill-$i; do i=$((i+1)); sleep 0.01; done; sleep 1000",
		"mapped unlinked": "exec 3>x; rm x; head -c 300m /dev/zero >&3; exec 3>y; rm y; head -c 300m /dev/zero >&3; sleep 1000",
	} {
		t.Run(what, func(t *testing.T) {
			cfg := testConfig(ownDisk(t, 512*mib, "", ""), isolations[0])
			cfg.ReserveBytes = 200 * mib
			cfg.TmpBytes = mib
			d := open(t, cfg)
			c, quiet := claimOf("s-1", 5), claimOf("s-2", 5)
			drivertest.Start(t, d, quiet)
			drivertest.Shell(t, d, quiet.Ref, "head -c 50m /dev/zero > mine")
			sb := drivertest.Start(t, d, c)
			started(t, d, c.Ref, script)
			if e := lost(t, d); e.PodUID != sb.PodUID || e.Cause != driver.CauseDiskReserve {
				t.Errorf("lost %+v, want %s of pod %s", e, driver.CauseDiskReserve, sb.PodUID)
			}
			at, err := d.statDisk()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d MiB left of a reserve of %d", at.free/mib, at.reserve/mib)
			if out, _ := drivertest.Shell(t, d, quiet.Ref, "echo fine"); out != "fine" {
				t.Errorf("the quiet one says %q", out)
			}
			c.Generation, c.Intent = 2, 6
			if _, err := d.Claim(t.Context(), c); at.free < at.reserve && !errors.Is(err, driver.ErrStart) {
				t.Errorf("claim on a full disk: %v, want %v", err, driver.ErrStart)
			}
		})
	}
}

// TestQuota has the kernel refuse what is beyond the limit; the sandbox lives on.
func TestQuota(t *testing.T) {
	disk := ownDisk(t, 512*mib, "-O quota,project -E quotatype=prjquota", "prjquota")
	cfg := testConfig(disk, isolations[0])
	cfg.ReserveBytes = -1
	d := open(t, cfg)
	if d.quotas == nil {
		t.Fatal("a file system with prjquota has no quotas")
	}
	c := claimOf("s-1", 5)
	c.Runtime.Limits.DiskBytes = 32 * mib
	drivertest.Start(t, d, c)
	out, _ := drivertest.Shell(t, d, c.Ref, fill+"; du -sm . | cut -f1")
	if !strings.Contains(out, "quota") {
		t.Errorf("33 MiB under a quota of 32: %q", out)
	}
	if _, err := d.Ready(t.Context(), c.Ref, sandboxapi.Health{}); err != nil {
		t.Errorf("the sandbox is gone: %v", err)
	}
}

func TestMeasureTree(t *testing.T) {
	dir := t.TempDir()
	all := diskUse{1 << 40, 1 << 40}
	write := func(name string, size int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	measure := func(limit diskUse) diskUse {
		t.Helper()
		use, err := measureTree(t.Context(), dir, limit)
		if err != nil {
			t.Fatal(err)
		}
		return use
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	empty := measure(all)
	write("sub/a", 4*mib)
	if err := os.Link(filepath.Join(dir, "sub/a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr", filepath.Join(dir, "usr")); err != nil {
		t.Fatal(err)
	}
	write("sparse", 0)
	if err := os.Truncate(filepath.Join(dir, "sparse"), 1<<30); err != nil {
		t.Fatal(err)
	}
	got := measure(all)
	if took := got.bytes - empty.bytes; took < 4*mib || took > 4*mib+64<<10 || got.files != 5 {
		t.Errorf("a file of 4 MiB with two names, a link and a hole: %d bytes, %d files", took, got.files)
	}
	for i := range 5000 {
		write(fmt.Sprintf("sub/f-%d", i), 0)
	}
	if got := measure(diskUse{1 << 40, 100}); got.files != 101 {
		t.Errorf("a walk with a limit of 100 files went on to %d", got.files)
	}
}

// TestTooDeep nests directories deeper than a path can name.
func TestTooDeep(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range maxDepth + 1 {
		if err != nil {
			t.Fatal(err)
		}
		parent := fd
		if err = unix.Mkdirat(parent, "deep", 0o700); err == nil {
			fd, err = unix.Openat(parent, "deep", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		}
		_ = unix.Close(parent)
	}
	_ = unix.Close(fd)
	if _, err := measureTree(t.Context(), dir, diskUse{1 << 40, 1 << 40}); !errors.Is(err, errTooDeep) {
		t.Errorf("measure: %v, want %v", err, errTooDeep)
	}
	if err := removeTree(filepath.Join(dir, "deep")); err != nil {
		t.Errorf("remove: %v", err)
	}
}

func TestDue(t *testing.T) {
	now := time.Unix(1e9, 0)
	base := diskAccount{limit: diskUse{100, 10}, use: diskUse{60, 5}, full: diskUse{1000, 100}}
	for name, tt := range map[string]struct {
		ago, took time.Duration
		full      diskUse
		want      bool
	}{
		"nothing grew":                   {time.Second, 0, diskUse{1000, 100}, false},
		"grew by less than it has left":  {time.Second, 0, diskUse{1040, 105}, false},
		"grew by more":                   {time.Second, 0, diskUse{1041, 100}, true},
		"more files":                     {time.Second, 0, diskUse{1000, 106}, true},
		"after a while anyway":           {5 * time.Second, 0, diskUse{900, 90}, true},
		"grew, but walks are long":       {time.Second, 300 * time.Millisecond, diskUse{2000, 100}, false},
		"a long walk rests":              {5 * time.Second, time.Second, diskUse{1000, 100}, false},
		"a long walk rests long enough":  {20 * time.Second, time.Second, diskUse{1000, 100}, true},
		"grew, and it rested four times": {4 * time.Second, time.Second, diskUse{2000, 100}, true},
	} {
		a := base
		a.at, a.took = now.Add(-tt.ago), tt.took
		if got := a.due(now, tt.full); got != tt.want {
			t.Errorf("%s: due = %t", name, got)
		}
	}
}

// TestLimitsOfNone has a runtime that names no limits.
func TestLimitsOfNone(t *testing.T) {
	cfg := testConfig(t.TempDir(), isolations[0])
	cfg.Limits.Pids = 40
	d := open(t, cfg)
	if l := d.cfg.Limits; l.MemoryBytes < 64*mib || l.DiskBytes != 4<<30 {
		t.Errorf("limits by default: %+v", l)
	}
	c := claimOf("s-1", 5)
	c.Runtime.Limits = driver.Limits{}
	drivertest.Start(t, d, c)
	if out, code := drivertest.Shell(t, d, c.Ref, "for i in $(seq 60); do sleep 100 >/dev/null 2>&1 & done"); code == 0 {
		t.Errorf("60 processes under a default of 40: %s", out)
	}
}

func TestReserveOfADisk(t *testing.T) {
	for _, tt := range []struct{ configured, size, want int64 }{
		{0, 100 << 30, 1 << 30}, {0, 2 << 30, 2 << 30 / 20}, {5, 1 << 40, 5}, {-1, 1 << 40, 0},
	} {
		if got := (Config{ReserveBytes: tt.configured}).reserve(tt.size); got != tt.want {
			t.Errorf("reserve %d of %d = %d, want %d", tt.configured, tt.size, got, tt.want)
		}
	}
}
