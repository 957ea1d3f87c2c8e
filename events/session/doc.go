// Package session is the consistency boundary: the types of event on a session's
// subject, who may append each, and the fold that every decider reads.
//
// The invariants of a session span its workload, its runs and its calls, so they
// share one subject and one compare-and-set; State and its fold live here, each
// service's Decide for its own commands lives with the service.
//
//	               claim-requested      claimed             ready
//	created ─▶ pending ─────────▶ pending ─────▶ claimed ─────────▶ ready ◀───────────┐
//	                                                                 │ suspend-requested
//	                                                                 ▼                │
//	                 resume-requested (waits)                   suspending            │ resumed
//	                                                                 │ suspended      │ or ready
//	                                                                 ▼                │
//	                       lost (onLoss restart) ───────────▶  suspended ──▶ resuming ┘
//	                                                             resume-requested
//	any ── expired | terminated | end-requested ─▶ ending ── released, nothing open ── ended ─▶ ended
//
// A parked run waits for people or for its client: a call whose tool the client runs
// is delegated to it, and its result is part of the conversation that the next run
// gets (see History).
//
// Phase is derived ([State.Phase]) and its legal moves are data ([Moves],
// [PhaseChanges]). Beside it stands how many calls wait for a person.
//
// The fold changes its State in place: it is a deterministic function of State
// and message, but copying maps of calls for each of 20,000 events would make
// loading quadratic. Whoever shares a State between goroutines only reads it.
package session
