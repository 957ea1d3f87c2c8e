// Package events is the ground that every service stands on: the envelope that
// carries a command's events, the names of subjects, ids, and hashes of
// arguments.
//
// One session has one subject and so one order; one message holds everything
// that one command decided and is therefore atomic. The packages below hold an
// aggregate each (its event types, its State, its fold), the log itself
// (eventlog) and what agents stream (output).
//
//	events ── session/ runtime/ policy/   types, State, Apply, golden fixtures
//	       ── eventlog/                   append with compare-and-set, load, tail
//	       ── output/                     batches of AG-UI events, bounded age
//	       ── invariants/                 the checker that tests hold a log to
package events
