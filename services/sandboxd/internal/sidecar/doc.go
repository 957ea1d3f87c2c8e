// Package sidecar is `sandboxd sidecar`, which stands in a Pod beside the agent's
// container, as package supervise does around an agent on a host.
//
//	gateway, runner ── CONNECT, access token ──▶ :7778 ── the sandbox's API ──▶ agent, 127.0.0.1:port
//	workload ── health, ready, bind ───────────▶ :7778
//	agent ── /v1/agent/* ──▶ 127.0.0.1:7777 ── the session's token ──▶ the bind's gateway
//	sandboxd ── the bind, the Pod's token ──▶ the bind's gateway ──▶ grant
//
// It is dead until it is bound: it knows no session, no secret and no address. What it
// trusts is one public key, by which the workload service signs binds and access tokens.
// A bind that this key didn't sign, or that is another Pod's, ends right here; only a
// good one says where the Pod's own token may be sent, and it is sent nowhere else.
//
// The agent shares the Pod's network and so reaches port 7778 too. It may ask there what
// anybody may, which is how the sandbox is without whose it is; it holds no access token
// and can sign no bind. Its share of connections and requests is its own, so that what
// comes from outside has room beside it.
//
// A container that was started again is unbound again, and another incarnation.
package sidecar
