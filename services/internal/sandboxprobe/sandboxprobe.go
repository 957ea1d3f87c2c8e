// Package sandboxprobe is what `holdfast doctor --kube --probe` asks of `sandboxd probe`
// in a sandbox made for it, and what that answers: where one gets to from inside, and
// what holds the process. The question comes in the environment, the answer goes to the
// container's termination message, so that nobody needs a right beyond reading the Pod.
package sandboxprobe

import "time"

const (
	// EnvTargets holds the Targets, as JSON.
	EnvTargets = "HOLDFAST_PROBE_TARGETS"
	// EnvAnswer names the file that the Report is written to, as JSON.
	EnvAnswer = "HOLDFAST_PROBE_ANSWER"
	// AnswerFile is where a container's termination message is read from.
	AnswerFile = "/dev/termination-log"
	// DialWithin bounds each attempt: a closed network drops what it doesn't let through.
	DialWithin = 3 * time.Second
)

// Names that a target's address may have in the place of what only the Pod knows.
const (
	// KubernetesAPI is the API server, as a Pod is told of it.
	KubernetesAPI = "kubernetes"
	// ClusterDNS is the first name server of the Pod.
	ClusterDNS = "dns"
)

// Target is one thing to try.
type Target struct {
	// Name says what it is, such as "the gateway's API".
	Name string `json:"name"`
	// Address is "host:port" by number, or KubernetesAPI or ClusterDNS.
	Address string `json:"address"`
	// Open is whether it should be reached.
	Open bool `json:"open,omitempty"`
}

// Attempt is what came of a target.
type Attempt struct {
	Target
	// Tried is false where the Pod didn't know what to try.
	Tried bool `json:"tried"`
	// Reached says whether a connection was made, or a name server answered.
	Reached bool `json:"reached"`
	// Detail is the error, or where it was reached.
	Detail string `json:"detail"`
}

// Report is all that was seen from inside.
type Report struct {
	Attempts []Attempt `json:"attempts"`
	// UID is the process's user.
	UID int `json:"uid"`
	// Capabilities are the effective ones, as the kernel's mask; NoNewPrivileges and
	// Seccomp (0 none, 2 a filter) are of /proc/self/status too.
	Capabilities    string `json:"capabilities"`
	NoNewPrivileges bool   `json:"noNewPrivileges"`
	Seccomp         int    `json:"seccomp"`
	// Kernel is the first line of /proc/version: a kernel of its own differs from the
	// node's.
	Kernel string `json:"kernel"`
	// KubernetesToken says that a token for the API server lies in the container.
	KubernetesToken bool `json:"kubernetesToken"`
}
