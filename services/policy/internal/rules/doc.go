// Package rules compiles a policy's CEL and evaluates it over a call.
//
// Rules are ordered; the first whose expression holds decides, and where none
// does the policy's default. Expressions are compiled, type-checked and
// cost-bound when a policy is applied. An expression that fails while it is
// evaluated (a missing key, the cost limit) must not open anything: the rule
// counts as matching unless it would allow, and says so in its reason.
package rules
