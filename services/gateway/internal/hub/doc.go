// Package hub streams sessions to viewers: over SSE, over WebSocket, live and
// from history, with neither gap nor repeat, and says it where a range is gone.
//
//	EVENTS ── one tail ──▶ ┌─ topic of a session ─┐──▶ subscription ─▶ queue ─▶ socket
//	                       │ frames, encoded once │──▶ subscription ─▶ queue ─▶ socket
//	OUTPUT ── one tail ──▶ └──────────────────────┘        ▲
//	              └─ ring of recent batches ── history ────┘ (once, at attach)
//	EVENTS ── the same ──▶ inbox of a tenant ──▶ subscription ─▶ …
//
// A topic exists while somebody watches its session; of every other session a
// message costs a look into a map.
//
// # Order
//
// Events come in the order of n, batches of output in that of their sequence, and
// a batch never before the event that it names in after: until then the topic
// holds it. An event that says how far the agent had spoken (k of
// run.message-recorded, lastK of a run's end) never comes before that: it waits, and
// what is behind it, until the output up to there was passed on, or is known to be
// gone, or the output can't be followed for HoldFor. An end without a lastK, of a run
// that lost its sandbox, comes behind all that was said. A cursor stands before what waits.
// History is merged by (running maximum of after, event before output,
// sequence), which puts all of these in the same order. A frame's cursor is a pair
// (n, out): all events up to n and all batches up to out are behind it, so whatever
// the interleaving was, what is ahead of a cursor is two ranges, each of which is read
// exactly once.
//
// # Attach
//
// A subscription registers with the topic first. From then on live frames pile up
// in it, and history up to the topic's place at that moment is read and sent:
// events from the projections, and where those lag or are down from the log;
// output from the ring where that reaches back far enough, else from the
// projections, the rest from the ring or the stream's end. Then the pile goes out
// and the subscription is live. A pile that grows too large is dropped, and the
// subscription registers again where its history ended.
//
// # Repeats
//
// After a runner was replaced a batch may stand in OUTPUT twice, or be cut
// otherwise. The topic keeps run and k of the last batch that it passed on, drops
// what has been seen and trims what partly was. A batch of another run that was
// written before the last one is a replaced runner's and is dropped too: a session
// has one run at a time. A cursor's out is always a batch that was delivered, so
// its own run and k can be read back from it.
//
// # Gaps
//
// A range that can't be delivered is a control frame gap {from, to, reason,
// snapshot}: output that has aged out (expired), a cursor of another log (epoch),
// a batch whose event isn't in the log, or a session whose fold is broken
// (unavailable). Frames and gaps together are each range once.
//
// # Viewers
//
// A connection's queue is bounded in bytes. Nothing in it is ever dropped or
// merged: one that overflows is closed by a code that says "come back"
// (4001 too-slow; SSE: a gap of reason overflow, from and to the same place, and
// the end), and what it didn't get is behind its last cursor.
package hub
