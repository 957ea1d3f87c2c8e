package jail

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// TestMain makes the test binary stand in for sandboxd: it runs the real stages
// and, in sandboxd's place, starts "inspect" as the agent.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case "jail-init":
		os.Exit(Init(os.Args[2:]))
	case "jail-agent":
		os.Exit(Agent(os.Args[2:]))
	case "supervise":
		os.Exit(superviseForTest())
	case "inspect":
		inspect(os.Args[2])
	default:
		os.Exit(m.Run())
	}
}

// superviseForTest starts the agent that the file agent.json of the workspace describes.
func superviseForTest() int {
	raw, err := os.ReadFile("/workspace/agent.json")
	if err != nil {
		return fail(3, err)
	}
	var spec AgentSpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return fail(3, err)
	}
	spec.Env = []string{"PATH=" + defaultPath}
	cmd := AgentCommand(spec)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return fail(3, err)
	}
	return cmd.ProcessState.ExitCode()
}

// findings is what an agent sees from inside.
type findings struct {
	UID          int
	Caps         string
	NoNewPrivs   string
	Seccomp      string
	Files        map[string]string // path → "" or the error of opening it
	Writes       map[string]string
	Syscalls     map[string]string
	Procs        []string
	Interfaces   []string
	Loopback     string
	Route        string
	Hostname     string
	Rename       string
	NamespaceCmd string
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// inspect tries what an agent must not be able to do and prints what came of it.
func inspect(secret string) {
	f := findings{UID: os.Getuid(), Files: map[string]string{}, Writes: map[string]string{}, Syscalls: map[string]string{}}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		switch k {
		case "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
			f.Caps += v
		case "NoNewPrivs":
			f.NoNewPrivs = v
		case "Seccomp":
			f.Seccomp = v
		}
	}
	for _, p := range []string{
		secret, "/root", "/home", "/var", "/sys", "/host", "/run/docker.sock", "/run/holdfast/spool",
		"/run/holdfast/upstream", "/etc/shadow", "/usr/bin", "/etc/passwd", "/workspace",
	} {
		_, err := os.Open(p)
		f.Files[p] = errText(err)
	}
	for _, p := range []string{"/usr/x", "/etc/x", "/x", "/run/holdfast/x", "/holdfast/x", "/dev/x", "/proc/sys/kernel/hostname", "/tmp/x", "/workspace/x", "/dev/shm/x"} {
		f.Writes[p] = errText(os.WriteFile(p, []byte("x"), 0o600))
	}
	_ = os.Mkdir("/workspace/d", 0o755)
	f.Rename = errText(os.Rename("/workspace/x", "/workspace/d/x"))
	f.Syscalls["mount"] = errText(unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""))
	f.Syscalls["unmount"] = errText(unix.Unmount("/run/holdfast", unix.MNT_DETACH))
	f.Syscalls["unshare"] = errText(unix.Unshare(unix.CLONE_NEWNS))
	f.Syscalls["ptrace"] = errText(unix.PtraceAttach(1))
	f.Syscalls["setns"] = errText(unix.Setns(0, 0))
	f.Syscalls["chroot"] = errText(unix.Chroot("/tmp"))
	f.Syscalls["bpf"] = errnoText(unix.SYS_BPF)
	f.Syscalls["keyctl"] = errnoText(unix.SYS_KEYCTL)
	f.Syscalls["io_uring_setup"] = errnoText(unix.SYS_IO_URING_SETUP)
	f.Syscalls["clone3"] = errnoText(unix.SYS_CLONE3)
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	f.NamespaceCmd = errText(cmd.Run())
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if e.Name()[0] >= '0' && e.Name()[0] <= '9' {
			f.Procs = append(f.Procs, e.Name())
		}
	}
	ifs, _ := net.Interfaces()
	for _, i := range ifs {
		f.Interfaces = append(f.Interfaces, i.Name)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		_, err = net.Dial("tcp", l.Addr().String())
	}
	f.Loopback = errText(err)
	_, err = net.Dial("tcp", "192.0.2.1:80")
	f.Route = errText(err)
	f.Hostname, _ = os.Hostname()
	_ = json.NewEncoder(os.Stdout).Encode(f)
}

func errnoText(nr uintptr) string {
	if _, _, errno := unix.Syscall6(nr, 0, 0, 0, 0, 0, 0); errno != 0 {
		return errno.Error()
	}
	return ""
}

// runJailed runs spec's agent in a full jail and returns its output and exit
// code. As root the sandbox gets a uid of its own and detached mounts, as the
// driver does it; else it is the user's own.
func runJailed(t *testing.T, spec AgentSpec) (stdout, stderr string, code int) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"workspace", "spool", "upstream"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	spec.Isolation, spec.Workspace = sandboxapi.IsolationNamespaces, "/workspace"
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "workspace", "agent.json"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	uid, gid := os.Getuid(), os.Getgid()
	mounts := []sandboxapi.JailMount{
		{Source: filepath.Join(dir, "workspace"), Target: "/workspace"},
		{Source: filepath.Join(dir, "spool"), Target: sandboxapi.JailSpool},
		{Source: filepath.Join(dir, "upstream"), Target: sandboxapi.JailUpstream},
		{Source: self, Target: sandboxapi.JailBinary, ReadOnly: true, File: true},
	}
	cmd := exec.Command(self)
	if uid == 0 {
		uid, gid = 0x70000000+4242, 0x70000000+4242
		attr.Credential = &syscall.Credential{}
		attr.GidMappingsEnableSetgroups = true
		if err := os.Chown(filepath.Join(dir, "workspace"), uid, uid); err != nil {
			t.Fatal(err)
		}
		for i := range mounts {
			fd, err := unix.OpenTree(unix.AT_FDCWD, mounts[i].Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			f := os.NewFile(uintptr(fd), mounts[i].Target)
			defer f.Close()
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
			mounts[i].Source, mounts[i].FD = "", 2+len(cmd.ExtraFiles)
		}
		bin, err := os.Open(self)
		if err != nil {
			t.Fatal(err)
		}
		defer bin.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, bin)
		cmd.Path = fmt.Sprintf("/proc/self/fd/%d", 2+len(cmd.ExtraFiles))
	}
	attr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	arg, err := json.Marshal(sandboxapi.JailSpec{Hostname: "jail", Mounts: mounts, TmpBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	cmd.Args = []string{"sandboxd", "jail-init", string(arg)}
	cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = attr, &out, &errOut
	err = cmd.Run()
	if cmd.ProcessState == nil {
		t.Skipf("SKIPPED, namespaces can't be had here: %v", err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// TestAgentSeesOnlyItsSandbox looks at the jail from inside.
func TestAgentSeesOnlyItsSandbox(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, errOut, code := runJailed(t, AgentSpec{Argv: []string{sandboxapi.JailBinary, "inspect", secret}})
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	var f findings
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		t.Fatalf("%v: %s%s", err, out, errOut)
	}
	if f.UID != agentID {
		t.Errorf("uid = %d, want %d", f.UID, agentID)
	}
	if strings.Trim(f.Caps, "0") != "" || len(f.Caps) != 5*16 {
		t.Errorf("capabilities = %s, want none", f.Caps)
	}
	if f.NoNewPrivs != "1" || f.Seccomp != "2" {
		t.Errorf("no_new_privs = %s, seccomp = %s, want 1 and 2", f.NoNewPrivs, f.Seccomp)
	}
	visible := []string{"/usr/bin", "/etc/passwd", "/workspace"}
	for path, e := range f.Files {
		if (e == "") != slices.Contains(visible, path) {
			t.Errorf("open %s: %q", path, e)
		}
	}
	writable := []string{"/tmp/x", "/workspace/x", "/dev/shm/x"}
	for path, e := range f.Writes {
		if (e == "") != slices.Contains(writable, path) {
			t.Errorf("write %s: %q", path, e)
		}
	}
	if f.Rename != "" {
		t.Errorf("rename between directories of the workspace: %s", f.Rename)
	}
	for name, e := range f.Syscalls {
		want := unix.EPERM.Error()
		if name == "clone3" {
			want = unix.ENOSYS.Error()
		}
		if e != want {
			t.Errorf("%s: %q, want %q", name, e, want)
		}
	}
	if !strings.Contains(f.NamespaceCmd, unix.EPERM.Error()) {
		t.Errorf("clone with a new user namespace: %q", f.NamespaceCmd)
	}
	if len(f.Procs) != 2 {
		t.Errorf("processes in sight = %v, want the stage and the agent", f.Procs)
	}
	if !slices.Equal(f.Interfaces, []string{"lo"}) || f.Loopback != "" {
		t.Errorf("interfaces = %v, loopback: %q", f.Interfaces, f.Loopback)
	}
	if !strings.Contains(f.Route, "unreachable") {
		t.Errorf("dial out: %q", f.Route)
	}
	if f.Hostname != "jail" {
		t.Errorf("host name = %q", f.Hostname)
	}
}

// TestAgentExit passes the agent's end on, and tells it from the jail's.
func TestAgentExit(t *testing.T) {
	tests := map[string]struct {
		argv []string
		want int
	}{
		"own code":        {[]string{"/bin/sh", "-c", "exit 7"}, 7},
		"signal":          {[]string{"/bin/sh", "-c", "kill -TERM $$"}, 128 + 15},
		"looked up":       {[]string{"true"}, 0},
		"missing program": {[]string{"/nowhere"}, ExitExec},
		"orphans reaped":  {[]string{"/bin/sh", "-c", "(sleep 100 &) ; exit 3"}, 3},
		"no command":      {nil, ExitSetup},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, errOut, code := runJailed(t, AgentSpec{Argv: tt.argv}); code != tt.want {
				t.Errorf("exit %d, want %d: %s", code, tt.want, errOut)
			}
		})
	}
}

// TestLimits shows that the agent's rlimits hold.
func TestLimits(t *testing.T) {
	t.Run("processes", func(t *testing.T) {
		t.Parallel()
		_, errOut, code := runJailed(t, AgentSpec{
			Argv:     []string{"/bin/sh", "-c", "i=0; while [ $i -lt 60 ]; do sleep 100 & i=$((i+1)); done; exit 0"},
			MaxProcs: 40,
		})
		if code == 0 {
			t.Errorf("60 processes under a limit of 40: exit %d: %s", code, errOut)
		}
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		grab := []string{"/bin/sh", "-c", "head -c 300m /dev/zero | tail -c 290m >/dev/null"}
		if _, errOut, code := runJailed(t, AgentSpec{Argv: grab}); code != 0 {
			t.Fatalf("without a limit: exit %d: %s", code, errOut)
		}
		if _, errOut, code := runJailed(t, AgentSpec{Argv: grab, MaxMemoryBytes: 128 << 20}); code == 0 {
			t.Errorf("300 MB under a limit of 128 MB: exit %d: %s", code, errOut)
		}
	})
}

// TestFilterRefusesForeignArchitectures pins the guard before the library's
// program, which would let 32-bit calls pass.
func TestFilterRefusesForeignArchitectures(t *testing.T) {
	raw, err := assembleFilter()
	if err != nil {
		t.Fatal(err)
	}
	const jumpIfEqual, loadWord = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	if raw[0].Op != loadWord || raw[0].K != 4 || raw[1].Op != jumpIfEqual || raw[1].Jt != 1 || raw[1].Jf != 0 ||
		raw[2].K != uint32(errnoAction(unix.ENOSYS)) {
		t.Errorf("filter starts with %+v", raw[:3])
	}
}
