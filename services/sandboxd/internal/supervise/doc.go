// Package supervise is `sandboxd supervise`, the process in every sandbox that
// stands between the agent and everybody else. It joins:
//
//   - the control channel to the parent, whose end is the sandbox's end,
//   - the bind, which makes the sandbox one session's for the rest of its life,
//   - the HTTP API, the only way in, closed to all but the bound session,
//   - the relay, the agent's way out to /v1/agent/*, with the session's token,
//   - the entrypoint's process and the runs that it is given.
//
// The life of a sandbox:
//
//	booted ──bind──▶ redeeming ──granted──▶ bound ──stop or end of channel──▶ gone
//	   ▲                 │                  (token renewed at 70 % of its life)
//	   └──── refused ────┘
package supervise
