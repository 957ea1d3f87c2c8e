// Package agui is the part of AG-UI 1.0 that sandboxd needs on the wire: reading
// server-sent events ([Reader]) and lines ([LineReader]), holding a stream to the
// protocol ([Order]), and the few events that Holdfast's own side writes.
//
// The order of one run:
//
//	            ┌──────────────────── RUN_ERROR ────────────────────┐
//	            │                                                   ▼
//	(nothing) ──┴─ RUN_STARTED ─▶ running ── RUN_FINISHED ───────▶ over
//	                               │    ▲      (nothing open)
//	                               └────┘ anything else
//
// While running, each message, tool call, reasoning, step and subagent is opened once,
// filled only while open, and closed before RUN_FINISHED. Every event has the fields
// that the schemas of AG-UI 1.0 want of its type. What breaks this is a [*ViolationError],
// which says which rule, at which event, and what was expected.
//
// Chunk events are spelled out into the start, content and end that they stand for.
// AG-UI wants of an interrupted run whatever state its continuation needs, in
// snapshots. Holdfast's log owns the messages, so that they need not be told again;
// of the state it wants a STATE_SNAPSHOT wherever deltas have changed it.
package agui
