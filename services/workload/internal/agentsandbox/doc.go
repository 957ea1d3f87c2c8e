// Package agentsandbox is the driver for Kubernetes: each sandbox is a SandboxClaim of
// agent-sandbox v0.5.6, whose own controllers, unmodified, make the Pod.
//
//	runtime revision ─▶ SandboxTemplate + SandboxWarmPool         (server-side apply)
//	Claim            ─▶ SandboxClaim hf-<session>-g<generation> ─▶ Sandbox ─▶ Pod ─▶ address
//	Suspend, Resume  ─▶ the Sandbox's operatingMode               (volume and Sandbox stay)
//	Release          ─▶ the claim is deleted, and all that it owns with it
//
// What exists is watched by shared informers, never polled: a wait looks again when
// something of its claim changed. What was handed out is written on the claim, so that
// every replica of the service sees the same, and a new process what an earlier one did.
//
// # Fences
//
// An effect carries its intent. Both the claim and, for the operating mode, the Sandbox
// keep the newest one, each written under the resource version that it was compared
// with: a slow effect meets a conflict, looks again, and is refused. Of a claim that is
// gone its process still knows the newest intent for a while; an older claim that comes
// later all the same, from another process, is one that the log has released: whoever made
// it sees that as soon as it looks at the log again, and removes it; else a sweep does.
//
// An incarnation is a Pod's UID, and from the first restart of sandboxd's or the agent's
// container on "<uid>.<restarts>". agent-sandbox binds a claim silently to another
// Sandbox when its own disappears, makes a deleted Pod again, and restarts containers: in
// each case the incarnation is another than the one that was handed out, which is what a
// loss is here. Only what was handed out is ever located.
//
// # Volumes
//
// A session's volume is the PersistentVolumeClaim of its first Sandbox. The namespace is
// made its second owner before the session is ready, so that it outlives that Sandbox,
// however that ends. agent-sandbox gives a Sandbox no volume of another, so a later
// generation has a template and a pool of no replicas of its own, which name the volume;
// both are removed with the claim.
package agentsandbox
