// Package sandboxapi is the contract between what starts and uses a sandbox
// (the workload driver, the runner, the gateway) and sandboxd, the process
// inside every sandbox.
//
// There are two channels:
//
//   - The control channel, between sandboxd and the parent that started it.
//     It is an inherited stream (see [ControlFD]) carrying one JSON [Control]
//     message per line in both directions. It is what "its parent's pipe"
//     means in the design: a bind is redeemed over it, so no secret is ever on
//     a command line, in an environment or on disk. When it reaches EOF the
//     sandbox has lost its parent: sandboxd kills the agent and exits.
//   - The HTTP API, served on an inherited unix listener ([ListenFD]). It is
//     the only way into the sandbox from outside. Before the bind only
//     [PathHealth], [PathReady] and [PathBind] answer; afterwards every other
//     request must carry [HeaderSession] and [HeaderGeneration] of the bound
//     session, else 421, so that a reused address reaches nobody else's agent.
//
// Inside the sandbox sandboxd listens on the loopback address it passes to the
// agent as [EnvAgentURL] and relays /v1/agent/* outward with the session's
// token, which the agent never sees.
//
// The package imports only the standard library: sandboxd stays small.
package sandboxapi
