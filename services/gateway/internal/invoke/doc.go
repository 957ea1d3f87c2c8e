// Package invoke carries calls into sandboxes: any method and path under
// /v1/sessions/{id}/invoke/, streamed both ways, WebSockets too.
//
//	who ─▶ ready? (else resume and wait) ─▶ note use ─▶ locate ─▶ deliver ─▶ release
//
// A sandbox is touched only under a live use (package-level rule of the design):
// the first call of a session notes one, later ones share it, it is renewed while
// calls are open, at most once for a quarter of the idle timeout, and given back
// when the last one has been over for a moment.
//
// An address is kept for a generation and dropped on any workload event of the
// session, on a connection that fails, and on 421, by which sandboxd says that it
// belongs to another session. What the sandbox answers is not trusted: it runs
// under our origin, so whatever acts on that is taken out, and browsers are told
// to treat it as a sandboxed document. Our credentials and headers don't get in.
package invoke
