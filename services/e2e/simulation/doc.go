// Package simulation holds the four deciders together to the design's promises.
// One session lives on one log in memory; clients, an agent, people, sandboxes that
// die, processes that crash between an effect and its event, and time are drawn at
// random and interleaved with what the services decide by themselves.
//
// A service settles only what its reactor's filter let it hear of: there is no
// sweep that would cover a filter that lets too little through. The properties:
//
//   - Invariants: the whole log passes events/invariants.
//   - Refusals change nothing, but for the record of a refused answer.
//   - No stuck session: with everything carried out and nothing more to hear of, a
//     session is ready and idle, suspended, waiting for a person, or ended.
//   - No orphan: then a sandbox runs exactly where the session has one.
//   - Liveness: from any state, answers, deadlines or an end lead there in a bounded
//     number of steps.
package simulation
