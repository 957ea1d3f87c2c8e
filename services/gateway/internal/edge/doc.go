// Package edge is what every request passes before it reaches its operation, on
// both listeners, in this order:
//
//	Recover → Identify → Headers → Observe (log, metrics) → route → Guard → operation
//
// Guard is the one place where an operation's rules are checked, all of them read
// from api/openapi.yaml: who may call it (Admit), how large and of what type its
// body is, and whether the request fits. What doesn't is a problem, with every
// place that is wrong. Logs name the route and the caller, never a token, a body,
// a query or a path as it was sent.
package edge
