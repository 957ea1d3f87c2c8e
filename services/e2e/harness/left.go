package harness

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Sandbox is what the local driver's record says of one.
type Sandbox struct {
	Session    string `json:"session"`
	Generation uint64 `json:"generation"`
	PodUID     string `json:"podUid"`
	State      string `json:"state"`
	Process    struct {
		PID int `json:"pid"`
	} `json:"process"`
}

// Sandboxes reads the records of a session's sandboxes below the data directory:
// what exists, whatever the log says.
func (h *Holdfast) Sandboxes(session string) []Sandbox {
	h.t.Helper()
	paths, err := filepath.Glob(filepath.Join(h.DataDir, "local", "sandboxes", "*", "record.json"))
	if err != nil {
		h.t.Fatal(err)
	}
	var found []Sandbox
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // removed just now
		}
		var s Sandbox
		if err == nil {
			err = json.Unmarshal(raw, &s)
		}
		if err != nil {
			h.t.Fatalf("record of a sandbox: %v", err)
		}
		if s.Session == session {
			found = append(found, s)
		}
	}
	return found
}

// Nothing says whether nothing of a session exists outside: no sandbox, no
// workspace. The driver's note of its last intent stays, so that nothing older
// takes effect.
func (h *Holdfast) Nothing(session string) bool {
	h.t.Helper()
	_, err := os.Stat(filepath.Join(h.DataDir, "local", "sessions", Tenant, session, "workspace"))
	return len(h.Sandboxes(session)) == 0 && os.IsNotExist(err)
}

// KillSandbox kills the process of a session's running sandbox, as the kernel
// would for want of memory.
func (h *Holdfast) KillSandbox(session, podUID string) {
	h.t.Helper()
	for _, s := range h.Sandboxes(session) {
		if s.PodUID == podUID && s.Process.PID > 1 {
			if err := syscall.Kill(s.Process.PID, syscall.SIGKILL); err != nil {
				h.t.Fatalf("kill sandbox of %s: %v", session, err)
			}
			return
		}
	}
	h.t.Fatalf("session %s has no sandbox with pod %s", session, podUID)
}

// ProcessesNaming lists the command lines of living processes, but this one's, that
// name a directory, or whose binary is in it.
func ProcessesNaming(dir string) []string {
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var left []string
	for _, p := range procs {
		if filepath.Base(p) == strconv.Itoa(os.Getpid()) {
			continue
		}
		line, err := os.ReadFile(filepath.Join(p, "cmdline"))
		if err != nil {
			continue // it ended meanwhile
		}
		exe, _ := os.Readlink(filepath.Join(p, "exe")) // none for another user's
		if strings.Contains(string(line), dir) || strings.HasPrefix(exe, dir+"/") {
			left = append(left, strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	return left
}
