// Package agui serves sessions to AG-UI 1.0 clients: POST /v1/runtimes/{name}/agui.
//
// A thread is a session. Its id is hashed from tenant, owner, runtime and the
// client's threadId, so a client needs to remember nothing of ours, and reaches no
// thread of somebody else's. The log owns the history: of what a client posts only
// its new messages and the results of its own tools count, by their ids; what it
// says of older messages, of state, context and properties does not.
//
// One request is one stream. What it asks is done first, then the stream tells how
// the thread stands and follows it until it is quiet or waits for somebody:
//
//	read thread ─▶ resume[] ─▶ tool results ─▶ new messages, or a cancel
//	   │            decisions    policy          session        runner
//	   ▼
//	RUN_STARTED, MESSAGES_SNAPSHOT, STATE_SNAPSHOT ─▶ what the runs say ─▶ one end:
//
//	everything is done            RUN_FINISHED success | cancelled, or RUN_ERROR
//	people are asked              RUN_FINISHED interrupt, one for each open question
//	the client has tools to run   RUN_FINISHED success with pendingToolCallIds
//	what it asked is refused      RUN_ERROR with the problem's code
//	the stream can't go on        RUN_ERROR not-ready; the run goes on, post again
//
// The client's threadId and runId stand in the stream's RUN_STARTED and
// RUN_FINISHED; the agents' own are left out. The stream may span several runs of
// ours: a question that is answered elsewhere meanwhile goes on by itself.
//
// # Reload, and streams that were cut
//
// AG-UI has no cursor. A request that brings nothing new gets the history up to the
// open run's beginning as MESSAGES_SNAPSHOT, all that the run has said since, and
// what it says from then on. Output that has aged out is made up for by a second
// MESSAGES_SNAPSHOT before the end. A client that goes away ends only its stream.
//
// # Repeating
//
// A message's command follows from its id and a run's id from the client's runId, an
// interrupt's id from the arguments that were shown, and the policy service takes the
// same answer and the same result again: every request may be repeated.
package agui
