// Package podtemplate makes of a runtime the Pod that its sandboxes are: what a
// SandboxTemplate of agent-sandbox v0.5.6 says. It is pure; the agent-sandbox driver
// writes to the cluster what comes of it.
//
//	init containers   holdfast-install   copies sandboxd into holdfast-bin, where the agent needs it
//	                  holdfast-sandboxd  a native sidecar on 7778, and on 127.0.0.1:7777 for the agent
//	                  …                  an admin's own
//	containers        agent              the runtime's program; or an admin's own, the agent first
//	volumes           holdfast-workspace the session's volume, or an emptyDir without one
//	                  holdfast-tmp       /tmp of the agent, whose root is read-only
//	                  holdfast-spool     the sidecar's alone
//	                  holdfast-token     the sidecar's alone: a token of the Pod for the bind
//	                  holdfast-bin       sandboxd for the agent's container, read-only
//
// Nothing in it is of any session, so that warm Pods belong to nobody. Every
// container runs as Kubernetes' restricted Pod Security demands; where an admin's
// template asks for more, or for a name or port of ours, it is refused, never changed
// quietly. The network lets callers in to 7778, and out to the gateway's listener for
// agents alone: no names are resolved inside.
package podtemplate
