// Package agentcube reads AgentCube's manifests, AgentRuntime and CodeInterpreter of
// runtime.agentcube.volcano.sh/v1alpha1, as runtimes of Holdfast. It is pure.
//
// Each field of a manifest is honoured, or refused by name with its place: none is
// passed over, since a runtime that runs otherwise than its author wrote is worse than
// none. What the cluster itself says of an object (status, uid, …) is left out with a
// note. The table of fields is in docs/kubernetes.md.
//
// A CodeInterpreter, and a Pod template that says no more than an image, a command,
// plain variables and resources, become a runtime that needs no admin. Any other
// template is passed on whole, as sandbox.podTemplate, and judged by the server.
package agentcube
