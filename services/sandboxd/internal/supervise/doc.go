// Package supervise stands in every sandbox between the agent and everybody else. A
// [Sandbox] joins:
//
//   - the bind, which makes the sandbox one session's for the rest of its life,
//   - the HTTP API, the only way in, closed to all but the bound session,
//   - the relay, the agent's way out to /v1/agent/*, with the session's token,
//   - the agent's entrypoint and the runs that it is given.
//
// Two mains make one. [Run], `sandboxd supervise`, is the child of a host's driver: it
// starts the agent, its parent's pipe redeems the bind, and the pipe's end is the
// sandbox's. Package sidecar, in a Pod, finds the agent in the container beside it and
// redeems the bind itself.
//
// The life of a sandbox:
//
//	booted ──bind──▶ redeeming ──granted──▶ bound ──stop──▶ gone
//	   ▲                 │            (token renewed at 70 % of its life)
//	   └──── refused ────┘
package supervise
