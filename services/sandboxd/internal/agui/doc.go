// Package agui is the small part of AG-UI 1.0 that sandboxd needs on the wire:
// reading server-sent events ([Reader]), holding a stream to the protocol's
// order ([Order]), and the few events that Holdfast's own side writes.
//
// The order of one run:
//
//	            ┌──────────────────── RUN_ERROR ────────────────────┐
//	            │                                                   ▼
//	(nothing) ──┴─ RUN_STARTED ─▶ running ── RUN_FINISHED ───────▶ over
//	                               │    ▲      (nothing open)
//	                               └────┘ anything else
//
// While running, each message, tool call, reasoning and step is opened once,
// filled only while open, and closed before RUN_FINISHED. Chunk events and
// event types that this package doesn't know are passed on unchecked, as
// AG-UI's own client does.
package agui
