// Package archtest holds the rules of the house that no compiler checks, as
// tests on the tree itself. It has no code of its own besides them.
//
//	imports    services → projections → events, services → api; events,
//	           migrations and api import nothing of ours; no service imports
//	           another one; only what puts the parts together sees them all
//	docs       every package and every exported name has a doc comment
//	names      no package is called for what it isn't (common, util, …)
//	size       no file that a person has to read is longer than 600 lines
//	words      no file names a place of the machine that it was written on,
//	           and none leaves a task for later
//	sealed     an interface that is closed over its implementations says so to
//	           the check for exhaustive switches
//	purity     deciders and folds read no clock, no random source, no disk,
//	           no network
//
// Each rule is a function from a tree to findings. It is applied to this
// repository and, so that it is known to be able to fail, to small trees with
// the fault planted.
//
// The rules are read from the source alone, without type information: they
// then also hold for code behind build tags, and take a second.
package archtest
