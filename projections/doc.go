// Package projections keeps the read models: what can be listed, searched and
// looked up in Postgres, all of it derived from the log and rebuildable from it.
//
//	EVENTS ── Projector ──▶ checkpoint, envelopes, audit, timeline, sessions, … ─┐
//	OUTPUT ── OutputProjector ──▶ output                                         ├─▶ Reader
//	EVENTS ── Rebuild ──▶ the same tables beside, compared, then swapped in      ┘
//
// # What a projector promises
//
// A batch of messages becomes one transaction that begins with the fenced move of
// the checkpoint, so rows and checkpoint are always of the same message, and a
// projector whose place is stale writes nothing. Any number may run: an advisory
// lock lets one work and the others stand by; the lock is for economy, the fence
// for correctness. The checkpoint carries the log's epoch and its last message's
// hash; a log that doesn't have that message any more (restored older, another
// epoch, emptied) is refused with a *CheckpointError, nothing is written, and the
// Reader lists nothing for sweeps.
//
// One bad event (an unknown or a foreign type, a payload that can't be read, a
// broken chain, a row that Postgres refuses) faults its subject alone: its raw
// bytes are kept, a row in faults says why, its views stay as they were, and a build
// that knows better takes it up again when its projector takes the lead.
//
// Postgres may be away: the projector tries again for as long as it takes, and the
// log keeps what it hasn't read.
//
// # Deterministic rows
//
// A row depends on the log and on nothing else, no clock, no order of batches, so
// that rows at a checkpoint equal a fresh fold to there, and a rebuild can be
// compared with what it replaces. Two columns are exempt: updated_at of the
// checkpoint, and all of OUTPUT's copy, which ages.
package projections
