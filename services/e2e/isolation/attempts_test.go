package isolation_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// attempt is a row of the suite. Each has to fail in a sandbox.
type attempt struct {
	name  string
	order func(*world) order
	// proof, where it isn't empty, is in the detail of a success that is one.
	proof string
	// root says that without isolation it takes root, which the agent then is.
	root bool
	// own says that gVisor may allow it: it is gVisor's own kernel that it is done to.
	own bool
	// never says why it can't succeed without isolation either; everything else has
	// to, or the attempt tries nothing.
	never string
}

// Why some attempts fail in every grade.
const (
	speaks   = "sandboxd alone speaks for the session, with a token that the agent doesn't hold, in every grade"
	closes   = "sandboxd hands no descriptor on, in every grade"
	unknown  = "no kernel has it yet"
	jwtShape = `eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}`
)

func try(attack string, change ...func(*world, *order)) func(*world) order {
	return func(w *world) order {
		o := order{Attack: attack}
		for _, c := range change {
			c(w, &o)
		}
		return o
	}
}

// path, text and so on fill in a field of an order.
func path(of func(*world) string) func(*world, *order) {
	return func(w *world, o *order) { o.Path = of(w) }
}
func at(p string) func(*world, *order)   { return func(_ *world, o *order) { o.Path = p } }
func text(s string) func(*world, *order) { return func(_ *world, o *order) { o.Text = s } }
func address(network string, of func(*world) string) func(*world, *order) {
	return func(w *world, o *order) { o.Network, o.Address = network, of(w) }
}
func pattern(p string) func(*world, *order) { return func(_ *world, o *order) { o.Address = p } }
func count(n int) func(*world, *order)      { return func(_ *world, o *order) { o.Count = n } }
func pid(of func(*world) int) func(*world, *order) {
	return func(w *world, o *order) { o.PID = of(w) }
}

func below(parts ...string) func(*world) string {
	return func(w *world) string { return filepath.Join(append([]string{w.DataDir}, parts...)...) }
}

func neighbourPID(w *world) int { return w.neighbourPID }
func sandboxdPID(w *world) int  { return w.sandboxdPID }
func hostFile(w *world) string  { return w.hostFile }

// files are attempts on the host's disk.
var files = []attempt{
	{name: "read a file of the host", order: try("read", path(hostFile)), proof: hostSecret},
	{name: "overwrite a file of the host", order: try("overwrite", path(func(w *world) string { return w.victim }), text("taken"))},
	{name: "plant a file beside the agent's code", order: try("create", text("taken"))},
	{name: "read the users' passwords", order: try("read", at("/etc/shadow")), root: true},
	{name: "list root's home", order: try("list", at("/root")), root: true},
	{name: "list the host's /var", order: try("list", at("/var"))},
	{name: "list the data folder", order: try("list", path(below()))},
	{name: "read the people's tokens", order: try("read", path(below("tokens.yaml")))},
	{name: "read the key that signs sandboxes' tokens", order: try("read", path(below("keys", "sandbox.pem"))), proof: "PRIVATE KEY"},
	{name: "list the log", order: try("list", path(below("nats")))},
	{name: "read another sandbox's workspace", order: try("read", path(func(w *world) string {
		return filepath.Join(w.DataDir, "local", "sessions", "default", w.neighbour.ID, "workspace", "mark")
	})), proof: neighbourSecret},
	{name: "list the driver's records", order: try("list", path(below("local", "sandboxes")))},
	{name: "open a file of the host by its number", order: try("handle", path(hostFile)), proof: hostSecret, root: true},
	{name: "make a device", order: try("mknod"), root: true},
	{name: "become another user", order: try("setuid", count(12345)), root: true},
	{name: "become root", order: try("setuid", count(0)), root: true, own: true},
	{name: "open the kernel's core pattern", order: try("open for writing", at("/proc/sys/kernel/core_pattern")), root: true},
	{name: "open the kernel's switch for panics", order: try("open for writing", at("/proc/sys/kernel/panic")), root: true},
	{name: "list the control groups", order: try("list", at("/sys/fs/cgroup"))},
	{name: "read the kernel's messages", order: try("read", at("/dev/kmsg")), root: true},
	{name: "list the terminals", order: try("list", at("/dev/pts")), own: true},
}

// processes are attempts on the host's processes, the neighbour's and sandboxd's.
var processes = []attempt{
	{name: "read the neighbour's environment", order: try("environments", text("HOLDFAST_TEST_NOBODY")), never: "nobody has it: a check of the check"},
	{name: "read any process's environment", order: try("environments", text("MARK")), proof: neighbourSecret},
	{name: "read the neighbour's memory", order: try("memory", pid(neighbourPID), pattern(neighbourSecret)), proof: neighbourSecret},
	{name: "read any process's memory", order: try("memory", pattern(neighbourSecret)), proof: neighbourSecret},
	{name: "read the neighbour's memory by process_vm_readv", order: try("vm-readv", pid(neighbourPID), pattern(neighbourSecret)), proof: neighbourSecret},
	{name: "read a session's token out of sandboxd", order: try("memory", text("supervise"), pattern(jwtShape)), proof: "eyJ"},
	{name: "read a token out of any process", order: try("memory", pattern(jwtShape)), proof: "eyJ"},
	{name: "take hold of the neighbour by ptrace", order: try("ptrace", pid(neighbourPID))},
	{name: "take hold of sandboxd by ptrace", order: try("ptrace", text("supervise"))},
	{name: "take hold of any process by ptrace", order: try("ptrace")},
	{name: "kill the neighbour", order: try("signal", pid(neighbourPID))},
	{name: "kill the neighbour's sandboxd", order: try("signal", pid(sandboxdPID))},
	{name: "kill a sandboxd in sight", order: try("signal", text("supervise"))},
	{name: "kill Holdfast", order: try("signal", pid(func(*world) int { return os.Getpid() }))},
	{name: "list what sandboxd has open", order: try("descriptors", text("supervise"))},
	{name: "list what the neighbour has open", order: try("descriptors", pid(neighbourPID))},
	{name: "take sandboxd's listening socket", order: try("pidfd-getfd", text("supervise"))},
	{name: "take any listening socket", order: try("pidfd-getfd")},
	{name: "inherit a socket", order: try("inherited"), never: closes},
	{name: "join a namespace", order: try("setns", at("/proc/self/ns/net")), root: true},
}

// network are attempts to reach others.
var network = []attempt{
	{name: "reach a server on the host's loopback", order: try("fetch", address("", func(w *world) string { return "http://" + w.hostServer }), text(hostSecret)), proof: hostSecret},
	{name: "reach the API of Holdfast", order: try("fetch", address("", func(w *world) string { return w.URL + "/healthz" }))},
	{name: "reach the neighbour's agent", order: try("fetch", address("", func(w *world) string {
		return "http://127.0.0.1:" + w.neighbourPort + "/mark"
	}), text(neighbourSecret)), proof: neighbourSecret},
	{name: "reach the neighbour's sandboxd", order: try("connect", address("unix", func(w *world) string { return w.neighbourSocket }), text("GET /holdfast/health HTTP/1.0\r\n\r\n")), proof: "podUid"},
	{name: "reach the listener for agents without sandboxd", order: try("connect", address("unix", below("agent", "agent.sock")))},
	{name: "reach the listener for agents where sandboxd has it", order: try("connect", address("unix", func(w *world) string {
		if w.isolation == "none" {
			return filepath.Join(w.DataDir, "agent", "agent.sock")
		}
		return "/run/holdfast/upstream/agent.sock"
	}))},
	{name: "reach Postgres", order: try("connect", address("unix", func(w *world) string { return w.postgresSocket }))},
	{name: "reach NATS", order: try("connect", address("tcp", func(*world) string { return "127.0.0.1:4222" })), never: "dev's NATS listens nowhere; a server on the loopback stands for it above"},
	{name: "reach an abstract socket of the host", order: try("connect", address("unix", func(w *world) string { return w.abstract }))},
	{name: "find a network", order: try("interfaces")},
	{name: "find a way to the Internet", order: try("route", address("", func(*world) string { return "192.0.2.1:53" }))},
	{name: "find a way to a cloud's metadata", order: try("route", address("", func(*world) string { return "169.254.169.254:80" }))},
	{name: "open a socket to the hypervisor", order: try("socket", count(unix.AF_VSOCK), pid(func(*world) int { return unix.SOCK_STREAM }))},
	{name: "open a socket of the kernel's ciphers", order: try("socket", count(unix.AF_ALG), pid(func(*world) int { return unix.SOCK_SEQPACKET }))},
	{name: "open a packet socket", order: try("socket", count(unix.AF_PACKET), pid(func(*world) int { return unix.SOCK_RAW })), root: true},
	{name: "open a raw socket", order: try("socket", count(unix.AF_INET), pid(func(*world) int { return unix.SOCK_RAW }), text("icmp")), root: true},
}

// kernel are attempts on the kernel, by name of the system call.
func kernel() []attempt {
	rows := []attempt{
		{name: "clone into a user namespace", order: try("clone", text("clone")), own: true},
		{name: "clone3 into a user namespace", order: try("clone", text("clone3")), own: true},
		{name: "type into a terminal (TIOCSTI)", order: try("terminal")},
	}
	unprivileged := []string{
		"unshare user namespace", "add_key", "keyctl", "perf_event_open", "userfaultfd", "io_uring_setup", "memfd_secret",
		"kcmp", "quotactl", "settimeofday",
	}
	for _, name := range append([]string{
		"unshare mount namespace", "unshare net namespace", "mount", "umount", "fsopen", "open_tree", "pivot_root", "chroot", "bpf",
		"init_module", "kexec_load", "swapon", "acct", "reboot", "syslog", "fanotify_init", "sethostname",
	}, unprivileged...) {
		row := attempt{name: name, order: try("syscall", text(name)), root: true, own: name == "unshare user namespace" || name == "syslog"}
		for _, u := range unprivileged {
			row.root = row.root && u != name
		}
		rows = append(rows, row)
	}
	return append(rows, attempt{name: "a call newer than the filter", order: try("syscall", text("a call to come")), never: unknown})
}

// forgeries are attempts to speak for another session, through sandboxd.
var forgeries = []attempt{
	{name: "push events into the neighbour's run", order: try("agent-api", at("/v1/agent/events"), address("", func(w *world) string { return w.neighbour.ID }),
		text(`{"runId":"r-aaaaaaaaaaaaaaaaaaaa","k":1,"events":[{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}]}`)), never: speaks},
	{name: "ask for a call in the neighbour's name", order: try("agent-api", at("/v1/agent/calls"), address("", func(w *world) string { return w.neighbour.ID }),
		text(`{"runId":"r-aaaaaaaaaaaaaaaaaaaa","agentCallId":"c","tool":"shell","args":{"command":"ls"}}`)), never: speaks},
	{name: "leave /v1/agent/", order: try("agent-api", at("/v1/sessions")), never: speaks},
	{name: "leave /v1/agent/ by dots", order: try("agent-api", at("/v1/agent/../sessions")), never: speaks},
	{name: "leave /v1/agent/ by escaped dots", order: try("agent-api", at("/v1/agent/%2e%2e/sessions")), never: speaks},
	{name: "leave /v1/agent/ by an escaped slash", order: try("agent-api", at("/v1/agent%2f..%2fsessions")), never: speaks},
	{name: "leave /v1/agent/ by two slashes", order: try("agent-api", at("//v1/agent/../sessions")), never: speaks},
	{name: "reach sandboxd's own API through it", order: try("agent-api", at("/bind"), text(`{"bind":"x"}`)), never: speaks},
	{name: "send a body of 40 MB", order: try("agent-api", at("/v1/agent/events"), count(40<<20)), never: "32 MiB is the bound in every grade"},
	{name: "flood sandboxd", order: try("flood", count(2000)), never: "the bound is sandboxd's, in every grade"},
}

func all() []attempt {
	var rows []attempt
	for _, group := range [][]attempt{files, processes, network, kernel(), forgeries} {
		rows = append(rows, group...)
	}
	return rows
}

// TestHostileAgentFails tries everything in a sandbox.
func TestHostileAgentFails(t *testing.T) { failsAtAll(t, "namespaces") }

// TestHostileAgentFailsInGVisor tries everything on gVisor's kernel. What it may do
// to that is its own matter; the host, its neighbour and Holdfast are kept from it.
func TestHostileAgentFailsInGVisor(t *testing.T) {
	if _, err := exec.LookPath("runsc"); err != nil {
		t.Skip("SKIPPED: runsc is not in the PATH; scripts/tool.sh --path runsc builds it")
	}
	failsAtAll(t, "gvisor")
}

func failsAtAll(t *testing.T, isolation string) {
	t.Helper()
	w := start(t, isolation)
	w.plant()
	for _, a := range all() {
		t.Run(a.name, func(t *testing.T) {
			out := w.do(w.attacker, a.order(w))
			switch {
			case out.Got && isolation == "gvisor" && a.own:
				t.Logf("of gVisor's own: %.200s", out.Detail)
			case out.Got:
				t.Errorf("it succeeded: %.300s", out.Detail)
			default:
				t.Logf("%.200s", out.Detail)
			}
		})
	}
	w.unharmed()
}

// TestHostileAgentSucceedsWithoutIsolation shows that the attempts try something.
func TestHostileAgentSucceedsWithoutIsolation(t *testing.T) {
	w := start(t, "none")
	w.plant()
	for _, a := range all() {
		t.Run(a.name, func(t *testing.T) {
			out := w.do(w.attacker, a.order(w))
			switch {
			case a.never != "":
				if out.Got {
					t.Errorf("it succeeded, though %s: %.300s", a.never, out.Detail)
				}
				t.Logf("fails here too: %s (%.200s)", a.never, out.Detail)
			case out.Absent:
				t.Log("SKIPPED: this kernel hasn't what is tried")
			case a.root && os.Getuid() != 0:
				t.Log("SKIPPED: without isolation it takes root")
			case !out.Got:
				t.Errorf("it failed, so it tries nothing: %.300s", out.Detail)
			case !strings.Contains(out.Detail, a.proof):
				t.Errorf("it claims success without a proof: %.300q", out.Detail)
			}
		})
	}
	// What succeeded is undone.
	if err := os.Remove(filepath.Join(w.folder, "planted")); err != nil {
		t.Error(err)
	}
}

// unharmed holds the host and the neighbour to what they were.
func (w *world) unharmed() {
	w.t.Helper()
	if raw, err := os.ReadFile(w.victim); err != nil || string(raw) != hostSecret {
		w.t.Errorf("the host's file says %q, %v", raw, err)
	}
	w.neighbourAnswers()
	for _, f := range w.Facts(w.neighbour.ID) {
		if strings.HasPrefix(f.Type, "call.") || strings.HasPrefix(f.Type, "run.") {
			w.t.Errorf("the neighbour's log has a %s", f.Type)
		}
	}
}
