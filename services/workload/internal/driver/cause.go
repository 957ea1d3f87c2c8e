package driver

import "fmt"

// Causes of a loss that machines tell apart, in an Event and in a Found. Other
// causes are words for people.
const (
	// CauseDiskLimit ended a sandbox whose workspace outgrew Limits.DiskBytes.
	CauseDiskLimit = "disk-limit"
	// CauseDiskReserve ended the sandbox that wrote the most while the disk of the
	// driver's data was down to its reserve.
	CauseDiskReserve = "disk-reserve"

	// CauseClaimDeleted, CauseSandboxDeleted and CausePodDeleted name what somebody
	// else removed from the cluster.
	CauseClaimDeleted   = "claim-deleted"
	CauseSandboxDeleted = "sandbox-deleted"
	CausePodDeleted     = "pod-deleted"
	// CauseEvicted says that the Pod had to leave its node.
	CauseEvicted = "pod-evicted"
	// CauseCordoned says that a node takes no more Pods: those on it are to leave.
	CauseCordoned = "node-cordoned"
	// CausePodFailed and CausePodEnded say that all of the Pod's containers are over,
	// with an error or without.
	CausePodFailed = "pod-failed"
	CausePodEnded  = "pod-ended"
	// CauseManyPods says that a sandbox has more than one Pod, so that none is the one.
	CauseManyPods = "several-pods"
	// CauseOOM says that a container had used more memory than it may.
	CauseOOM = "out-of-memory"
	// CauseRestarted says that a container was started again: what it knew is gone.
	CauseRestarted = "container-restarted"
)

// Causes for which a sandbox didn't start, in a StartError.
const (
	CauseQuota         = "quota-exceeded"
	CauseTemplate      = "template-missing"
	CausePool          = "pool-missing"
	CauseUnschedulable = "unschedulable"
	CauseImage         = "image-unavailable"
	CauseInjection     = "injection-refused"
	CauseAdmission     = "admission-refused"
	CauseMisconfigured = "pod-misconfigured"
	CauseSlow          = "still-starting"
	// CauseNode says that the sandbox's node isn't ready, or isn't heard of: it is no
	// fault of the session's, which has another made elsewhere.
	CauseNode = "node-not-ready"
)

// StartError is an ErrStart whose cause is known.
type StartError struct {
	// Cause is one of the causes above.
	Cause string `json:"cause"`
	// Detail is what the cluster says, for people.
	Detail string `json:"detail,omitempty"`
	// Final says that waiting longer or trying again doesn't help.
	Final bool `json:"final,omitempty"`
}

func (e *StartError) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("%v: %s", ErrStart, e.Cause)
	}
	return fmt.Sprintf("%v: %s: %s", ErrStart, e.Cause, e.Detail)
}

// Is makes the error an ErrStart.
func (e *StartError) Is(target error) bool { return target == ErrStart }
