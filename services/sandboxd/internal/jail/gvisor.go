package jail

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// Within isolation gvisor the agent lives on a kernel of its own, gVisor's, that
// runs as a process of the sandbox:
//
//	sandboxd ──clone(user, mount, pid)──▶ jail-agent ──exec──▶ runsc ──▶ the agent's argv
//
// All that namespaces keep from the agent they keep from gVisor too, so who breaks
// out of it stands in the sandbox. What changes is who answers the agent's system
// calls: gVisor in place of the host's kernel. The filter and Landlock are left
// out; they would be in gVisor's own way, which brings a stricter filter for itself.

// bundle is where gVisor finds what it is to run, and keeps what it needs meanwhile:
// a small place of the agent's stage that covers what is sandboxd's.
const bundle = sandboxapi.JailPrivate

// ociSpec is what runsc reads of an OCI runtime's config.json.
type ociSpec struct {
	Version string     `json:"ociVersion"`
	Process ociProcess `json:"process"`
	Root    ociRoot    `json:"root"`
	Host    string     `json:"hostname"`
	Mounts  []ociMount `json:"mounts"`
	Linux   ociLinux   `json:"linux"`
}

type ociProcess struct {
	User            ociUser     `json:"user"`
	Args            []string    `json:"args"`
	Env             []string    `json:"env"`
	Cwd             string      `json:"cwd"`
	NoNewPrivileges bool        `json:"noNewPrivileges"`
	Capabilities    struct{}    `json:"capabilities"`
	Rlimits         []ociRlimit `json:"rlimits,omitempty"`
}

type ociUser struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

type ociRlimit struct {
	Type string `json:"type"`
	Hard int64  `json:"hard"`
	Soft int64  `json:"soft"`
}

type ociRoot struct {
	Path     string `json:"path"`
	ReadOnly bool   `json:"readonly"`
}

type ociMount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options,omitempty"`
}

type ociLinux struct {
	Namespaces []ociNamespace `json:"namespaces"`
}

type ociNamespace struct {
	Type string `json:"type"`
}

// gvisorCommand prepares the agent for gVisor and returns the command that runs it,
// in the foreground, with the agent's exit code as its own.
func gvisorCommand(spec AgentSpec) (path string, argv []string, err error) {
	if err := hideSandboxd("mode=0700,size=4m", 0); err != nil {
		return "", nil, err
	}
	raw, err := json.Marshal(describe(spec))
	if err != nil {
		return "", nil, fmt.Errorf("gvisor: %w", err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), raw, 0o600); err != nil {
		return "", nil, fmt.Errorf("gvisor: %w", err)
	}
	state := filepath.Join(bundle, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		return "", nil, fmt.Errorf("gvisor: %w", err)
	}
	return sandboxapi.JailRunsc, []string{
		"runsc", "--root=" + state, "--ignore-cgroups", "--rootless", "--overlay2=none",
		"--network=host", // the sandbox's own, which is nothing but its loopback
		"run", "--bundle=" + bundle, "agent",
	}, nil
}

// describe says what gVisor is to run: the sandbox's file system, read-only but for
// what the agent may write, and a process without capabilities. It is user 0 of
// gVisor's, because that is who owns the workspace there; outside of gVisor that is
// nobody special.
func describe(spec AgentSpec) ociSpec {
	own := []string{"/tmp", "/dev/shm", spec.Workspace}
	mounts := make([]ociMount, 0, 1+len(own))
	mounts = append(mounts, ociMount{Destination: "/proc", Type: "proc", Source: "proc"})
	for _, dir := range own {
		mounts = append(mounts, ociMount{Destination: dir, Type: "bind", Source: dir, Options: []string{"rbind", "rw"}})
	}
	process := ociProcess{Args: spec.Argv, Env: os.Environ(), Cwd: spec.Workspace, NoNewPrivileges: true}
	for name, value := range map[string]int64{
		"RLIMIT_DATA": spec.MaxMemoryBytes, "RLIMIT_NPROC": spec.MaxProcs, "RLIMIT_FSIZE": spec.MaxFileBytes,
	} {
		if value > 0 {
			process.Rlimits = append(process.Rlimits, ociRlimit{Type: name, Hard: value, Soft: value})
		}
	}
	return ociSpec{
		Version: "1.0.0", Process: process, Root: ociRoot{Path: "/", ReadOnly: true}, Host: "sandbox", Mounts: mounts,
		Linux: ociLinux{Namespaces: []ociNamespace{{"pid"}, {"mount"}, {"ipc"}, {"uts"}}},
	}
}
