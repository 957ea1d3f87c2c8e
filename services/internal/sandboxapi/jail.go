package sandboxapi

// JailSpec is the one argument (JSON) of `sandboxd jail-init`, which the driver
// starts inside new namespaces. It holds nothing of any session.
type JailSpec struct {
	// Hostname inside the sandbox.
	Hostname string `json:"hostname"`
	// Mounts are bound into the sandbox, on top of the read-only system
	// directories that every sandbox has.
	Mounts []JailMount `json:"mounts,omitempty"`
	// TmpBytes bounds /tmp and /dev/shm, each.
	TmpBytes int64 `json:"tmpBytes"`
	// Probe asks for no sandbox but for a proof: everything is set up down to a
	// confined process that does nothing, and the exit code is 0.
	Probe bool `json:"probe,omitempty"`
	// Isolation is the probe's.
	Isolation string `json:"isolation,omitempty"`
}

// JailMount is one bind mount of a directory or file of the host.
type JailMount struct {
	// Source is a path on the host. It is empty when FD is an inherited
	// descriptor of a detached mount (open_tree), which reaches what the
	// sandbox's own user could not.
	Source string `json:"source,omitempty"`
	FD     int    `json:"fd,omitempty"`
	// Target is the absolute path inside the sandbox.
	Target string `json:"target"`
	// ReadOnly, and whether Target is a directory or a file.
	ReadOnly bool `json:"readOnly,omitempty"`
	File     bool `json:"file,omitempty"`
}

// Places inside a sandbox of isolation "namespaces".
const (
	// JailBinary is sandboxd itself.
	JailBinary = "/holdfast/sandboxd"
	// JailRunsc is gVisor, within isolation "gvisor".
	JailRunsc = "/holdfast/runsc"
	// JailAgent is the folder of the host that a runtime names, read-only.
	JailAgent = "/agent"
	// JailPrivate holds what sandboxd sees and the agent doesn't.
	JailPrivate = "/run/holdfast"
	// JailSpool is sandboxd's spool.
	JailSpool = JailPrivate + "/spool"
	// JailUpstream is the directory of the gateway's agent listener.
	JailUpstream = JailPrivate + "/upstream"
)

// Grades of isolation of the local driver.
const (
	IsolationNamespaces = "namespaces"
	// IsolationGVisor is namespaces, with gVisor's kernel between the agent and the
	// host's.
	IsolationGVisor = "gvisor"
	IsolationNone   = "none"
)
