// Package view makes what is shown from what is known: the wire shapes of
// api/openapi.yaml (Session, Approval, Message, Run, Frame, AuditEntry, Runtime,
// Policy), built from the folds of package events. The projector stores them, the
// gateway sends them, live and from history, so both come from one place.
//
//	session.State ── SessionOf, ApprovalOf, CallOf
//	events.Message ─ Frames: one frame for each event
//	OUTPUT batch ─── Agui: the data of one agui frame
//
// # Masking
//
// The log keeps contents in clear: an agent must be able to run what was
// approved. Everything that leaves through this package is masked instead
// ([Masker]): the values that the runtime's redact pointers name, and secrets
// that are recognised by their form, become ‹masked, 40 bytes›. Masking is
// idempotent and changes nothing else: JSON around a masked value stays byte for
// byte, and hashes are never touched, so a prompt's argsHash is the hash of what
// will run.
//
// # Truth
//
// What an agent wrote may carry characters that hide or reorder text. [Visible]
// shows them as ‹U+202E› in every field that is text for people. Arguments stay
// exact JSON; whoever renders them shows their characters.
package view
